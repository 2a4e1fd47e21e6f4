# SPDX-License-Identifier: BSD-3-Clause
"""The default stack of the clone's own output folder, and what slow tests build into it beside that.

A machine that cannot reach what the foundation is made from skips the tests that need it, with the error as reason;
every other failure of a build is a failure of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from filelock import FileLock

from channel_tools.system.settings import Settings, make_settings
from tests.support.command_line import run_tool
from tests.support.folder_server import serve_folder
from tests.support.kept_builds import compiler_cache, kept_foundation
from tests.support.programs import in_namespaces, program

if TYPE_CHECKING:
    from tests.support.s3 import Bucket, Server

ROOT = Path(__file__).parents[2]
BUILD_LIMIT_S = 900
OUT_OF_REACH = {4: "the foundation cannot be made", 5: "the registries cannot be reached"}


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Server]:
    """An S3 server on loopback."""
    from tests.support.s3 import running_server  # noqa: PLC0415 - its libraries take half a second to import

    with running_server() as server:
        yield server


@pytest.fixture
def bucket(s3_server: Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An empty bucket, with credentials for it in the environment."""
    from tests.support.s3 import ACCESS_KEY, SECRET_KEY  # noqa: PLC0415 - as above

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):  # not those of whoever runs the tests
        monkeypatch.setenv(name, os.devnull)
    return s3_server.make_bucket()


@pytest.fixture(scope="session")
def nginx() -> str:
    """The program."""
    return program("nginx")


@pytest.fixture
def without_network() -> tuple[str, ...]:
    """What to put before a command so that it runs where there is loopback alone."""
    return (*in_namespaces("net"), "sh", "-c", f'{program("ip")} link set lo up && exec "$@"', "sh")


class Served(Protocol):
    """Serves a folder over HTTP on loopback for as long as the block runs; gives its address."""

    def __call__(self, folder: Path) -> AbstractContextManager[str]: ...


@pytest.fixture(scope="session")
def own_settings() -> Settings:
    return make_settings(root=ROOT, output=None, environ=os.environ, cwd=ROOT)


def only_writer_of_output() -> FileLock:
    """What tests hold while a command writes to the clone's own output folder."""
    lock = ROOT / "output" / "tests.lock"
    lock.parent.mkdir(exist_ok=True)
    return FileLock(lock)


def build_into_output(
    *words: str, before: Sequence[str] = (), limit_s: float = BUILD_LIMIT_S
) -> subprocess.CompletedProcess[str]:
    """The command with ``words``, which writes to the clone's own output folder; ``before`` comes in front of it.

    Workers take turns, since a channel has one writer at a time. What was built in other clones is taken from a
    cache (tests/support/kept_builds.py). The test skips where the machine cannot reach what the foundation is made
    from.
    """
    options, environ = compiler_cache(os.environ) if words[0] == "build" else ([], dict(os.environ))
    command = [*before, sys.executable, "-m", "channel_tools", *words, *options, "--root", str(ROOT)]
    with only_writer_of_output(), kept_foundation(ROOT / "output" / "foundation", os.environ):
        result = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=limit_s)
    if result.returncode in OUT_OF_REACH:
        pytest.skip(f"{OUT_OF_REACH[result.returncode]}: {result.stderr.splitlines()[-2:]}")
    return result


@pytest.fixture(scope="session")
def stack_channel(own_settings: Settings) -> Path:
    """The clone's own channel with the default stack as the tree has it now; tests without it skip.

    The foundation is there with it: a plan on one that is unfinished has none of what it does not serve yet.
    """
    if own_settings.channel.is_dir():
        with only_writer_of_output():  # another worker may be making the foundation
            planned = run_tool("plan", "--json", cwd=ROOT, environ=os.environ)
        if planned.returncode not in OUT_OF_REACH:
            assert planned.returncode == 0, planned.stderr
            plan = json.loads(planned.stdout)
            if plan["unserved"] == [] and all(package["status"] == "skip" for package in plan["packages"]):
                return own_settings.channel
    pytest.skip("output/channel has not the default stack of this tree: make channel first")


@pytest.fixture(scope="session")
def served() -> Served:
    return serve_folder
