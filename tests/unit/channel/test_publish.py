# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
from pathlib import Path
from typing import IO

import pytest

from channel_tools.channel import (
    Channel,
    add_set,
    channel_writer,
    index_channel,
    prefer_packages,
    published_packages,
    verify_channel,
)
from channel_tools.channel import publish as publish_module
from channel_tools.channel.records import Origin
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import ChannelError, IntegrityError
from tests.support.packages import make_conda, new_channel, own

UDP = {"switchml_transport": "udp"}


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    return new_channel(tmp_path)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return tmp_path / "made"


def listed(channel: Channel, subdir: str = "linux-64") -> list[str]:
    return list(json.loads((channel.path / subdir / "repodata.json").read_bytes())["packages.conda"])


def add(channel: Channel, *files: Path) -> None:
    with channel_writer(channel) as writer:
        add_set(writer, files)


def link(channel: Channel, *files: Path) -> None:
    with channel_writer(channel) as writer:
        add_set(writer, (), files)


def test_an_own_package_is_published_with_what_the_plan_recorded(channel: Channel, made: Path) -> None:
    source = make_conda(made, "toy", about=own("d1", script="aa"), variant=UDP, index={"depends": ["python >=3.11"]})
    add(channel, source)
    (package,) = published_packages(channel)
    assert package.path == channel.path / "linux-64" / "toy-1.0-0.conda"
    assert package.row.origin == Origin(digest="d1", inputs={"script": "aa"}, variant=UDP)
    assert package.row.depends == ("python >=3.11",)
    assert package.hidden is None
    assert package.path.samefile(source)


def test_adding_the_same_bytes_again_changes_nothing(channel: Channel, made: Path) -> None:
    source = make_conda(made, "toy")
    add(channel, source)
    before = (channel.path / "linux-64" / "repodata.json").stat()
    add(channel, source)
    assert (channel.path / "linux-64" / "repodata.json").stat() == before


def test_other_bytes_under_a_name_are_refused(channel: Channel, made: Path) -> None:
    add(channel, make_conda(made / "1", "toy", files={"a": b"1"}))
    published = (channel.path / "linux-64" / "toy-1.0-0.conda").read_bytes()
    other = make_conda(made / "2", "toy", files={"a": b"2"})
    with pytest.raises(ChannelError, match="has other bytes under this name") as caught:
        add(channel, other)
    assert str(other) in caught.value.message
    assert "build number" in str(caught.value.hint)
    assert (channel.path / "linux-64" / "toy-1.0-0.conda").read_bytes() == published
    assert verify_channel(channel) == []


def test_nothing_of_a_set_enters_when_one_file_is_damaged(channel: Channel, made: Path) -> None:
    good, bad = make_conda(made, "good"), make_conda(made, "bad")
    bad.write_bytes(bad.read_bytes()[:-30])
    with pytest.raises(IntegrityError, match=r"bad-1\.0-0\.conda"):
        add(channel, good, bad)
    assert listed(channel) == []
    assert not (channel.path / "linux-64" / "good-1.0-0.conda").exists()


@pytest.mark.parametrize("name", ["missing-1-0.conda", "missing-1-0.tar.bz2", "toy-1-0.zip"])
def test_what_is_no_package_file_is_refused(channel: Channel, made: Path, name: str) -> None:
    with pytest.raises(ChannelError, match="no such package file"):
        add(channel, made / "linux-64" / name)


def test_a_damaged_file_in_the_channel_is_replaced_by_its_original(channel: Channel, made: Path) -> None:
    source = make_conda(made, "toy")
    sound = source.read_bytes()
    add(channel, source)
    entered = channel.path / "linux-64" / source.name
    entered.unlink()
    entered.write_bytes(sound[:-10] + b"0123456789")
    with channel_writer(channel) as writer:
        refused = index_channel(writer).refused
    assert [finding.path for finding in refused] == [entered]
    add(channel, source)
    assert entered.read_bytes() == sound
    assert verify_channel(channel) == []


def test_a_rebuild_of_a_variant_hides_the_earlier_build_and_keeps_its_file(channel: Channel, made: Path) -> None:
    add(channel, make_conda(made, "toy", build="h1_0", about=own("d1"), variant=UDP))
    add(channel, make_conda(made, "toy", build="h2_0", about=own("d2"), variant=UDP))
    add(channel, make_conda(made, "toy", build="h3_0", about=own("d3"), variant={"switchml_transport": "rdma"}))
    assert listed(channel) == ["toy-1.0-h2_0.conda", "toy-1.0-h3_0.conda"]
    assert (channel.path / "linux-64" / "toy-1.0-h1_0.conda").is_file()
    repodata = json.loads((channel.path / "linux-64" / "repodata.json").read_bytes())
    assert repodata["removed"] == ["toy-1.0-h1_0.conda"]
    assert verify_channel(channel) == []


def test_going_back_to_an_earlier_build_lists_it_again(channel: Channel, made: Path) -> None:
    add(channel, make_conda(made, "toy", build="h1_0", about=own("d1"), variant=UDP))
    add(channel, make_conda(made, "toy", build="h2_0", about=own("d2"), variant=UDP))
    with channel_writer(channel) as writer:
        prefer_packages(writer, ["linux-64/toy-1.0-h1_0.conda"])
    assert listed(channel) == ["toy-1.0-h1_0.conda"]
    hidden = {package.ref.file_name: package.hidden for package in published_packages(channel)}
    assert hidden["toy-1.0-h1_0.conda"] is None
    assert hidden["toy-1.0-h2_0.conda"] == "superseded by linux-64/toy-1.0-h1_0.conda"


def test_packages_without_a_recorded_variant_never_hide_each_other(channel: Channel, made: Path) -> None:
    add(channel, make_conda(made, "toy", build="0"), make_conda(made, "toy", build="1"))
    assert listed(channel) == ["toy-1.0-0.conda", "toy-1.0-1.conda"]


def test_foundation_packages_are_linked_and_are_not_own(channel: Channel, made: Path) -> None:
    zlib = make_conda(made, "zlib")
    noarch = make_conda(made, "pip", subdir="noarch", index={"noarch": "python"})
    link(channel, zlib, noarch)
    add(channel, make_conda(made, "toy", about=own("d1")))
    assert (channel.path / "linux-64" / zlib.name).samefile(zlib)
    assert (listed(channel), listed(channel, "noarch")) == (["toy-1.0-0.conda", zlib.name], [noarch.name])
    assert [package.row.name for package in published_packages(channel)] == ["toy"]


def test_a_new_foundation_replaces_the_old_one_as_a_set(channel: Channel, made: Path) -> None:
    zlib, old, new = (
        make_conda(made, "zlib"),
        make_conda(made, "ssl", build="h1_0"),
        make_conda(made, "ssl", build="h2_0"),
    )
    link(channel, zlib, old)
    link(channel, zlib, new)
    assert listed(channel) == ["ssl-1.0-h2_0.conda", "zlib-1.0-0.conda"]
    assert (channel.path / "linux-64" / old.name).is_file()
    link(channel, zlib, old)
    assert listed(channel) == ["ssl-1.0-h1_0.conda", "zlib-1.0-0.conda"]
    assert verify_channel(channel) == []


def test_linking_the_same_foundation_again_reads_no_package(
    channel: Channel, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [make_conda(made, "zlib"), make_conda(made, "ssl")]
    link(channel, *files)
    monkeypatch.setattr(publish_module, "read_package", None)
    monkeypatch.setattr("channel_tools.channel.records.read_package", None)
    link(channel, *files)
    assert listed(channel) == ["ssl-1.0-0.conda", "zlib-1.0-0.conda"]


def test_a_set_that_was_never_completed_is_cleared_by_the_next_writer(
    channel: Channel, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [make_conda(made, "one"), make_conda(made, "two")]
    linked: list[Path] = []

    link_one = Beneath.link

    def link_first(folder: Beneath, source: IO[bytes], name: str) -> None:
        if linked:
            raise KeyboardInterrupt
        linked.append(folder.path / name)
        link_one(folder, source, name)

    monkeypatch.setattr(Beneath, "link", link_first)
    with pytest.raises(KeyboardInterrupt):
        add(channel, *files)
    assert linked[0].is_file()
    assert listed(channel) == []
    with channel_writer(channel):
        assert not linked[0].exists()
    monkeypatch.undo()
    add(channel, *files)
    assert listed(channel) == ["one-1.0-0.conda", "two-1.0-0.conda"]


def test_a_foundation_package_that_is_damaged_where_it_lies_is_an_error(channel: Channel, made: Path) -> None:
    zlib = make_conda(channel.path, "zlib")
    zlib.write_bytes(zlib.read_bytes()[:-10])
    with pytest.raises(IntegrityError, match=r"zlib-1\.0-0\.conda"):
        link(channel, make_conda(made, "ssl"), zlib)
    assert listed(channel) == []
