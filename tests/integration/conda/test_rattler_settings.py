# SPDX-License-Identifier: BSD-3-Clause
"""Buckets and private servers are read as config.toml of rattler and pixi says, by the commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from channel_tools.channel import add_set, channel_writer
from channel_tools.conda.clients import make_http_client
from tests.support.command_line import run_tool
from tests.support.packages import make_conda, new_channel
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.s3 import ACCESS_KEY, SECRET_KEY, Bucket
from tests.support.scripted_server import Asked, Reply, ScriptedServer, scripted

pytestmark = pytest.mark.integration
_ROOT = Path(__file__).parents[3]
_TOKEN = "token-of-tests"  # noqa: S105 - of a server that lives as long as a test


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".pixi").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("RATTLER_AUTH_FILE", raising=False)
    return tmp_path


def create(home: Path, address: str, *, heeded: bool = True) -> tuple[int, str]:
    """Install toy from a channel, with the user's settings or without them; the exit code and what was said."""
    environ = {"CHANNEL_TOOLS_USER_SETTINGS": "" if heeded else "no", "CHANNEL_TOOLS_CACHE": str(home / "cache")}
    made = run_tool("env", "create", home / "env", "toy", "-c", address, cwd=home, environ=environ)
    assert "Traceback" not in made.stderr
    return made.returncode, made.stderr


def settle(home: Path, text: str, credentials: dict[str, object] | None) -> None:
    stored = home / "stored.json"
    stored.write_text(json.dumps(credentials or {}))
    (home / ".pixi" / "config.toml").write_text(f'authentication-override-file = "{stored}"\n{text}')


@pytest.mark.parametrize("place", ["environment", "file"])
def test_a_bucket_is_reached_by_s3_options(
    bucket: Bucket, home: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    channel = new_channel(home)
    with channel_writer(channel) as writer:
        add_set(writer, [make_conda(home, "toy", run_exports={"weak": ["toy >=1"]})])
    bucket.copy(channel.path)
    keys = {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}
    if place == "file":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    options = f'endpoint-url = "{bucket.server.endpoint}"\nregion = "us-east-1"\nforce-path-style = true\n'
    settle(
        home,
        f"[s3-options.{bucket.name}]\n{options}",
        {bucket.name: {"S3Credentials": keys}} if place == "file" else None,
    )
    code, said = create(home, f"s3://{bucket.name}/chan")
    assert code == 0, said
    assert (home / "env" / "share" / "toy.txt").is_file()
    driver = [sys.executable, "-m", "tests.integration.conda.clients", "exports"]
    found = subprocess.run(
        [*driver, f"s3://{bucket.name}/chan", str(home / "index")],
        cwd=_ROOT, env=os.environ | {"CHANNEL_TOOLS_USER_SETTINGS": ""}, capture_output=True, text=True,
        timeout=TEST_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert "weak=('toy >=1',)" in found.stdout, found.stderr


def test_a_private_server_gets_what_authentication_override_file_has(home: Path) -> None:
    channel = new_channel(home)
    with channel_writer(channel) as writer:
        add_set(writer, [make_conda(home, "toy")])

    def answer(asked: Asked) -> Reply:
        if f"Bearer {_TOKEN}" not in asked.headers.values():
            return 401, {}, b""
        path = channel.path / asked.path.removeprefix("/ours/")
        return (200, {}, path.read_bytes()) if path.is_file() else (404, {}, b"")

    with scripted(ScriptedServer(answer)) as server:
        address = f"{server.origin}/ours"
        settle(home, "", {"127.0.0.1": {"BearerToken": _TOKEN}})
        code, said = create(home, address, heeded=False)
        assert (code, "401" in said, _TOKEN in said) == (5, True, False), said
        code, said = create(home, address)
        assert code == 0, said
        client = make_http_client({"HOME": str(home)})
        assert client.read(f"{address}/linux-64/repodata.json", limit_bytes=1 << 20)
    assert (home / "env" / "share" / "toy.txt").is_file()
