# SPDX-License-Identifier: BSD-3-Clause
"""Channels whose packages are not beside their index (``base_url``, CEP 15) are mirrored like any other."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import zstandard

from channel_tools.conda.index import read_index
from channel_tools.mirror.exporting.plan import SourceChannel
from channel_tools.pins.solve import with_addresses
from channel_tools.system.errors import IntegrityError
from tests.unit.environments.toychannel import move_packages, served
from tests.unit.mirror.bundles import (
    PLATFORM,
    ExportingSite,
    foreign_channel,
    http_client,
    lock_of,
    new_keys,
    toy_channel,
    verify,
)

NAMES = ["bytes-one", "bytes-two"]


def change_shards(folder: Path, **info: str) -> None:
    """Add to what the index of shards says."""
    path = folder / "repodata_shards.msgpack.zst"
    index = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes()))
    index["info"] |= info
    path.write_bytes(zstandard.compress(msgspec.msgpack.encode(index)))


@pytest.mark.parametrize("base_url", ["../files/SUBDIR/", "ORIGIN/elsewhere/files/SUBDIR"])
@pytest.mark.parametrize("scheme", ["file", "http"])
def test_a_bundle_has_the_packages_wherever_they_are(tmp_path: Path, base_url: str, scheme: str) -> None:
    channel = foreign_channel(tmp_path / "channel", NAMES, old=["old"])
    with served(tmp_path) as origin:
        address = channel.address if scheme == "file" else f"{origin}/channel"
        lock = lock_of(channel.address)
        files = tmp_path / "elsewhere" / "files" if "ORIGIN" in base_url else channel.path / "files"
        move_packages(channel.path, base_url.replace("ORIGIN", origin), files)
        for archive in sorted((channel.path / PLATFORM).glob("*.tar.bz2")):
            archive.rename(files / PLATFORM / archive.name)
        source = SourceChannel(name="channel", address=address, own=True)
        site = ExportingSite(keys=new_keys(tmp_path / "keys"), channels=(source,))
        site.bundle(tmp_path / "bundle", plan=site.plan([with_addresses(lock, {channel.address: address})]))
    verify(tmp_path / "bundle", site.fingerprint)
    made = tmp_path / "bundle" / "channels" / "channel" / PLATFORM
    assert sorted(path.name for path in made.glob("*-1.0-0.*")) == [
        "bytes-one-1.0-0.conda",
        "bytes-two-1.0-0.conda",
        "old-1.0-0.tar.bz2",
    ]
    assert read_index(made.parent.as_uri(), PLATFORM, None, http_client()).folder == f"{made.as_uri()}/"


def test_the_index_of_shards_has_its_own_base_url(tmp_path: Path) -> None:
    channel = toy_channel(tmp_path, ["toy"], []).path
    change_shards(channel / PLATFORM, base_url="https://files.example/x", shards_base_url="../others/shards")
    (channel / "others").mkdir()
    (channel / PLATFORM / "shards").rename(channel / "others" / "shards")
    with served(tmp_path) as origin:
        found = read_index(f"{origin}/channel", PLATFORM, {"toy-1.0-0.conda"}, http_client())
    assert list(found.records) == ["toy-1.0-0.conda"]
    assert found.folder == "https://files.example/x/"


@pytest.mark.parametrize("index", ["repodata_shards.msgpack.zst", "repodata.json"])
def test_an_index_elsewhere_cannot_name_folders_of_this_machine(tmp_path: Path, index: str) -> None:
    channel = toy_channel(tmp_path, ["toy"], []).path
    if index.startswith("repodata_shards"):
        change_shards(channel / PLATFORM, base_url="file:///etc")
    else:
        (channel / PLATFORM / "repodata_shards.msgpack.zst").unlink()
        (channel / PLATFORM / "repodata.json.zst").unlink()
        move_packages(channel, "file:///etc", tmp_path / "files")
    with served(tmp_path) as origin, pytest.raises(IntegrityError, match="'file:///etc' as base_url"):
        read_index(f"{origin}/channel", PLATFORM, {"toy-1.0-0.conda"}, http_client())
