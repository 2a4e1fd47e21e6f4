# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
import os
import time
from pathlib import Path

import msgspec
import pytest
import zstandard

from channel_tools.channel import (
    Channel,
    ChannelWriter,
    IndexReport,
    add_set,
    channel_writer,
    index_channel,
    verify_channel,
)
from channel_tools.conda.contents import JsonObject
from channel_tools.system.beneath import Staged
from tests.support.packages import make_conda, new_channel


def put(channel: Channel, *files: Path) -> None:
    with channel_writer(channel) as writer:
        add_set(writer, files)


def index(channel: Channel, *, now_s: float | None = None, grace_s: float = 60.0) -> IndexReport:
    with channel_writer(channel, clock=time.time if now_s is None else lambda: now_s) as writer:
        return index_channel(writer, shard_grace_s=grace_s)


def repodata(channel: Channel, subdir: str = "linux-64") -> dict[str, JsonObject]:
    value: dict[str, dict[str, JsonObject]] = json.loads((channel.path / subdir / "repodata.json").read_bytes())
    return value["packages.conda"]


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def test_an_empty_channel_has_all_indexes_in_both_subdirs(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    for subdir in ("linux-64", "noarch"):
        names = {path.name for path in (channel.path / subdir).iterdir()}
        assert names == {"repodata.json", "repodata.json.zst", "repodata_shards.msgpack.zst", "run_exports.json"}
    assert verify_channel(channel) == []


def test_all_indexes_agree_on_a_package(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    put(channel, make_conda(tmp_path, "toy", run_exports={"weak": ["toy >=1"], "strong": []}, about={"summary": "fun"}))
    folder = channel.path / "linux-64"
    record = repodata(channel)["toy-1.0-0.conda"]
    plain = zstandard.ZstdDecompressor().decompressobj().decompress((folder / "repodata.json.zst").read_bytes())
    assert plain == (folder / "repodata.json").read_bytes()
    packed = (folder / "repodata_shards.msgpack.zst").read_bytes()
    shards = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompressobj().decompress(packed))["shards"]
    shard_file = folder / "shards" / f"{shards['toy'].hex()}.msgpack.zst"
    shard = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompressobj().decompress(shard_file.read_bytes()))
    assert shard["packages.conda"]["toy-1.0-0.conda"]["sha256"].hex() == record["sha256"]
    exports = json.loads((folder / "run_exports.json").read_bytes())
    assert exports["packages.conda"] == {"toy-1.0-0.conda": {"run_exports": {"weak": ["toy >=1"]}}}
    channeldata = json.loads((channel.path / "channeldata.json").read_bytes())
    assert channeldata["packages"]["toy"]["summary"] == "fun"
    assert channeldata["packages"]["toy"]["subdirs"] == ["linux-64"]


def test_channeldata_describes_the_newest_version_and_all_run_exports(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    rows = [("1.9", "old"), ("1.10", "new"), ("1.2", "older")]
    put(
        channel,
        *(
            make_conda(tmp_path, "toy", version=v, about={"summary": s}, run_exports={"weak": [f"toy {v}"]})
            for v, s in rows
        ),
    )
    row = json.loads((channel.path / "channeldata.json").read_bytes())["packages"]["toy"]
    assert (row["version"], row["summary"]) == ("1.10", "new")
    assert row["run_exports"]["1.2"] == {"weak": ["toy 1.2"]}


def test_indexing_again_writes_and_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = new_channel(tmp_path)
    put(channel, make_conda(tmp_path, "toy"))
    before = snapshot(channel.path / "linux-64")
    monkeypatch.setattr(Staged, "add", None)
    monkeypatch.setattr("channel_tools.channel.records.read_package", None)
    assert index(channel).written == ()
    assert snapshot(channel.path / "linux-64") == before


def test_indexes_do_not_depend_on_the_cache(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    put(
        channel,
        make_conda(tmp_path, "toy"),
        make_conda(tmp_path, "other", subdir="noarch", index={"noarch": "generic"}),
    )
    before = {subdir: repodata(channel, subdir) for subdir in ("linux-64", "noarch")}
    for state in (channel.record_folder / "state").iterdir():
        state.unlink()
    index(channel)
    assert {subdir: repodata(channel, subdir) for subdir in ("linux-64", "noarch")} == before


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"schema": 99}', b'{"schema": "x"}'])
def test_a_damaged_cache_is_made_again(tmp_path: Path, content: bytes) -> None:
    channel = new_channel(tmp_path)
    put(channel, make_conda(tmp_path, "toy"))
    channel.state_file("linux-64").write_bytes(content)
    index(channel)
    assert list(repodata(channel)) == ["toy-1.0-0.conda"]
    assert verify_channel(channel) == []


@pytest.mark.parametrize(
    "name", ["repodata.json", "repodata.json.zst", "repodata_shards.msgpack.zst", "run_exports.json"]
)
@pytest.mark.parametrize("damage", ["deleted", "overwritten"])
def test_a_lost_or_foreign_index_file_is_written_again(tmp_path: Path, name: str, damage: str) -> None:
    channel = new_channel(tmp_path)
    put(channel, make_conda(tmp_path, "toy"))
    path = channel.path / "linux-64" / name
    path.unlink() if damage == "deleted" else path.write_bytes(b"{}")
    assert verify_channel(channel) != []
    index(channel)
    assert verify_channel(channel) == []


def test_a_lost_shard_is_written_again(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    put(channel, make_conda(tmp_path, "toy"))
    (shard,) = (channel.path / "linux-64" / "shards").iterdir()
    shard.unlink()
    assert verify_channel(channel) != []
    index(channel)
    assert shard.is_file()
    assert verify_channel(channel) == []


def test_files_put_there_by_hand_are_indexed(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    make_conda(channel.path, "toy")
    assert [finding.kind for finding in verify_channel(channel)] == ["unindexed"]
    assert index(channel).listed == 1
    assert verify_channel(channel) == []


def test_a_damaged_file_is_left_out_and_does_not_stop_the_others(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    make_conda(channel.path, "good")
    bad = make_conda(channel.path, "bad")
    bad.write_bytes(bad.read_bytes()[:-100])
    for _ in range(2):  # from the file, then from the cache
        report = index(channel)
        assert list(repodata(channel)) == ["good-1.0-0.conda"]
        assert [(finding.path, finding.kind) for finding in report.refused] == [(bad, "damaged")]
        assert "copy bad-1.0-0.conda again" in report.refused[0].hint
    assert [finding.kind for finding in verify_channel(channel)] == ["damaged"]


def test_a_file_whose_bytes_changed_leaves_the_index_until_they_are_back(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    put(channel, make_conda(tmp_path, "toy", files={"a": b"1"}))
    record = repodata(channel)
    published = channel.path / "linux-64" / "toy-1.0-0.conda"
    sound = published.read_bytes()
    published.unlink()
    make_conda(channel.path, "toy", files={"a": b"2"})
    report = index(channel)
    assert repodata(channel) == {}
    assert [finding.kind for finding in report.refused] == ["changed"]
    published.write_bytes(sound)
    assert index(channel).refused == ()
    assert repodata(channel) == record


def test_a_touched_file_keeps_its_record(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    put(channel, make_conda(tmp_path, "toy"))
    before = repodata(channel)
    os.utime(channel.path / "linux-64" / "toy-1.0-0.conda", ns=(1, 1))
    index(channel)
    assert repodata(channel) == before


def test_a_deleted_file_leaves_every_index(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    put(channel, make_conda(tmp_path, "toy"), make_conda(tmp_path, "other"))
    (channel.path / "linux-64" / "toy-1.0-0.conda").unlink()
    assert [finding.kind for finding in verify_channel(channel)] == ["missing"]
    index(channel)
    assert list(repodata(channel)) == ["other-1.0-0.conda"]
    assert verify_channel(channel) == []


def test_stale_shards_go_after_the_grace_time(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    put(channel, make_conda(tmp_path, "toy"))
    (old,) = (channel.path / "linux-64" / "shards").iterdir()
    put(channel, make_conda(tmp_path, "toy", version="2.0"))
    now_s = time.time()
    index(channel, now_s=now_s + 50)
    assert old.is_file()
    index(channel, now_s=now_s + 70)
    assert not old.exists()
    assert verify_channel(channel) == []


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        pytest.param(
            {"subdir": "osx-arm64"},
            "is for the subdir 'osx-arm64', as its index.json says; expected 'linux-64'",
            id="subdir",
        ),
        pytest.param({"depends": "python"}, "depends 'python'", id="depends is no list"),
        pytest.param({"build_number": "0"}, "build_number '0'", id="build number"),
        pytest.param({"depends": ["cuda[when='__cuda']"]}, "conditional", id="conditional dependency"),
    ],
)
def test_metadata_that_repodata_cannot_hold_is_refused(tmp_path: Path, extra: dict[str, object], message: str) -> None:
    channel = new_channel(tmp_path)
    make_conda(channel.path, "toy", index=extra)
    (finding,) = index(channel).refused
    assert message in finding.message


def test_a_writer_names_what_it_was_given(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    with channel_writer(channel, clock=lambda: 1234.5) as writer:
        assert isinstance(writer, ChannelWriter)
        add_set(writer, [make_conda(tmp_path, "toy")])
    assert repodata(channel)["toy-1.0-0.conda"]["indexed_timestamp"] == 1234500
