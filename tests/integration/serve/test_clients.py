# SPDX-License-Identifier: BSD-3-Clause
"""Clients of conda channels install from the server with every form of a token that they know."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from channel_tools.channel import Channel, add_set, channel_writer, create_channel
from tests.support import conda_reader
from tests.support.packages import REGISTRY, make_conda
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.programs import program
from tests.support.serving import Server, make_token, running

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, kw_only=True)
class Served:
    server: Server
    token: str

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.port}"


def fill(channel: Channel, work: Path) -> None:
    libtoy = make_conda(work, "libtoy", files={"lib/libtoy.txt": b"lib"})
    toy = make_conda(work, "toy", index={"depends": ["libtoy >=1"]}, files={"share/toy.txt": b"toy"})
    with channel_writer(channel) as writer:
        add_set(writer, [libtoy, toy])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    work = tmp_path_factory.mktemp("served")
    root = work / "channels"
    fill(create_channel(root / "ours", REGISTRY), work / "made")
    token = make_token(root, "ours")
    with running(root, work=work) as server:
        yield Served(server=server, token=token)
    assert token not in server.log_file.read_text()
    assert {row["token"] for row in server.log() if row["status"] == 200} == {token[3:11]}


def drive(*arguments: object, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *map(str, arguments)]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("RATTLER")}
    return subprocess.run(
        command, cwd=_ROOT, capture_output=True, text=True, timeout=TEST_TIMEOUT_S, check=False, env=clean | environ
    )


def auth_file(folder: Path, host: str, content: dict[str, object]) -> dict[str, str]:
    """The environment that makes rattler read these credentials."""
    file = folder / "credentials.json"
    file.write_text(json.dumps({host: content}))
    return {"RATTLER_AUTH_FILE": str(file)}


@pytest.mark.parametrize("form", ["path", "bearer", "basic", "conda-token", "user-info"])
def test_an_environment_is_made_with_each_form_of_a_token(served: Served, tmp_path: Path, form: str) -> None:
    token, address = served.token, f"{served.server.address}/ours"
    environ: dict[str, str] = {}
    if form == "path":
        address = f"http://{served.host}/t/{token}/ours"
    elif form == "user-info":
        address = f"http://anybody:{token}@{served.host}/ours"
    else:
        stored: dict[str, dict[str, object]] = {
            "bearer": {"BearerToken": token},
            "basic": {"BasicHTTP": {"username": "anybody", "password": token}},
            "conda-token": {"CondaToken": token},
        }
        environ = auth_file(tmp_path, "127.0.0.1", stored[form])
    prefix, cache = tmp_path / "env", tmp_path / "cache"
    done = drive("tests.integration.conda.clients", "create", address, cache, prefix, "toy", environ=environ)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["libtoy-1.0-0", "toy-1.0-0"]
    assert (prefix / "share" / "toy.txt").read_bytes() == b"toy"
    assert [path for folder in (prefix, cache) for path in naming(token, folder)] == []
    if form == "path":  # as it was given, since other servers know no other form
        assert served.server.statuses("/t/***/ours/linux-64/toy-1.0-0.conda", count=1)[0] == 200
    record = json.loads((prefix / "conda-meta" / "toy-1.0-0.json").read_text())
    if form != "conda-token":  # rattler itself puts that one into the address that it asks for
        assert record["url"] == f"{served.server.address}/ours/linux-64/toy-1.0-0.conda"


@pytest.mark.parametrize("how", ["sharded", "plain"])
@pytest.mark.parametrize("form", ["path", "bearer"])
def test_pixis_engine_reads_both_kinds_of_index(served: Served, tmp_path: Path, form: str, how: str) -> None:
    address = f"http://{served.host}/t/{served.token}/ours" if form == "path" else f"{served.server.address}/ours"
    environ = auth_file(tmp_path, "127.0.0.1", {"BearerToken": served.token}) if form == "bearer" else {}
    driver = "tests.integration.conda.clients"
    for prefix in ("first", "again"):  # the second time from what the client kept, after asking whether it changed
        done = drive(driver, "install", address, tmp_path / prefix, "toy", how, environ=environ)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == ["libtoy-1.0-0.conda", "toy-1.0-0.conda"]


@pytest.mark.parametrize("token", [None, "ct-00000000-" + "0" * 48, "nonsense"])
def test_without_a_right_token_the_error_says_so_and_shows_none(
    served: Served, tmp_path: Path, token: str | None
) -> None:
    address = f"{served.server.address}/ours" if token is None else f"http://{served.host}/t/{token}/ours"
    done = drive(
        "tests.integration.conda.clients", "create", address, tmp_path / "c", tmp_path / "e", "toy", environ={}
    )
    assert done.returncode != 0
    assert "NetworkError" in done.stderr
    assert "401" in done.stderr
    assert token is None or token not in done.stderr


def test_what_conda_asks_for_has_the_token_of_the_address(served: Served) -> None:
    """The index, its shards and the packages: all lie below the address that was given."""
    address = f"http://{served.host}/t/{served.token}/ours"
    found = conda_reader.downloads(address, "linux-64")
    assert sorted(found) == ["libtoy-1.0-0.conda", "toy-1.0-0.conda"]
    for name, download in found.items():
        assert download.url == f"{address}/linux-64/{name}"
        download.fetch()


@pytest.mark.parametrize("solver", ["rattler", "classic"])
@pytest.mark.parametrize("shards", ["true", "false"])
@pytest.mark.parametrize("form", ["netrc", "path", "user-info"])
def test_conda_installs_with_each_form_of_a_token(
    served: Served, tmp_path: Path, form: str, shards: str, solver: str
) -> None:
    """The rattler solver without shards asks for packages without the address's secret; .netrc serves all."""
    address = {
        "netrc": f"{served.server.address}/ours",
        "path": f"http://{served.host}/t/{served.token}/ours",
        "user-info": f"http://anybody:{served.token}@{served.host}/ours",
    }[form]
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login anybody password {served.token}\n" if form == "netrc" else "")
    netrc.chmod(0o600)
    variables = {"CONDA_PKGS_DIRS": str(tmp_path / "pkgs"), "CONDA_REPODATA_USE_SHARDS": shards, "NETRC": str(netrc)}
    create = ("create", "--yes", "--quiet", "--override-channels", "--solver", solver, "--prefix", tmp_path / "env")
    done = subprocess.run(
        [program("conda"), *create, "--channel", address, "toy"],
        env=os.environ | variables, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S,
    )  # fmt: skip
    if (solver, shards) == ("rattler", "false") and form != "netrc":
        assert done.returncode != 0
        assert f"401 Unauthorized for url <{served.server.address}/ours/linux-64/" in done.stdout + done.stderr
    else:
        assert done.returncode == 0, done.stdout + done.stderr
        assert (tmp_path / "env" / "share" / "toy.txt").read_bytes() == b"toy"


def naming(secret: str, folder: Path) -> list[Path]:
    """The files below a folder that hold the secret."""
    return [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
