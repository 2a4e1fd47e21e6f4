# SPDX-License-Identifier: BSD-3-Clause
"""Bundles of what is new: made from what the far side has, of use only there."""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.channel import open_channel, verify_channel
from channel_tools.mirror.farside import far_state, read_since
from channel_tools.mirror.model import BundleRefusedError
from channel_tools.mirror.reading import open_bundle
from tests.unit.mirror.bundles import NearSide, add_toys, listed, near_side, take_in, verify


@pytest.fixture
def near(tmp_path: Path) -> NearSide:
    made = near_side(tmp_path)
    made.bundle(tmp_path / "first")
    take_in(tmp_path / "first", tmp_path / "far", made.fingerprint)
    return made


@pytest.mark.parametrize("known_by", ["far/.mirror/received.json", "first"])
def test_an_update_brings_only_what_the_far_side_lacks(tmp_path: Path, near: NearSide, known_by: str) -> None:
    add_toys(open_channel(tmp_path / "channel"), ["more"])
    report = near.bundle(tmp_path / "second", request=near.request(since=read_since(tmp_path / known_by)))
    assert (report.fetched_files, report.omitted) == (1, 2)
    packages = [name for name in open_bundle(tmp_path / "second").sizes if name.endswith(".conda")]
    assert packages == ["channels/channel/linux-64/more-1.0-0.conda"]
    verify(tmp_path / "second", near.fingerprint)
    assert take_in(tmp_path / "second", tmp_path / "far").version == 2
    channel = open_channel(tmp_path / "far" / "channels" / "channel")
    assert verify_channel(channel) == []
    assert listed(channel.path) == ["more-1.0-0.conda", "toy-1.0-0.conda", "zlib-1.0-0.conda"]


def test_nothing_new_is_seen_without_fetching(tmp_path: Path, near: NearSide) -> None:
    for known_by in ("far/.mirror/received.json", "first"):
        assert near.request(since=read_since(tmp_path / known_by)).brings_nothing()
    add_toys(open_channel(tmp_path / "channel"), ["more"])
    assert not near.request(since=read_since(tmp_path / "first")).brings_nothing()


def test_updates_follow_one_another(tmp_path: Path, near: NearSide) -> None:
    for number, name in enumerate(["more", "most"], start=2):
        add_toys(open_channel(tmp_path / "channel"), [name])
        since = read_since(far_state(tmp_path / "far").received_file)
        near.bundle(tmp_path / f"bundle {number}", request=near.request(since=since))
        take_in(tmp_path / f"bundle {number}", tmp_path / "far")
    assert len(listed(tmp_path / "far" / "channels" / "channel")) == 4
    assert near.request(since=read_since(tmp_path / "far" / ".mirror" / "received.json")).brings_nothing()


def test_an_update_is_refused_where_the_earlier_bundles_never_came(tmp_path: Path, near: NearSide) -> None:
    add_toys(open_channel(tmp_path / "channel"), ["more"])
    near.bundle(tmp_path / "second", request=near.request(since=read_since(tmp_path / "first")))
    with pytest.raises(BundleRefusedError, match=r"toy-1\.0-0\.conda.*of earlier bundles") as caught:
        take_in(tmp_path / "second", tmp_path / "elsewhere", near.fingerprint)
    assert caught.value.fault == "missing"
    assert not (tmp_path / "elsewhere" / "channels").exists()


def test_a_package_lost_on_the_far_side_is_noticed(tmp_path: Path, near: NearSide) -> None:
    (tmp_path / "far" / "channels" / "channel" / "linux-64" / "toy-1.0-0.conda").unlink()
    add_toys(open_channel(tmp_path / "channel"), ["more"])
    near.bundle(tmp_path / "second", request=near.request(since=read_since(tmp_path / "first")))
    with pytest.raises(BundleRefusedError, match=r"toy-1\.0-0\.conda"):
        take_in(tmp_path / "second", tmp_path / "far")
    near.bundle(tmp_path / "complete")
    assert take_in(tmp_path / "complete", tmp_path / "far").files > 0
    assert "toy-1.0-0.conda" in listed(tmp_path / "far" / "channels" / "channel")


def test_a_file_left_out_of_a_complete_bundle_is_missed(tmp_path: Path, near: NearSide) -> None:
    near.bundle(tmp_path / "second")
    (tmp_path / "second" / "channels" / "channel" / "linux-64" / "toy-1.0-0.conda").unlink()
    with pytest.raises(BundleRefusedError, match=r"toy-1\.0-0\.conda was signed for but is not there"):
        take_in(tmp_path / "second", tmp_path / "far")
