# SPDX-License-Identifier: BSD-3-Clause
"""Applying a unified diff to texts in memory, exactly: a hunk may stand on other lines, but no word of it may differ.

Engines forgive lines of context that do not match; a patch that fits only so was made for another release, and what it
does there nobody has looked at. So patches are tried here first, on the source as it is in the store.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_NOWHERE = "/dev/null"


@dataclass(frozen=True, kw_only=True, slots=True)
class Hunk:
    """One hunk: where it stands in the patch, the lines it expects, and those it leaves."""

    number: int
    patch_line: int
    start: int
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FilePatch:
    """What a patch does to one file; None for a name says that the file is made, or removed."""

    old: str | None
    new: str | None
    patch_line: int
    hunks: tuple[Hunk, ...]
    is_binary: bool = False


class PatchFormatError(ValueError):
    """The text is no unified diff; ``line`` says where that shows."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class HunkError(ValueError):
    """A hunk, or a file of a patch, does not fit; ``line`` is where it begins in the patch."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def parse_patch(content: bytes) -> list[FilePatch]:
    """The files of a patch in its order. Raises PatchFormatError."""
    lines = content.splitlines(keepends=True)
    return list(_Parser(lines).files())


def apply_patch(patches: Iterable[FilePatch], texts: dict[str, bytes | None]) -> None:
    """Change ``texts`` (by path; None: no such file) as the patch says. Raises HunkError at what does not fit."""
    for patch in patches:
        if patch.is_binary:
            raise HunkError(
                "holds binary changes, which cannot be checked; leave them out of the patch", patch.patch_line
            )
        content = _content_before(patch, texts)
        for hunk in patch.hunks:
            content = _apply_hunk(content, hunk, patch)
        if patch.old is not None and patch.old != patch.new:
            texts[patch.old] = None
        if patch.new is not None:
            texts[patch.new] = b"".join(content)


def names_in(patches: Iterable[FilePatch]) -> set[str]:
    """Every path that the patch names."""
    return {name for patch in patches for name in (patch.old, patch.new) if name is not None}


def stripped(patches: Iterable[FilePatch], levels: int) -> list[FilePatch]:
    """The patch with that many leading folders taken off its names."""
    return [
        FilePatch(
            old=_strip(patch.old, levels),
            new=_strip(patch.new, levels),
            patch_line=patch.patch_line,
            hunks=patch.hunks,
            is_binary=patch.is_binary,
        )
        for patch in patches
    ]


def _content_before(patch: FilePatch, texts: Mapping[str, bytes | None]) -> list[bytes]:
    if patch.old is None:
        if patch.new is not None and texts.get(patch.new) is not None:
            raise HunkError(f"it makes {patch.new}, which exists already", patch.patch_line)
        return []
    content = texts.get(patch.old)
    if content is None:
        raise HunkError(f"it changes {patch.old}, which does not exist", patch.patch_line)
    return content.splitlines(keepends=True)


def _apply_hunk(content: list[bytes], hunk: Hunk, patch: FilePatch) -> list[bytes]:
    place = _place_of(content, hunk)
    if place is None:
        raise HunkError(
            f"hunk {hunk.number} of {patch.old or patch.new}: {_difference(content, hunk)}", hunk.patch_line
        )
    return [*content[:place], *hunk.after, *content[place + len(hunk.before) :]]


def _place_of(content: list[bytes], hunk: Hunk) -> int | None:
    """The index of the lines that are exactly those expected, the nearest to where the hunk says."""
    wanted = list(hunk.before)
    if not wanted:
        return min(hunk.start, len(content)) if hunk.start <= len(content) else None
    expected = hunk.start - 1
    first = wanted[0]
    places = [
        index for index, line in enumerate(content) if line == first and content[index : index + len(wanted)] == wanted
    ]
    return min(places, key=lambda index: abs(index - expected), default=None)


def _difference(content: list[bytes], hunk: Hunk) -> str:
    """The first line that is not the expected one, at the place with the most lines in common near the hunk's own."""
    best, best_score = hunk.start - 1, -1
    for place in range(max(0, hunk.start - 500), min(len(content), hunk.start + 500)):
        score = sum(one == two for one, two in zip(content[place:], hunk.before, strict=False))
        if score > best_score or (score == best_score and abs(place - hunk.start) < abs(best - hunk.start)):
            best, best_score = place, score
    for offset, wanted in enumerate(hunk.before):
        found = content[best + offset] if 0 <= best + offset < len(content) else None
        if found != wanted:
            shown = "the end of the file" if found is None else repr(_text(found))
            return f"line {best + offset + 1} is {shown}, expected {_text(wanted)!r}"
    return f"the file has {len(content)} lines, the hunk begins at {hunk.start}"


class _Parser:
    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines
        self._at = 0

    def files(self) -> Iterable[FilePatch]:
        found = False
        git: dict[str, str] = {}
        started = 0
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith(b"diff --git "):
                if _is_rename(git):
                    yield self._rename(git, started)
                git, started = {}, self._at + 1
                found = True
            elif line.startswith((b"rename from ", b"rename to ")):
                key, _, name = line.rstrip(b"\r\n").partition(b" ")[2].partition(b" ")
                git[_text(key)] = _text(name)
            elif line.startswith((b"GIT binary patch", b"Binary files ")):
                yield FilePatch(old="binary", new="binary", patch_line=self._at + 1, hunks=(), is_binary=True)
            elif line.startswith(b"--- ") and self._next_starts_with(b"+++ "):
                git = {}
                found = True
                yield self._file()
                continue
            self._at += 1
        if _is_rename(git):
            yield self._rename(git, started)
        if not found:
            raise PatchFormatError("is no unified diff: no file header (--- and +++) in it", 1)

    def _rename(self, git: Mapping[str, str], line: int) -> FilePatch:
        return FilePatch(old="a/" + git["from"], new="b/" + git["to"], patch_line=line, hunks=())

    def _file(self) -> FilePatch:
        line = self._at + 1
        old, new = _name(self._lines[self._at]), _name(self._lines[self._at + 1])
        self._at += 2
        hunks: list[Hunk] = []
        while self._at < len(self._lines) and (match := _HUNK.match(self._lines[self._at])):
            hunks.append(self._hunk(match, len(hunks) + 1))
        if not hunks:
            raise PatchFormatError(f"has no hunk for {old or new}", line)
        return FilePatch(old=old, new=new, patch_line=line, hunks=tuple(hunks))

    def _hunk(self, match: re.Match[bytes], number: int) -> Hunk:
        line = self._at + 1
        old_left, new_left = (int(text) if text is not None else 1 for text in (match[2], match[3]))
        before: list[bytes] = []
        after: list[bytes] = []
        self._at += 1
        while old_left > 0 or new_left > 0:
            text = self._lines[self._at] if self._at < len(self._lines) else b""
            kind, body = text[:1], text[1:]
            if text in {b"\n", b"\r\n"}:  # an empty line of context whose blank was taken off
                kind, body = b" ", text
            if kind not in {b" ", b"-", b"+"}:
                raise PatchFormatError(f"hunk {number} ends before it has all its lines", self._at + 1)
            if kind in {b" ", b"-"}:
                before.append(body)
                old_left -= 1
            if kind in {b" ", b"+"}:
                after.append(body)
                new_left -= 1
            self._at += 1
            if self._next_is_no_newline():
                self._at += 1
                for lines in [before] if kind == b"-" else [after] if kind == b"+" else [before, after]:
                    lines[-1] = lines[-1].removesuffix(b"\n")
        if old_left < 0 or new_left < 0:
            raise PatchFormatError(f"hunk {number} has more lines than its header says", line)
        return Hunk(number=number, patch_line=line, start=int(match[1]), before=tuple(before), after=tuple(after))

    def _next_starts_with(self, start: bytes) -> bool:
        return self._at + 1 < len(self._lines) and self._lines[self._at + 1].startswith(start)

    def _next_is_no_newline(self) -> bool:
        return self._at < len(self._lines) and self._lines[self._at].startswith(b"\\ ")


def _is_rename(git: Mapping[str, str]) -> bool:
    return {"from", "to"} <= git.keys()


def _name(line: bytes) -> str | None:
    name = _text(line[4:]).partition("\t")[0].strip()
    return None if name == _NOWHERE else name


def _strip(name: str | None, levels: int) -> str | None:
    if name is None:
        return None
    return "/".join(name.split("/")[levels:]) or name


def _text(line: bytes) -> str:
    return line.rstrip(b"\r\n").decode(errors="replace")
