# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.foundation.model import LockedArtifact
from channel_tools.foundation.record import (
    FoundationRecord,
    RecordedPackage,
    list_foundation,
    read_record,
    read_record_file,
    write_record,
)
from channel_tools.system.errors import ConfigError, FoundationError
from tests.unit.foundation.archives import make_table

if TYPE_CHECKING:
    from pathlib import Path

TAKEN = LockedArtifact(
    kind="wheel",
    name="demo",
    version="1.0",
    file_name="demo-1.0-py3-none-any.whl",
    sha256="a" * 64,
    size_bytes=10,
    requires=("other>=1",),
)
RECORD = FoundationRecord(
    digest="d",
    suite="bookworm",
    python="3.11",
    subdir="linux-64",
    requirements=("demo",),
    packages=(
        RecordedPackage(
            name="demo",
            version="1.0",
            build="h_0",
            subdir="noarch",
            file_name="demo-1.0-h_0.conda",
            size_bytes=5,
            unpacked_bytes=6,
            sha256="b" * 64,
            digest="e",
            taken=(TAKEN,),
        ),
    ),
)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_record(tmp_path, RECORD)
    assert read_record(tmp_path) == RECORD
    assert read_record(tmp_path).artifacts() == {("wheel", "demo"): TAKEN}


def test_a_folder_without_a_record_names_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(FoundationError, match="there is no foundation here") as caught:
        read_record(tmp_path)
    assert caught.value.hint == "make it with channel_tools foundation build"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"schema": 1', '"schema": 2', r"Invalid enum value 2 - at `\$\.schema`"),
        ('"aaaa', '"zzzz', r"packages\[0\]\.taken\[0\]\.sha256"),
        ('"demo-1.0-py3-none-any.whl"', '"../escape.whl"', r"packages\[0\]\.taken\[0\]\.file_name"),
        ("{", "", "not a valid foundation record .* Expected `object`"),
    ],
    ids=["schema", "sha256", "path", "json"],
)
def test_what_is_no_record_is_refused(tmp_path: Path, old: str, new: str, expected: str) -> None:
    write_record(tmp_path, RECORD)
    path = tmp_path / "foundation.json"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ConfigError, match=expected):
        read_record_file(path)


def test_a_missing_lock_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"lock\.json: cannot be read: No such file"):
        read_record_file(tmp_path / "lock.json")


def test_the_listing_shows_rows_and_what_was_made_of_them(tmp_path: Path) -> None:
    table = make_table(tmp_path, "zlib: {debs: [zlib1g-dev]}\nabi: {version: '3.11'}")
    rows = {row.name: row for row in list_foundation(table, RECORD)}
    assert sorted(rows) == ["abi", "demo", "zlib"]
    assert (rows["demo"].state, rows["demo"].kind, rows["demo"].taken) == ("made", "wheel", ("demo=1.0",))
    assert (rows["zlib"].state, rows["zlib"].kind, rows["zlib"].taken) == ("not made", "deb", ("zlib1g-dev",))
    assert (rows["abi"].kind, rows["abi"].version) == ("none", "3.11")
