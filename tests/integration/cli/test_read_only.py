# SPDX-License-Identifier: BSD-3-Clause
"""A file system that is really mounted read-only: each command that writes says so, and a server answers 507."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from channel_tools.channel import verify_channel
from channel_tools.channel.store import open_channel
from channel_tools.provenance.trust import create_key
from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.server.protocol import API, encode, set_request
from channel_tools.system.errors import FileAccessError
from channel_tools.system.progress import SilentProgress
from tests.support.damage import state_of
from tests.support.packages import make_conda
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.programs import in_namespaces, program
from tests.support.serving import make_token, running
from tests.unit.mirror.bundles import add_toys, exporting_site, import_to, toy_channel
from tests.unit.publish.sets import make_set

pytestmark = pytest.mark.integration
_MOUNT = '{mount} --bind "$0" "$0" && {mount} -o remount,bind,ro "$0" || exit 99; exec "$@"'


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``disk``, on which there is all that commands write to, and beside it what they read."""
    work = tmp_path_factory.mktemp("read-only")
    disk = work / "disk"
    target = FolderTarget(root=disk / "channels" / "ours")
    packages = [make_conda(work, "toy"), make_conda(work, "tool", subdir="noarch")]
    target.publish(target.plan(make_set(packages), label="main"), progress=SilentProgress())
    make_conda(work, "new")
    site = exporting_site(work, toy_channel(work))
    site.bundle(work / "first")
    import_to(work / "first", disk / "far", site.fingerprint)
    add_toys(open_channel(work / "channel"), ["more"])
    site.bundle(work / "second")
    create_key(work / "signing", passphrase=None, days=30, now=datetime.now(UTC))
    return work


def read_only(work: Path) -> tuple[str, ...]:
    """What to put before a command so that ``disk`` is read-only for it, and for it alone."""
    script = _MOUNT.format(mount=program("mount"))
    words = (*in_namespaces("mount"), "sh", "-c", script, str(work / "disk"))
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if tried.returncode == 99:
        pytest.skip(f"nothing can be mounted read-only: {tried.stderr.strip()}")
    return words


def commands(work: Path) -> dict[str, list[str]]:
    disk, ours = work / "disk", str(work / "disk" / "channels" / "ours")
    hotfix = work / "patch_instructions.json"
    fix = {"toy-1.0-0.conda": {"depends": ["zlib"]}}
    hotfix.write_text(json.dumps({"patch_instructions_version": 1, "packages.conda": fix}))
    return {
        "publish": ["publish", str(work / "linux-64" / "new-1.0-0.conda"), "--to", ours],
        "publish to a new channel": [
            *("publish", str(work / "linux-64" / "new-1.0-0.conda"), "--foundation", "registry"),
            *("--to", str(disk / "channels" / "another")),
        ],
        "promote": ["promote", "main", "stable", "--at", ours],
        "yank": ["yank", "toy=1.0", "--at", ours, "--reason", "broken"],
        "hotfix": ["hotfix", str(hotfix), "--subdir", "linux-64", "--at", ours],
        "retain": ["retain", "--at", ours, "--keep", "1"],
        "index": ["channel", "index", "--at", ours],
        "page": ["channel", "page", "--at", ours],
        "sign": ["attest", "sign", ours, "--signing-key", str(work / "signing")],
        "create-key": ["attest", "create-key", str(disk / "key")],
        "import": ["mirror", "import", str(work / "second"), "--to", str(disk / "far")],
        "token": ["token", "create", "me", "--at", str(disk / "channels"), "--channel", "ours", "--label", "main"],
        "env create": ["env", "create", str(disk / "prefix"), "toy", "-c", ours],
        "verify": ["channel", "verify", "--at", ours],
    }


def test_each_command_that_writes_names_the_disk_and_changes_nothing(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = read_only(work)  # first: the program that mounts is looked for in the run's own cache
    monkeypatch.setenv("CHANNEL_TOOLS_CACHE", str(work / "cache"))
    before = state_of(work / "disk")
    driver = [sys.executable, "-m", "tests.integration.cli.read_only", json.dumps(commands(work))]
    ran = subprocess.run([*launcher, *driver], capture_output=True, text=True, timeout=TEST_TIMEOUT_S, check=True)
    found: dict[str, tuple[int, str]] = {name: (code, said) for name, (code, said) in json.loads(ran.stdout).items()}
    assert found.pop("verify")[0] == 0
    wrong = {
        name: (code, said)
        for name, (code, said) in found.items()
        if code != FileAccessError.exit_code
        or str(work / "disk") not in said
        or "read-only" not in said.lower()
        or "Traceback" in said
        or ".tmp-" in said
        or "/proc/self" in said
    }
    assert wrong == {}
    assert state_of(work / "disk") == before
    assert verify_channel(open_channel(work / "disk" / "channels" / "ours")) == []


@pytest.mark.slow
def test_a_server_says_507_and_goes_on_reading(work: Path, tmp_path: Path) -> None:
    root = work / "disk" / "channels"
    token = make_token(root, labels=None, access="write")
    headers = {"Authorization": f"Bearer {token}"}
    packages = make_set([work / "linux-64" / "new-1.0-0.conda"])
    yank = {"schema": 1, "label": "main", "keys": ["linux-64/toy-1.0-0.conda"], "reason": "broken"}
    with running(root, work=tmp_path, launcher=read_only(work), quiet=False) as server:

        def post(path: str, body: bytes) -> int:
            return server.ask(f"{API}/ours/{path}", method="POST", headers=headers, body=body).status

        uses: dict[str, Callable[[], int]] = {
            "set": lambda: post("sets", encode(set_request(packages, label="main"))),
            "yank": lambda: post("yank", json.dumps(yank).encode()),
            "read": lambda: server.ask("/ours/linux-64/repodata.json", headers=headers).status,
        }
        assert {name: use() for name, use in uses.items()} == {"set": 507, "yank": 507, "read": 200}
    assert "Traceback" not in server.errors_said()
