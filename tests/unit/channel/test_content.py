# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

from channel_tools.channel import add_set, channel_writer, published_packages
from channel_tools.channel.content import INDEX_FILES, subdir_content
from channel_tools.channel.listing import Listing, prefer
from channel_tools.channel.state import read_listing, read_state
from tests.support.packages import make_conda, new_channel, own


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
