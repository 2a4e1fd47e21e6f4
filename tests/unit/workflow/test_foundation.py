# SPDX-License-Identifier: BSD-3-Clause
"""What the index of a registry foundation lists."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from channel_tools.channel import Channel, Foundation, ensure_channel
from channel_tools.conda.metadata import PackageMetadata
from channel_tools.conda.platforms import current_platform
from channel_tools.foundation.build import FoundationResult
from channel_tools.foundation.record import FoundationRecord, RecordedPackage, write_record
from channel_tools.system.settings import Settings, Tree
from channel_tools.workflow.foundation import index_foundation
from tests.support.packages import write_files

SUBDIR = current_platform()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A tree with nothing in it."""
    return Settings(tree=Tree(root=tmp_path / "tree"), output=tmp_path / "output", cache=tmp_path / "cache")


@pytest.fixture
def channel(settings: Settings) -> Channel:
    """The channel of the foundation, before anything is made."""
    return ensure_channel(settings.foundation, Foundation(kind="registry"), subdirs=(SUBDIR,))


def make(settings: Settings, build: str) -> Path:
    """A complete package in the foundation's folder."""
    metadata = PackageMetadata(name="toy", version="1.0", build=build, subdir=SUBDIR, depends=())
    return write_files(settings.foundation / SUBDIR, metadata, {"share/toy": build})


def finish(settings: Settings, channel: Channel, packages: Sequence[Path], *, removed: Sequence[Path] = ()) -> None:
    """Record these packages as the foundation, and index it."""
    rows = [
        RecordedPackage(
            name="toy",
            version="1.0",
            build=path.stem.rpartition("-")[2],
            subdir=SUBDIR,
            file_name=path.name,
            size_bytes=path.stat().st_size,
            unpacked_bytes=0,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            digest="0" * 64,
            taken=(),
        )
        for path in packages
    ]
    record = FoundationRecord(
        digest="1" * 64, suite="toys", python="3.11", subdir=SUBDIR, requirements=(), packages=tuple(rows)
    )
    write_record(settings.foundation, record)
    gone = tuple(f"{SUBDIR}/{path.name}" for path in removed)
    index_foundation(settings, channel, FoundationResult(made=(), kept=(), removed=gone))


def listed(settings: Settings) -> set[str]:
    """The file names in the index."""
    return set(json.loads((settings.foundation / SUBDIR / "repodata.json").read_bytes())["packages.conda"])


def test_what_an_earlier_run_left_is_neither_listed_nor_kept(settings: Settings, channel: Channel) -> None:
    """A run of other code or other versions was ended before it wrote a record: nothing says that these are old."""
    left, wanted = make(settings, "hold_0"), make(settings, "hnew_0")
    finish(settings, channel, [wanted], removed=[left])
    assert listed(settings) == {wanted.name}
    assert not left.exists()


def test_what_was_listed_is_deleted_when_the_index_no_longer_lists_it(settings: Settings, channel: Channel) -> None:
    former, wanted = make(settings, "hold_0"), make(settings, "hnew_0")
    finish(settings, channel, [former], removed=[wanted])
    wanted = make(settings, "hnew_0")
    finish(settings, channel, [wanted], removed=[former])
    assert listed(settings) == {wanted.name}
    assert not former.exists()
