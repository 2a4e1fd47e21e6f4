# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

from channel_tools.conda.comparison import PATHS, Difference, FileEntry, Kind, compare_entries, verdict_of


def _file(content: bytes, *, mode: int = 0o644, mtime: int = 1) -> FileEntry:
    sha256 = hashlib.sha256(content).hexdigest()
    return FileEntry(type="file", mode=mode, mtime=mtime, size_bytes=len(content), sha256=sha256, content=content)


def _link(target: str) -> FileEntry:
    return replace(_file(b"", mode=0o777), type="link", target=target)


@pytest.mark.parametrize(
    ("first", "second", "kind", "detail"),
    [
        (_file(b"a\nb\n"), _file(b"a\nc\n"), "content", "line 2: 'b', rebuilt 'c'"),
        (_file(b"a\n"), _file(b"a\nc\n"), "content", "line 2: no such line, rebuilt 'c'"),
        (_file(b"\0a"), _file(b"\0b"), "content", "2 bytes, rebuilt 2; the first difference is at byte 1"),
        (replace(_file(b"a"), content=None), _file(b"bc"), "content", "1 bytes, rebuilt 2"),
        (_file(b"a"), _file(b"a", mode=0o755), "mode", "0644, rebuilt 0755"),
        (_file(b"a"), _file(b"a", mtime=2), "time", "1 (seconds since 1970), rebuilt 2"),
        (_link("a"), _link("b"), "link", "points to a, rebuilt to b"),
        (_file(b""), _link("b"), "type", "file, rebuilt link"),
        (_file(b"a"), None, "missing", "only the published package has it"),
        (None, _file(b"a"), "added", "only the rebuilt package has it"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_how_a_file_differs(first: FileEntry | None, second: FileEntry | None, kind: Kind, detail: str) -> None:
    before, after = ({"f": one} if one is not None else {} for one in (first, second))

    assert compare_entries(before, after) == (Difference(file="f", kind=kind, detail=detail),)


def _paths(**hashes: str) -> FileEntry:
    rows = [{"_path": name, "path_type": "hardlink", "sha256": sha256} for name, sha256 in hashes.items()]
    rows.append({"_path": "link", "path_type": "softlink", "sha256": hashes["a"]})
    return _file(json.dumps({"paths": rows}).encode())


def test_paths_json_that_repeats_what_differs_is_no_difference_of_its_own() -> None:
    first = {"a": _file(b"1"), "b": _file(b"1"), PATHS: _paths(a="1", b="1")}
    second = {"a": _file(b"2"), "b": _file(b"1"), PATHS: _paths(a="2", b="1")}

    assert [one.file for one in compare_entries(first, second)] == ["a"]


def test_paths_json_that_says_something_else_is_one() -> None:
    first = {"a": _file(b"1"), PATHS: _paths(a="1", b="1")}
    second = {"a": _file(b"1"), PATHS: _paths(a="1", b="2")}

    assert [one.file for one in compare_entries(first, second)] == [PATHS]


def _difference(file: str, kind: Kind = "content") -> Difference:
    return Difference(file=file, kind=kind, detail="")


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ((), "packing"),
        ((_difference("bin/a", "time"),), "packing"),
        ((_difference("info/about.json"),), "metadata"),
        ((_difference("info/about.json"), _difference("bin/a", "mode")), "different"),
    ],
)
def test_what_differences_come_to(differences: tuple[Difference, ...], verdict: str) -> None:
    assert verdict_of(differences) == verdict
