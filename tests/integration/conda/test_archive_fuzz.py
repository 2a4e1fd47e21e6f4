# SPDX-License-Identifier: BSD-3-Clause
"""Thousands of changed packages: each is refused in the one way there is, or is as sound as a package can be."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest
import zstandard
from rattler import MatchSpec, Version

from channel_tools.channel import channel_writer, index_channel, verify_channel
from channel_tools.channel.publish import check_package
from channel_tools.channel.records import CachedPackage
from channel_tools.system.errors import IntegrityError
from tests.integration.conda.mutants import Mutator
from tests.support.packages import new_channel
from tests.support.tars import unpack_tar

pytestmark = [pytest.mark.integration, pytest.mark.slow]  # ten seconds of nothing but computing

STEM = "toy-1.0-0"
ROUNDS = 400
NUMBERS = ("build_number", "timestamp")
LISTS = ("depends", "constrains", "purls")


def test_the_unchanged_package_is_sound(tmp_path: Path) -> None:
    (tmp_path / "linux-64").mkdir()
    path = tmp_path / "linux-64" / f"{STEM}.conda"
    path.write_bytes(Mutator(0, STEM).sound())
    assert check_package(path).digest == "d"


@pytest.mark.parametrize("seed", range(10))
def test_a_changed_package_is_refused_or_harmless(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "in" / "linux-64"
    folder.mkdir(parents=True)
    path = folder / f"{STEM}.conda"
    mutator = Mutator(seed, STEM)
    accepted = 0
    for number in range(ROUNDS):
        path.write_bytes(mutator.package())
        row = checked(path)
        if row is None:
            continue
        accepted += 1
        assert_fit_for_repodata(row.record)
        if number % 4 == 0:
            assert_unpacks_inside(path, tmp_path / f"out-{number}")
    assert [item.name for item in folder.iterdir()] == [path.name]
    assert 0 < accepted < ROUNDS / 2


def checked(path: Path) -> CachedPackage | None:
    try:
        return check_package(path)
    except IntegrityError as err:
        if str(path) not in err.message:
            raise
        return None


def assert_fit_for_repodata(record: dict[str, object]) -> None:
    """Every field is of the kind that clients expect."""
    assert f"{record['name']}-{record['version']}-{record['build']}" == STEM
    Version(str(record["version"]))
    for key, value in record.items():
        if key in LISTS:
            assert isinstance(value, list)
            for item in value:
                MatchSpec(item)
        elif key in NUMBERS or key in {"size", "indexed_timestamp"}:
            assert type(value) is int
            assert 0 <= value < 2**53
        elif key != "run_exports":
            assert isinstance(value, str)
    json.dumps(record)


def assert_unpacks_inside(path: Path, folder: Path) -> None:
    """The standard library's own extraction filter finds nothing to refuse, and nothing appears beside the folder."""
    with zipfile.ZipFile(path) as archive:
        packed = archive.read(f"pkg-{STEM}.tar.zst")
    folder.mkdir()
    before = sorted(item.name for item in folder.parent.iterdir())
    with tarfile.open(fileobj=io.BytesIO(zstandard.ZstdDecompressor().decompressobj().decompress(packed))) as tar:
        unpack_tar(tar, folder)
    assert sorted(item.name for item in folder.parent.iterdir()) == before
    for item in folder.rglob("*"):
        assert item.resolve().is_relative_to(folder.resolve())


def test_an_index_of_changed_packages_holds_the_sound_ones_only(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    sound = set()
    for number in range(200):
        stem = f"toy{number}-1.0-0"
        path = channel.path / "linux-64" / f"{stem}.conda"
        path.write_bytes(Mutator(number, stem).package())
        if checked(path) is not None:
            sound.add(path.name)
    with channel_writer(channel) as writer:
        report = index_channel(writer)
    listed = json.loads((channel.path / "linux-64" / "repodata.json").read_bytes())["packages.conda"]
    assert set(listed) == sound
    assert len(report.refused) == 200 - len(sound)
    assert {finding.kind for finding in verify_channel(channel)} == {"damaged"}
    assert {item.name for item in tmp_path.iterdir()} == {"channel"}
