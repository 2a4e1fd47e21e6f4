# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from channel_tools.channel import Channel, add_set, channel_writer, index_channel, published_packages, verify_channel
from channel_tools.channel.content import INDEX_FILES, subdir_content
from channel_tools.channel.listing import Listing, prefer
from channel_tools.channel.state import read_listing, read_state
from channel_tools.conda.package import sidecar_of, write_sidecar
from channel_tools.conda.repodata import encode_repodata, encode_shard
from channel_tools.system.files import sha256_of_file
from tests.support import conda_reader
from tests.support.packages import make_conda, new_channel, own

ATTESTED = "attested-1.0-0.conda"


def test_records_alone_give_the_bytes_that_a_folder_has(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    first = make_conda(tmp_path / "made", "one", about=own("d1"), variant={"v": "1"}, run_exports={"weak": ["one"]})
    second = make_conda(tmp_path / "made", "one", build="1", about=own("d2"), variant={"v": "1"})
    with channel_writer(channel, clock=lambda: 1.7e9) as writer:
        add_set(writer, [first])
        add_set(writer, [second])
    state = read_state(channel, "linux-64")
    content = subdir_content(
        "linux-64", state.records.packages, read_listing(channel), known_shards={}, present_shards=set()
    )
    files = content.index_files(now_s=1.7e9)
    assert tuple(sorted(files)) == tuple(sorted(INDEX_FILES))
    assert files == {name: (channel.path / "linux-64" / name).read_bytes() for name in INDEX_FILES}
    assert set(content.shards.new) == {shard.sha256 for shard in state.shards.values()}
    assert content.digest == state.content


def test_preferring_a_build_hides_the_others_of_its_variant_and_nothing_else(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    made = [
        make_conda(tmp_path / "made", "one", build=build, about=own(f"d{build}"), variant={"v": variant})
        for build, variant in (("0", "1"), ("1", "1"), ("2", "2"))
    ]
    with channel_writer(channel) as writer:
        add_set(writer, made[:1])
        add_set(writer, made[1:])
    packages = published_packages(channel)
    chosen = prefer(Listing(), packages, ["linux-64/one-1.0-0.conda", "linux-64/of-another-place.conda"])
    assert chosen.hidden == {"linux-64/one-1.0-1.conda": "superseded by linux-64/one-1.0-0.conda"}


def attested_channel(folder: Path) -> Channel:
    channel = new_channel(folder)
    attested = make_conda(folder / "made", "attested")
    write_sidecar(attested, b"[{}]")
    with channel_writer(channel) as writer:
        add_set(writer, [attested, make_conda(folder / "made", "plain")])
    return channel


def test_conda_reads_every_record_of_a_folder_and_what_it_downloads_is_right(tmp_path: Path) -> None:
    channel = attested_channel(tmp_path)
    rows = conda_reader.records(channel.path.as_uri(), "linux-64")
    assert sorted(rows) == [ATTESTED, "plain-1.0-0.conda"]
    assert rows[ATTESTED]["attestations_sha256"] == sha256_of_file(sidecar_of(channel.path / "linux-64" / ATTESTED))
    for name, download in conda_reader.downloads(channel.path.as_uri(), "linux-64").items():
        assert hashlib.sha256(download.fetch()).hexdigest() == rows[name]["sha256"]


def test_the_next_index_mends_shards_of_the_earlier_form(tmp_path: Path) -> None:
    with conda_reader.earlier_form():
        channel = attested_channel(tmp_path)
    with pytest.raises(TypeError, match="bytes is not JSON serializable"):
        conda_reader.records(channel.path.as_uri(), "linux-64")
    (finding,) = verify_channel(channel)
    assert "differs from repodata.json" in str(finding)
    kept = {path.name for path in (channel.path / "linux-64" / "shards").iterdir()}
    with channel_writer(channel) as writer:
        assert index_channel(writer).written
        assert not index_channel(writer).written
    assert conda_reader.records(channel.path.as_uri(), "linux-64")[ATTESTED]["name"] == "attested"
    assert verify_channel(channel) == []
    now = {path.name for path in (channel.path / "linux-64" / "shards").iterdir()}
    assert (len(kept & now), len(now)) == (2, 3)  # the earlier ones stay for a while; only what differs is new


@pytest.mark.parametrize("field", ["attestations_sha256", "legacy_bz2_md5", "a_hash_of_the_future"])
def test_other_hashes_stay_text(field: str) -> None:
    """CEP 16 turns sha256 and md5 into bytes; all else is what repodata.json has."""
    record: dict[str, object] = {"name": "a", "sha256": "ab" * 32, "md5": "cd" * 16, field: "ef" * 32}
    assert encode_shard({"a-1-0.conda": record}).count(b"ef" * 32) == 1
    assert encode_repodata("noarch", {"a-1-0.conda": record}).count(b"ef" * 32) == 1
