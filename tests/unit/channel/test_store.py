# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from channel_tools.channel import (
    Channel,
    Foundation,
    add_set,
    channel_writer,
    create_channel,
    ensure_channel,
    open_channel,
    published_packages,
    store,
)
from channel_tools.channel.store import record_further
from channel_tools.system.errors import ChannelError, FoundationError
from channel_tools.system.files import TEMPORARY_PREFIX
from tests.support.packages import CONDA_FORGE, REGISTRY, make_conda, new_channel


def test_a_channel_is_opened_with_the_foundation_it_was_made_with(tmp_path: Path) -> None:
    create_channel(tmp_path / "channel", CONDA_FORGE)
    assert open_channel(tmp_path / "channel").foundation == CONDA_FORGE
    assert ensure_channel(tmp_path / "channel", CONDA_FORGE).foundation == CONDA_FORGE


def test_another_foundation_is_refused_naming_both(tmp_path: Path) -> None:
    create_channel(tmp_path / "channel", CONDA_FORGE)
    with pytest.raises(FoundationError) as caught:
        ensure_channel(tmp_path / "channel", REGISTRY)
    assert "conda-forge at https://channel.example/conda-forge, not registry" in caught.value.message
    assert "--foundation conda-forge" in str(caught.value.hint)


def test_making_a_channel_where_something_is_leaves_it_alone(tmp_path: Path) -> None:
    (tmp_path / "channel").mkdir()
    (tmp_path / "channel" / "notes").touch()
    with pytest.raises(ChannelError, match="already exists"):
        create_channel(tmp_path / "channel", REGISTRY)
    assert [path.name for path in tmp_path.rglob("*")] == ["channel", "notes"]
    (tmp_path / "channel" / "notes").unlink()
    assert create_channel(tmp_path / "channel", REGISTRY) == open_channel(tmp_path / "channel")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "not a channel", id="missing"),
        pytest.param(b"{", "not a channel record", id="no JSON"),
        pytest.param(b'{"schema": 1}', "not a channel record", id="incomplete"),
    ],
)
def test_a_folder_that_is_no_channel_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    channel = new_channel(tmp_path)
    channel.record_file.unlink() if content is None else channel.record_file.write_bytes(content)
    with pytest.raises(ChannelError, match=message):
        open_channel(channel.path)


def test_a_record_of_a_newer_tool_is_refused(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    channel.record_file.write_bytes(channel.record_file.read_bytes().replace(b'"schema":1', b'"schema":2'))
    with pytest.raises(ChannelError, match="has schema 2; this version of channel_tools reads schema 1"):
        open_channel(channel.path)


def test_a_second_writer_is_refused_at_once(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    with (
        channel_writer(channel),
        pytest.raises(ChannelError, match="one writer at a time"),
        channel_writer(channel),
    ):
        pytest.fail("two writers held the channel")


def test_the_next_writer_clears_what_a_killed_one_left(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    leftovers = [channel.path / folder / f"{TEMPORARY_PREFIX}x" for folder in ("linux-64", ".channel_tools", "")]
    for folder in leftovers:
        folder.mkdir()
        (folder / "half.conda").write_bytes(b"PK")
    with channel_writer(channel):
        assert not any(folder.exists() for folder in leftovers)


def test_published_packages_leaves_out_files_deleted_since(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    with channel_writer(channel) as writer:
        add_set(writer, [make_conda(tmp_path, "toy"), make_conda(tmp_path, "other")])
    (channel.path / "linux-64" / "toy-1.0-0.conda").unlink()
    assert [package.row.name for package in published_packages(channel)] == ["other"]


def test_further_channels_that_two_writers_record_at_once_are_all_recorded(tmp_path: Path) -> None:
    path = new_channel(tmp_path).path
    first, second = (open_channel(path, foundation=REGISTRY.with_further([f"file:///{name}"])) for name in "ab")
    record_further(second)
    assert record_further(first).foundation.further == ("file:///a", "file:///b")
    assert open_channel(path).foundation.further == ("file:///a", "file:///b")


def test_only_who_has_the_lock_records_further_channels(tmp_path: Path) -> None:
    path = new_channel(tmp_path).path
    channel = ensure_channel(path, REGISTRY.with_further(["file:///a"]))
    assert channel.foundation.further == ("file:///a",)
    assert open_channel(path).foundation.further == ()


def test_a_channel_that_another_process_has_just_created_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def created_meanwhile(
        path: Path, foundation: Foundation, *, subdirs: Sequence[str], within: Path | None = None
    ) -> Channel:
        create_channel(path, foundation, subdirs=subdirs, within=within)
        return create_channel(path, foundation, subdirs=subdirs, within=within)

    monkeypatch.setattr(store, "create_channel", created_meanwhile)
    assert ensure_channel(tmp_path / "channel", REGISTRY) == open_channel(tmp_path / "channel")


def test_a_channel_of_version_0_2_is_read_and_published_to(tmp_path: Path) -> None:
    """Its record, and a listing in which that version had used each kind of entry."""
    channel = new_channel(tmp_path)
    names = ("toy", "hidden", "yanked", "superseded", "retired")
    with channel_writer(channel) as writer:
        add_set(writer, [make_conda(tmp_path, name) for name in names])
    keys = {name: f"linux-64/{name}-1.0-0.conda" for name in names}
    record, listing, state = (
        channel.path / ".channel_tools" / name for name in ("channel.json", "listing.json", "state")
    )
    record.write_text(
        '{"created_with":"channel_tools 0.2.0","foundation":{"address":null,"further":[],"kind":"registry"},'
        '"name":"channel","schema":1}\n'
    )
    listing.write_text(
        '{"foundation":[],"hidden":{"HIDDEN":"toy was built again"},"incoming":[],"patches":{},'
        '"retired":{"RETIRED":{"deleted":false,"sha256":"00","since_s":1700000000.0}},"schema":1,'
        '"superseded":["SUPERSEDED"],"yanked":{"YANKED":"wrong sums"}}\n'
        .replace("HIDDEN", keys["hidden"]).replace("RETIRED", keys["retired"])
        .replace("SUPERSEDED", keys["superseded"]).replace("YANKED", keys["yanked"])
    )  # fmt: skip
    shutil.rmtree(state)
    channel = open_channel(channel.path)
    assert channel.foundation == REGISTRY
    with channel_writer(channel) as writer:
        add_set(writer, [make_conda(tmp_path, "other")])
    index = json.loads((channel.path / "linux-64" / "repodata.json").read_text())
    assert sorted(index["packages.conda"]) == ["other-1.0-0.conda", "toy-1.0-0.conda"]
    kept = json.loads(listing.read_text())
    assert kept["yanked"] == {keys["yanked"]: "wrong sums"}
    assert kept["retired"][keys["retired"]]["sha256"] == "00"
    assert json.loads(record.read_text())["created_with"] == "channel_tools 0.2.0"
