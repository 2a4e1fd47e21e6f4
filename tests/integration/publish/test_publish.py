# SPDX-License-Identifier: BSD-3-Clause
"""Publishing for real: killed, crowded and out of disk; then what clients see of what was taken back or patched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.maintenance import hotfix, yank
from channel_tools.system.errors import ChannelError
from channel_tools.system.progress import SilentProgress
from tests.integration.channel.test_channel import drive, served
from tests.support.command_line import run_tool
from tests.support.packages import make_conda, new_channel, own
from tests.support.processes import RANDOM_KILLS, TEST_TIMEOUT_S
from tests.support.programs import in_namespaces, program
from tests.unit.publish.sets import make_set

pytestmark = pytest.mark.integration

_ROOT = Path(__file__).parents[3]
_KILLS = 2 * RANDOM_KILLS
"""Of publishing and of promoting."""


@pytest.fixture
def fast_folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where the machine has such a place: thousands of small files are made and removed."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def run_driver(*arguments: object, before: tuple[str, ...] = ()) -> dict[str, object]:
    command = [*before, sys.executable, "-m", "tests.integration.publish.kills", *map(str, arguments)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=TEST_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    outcome: dict[str, object] = json.loads(done.stdout)
    return outcome


@pytest.mark.slow
def test_a_publisher_killed_before_any_change_leaves_a_whole_set_to_see(fast_folder: Path) -> None:
    """Before each rename, link, folder and removal of publishing and of promoting, in a channel of two subdirs."""
    outcome = run_driver("steps", fast_folder)
    assert outcome["faults"] == []
    assert isinstance(outcome["steps"], int)
    assert outcome["steps"] > 50


def test_publishers_killed_at_random_moments_are_completed_by_the_next(fast_folder: Path) -> None:
    outcome = run_driver("random", fast_folder, _KILLS, 7)
    assert outcome["faults"] == []
    assert isinstance(outcome["killed"], int)
    assert isinstance(outcome["reads"], int)
    assert outcome["killed"] > _KILLS / 2
    assert outcome["reads"] > _KILLS


def test_two_publishers_wait_for_each_other_while_readers_read(fast_folder: Path) -> None:
    outcome = run_driver("together", fast_folder, 8)
    assert (outcome["faults"], outcome["statuses"], outcome["listed"]) == ([], [0, 0], [16, 16])
    assert isinstance(outcome["reads"], int)
    assert outcome["reads"] > 16


def test_a_full_disk_leaves_the_old_set_and_the_next_run_completes(tmp_path: Path) -> None:
    program("mount")
    sizes = [*range(150_000, 480_000, 30_000)]
    outcome = run_driver("full", tmp_path, *sizes, before=in_namespaces("mount"))
    assert outcome["faults"] == []
    assert isinstance(outcome["full"], int)
    assert outcome["full"] > 4


@pytest.fixture
def target(tmp_path: Path) -> FolderTarget:
    made = FolderTarget(root=tmp_path / "channel")
    packages = [
        make_conda(tmp_path / "made", "libtoy", version="1.0"),
        make_conda(tmp_path / "made", "libtoy", version="2.0"),
        make_conda(tmp_path / "made", "toy", index={"depends": ["libtoy"]}),
    ]
    made.publish(made.plan(make_set(packages), label="main"), progress=SilentProgress())
    return made


@pytest.mark.parametrize("how", ["sharded", pytest.param("plain", marks=pytest.mark.slow)])
def test_rattler_obeys_yank_and_hotfix_over_http_and_from_the_folder(
    target: FolderTarget, tmp_path: Path, how: str
) -> None:
    path = tmp_path / "patch_instructions.json"
    path.write_text(
        json.dumps({"patch_instructions_version": 1, "packages.conda": {"toy-1.0-0.conda": {"depends": ["libtoy <2"]}}})
    )
    hotfix(target, path, subdir=None, label=None, replace=False, dry_run=False)
    with served(tmp_path) as (address, _asked):
        assert drive("install", address, tmp_path / "env", "toy", how) == ["libtoy-1.0-0.conda", "toy-1.0-0.conda"]
        yank(target, "libtoy=1", label=None, reason="wrong", dry_run=False)
        assert drive("visible", address, how, "libtoy") == {"gateway": ["libtoy-2.0-0.conda"]}
    seen = ["libtoy-2.0-0.conda"]
    assert drive("visible", target.address, how, "libtoy") == {"gateway": seen, "sparse": seen}
    assert (target.root / "linux-64" / "libtoy-1.0-0.conda").is_file()
    yank(target, "libtoy=1", label=None, reason=None, dry_run=False)
    seen = ["libtoy-1.0-0.conda", *seen]
    assert drive("visible", target.address, how, "libtoy") == {"gateway": seen, "sparse": seen}


def conda(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "CONDA_PKGS_DIRS": str(folder / "pkgs"), "CONDA_ENVS_DIRS": str(folder / "envs")}
    return subprocess.run(
        [program("conda"), *arguments], env=environ, capture_output=True, text=True, timeout=TEST_TIMEOUT_S, check=False
    )


def test_conda_obeys_yank_and_its_lock_files_still_install(target: FolderTarget, tmp_path: Path) -> None:
    program("conda")
    yank(target, "libtoy=2", label=None, reason="wrong", dry_run=False)
    create = ("create", "--yes", "--quiet", "--override-channels", "--channel", target.address)
    found = conda(*create, "--prefix", str(tmp_path / "new"), "libtoy", folder=tmp_path)
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "new" / "conda-meta" / "libtoy-1.0-0.json").is_file()
    lock = tmp_path / "explicit.txt"
    lock.write_text(f"@EXPLICIT\n{target.address}/linux-64/libtoy-2.0-0.conda\n")
    found = conda("create", "--yes", "--quiet", "--prefix", str(tmp_path / "old"), "--file", str(lock), folder=tmp_path)
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "old" / "conda-meta" / "libtoy-2.0-0.json").is_file()


def tool(*arguments: object, cwd: Path) -> str:
    done = run_tool(*map(str, arguments), cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_build_that_would_leave_listed_packages_uninstallable_is_refused(tmp_path: Path) -> None:
    """Until what needs the former build is hidden, as the error says."""
    app = make_conda(tmp_path, "app", index={"depends": ["lib 1.0 hd2_0"]})
    lib, newer = (
        make_conda(tmp_path, "lib", variant={}, about=own(digest), build=f"h{digest}_0") for digest in ("d2", "d3")
    )
    to = ("--to", tmp_path / "target", "--foundation", "registry")
    tool("publish", app, lib, *to, cwd=tmp_path)
    before = (tmp_path / "target" / "linux-64" / "repodata.json").read_bytes()
    done = run_tool("publish", str(newer), *map(str, to), cwd=tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (ChannelError.exit_code, False)
    assert "nothing was published: 1 listed package could no longer be installed" in done.stderr
    assert "channel_tools yank SPEC --reason TEXT" in done.stderr
    assert (tmp_path / "target" / "linux-64" / "repodata.json").read_bytes() == before
    tool("yank", "app", "--at", tmp_path / "target", "--reason", "replaced", cwd=tmp_path)
    published = json.loads(tool("publish", newer, *to, "--json", cwd=tmp_path))
    assert published["uploaded"] == ["linux-64/lib-1.0-hd3_0.conda"]


def test_the_commands_do_what_they_say(tmp_path: Path) -> None:
    """Files published to testing, promoted, yanked, patched and deleted, as a user does it."""
    tree = tmp_path / "tree"
    (tree / "recipes").mkdir(parents=True)
    (tree / "variants").mkdir()
    (tree / "variants" / "stacks.yaml").touch()
    new_channel(tree / "output")
    files = [make_conda(tree / "made", "toy", version=version) for version in ("1.0", "2.0")]
    at = ("--at", tmp_path / "target")
    publish = ("publish", "--to", tmp_path / "target", "--label", "testing")
    assert "2 to upload" in tool(*publish, *files, "--dry-run", cwd=tree)
    assert not (tmp_path / "target").exists()
    made = json.loads(tool(*publish, *files, "--json", cwd=tree))
    assert (made["label"], len(made["uploaded"])) == ("testing", 2)
    assert (
        tool("promote", "testing", "main", *at, "--dry-run", cwd=tmp_path).splitlines()[0] == "linux-64/toy-1.0-0.conda"
    )
    assert "2 linked" in tool("promote", "testing", "main", *at, cwd=tmp_path)
    tool("channel", "page", *at, cwd=tmp_path)
    assert "0 findings" in tool("channel", "verify", "--at", tmp_path / "target" / "label" / "testing", cwd=tmp_path)
    assert "2 yanked" in tool("yank", "toy=2", *at, "--reason", "wrong sums", cwd=tmp_path)
    page = tmp_path / "target" / "page" / "build" / "linux-64" / "toy-2.0-0.html"  # which follows each change
    assert "yanked: wrong sums" in page.read_text()
    assert "2 restored" in tool("yank", "toy=2", *at, "--undo", cwd=tmp_path)
    patch = tmp_path / "patch_instructions.json"
    patch.write_text('{"patch_instructions_version": 1, "packages.conda": {"toy-2.0-0.conda": {"license": "MIT"}}}')
    assert "2 patched" in tool("hotfix", patch, *at, cwd=tmp_path)
    assert "MIT" in page.read_text()
    other = make_conda(tree / "made", "other")
    tool("publish", "--to", tmp_path / "target", other, cwd=tree)
    assert "page/name/other.html" in (tmp_path / "target" / "index.html").read_text()
    lock = tmp_path / "explicit.txt"
    lock.write_text("@EXPLICIT\nhttps://host/label/testing/linux-64/toy-1.0-0.conda\n")
    assert "0 would be hidden" in tool("retain", *at, "--keep", "1", "--lock", lock, "--dry-run", cwd=tmp_path)
    gone = json.loads(tool("retain", *at, "--keep", "1", "--label", "testing", "--json", cwd=tmp_path))
    assert gone["labels"]["testing"]["retired"] == ["linux-64/toy-1.0-0.conda"]
    words = ("retain", *at, "--label", "main", "--remove", "toy=2", "--grace", "0")
    assert "1 hidden, 1 deleted" in tool(*words, cwd=tmp_path)
    assert [
        (tmp_path / "target" / folder / "linux-64" / "toy-2.0-0.conda").exists() for folder in (".", "label/testing")
    ] == [False, True]
