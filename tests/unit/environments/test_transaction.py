# SPDX-License-Identifier: BSD-3-Clause
"""kill -9 while packages are linked, at many points: the next run always completes the environment."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from subprocess import PIPE
from typing import TYPE_CHECKING

import pytest

from channel_tools.environments import create_environment
from channel_tools.environments.transaction import remove_unrecorded
from channel_tools.system.progress import SilentProgress
from tests.support.damage import DAMAGES, damage, places_of
from tests.unit.environments.toychannel import SUBDIR, ToyChannel

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = 12
FILES = 10
# For each line of its input: a forked copy creates an environment, and kills itself when the installer reports that so
# many packages are being linked: from one of its own threads, while others link. Answers how the copy ended.
CREATE = """
import asyncio, json, os, signal, sys, traceback
from pathlib import Path
from channel_tools.environments import create_environment
from channel_tools.environments import transaction as reporter
from channel_tools.system.progress import SilentProgress

original = reporter.TransactionReporter.on_link_start

def create(left, prefix, channel, specs):
    def on_link_start(self, operation, package_name):
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, operation, package_name)

    reporter.TransactionReporter.on_link_start = on_link_start
    environment = create_environment(
        Path(prefix), specs, [channel], package_cache=Path(prefix + "-pkgs"),
        subdir="linux-64", progress=SilentProgress(), virtual_packages=[], replace=lambda change: True,
    )
    asyncio.run(environment)

assert len(os.listdir("/proc/self/task")) == 1  # copies have this one alone
for line in sys.stdin:
    copy = os.fork()
    if copy == 0:
        try:
            create(*json.loads(line))
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]), flush=True)
"""
Kill = Callable[..., None]


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> ToyChannel:
    toy = ToyChannel(root=tmp_path_factory.mktemp("many") / "channel")
    for version in ("1.0", "2.0"):
        for number in range(PACKAGES):
            files = {f"lib/p{number}/{file}": f"{version} {number} {file}".encode() for file in range(FILES)}
            toy.add(f"p{number}", version=version, files=files, index=False)
    toy.index()
    return toy


def specs(version: str, packages: int = PACKAGES) -> list[str]:
    return [f"p{number}=={version}" for number in range(packages)]


@pytest.fixture(scope="module")
def killed(channel: ToyChannel) -> Iterator[Kill]:
    """Creates an environment, and is killed when so many packages were begun."""
    with subprocess.Popen([sys.executable, "-c", CREATE], text=True, stdin=PIPE, stdout=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def kill(prefix: Path, version: str, *, after: int) -> None:
            request = [after, str(prefix), channel.address, specs(version)]
            print(json.dumps(request), file=requests, flush=True)
            assert int(answers.readline()) == -signal.SIGKILL

        yield kill


def create(prefix: Path, channel: ToyChannel, version: str, *, packages: int = PACKAGES, replace: bool = False) -> int:
    return asyncio.run(
        create_environment(
            prefix,
            specs(version, packages),
            [channel.address],
            package_cache=prefix.with_name(prefix.name + "-pkgs"),
            subdir=SUBDIR,
            progress=SilentProgress(),
            virtual_packages=[],
            replace=(lambda _change: True) if replace else None,
        )
    ).changed


def assert_whole(prefix: Path, version: str) -> None:
    found = {str(path.relative_to(prefix)): path.read_text() for path in (prefix / "lib").rglob("*") if path.is_file()}
    assert found == {
        f"lib/p{number}/{file}": f"{version} {number} {file}" for number in range(PACKAGES) for file in range(FILES)
    }


def test_a_killed_creation_leaves_the_users_own_files(tmp_path: Path, channel: ToyChannel, killed: Kill) -> None:
    """In a folder that is an environment without packages, as one that conda emptied."""
    prefix = tmp_path / "env"
    (prefix / "conda-meta").mkdir(parents=True)
    own = prefix / "results" / "own.txt"
    own.parent.mkdir()
    own.write_text("of a month")
    killed(prefix, "1.0", after=4)
    assert create(prefix, channel, "1.0") == PACKAGES
    assert_whole(prefix, "1.0")
    assert own.read_text() == "of a month"


def test_a_killed_creation_leaves_what_its_user_puts_there_meanwhile(
    tmp_path: Path, channel: ToyChannel, killed: Kill
) -> None:
    prefix = tmp_path / "env"
    killed(prefix, "1.0", after=4)
    own = prefix / "results" / "own.txt"
    own.parent.mkdir()
    own.write_text("of a month")
    assert create(prefix, channel, "1.0") == PACKAGES
    assert_whole(prefix, "1.0")
    assert own.read_text() == "of a month"


def test_what_a_killed_run_had_begun_to_link_goes_where_the_next_has_no_use_for_it(
    tmp_path: Path, channel: ToyChannel, killed: Kill
) -> None:
    prefix = tmp_path / "env"
    create(prefix, channel, "1.0")  # what was linked is in the package cache
    shutil.rmtree(prefix)
    killed(prefix, "1.0", after=1)
    begun = prefix / "lib" / "p11"  # of a package without a record
    begun.mkdir(parents=True, exist_ok=True)
    for name in ("3", "own"):
        (begun / name).write_text("1.0 11 3")
    assert create(prefix, channel, "1.0", packages=1, replace=True) == 1
    found = {str(path.relative_to(prefix / "lib")) for path in (prefix / "lib").rglob("*") if path.is_file()}
    assert found == {"p11/own", *(f"p0/{file}" for file in range(FILES))}


@pytest.mark.parametrize("after", [1, 4, PACKAGES])
def test_a_killed_creation_is_completed(tmp_path: Path, channel: ToyChannel, killed: Kill, after: int) -> None:
    prefix = tmp_path / "env"
    killed(prefix, "1.0", after=after)
    assert create(prefix, channel, "1.0") > 0
    assert_whole(prefix, "1.0")
    assert create(prefix, channel, "1.0") == 0


@pytest.mark.parametrize("after", [1, 4, PACKAGES])
@pytest.mark.parametrize("then", ["1.0", "2.0"], ids=["go-back", "go-on"])
def test_a_killed_update_is_completed(tmp_path: Path, channel: ToyChannel, killed: Kill, after: int, then: str) -> None:
    prefix = tmp_path / "env"
    create(prefix, channel, "1.0")
    killed(prefix, "2.0", after=after)
    assert create(prefix, channel, then, replace=then == "1.0") > 0
    assert_whole(prefix, then)
    assert create(prefix, channel, then) == 0


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_killed_update_with_damage_in_the_cache_is_completed(
    tmp_path: Path, channel: ToyChannel, killed: Kill, kind: str
) -> None:
    prefix, outside = tmp_path / "env", tmp_path / "outside"
    outside.mkdir()
    create(prefix, channel, "1.0")
    killed(prefix, "2.0", after=4)
    cache = tmp_path / "env-pkgs"
    packages = [place for place in places_of(cache) if place.startswith("p") and "2.0" in place]
    for place in packages[:: len(packages) // 3]:
        damage(cache, place, kind, outside)
    assert create(prefix, channel, "2.0") > 0
    assert_whole(prefix, "2.0")
    assert list(outside.iterdir()) == []


def write(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_files_of_packages_without_a_record_go_and_all_others_stay(tmp_path: Path) -> None:
    prefix, cache, outside = tmp_path / "env", tmp_path / "pkgs", tmp_path / "outside"
    rows = ["bin/tool", "site-packages/tool/a.py", "python-scripts/script", "share/none", "../outside/own", "data/own"]
    listed = {"paths": [{"_path": row, "path_type": "hardlink"} for row in rows], "paths_version": 1}
    (cache / "tool-1.0-0" / "info").mkdir(parents=True)
    (cache / "tool-1.0-0" / "info" / "paths.json").write_text(json.dumps(listed))
    modules = prefix / "lib" / "python3.12" / "site-packages"
    kept = [prefix / "bin" / "own", modules / "own.py", outside / "own"]
    gone = [
        prefix / "bin" / "tool",
        prefix / "bin" / "script",
        modules / "tool" / "a.py",
        modules / "tool" / "__pycache__" / "a.cpython-312.pyc",
    ]
    write(*kept, *gone)
    (prefix / "data").symlink_to(outside)
    remove_unrecorded(prefix, ["tool-1.0-0", "purged-1.0-0", "library-2.0", ""], cache)
    assert [path for path in kept if not path.exists()] == []
    assert [path for path in gone if path.exists()] == []
    assert not (modules / "tool").exists()
    assert (prefix / "data").is_symlink()
