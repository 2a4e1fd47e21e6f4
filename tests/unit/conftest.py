# SPDX-License-Identifier: BSD-3-Clause
"""What holds for unit tests: files in memory in whole runs, nothing flushed, and no certificates to read."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from channel_tools.system.work_folder import temporary_folder

_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
_ROOM_BYTES = 2 << 30
"""Ten times what all unit tests leave."""


@pytest.fixture(scope="session", autouse=True)
def no_flushing() -> Iterator[None]:
    """Write nothing through to the disk: that protects from a power cut only, and takes 10,000 waits for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        patch.setattr(os, "sync", lambda: None)
        yield


@pytest.fixture(scope="session")
def tmp_path_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[pytest.TempPathFactory]:
    """With its folders in memory where that has room: 50,000 files are made and removed in each run.

    A fixture rather than an option of the run, so that integration tests of the same run stay on disk, where the
    packages are that their environments are hard links to. Of tests that run on one core, as those that one looks into,
    the last folders stay on disk, as pytest keeps them; those in memory end with the run, or with the next one.
    """
    if not hasattr(request.config, "workerinput") or not _has_room(_MEMORY):
        yield tmp_path_factory
        return
    with temporary_folder(_MEMORY) as folder:
        factory = copy.copy(tmp_path_factory)
        factory._basetemp = folder
        yield factory


def _has_room(folder: Path) -> bool:
    """Whether files can be made and programs run there."""
    try:
        status = os.statvfs(folder)
        free = shutil.disk_usage(folder).free
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK) and not status.f_flag & os.ST_NOEXEC and free >= _ROOM_BYTES


@pytest.fixture(scope="package", autouse=True)
def temporary_files_and_certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Other temporary files beside those of tests, and one certificate of nobody's for every client to trust.

    Each of hundreds of clients would read all of the machine's, and no unit test asks a server that has one of them.
    For this package alone: integration tests run between its files.
    """
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", None)
        patch.setenv("SSL_CERT_FILE", str(Path(__file__).with_name("nobody.pem")))
        patch.delenv("SSL_CERT_DIR", raising=False)
        yield
