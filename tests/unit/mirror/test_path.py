# SPDX-License-Identifier: BSD-3-Clause
"""A bundle's whole way: made, verified, imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.channel import open_channel, verify_channel
from channel_tools.errors import UsageError
from tests.unit.mirror.bundles import listed, near_side, take_in, verify


@pytest.mark.parametrize("name", ["bundle", "bundle.tar"])
def test_what_was_mirrored_is_what_the_far_side_gets(tmp_path: Path, name: str) -> None:
    near = near_side(tmp_path)
    made = near.bundle(tmp_path / name)
    assert (made.version, made.fetched_files) == (1, 2)
    assert verify(tmp_path / name, near.fingerprint).files > 2
    report = take_in(tmp_path / name, tmp_path / "far", near.fingerprint)
    channel = open_channel(tmp_path / "far" / "channels" / "channel")
    assert report.addresses == {"channel": channel.address}
    assert verify_channel(channel) == []
    assert listed(channel.path) == ["toy-1.0-0.conda", "zlib-1.0-0.conda"]
    for package in listed(channel.path):
        source = tmp_path / "channel" / "linux-64" / package
        assert (channel.path / "linux-64" / package).read_bytes() == source.read_bytes()


def test_a_complete_bundle_is_a_channel_as_it_lies_there(tmp_path: Path) -> None:
    near_side(tmp_path).bundle(tmp_path / "bundle")
    assert listed(tmp_path / "bundle" / "channels" / "channel") == listed(tmp_path / "channel")


def test_importing_again_changes_nothing(tmp_path: Path) -> None:
    near = near_side(tmp_path)
    near.bundle(tmp_path / "bundle")
    take_in(tmp_path / "bundle", tmp_path / "far", near.fingerprint)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "far" / "channels").rglob("*.json")}
    again = take_in(tmp_path / "bundle", tmp_path / "far")
    assert (again.files, again.size_bytes) == (0, 0)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "far" / "channels").rglob("*.json")} == before


def test_nothing_is_believed_without_a_fingerprint(tmp_path: Path) -> None:
    near = near_side(tmp_path)
    near.bundle(tmp_path / "bundle")
    with pytest.raises(UsageError, match="which keys to trust"):
        take_in(tmp_path / "bundle", tmp_path / "far")
    assert not (tmp_path / "far" / "channels").exists()
