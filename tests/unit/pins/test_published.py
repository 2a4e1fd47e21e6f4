# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from channel_tools.errors import ChannelError, NetworkError, UsageError
from channel_tools.pins import Lock, solve_lock
from channel_tools.pins.published import check_published, published_addresses, with_addresses
from tests.unit.environments.toychannel import SUBDIR, ToyChannel, served

ADDRESS = "https://channel.example/ours"


@pytest.fixture
def lock(tmp_path: Path, channel: ToyChannel) -> Lock:
    virtual = {SUBDIR: ("__glibc=2.28=0",)}
    return solve_lock(
        "toy", ["app"], [channel.address], [SUBDIR], virtual_packages=virtual, package_cache=tmp_path / "pkgs"
    )


def test_only_local_channels_are_replaced_in_their_order() -> None:
    channels = ["file:///a", "https://conda.example/forge", "file:///b"]
    assert published_addresses(channels, [ADDRESS + "/"]) == {"file:///a": ADDRESS}
    assert published_addresses(channels, [ADDRESS, "https://b"]) == {"file:///a": ADDRESS, "file:///b": "https://b"}
    with pytest.raises(UsageError, match="3 published addresses, but 2 of the channels are local"):
        published_addresses(channels, ["https://1", "https://2", "https://3"])


def test_everything_but_the_addresses_stays(lock: Lock, channel: ToyChannel) -> None:
    moved = with_addresses(lock, {channel.address: "https://user:secret@channel.example/t/tk/ours"})
    assert moved.channels == (ADDRESS,)
    assert {package.channel for package in moved.platforms[0].packages} == {ADDRESS}
    assert moved.platforms[0].packages[-1].url == f"{ADDRESS}/linux-64/app-1.0-udp_h1.conda"
    assert with_addresses(moved, {ADDRESS: channel.address}) == lock


class TestCheck:
    def check(self, lock: Lock, channel: ToyChannel, tmp_path: Path, address: str) -> None:
        moved = with_addresses(lock, {channel.address: address})
        check_published(moved, [address], package_cache=tmp_path / "pkgs")

    def test_passes_where_the_index_has_all_with_these_hashes(
        self, lock: Lock, channel: ToyChannel, tmp_path: Path
    ) -> None:
        with served(channel.root, authorization="Bearer secret") as address:
            self.check(lock, channel, tmp_path, address.replace("//", "//user@") + "/t/secret")

    def test_names_what_is_missing(self, lock: Lock, channel: ToyChannel, tmp_path: Path) -> None:
        channel.archive("library", "2.0").unlink()
        channel.index()
        with served(channel.root) as address, pytest.raises(ChannelError, match=r"not list 1 .*library-2\.0-0\.conda"):
            self.check(lock, channel, tmp_path, address)

    def test_names_what_has_other_bytes(self, lock: Lock, channel: ToyChannel, tmp_path: Path) -> None:
        copy = ToyChannel(root=tmp_path / "copy")
        shutil.copytree(channel.root, copy.root)
        copy.add("library", version="2.0", files={"lib/x": b"other"})
        with pytest.raises(ChannelError, match=r"its index says sha256 .* for library-2\.0-0\.conda; locked is"):
            self.check(lock, channel, tmp_path, copy.address)

    def test_says_how_to_do_without(self, lock: Lock, channel: ToyChannel, tmp_path: Path) -> None:
        with (
            served(channel.root, authorization="Bearer other") as address,
            pytest.raises(NetworkError, match="cannot be reached") as caught,
        ):
            self.check(lock, channel, tmp_path, address)
        assert caught.value.hint is not None
        assert "--offline" in caught.value.hint
