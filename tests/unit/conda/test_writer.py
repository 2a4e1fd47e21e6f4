# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import hashlib
import json
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest
from conda_package_streaming.package_streaming import stream_conda_component

from channel_tools.conda import writer
from channel_tools.conda.archive import read_index_json, read_info_json, stream_component
from channel_tools.conda.metadata import BINARY_PLACEHOLDER, PREFIX_PLACEHOLDER, PackageMetadata
from channel_tools.conda.package import split_file_name
from channel_tools.conda.writer import write_conda_package
from channel_tools.system.errors import DiskFullError, IntegrityError

if TYPE_CHECKING:
    from pathlib import Path

METADATA = PackageMetadata(name="demo", version="1.2", build="h1_0", subdir="linux-64", timestamp_ms=1_600_000_000_000)


def _tree(root: Path) -> Path:
    tree = root / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin" / "tool").write_text("#!/bin/sh\n")
    (tree / "bin" / "tool").chmod(0o755)
    (tree / "share").mkdir()
    (tree / "share" / "note.txt").write_text(f"at {PREFIX_PLACEHOLDER}/share\n")
    (tree / "lib").mkdir()
    (tree / "lib" / "blob").write_bytes(b"\0" + PREFIX_PLACEHOLDER.encode() + b"\0")
    (tree / "lib" / "again").symlink_to("blob")
    (tree / "lib" / "elsewhere.so").symlink_to("../lib/of-another-package.so")
    (tree / "empty").mkdir()
    return tree


def _paths(package: Path) -> dict[str, dict[str, Any]]:
    return {entry["_path"]: entry for entry in read_info_json(package, "paths.json")["paths"]}


def test_a_package_holds_every_file_with_its_hash(tmp_path: Path) -> None:
    tree = _tree(tmp_path)
    written = write_conda_package(tree, METADATA, tmp_path / METADATA.file_name)
    entries = _paths(written.path)
    assert sorted(entries) == ["bin/tool", "lib/again", "lib/blob", "lib/elsewhere.so", "share/note.txt"]
    assert entries["bin/tool"]["sha256"] == hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    assert entries["bin/tool"]["size_in_bytes"] == 10
    assert written.files == 5
    assert written.sha256 == hashlib.sha256(written.path.read_bytes()).hexdigest()


def test_files_with_the_placeholder_are_marked_with_their_mode(tmp_path: Path) -> None:
    entries = _paths(write_conda_package(_tree(tmp_path), METADATA, tmp_path / METADATA.file_name).path)
    assert (entries["share/note.txt"]["prefix_placeholder"], entries["share/note.txt"]["file_mode"]) == (
        PREFIX_PLACEHOLDER,
        "text",
    )
    assert entries["lib/blob"]["file_mode"] == "binary"
    assert "prefix_placeholder" not in entries["bin/tool"]


@pytest.mark.parametrize("placeholder", [PREFIX_PLACEHOLDER, BINARY_PLACEHOLDER], ids=["text", "binary"])
def test_a_placeholder_across_the_border_of_two_chunks_is_found(
    placeholder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_CHUNK_BYTES", 100)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "text").write_text("x" * 150 + placeholder)
    entries = _paths(write_conda_package(tree, METADATA, tmp_path / METADATA.file_name).path)
    assert entries["text"]["prefix_placeholder"] == placeholder


def test_a_link_has_the_hash_of_what_it_leads_to(tmp_path: Path) -> None:
    entries = _paths(write_conda_package(_tree(tmp_path), METADATA, tmp_path / METADATA.file_name).path)
    assert entries["lib/again"]["path_type"] == "softlink"
    assert entries["lib/again"]["sha256"] == entries["lib/blob"]["sha256"]
    assert entries["lib/elsewhere.so"]["sha256"] == hashlib.sha256(b"").hexdigest()


def test_the_bytes_do_not_depend_on_times_owners_or_place(tmp_path: Path) -> None:
    packages = []
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        tree = _tree(tmp_path / str(number))
        os.utime(tree / "bin" / "tool", (number * 1000, number * 1000))
        packages.append(write_conda_package(tree, METADATA, tmp_path / str(number) / METADATA.file_name))
    assert packages[0].path.read_bytes() == packages[1].path.read_bytes()


def test_members_are_sorted_owned_by_root_and_keep_their_permission_to_run(tmp_path: Path) -> None:
    written = write_conda_package(_tree(tmp_path), METADATA, tmp_path / METADATA.file_name)
    members = [member for member, _ in stream_component(written.path, "pkg")]
    names = [member.name for member in members]
    assert names == sorted(names)
    assert {(member.uid, member.gid, member.uname, member.mtime) for member in members} == {(0, 0, "", 1_600_000_000)}
    assert {member.name: bool(member.mode & 0o100) for member in members if member.isreg()} == {
        "bin/tool": True,
        "lib/blob": False,
        "share/note.txt": False,
    }


def test_the_metadata_files_say_what_was_given(tmp_path: Path) -> None:
    metadata = PackageMetadata(
        name="demo",
        version="1.2",
        build="h1_0",
        subdir="noarch",
        depends=("python >=3.9",),
        noarch="python",
        run_exports={"weak": ("demo >=1.2,<2.0a0",), "strong": ()},
        entry_points=("demo = demo:main",),
        about={"license": "MIT"},
    )
    licenses = tmp_path / "licenses"
    (licenses / "demo").mkdir(parents=True)
    (licenses / "demo" / "LICENSE").write_text("MIT\n")
    written = write_conda_package(_tree(tmp_path), metadata, tmp_path / metadata.file_name, license_files=licenses)
    index = read_index_json(written.path)
    assert (index["name"], index["noarch"], index["arch"], index["depends"]) == (
        "demo",
        "python",
        None,
        ["python >=3.9"],
    )
    assert read_info_json(written.path, "run_exports.json") == {"weak": ["demo >=1.2,<2.0a0"]}
    assert read_info_json(written.path, "link.json")["noarch"] == {
        "type": "python",
        "entry_points": ["demo = demo:main"],
    }
    names = [member.name for member, _ in stream_component(written.path, "info")]
    assert "info/licenses/demo/LICENSE" in names


def test_another_reader_of_the_format_agrees(tmp_path: Path) -> None:
    written = write_conda_package(_tree(tmp_path), METADATA, tmp_path / METADATA.file_name)
    with written.path.open("rb") as stream:
        found = {
            member.name: tar.extractfile(member)
            for tar, member in stream_conda_component(METADATA.file_name, stream, "info")
        }
        assert "info/index.json" in found
    index = read_index_json(written.path)
    assert json.loads(json.dumps(index))["platform"] == "linux"


@pytest.mark.parametrize(
    ("target", "expected"),
    [("/usr/lib/libz.so", "absolute path"), ("../../etc/passwd", "outside the prefix")],
    ids=["absolute", "climbing"],
)
def test_a_link_that_leaves_the_prefix_is_refused(tmp_path: Path, target: str, expected: str) -> None:
    tree = tmp_path / "tree"
    (tree / "lib").mkdir(parents=True)
    (tree / "lib" / "x").symlink_to(target)
    with pytest.raises(IntegrityError, match=expected):
        write_conda_package(tree, METADATA, tmp_path / METADATA.file_name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tree"]


def test_what_is_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    monkeypatch.chdir(tree)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("door")
        with pytest.raises(IntegrityError, match="door: not a file or a link"):
            write_conda_package(tree, METADATA, tmp_path / METADATA.file_name)


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "_info_files", full)
    with pytest.raises(DiskFullError):
        write_conda_package(_tree(tmp_path), METADATA, tmp_path / METADATA.file_name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tree"]


@pytest.mark.parametrize(
    ("file_name", "expected"),
    [
        ("a-b-1.2-h1_0.conda", ("a-b", "1.2", "h1_0")),
        ("a-1.2-h1_0.tar.bz2", None),
        ("a.conda", None),
    ],
)
def test_file_names_split_into_their_parts(file_name: str, expected: tuple[str, str, str] | None) -> None:
    assert split_file_name(file_name) == expected
