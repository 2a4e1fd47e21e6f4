# SPDX-License-Identifier: BSD-3-Clause
"""Packages in the older format (``.tar.bz2``) in a channel: listed as rattler lists them, checked as any other."""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path

import pytest
from rattler.index import index_fs

from channel_tools.channel import Channel, add_set, channel_writer, index_channel, verify_channel
from channel_tools.channel.publish import check_package
from channel_tools.conda.archive import read_package
from channel_tools.system.errors import IntegrityError
from tests.support.packages import link, make_conda, new_channel, old_format

OLD = "toy-1.0-0.tar.bz2"


def repodata(folder: Path, subdir: str = "linux-64") -> dict[str, dict[str, dict[str, object]]]:
    found: dict[str, dict[str, dict[str, object]]] = json.loads((folder / subdir / "repodata.json").read_bytes())
    return found


def added(folder: Path, *packages: Path) -> Channel:
    channel = new_channel(folder)
    with channel_writer(channel) as writer:
        add_set(writer, packages)
    return channel


def test_records_and_run_exports_are_those_of_rattlers_index(tmp_path: Path) -> None:
    made = tmp_path / "made"
    files: dict[str, bytes | tarfile.TarInfo] = {"share/a.txt": b"a", "lib/b": link("lib/b", "../share/a.txt")}
    toy = old_format(make_conda(made, "toy", files=files, run_exports={"weak": ["toy >=1"]}, index={"license": "MIT"}))
    both = make_conda(made, "both")
    twin = old_format(make_conda(tmp_path / "twin", "both"))
    channel = added(tmp_path, toy, both, twin)
    assert verify_channel(channel) == []
    ours = repodata(channel.path)
    assert sorted(ours["packages"]) == ["both-1.0-0.tar.bz2", OLD]
    assert list(ours["packages.conda"]) == ["both-1.0-0.conda"]
    for path in (channel.path / "linux-64").glob("repodata*"):
        path.unlink()
    asyncio.run(index_fs(channel.path))
    rattlers = {key: repodata(channel.path)[key] for key in ("packages", "packages.conda")}
    # rattler's indexer leaves these out of records of the old format
    assert ours["packages"][OLD].pop("run_exports") == {"weak": ["toy >=1"]}
    assert {key: without_dates(ours[key]) for key in rattlers} == {
        key: without_dates(rattlers[key]) for key in rattlers
    }


def without_dates(rows: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    return {
        name: {field: value for field, value in row.items() if field != "indexed_timestamp"}
        for name, row in rows.items()
    }


@pytest.mark.parametrize(
    ("said", "subdir"),
    [
        ({"subdir": None, "platform": "linux", "arch": "x86_64"}, "linux-64"),
        ({"subdir": None, "platform": "linux", "arch": "x86"}, "linux-32"),
        ({"subdir": None, "platform": "linux", "arch": "ppc64le"}, "linux-ppc64le"),
        ({"subdir": None, "platform": "osx", "arch": "x86_64"}, "osx-64"),
        ({"subdir": None, "platform": "osx", "arch": "arm64"}, "osx-arm64"),
        ({"subdir": None, "platform": "win", "arch": "x86_64"}, "win-64"),
        ({"subdir": None, "noarch": "generic"}, "noarch"),
    ],
)
def test_packages_of_2013_belong_where_their_platform_says(
    tmp_path: Path, said: dict[str, object], subdir: str
) -> None:
    path = old_format(make_conda(tmp_path, "toy"), without=("paths.json", "about.json"), index=said)
    row = check_package(path, subdir=subdir)
    assert row.record["subdir"] == subdir
    with pytest.raises(IntegrityError, match=f"is for the subdir '{subdir}'"):
        check_package(path, subdir="linux-s390x")


def test_a_package_that_does_not_say_for_which_subdir_it_is_is_refused(tmp_path: Path) -> None:
    path = old_format(make_conda(tmp_path, "toy"), index={"subdir": None})
    with pytest.raises(IntegrityError, match="no subdir, nor the platform and arch"):
        check_package(path)


def test_without_paths_json_the_files_are_those_in_info_files(tmp_path: Path) -> None:
    path = old_format(make_conda(tmp_path, "toy", files={"a": b"x", "b": b"y"}), without=("paths.json",))
    assert read_package(path, contents=True).index["name"] == "toy"
    bare = old_format(make_conda(tmp_path, "bare"), without=("paths.json", "files"))
    with pytest.raises(IntegrityError, match=r"it has no info/paths\.json"):
        read_package(bare, contents=True)


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_a_truncated_file_is_refused_and_named(tmp_path: Path, cut: int) -> None:
    path = old_format(make_conda(tmp_path, "toy", files={"share/a": bytes(range(256)) * 200}))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(IntegrityError, match=r"toy-1\.0-0\.tar\.bz2: not a complete conda package"):
        read_package(path, contents=True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a complete"),
        (b"BZh9 nonsense" * 9, "Invalid data stream|complete conda"),
        (b"PK", "Invalid data stream|complete conda"),
    ],
)
def test_what_is_no_bzip2_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / OLD
    path.write_bytes(content)
    with pytest.raises(IntegrityError, match=said):
        read_package(path, contents=True)


def test_a_damaged_bit_is_found(tmp_path: Path) -> None:
    path = old_format(make_conda(tmp_path, "toy", files={"share/a": bytes(range(256)) * 200}))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    with pytest.raises(IntegrityError, match=r"complete conda package"):
        read_package(path, contents=True)


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "conda-meta/history"])
def test_members_that_leave_the_prefix_are_refused(tmp_path: Path, name: str) -> None:
    path = old_format(make_conda(tmp_path, "toy", files={name: b"x"}))
    with pytest.raises(IntegrityError, match=r"outside the folder|replace a file that clients write"):
        read_package(path, contents=True)


def test_a_file_that_was_put_into_the_folder_is_listed_and_one_that_changes_is_not(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    path = old_format(make_conda(channel.path, "toy"))
    with channel_writer(channel) as writer:
        assert index_channel(writer).listed == 1
    other = old_format(make_conda(tmp_path / "other", "toy", files={"x": b"other"}))
    path.write_bytes(other.read_bytes())
    with channel_writer(channel) as writer:
        [refused] = index_channel(writer).refused
    assert (refused.path, refused.kind) == (path, "changed")
    assert repodata(channel.path)["packages"] == {}
