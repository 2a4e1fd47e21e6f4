# SPDX-License-Identifier: BSD-3-Clause
"""Checks that a recipe's patches apply to its sources, before anything is built from it.

``git apply`` tries them on copies of the files that they name; nothing else of the archive is unpacked. A hunk may be
at another line, but its text must match exactly. Engines tolerate context lines that do not match; a patch that applies
only that way was made for another release, and nobody has checked its effect on this one.

git says at which file and line a hunk was expected. Finding that hunk in the patch, and the first line of the file that
differs, is done here.
"""

from __future__ import annotations

import os
import re
import stat
import zipfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from channel_tools.sources.archives import is_zip
from channel_tools.system.archives import check_member_path, members_of_tar
from channel_tools.system.counting import counted
from channel_tools.system.errors import ConfigError, IntegrityError
from channel_tools.system.files import located, read_at_most
from channel_tools.system.processes import run_command
from channel_tools.system.source_files import git_environment, link_target
from channel_tools.system.work_folder import temporary_folder
from channel_tools.system.yamlfile import load_plain_yaml

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

_STRIP_LEVELS = (1, 0, 2)
"""How many leading folders names in patches may have; git's ``a/`` and ``b/`` are one."""
_GIT = (
    # the user's git settings must not change what applies
    "git", "-c", "core.autocrlf=false", "-c", f"core.attributesFile={os.devnull}", "-c", "apply.ignoreWhitespace=no",
    # unidiff-zero: a hunk with little context may be at the start or end of the patch's file, but not of this one
    "apply", "-v", "--whitespace=nowarn", "--unidiff-zero",
)  # fmt: skip
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_FAILED = re.compile(r"error: while searching for:\n(.*?)\n?error: patch failed: (.+):(\d+)\n", re.DOTALL)
_STATES = (
    (re.compile(r"error: (.+): No such file or directory"), "it changes {}, which does not exist"),
    (re.compile(r"error: (.+): already exists in working directory"), "it creates {}, which already exists"),
    (re.compile(r"error: (.+): wrong type"), "{} is a link and the patch changes a file, or the other way round"),
    (
        re.compile(r"error: (?:affected file '|)(.+?)'? is beyond a symbolic link"),
        "it changes {}, which is behind a link",
    ),
)
_AT_LINE = re.compile(r"at (?:line |\S+:)(\d+)")
_QUOTED_NAMES = re.compile(rb'("(?:[^"\\]|\\.)*"|\S+) ("(?:[^"\\]|\\.)*"|\S+)')
Content = bytes | str
"""The bytes of a file, or the text of a symbolic link."""
_NEAR_LINES = 500
_PATCHED_BYTES = 256 << 20
_FORMAT_HINT = "write it with git diff or git format-patch"


@dataclass(frozen=True, kw_only=True, slots=True)
class Hunk:
    """The position of a hunk in the patch, and the lines of the old file that it changes."""

    patch_line: int
    start: int
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchedFile:
    """A header of a patch: a file's name before and after (None: it is created or removed), and the hunks below it."""

    patch_line: int
    old: str | None
    new: str | None
    hunks: list[Hunk] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchedSource:
    """A source of a recipe with its patches, for check_patches."""

    name: str
    """Its name in errors."""
    content: Path | Mapping[str, Path]
    """An archive, or files and links by their path in the source."""
    patches: tuple[Path, ...] = ()
    folder: str = ""
    """The folder of the build's work folder that it is unpacked into (``target_directory``)."""


def check_patches(sources: Sequence[PatchedSource]) -> None:
    """Apply the patches of a recipe's sources to copies of their files, in the recipe's order as engines do.

    A patch may change files of earlier sources in the same folder. Raises ConfigError naming the patch, its line, the
    hunk and the file if one does not match exactly.
    """
    for _path, error in try_patches(sources):
        if error is not None:
            raise error


def try_patches(sources: Sequence[PatchedSource]) -> Iterator[tuple[Path, ConfigError | None]]:
    """Every patch in the order of check_patches, with why it does not apply; those after it are tried without it."""
    with temporary_folder() as holder:
        work = holder / "source"
        for index, source in enumerate(sources):
            folder = work / source.folder
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in _content(source, _patched_names(sources[index:], source.folder)).items():
                if content is not None:
                    check_member_path(name)
                    _write(folder / name, content, work)
            for path in source.patches:
                try:
                    apply_patch(path, folder, source=source.name)
                except ConfigError as err:
                    yield path, err
                else:
                    yield path, None


def _write(path: Path, content: Content, work: Path) -> None:
    """Write a file or link below ``work``, over what an earlier source has there; nothing through a link out of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.parent.resolve().is_relative_to(work.resolve()):
        return
    path.unlink(missing_ok=True)
    if isinstance(content, str):
        path.symlink_to(content)
    else:
        path.write_bytes(content)


def _patched_names(sources: Sequence[PatchedSource], folder: str) -> set[str]:
    """The files below ``folder``, by their path from there, that the patches of ``sources`` may name."""
    start = PurePosixPath(folder)
    named = {
        PurePosixPath(source.folder, name)
        for source in sources
        for path in source.patches
        for level in _STRIP_LEVELS
        for name in names_in(path, level)
    }
    return {name.relative_to(start).as_posix() for name in named if name.is_relative_to(start)}


def _content(source: PatchedSource, names: Collection[str]) -> Mapping[str, Content | None]:
    if not names:
        return {}
    if isinstance(source.content, Path):
        return read_files(source.content, names)
    paths = {name: source.content[name] for name in names if name in source.content}
    return {name: path.read_bytes() if (link := link_target(path)) is None else link for name, path in paths.items()}


def apply_patch(patch: Path, folder: Path, *, source: str) -> None:
    """Apply the patch to the files below ``folder``, to all of them or none. Raises ConfigError as check_patches."""
    attempt = _Attempt(patch, folder, source)
    attempt.check_insertions()
    environ = git_environment() | {
        "GIT_CEILING_DIRECTORIES": str(folder.parent), "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull,
    }  # fmt: skip
    result = run_command([*_GIT, f"-p{attempt.strip}", patch.absolute()], cwd=folder, env=environ, check=False)
    if result.returncode != 0:
        raise attempt.error(result.stderr)


def names_in(patch: Path, strip: int = 1) -> set[str]:
    """Every path in the patch, without ``strip`` leading folders. Raises ConfigError as read_patch."""
    return {_stripped(name, strip) for file in read_patch(patch) for name in (file.old, file.new) if name is not None}


def read_patch(patch: Path) -> list[PatchedFile]:
    """The headers of a patch, in order; a file with both git's and diff's header has two.

    Raises ConfigError for a file that is not a unified diff, and for binary changes.
    """
    lines = patch.read_bytes().splitlines()
    files: list[PatchedFile] = []
    for number, line in _outside_of_hunks(lines):
        if line.startswith((b"GIT binary patch", b"Binary files ")):
            message = "the patch has binary changes, which cannot be checked"
            raise ConfigError(message, path=patch, line=number, hint="leave them out of the patch")
        if (hunk := _HUNK.match(line)) and files:
            files[-1].hunks.append(Hunk(patch_line=number, start=int(hunk[1]), count=_count(hunk[2])))
        elif (file := _header(lines, number)) is not None:
            files.append(file)
    if not files:
        message = "the patch is not a unified diff: it has no file header (--- and +++)"
        raise ConfigError(message, path=patch, line=1, hint=_FORMAT_HINT)
    for file in files:
        if not file.hunks and lines[file.patch_line - 1].startswith(b"--- "):
            message = f"the patch has no hunk for {file.old or file.new}"
            raise ConfigError(message, path=patch, line=file.patch_line, hint=_FORMAT_HINT)
    return files


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipePatch:
    """A patch of a rendered recipe, and the folder of its source in the build's work folder."""

    path: Path
    folder: str


def patches_of_recipe(recipe: Path) -> Iterator[RecipePatch]:
    """The patches that an evaluated recipe.yaml names, in the order in which they apply."""
    content = load_plain_yaml(recipe.read_bytes())
    sources = content.get("source") or [] if isinstance(content, dict) else []
    for source in sources if isinstance(sources, list) else [sources]:
        for name in source.get("patches") or []:
            yield RecipePatch(path=located(recipe.parent, str(name)), folder=str(source.get("target_directory") or ""))


def _outside_of_hunks(lines: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines of a patch with their numbers, without the text of hunks."""
    old_left = new_left = 0
    for number, line in enumerate(lines, start=1):
        if old_left > 0 or new_left > 0:
            old_left -= line[:1] in {b" ", b"-", b""}
            new_left -= line[:1] in {b" ", b"+", b""}
            continue
        if hunk := _HUNK.match(line):
            old_left, new_left = _count(hunk[2]), _count(hunk[3])
        yield number, line


def _count(text: bytes | None) -> int:
    return 1 if text is None else int(text)


def read_files(archive: Path, names: Collection[str]) -> dict[str, Content | None]:
    """The content of the archive's files and links with these names; None: absent.

    The names are below its single top folder if it has one.
    """
    tops: set[str] = set()
    contents: dict[PurePosixPath, Content | PurePosixPath] = {}
    for name, content in _members(archive, names):
        tops.add(name.parts[0] if name.parts else "")
        if content is not None:
            contents[name] = content
    shared = next(iter(tops)) if len(tops) == 1 else None
    texts: dict[str, Content | None] = dict.fromkeys(names)
    same: dict[str, str] = {}
    for name, content in contents.items():
        inside = _inside(name, shared)
        if inside not in texts:
            continue
        if isinstance(content, PurePosixPath):
            same[inside] = _inside(content, shared)
        else:
            texts[inside] = content
    if same:
        others = read_files(archive, set(same.values()))
        texts |= {name: others[other] for name, other in same.items()}
    return texts


def _inside(name: PurePosixPath, top: str | None) -> str:
    return name.relative_to(top).as_posix() if top is not None and name.is_relative_to(top) else name.as_posix()


def _members(archive: Path, names: Collection[str]) -> Iterator[tuple[PurePosixPath, Content | PurePosixPath | None]]:
    """Every member's name, with its content, or the name of the same file, if it may be one of the wanted ones."""
    if is_zip(archive.name):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                name = PurePosixPath(info.filename)
                is_wanted = not info.is_dir() and _may_be(name, names)
                content = _read_whole(packed.open(info), info.file_size, archive, name) if is_wanted else None
                is_link = stat.S_ISLNK(info.external_attr >> 16)
                yield name, os.fsdecode(content) if is_link and content is not None else content
        return
    for member, stream in members_of_tar(archive):
        name = PurePosixPath(member.name)
        if not _may_be(name, names):
            yield name, None
        elif member.issym():
            yield name, member.linkname
        elif member.islnk():
            yield name, PurePosixPath(member.linkname)
        else:
            yield name, None if stream is None else _read_whole(stream, member.size, archive, name)


def _read_whole(stream: IO[bytes], size_bytes: int, archive: Path, name: PurePosixPath) -> bytes:
    """A member that a patch changes. Raises IntegrityError if it is too large for that, whatever its header says."""
    content = b"" if size_bytes > _PATCHED_BYTES else read_at_most(stream, _PATCHED_BYTES + 1)
    if max(size_bytes, len(content)) > _PATCHED_BYTES:
        message = f"{archive}: {name} has more than {_PATCHED_BYTES} bytes, too many for a patch to change"
        raise IntegrityError(message, hint="change it in the build script")
    return content


def _may_be(name: PurePosixPath, names: Collection[str]) -> bool:
    return name.as_posix() in names or PurePosixPath(*name.parts[1:]).as_posix() in names


class _Attempt:
    """An attempt to apply a patch to a folder: checks that git lacks, and translates git's errors."""

    def __init__(self, patch: Path, folder: Path, source: str) -> None:
        self._patch = patch
        self._folder = folder
        self._source = source
        self._files = read_patch(patch)
        self.strip = max(_STRIP_LEVELS, key=self._count_present)

    def check_insertions(self) -> None:
        """Raise ConfigError for a hunk without context that starts after the file's end, where git would append it."""
        for file in self._files:
            for number, hunk in enumerate(file.hunks, start=1):
                name = _stripped(file.old or "", self.strip)
                count = len(self._lines_of(name)) if hunk.start and not hunk.count else hunk.start
                if count < hunk.start:
                    lines = counted(count, "line")
                    reason = f"hunk {number} of {name}: the file has {lines}, but the hunk starts at line {hunk.start}"
                    raise self._refused(reason, line=hunk.patch_line)

    def error(self, output: str) -> ConfigError:
        """The error for git's output."""
        if match := _FAILED.search(output):
            name, start = match[2], int(match[3])
            hunks = [(number, hunk) for file in self._named(name) for number, hunk in enumerate(file.hunks, start=1)]
            number, line = next(((number, hunk.patch_line) for number, hunk in hunks if hunk.start == start), (1, 1))
            link = link_target(self._folder / name)
            difference = (
                _difference(self._lines_of(name), match[1].splitlines(), start)
                if link is None
                else f"the source has a link to {link} there; expected a file or another link"
            )
            return self._refused(f"hunk {number} of {name}: {difference}", line=line)
        for pattern, words in _STATES:
            if match := pattern.search(output):
                lines = [file.patch_line for file in self._named(match[1]) if file.hunks]
                return self._refused(words.format(match[1]), line=next(iter(lines), 1))
        at = _AT_LINE.search(output)
        errors = [line.removeprefix("error: ") for line in output.splitlines() if line.startswith("error: ")]
        message = f"git cannot read the patch: {'; '.join(errors)}"
        return ConfigError(message, path=self._patch, line=int(at[1]) if at else 1, hint=_FORMAT_HINT)

    def _refused(self, reason: str, *, line: int) -> ConfigError:
        hint = "make the patch again for this version; an earlier patch in the recipe may change the same lines"
        message = f"the patch does not apply to {self._source}: {reason}"
        return ConfigError(message, path=self._patch, line=line, hint=hint)

    def _count_present(self, strip: int) -> int:
        """How many of the files that the patch changes exist, with that many leading folders removed."""
        return sum(
            file.old is not None and os.path.lexists(self._folder / _stripped(file.old, strip)) for file in self._files
        )

    def _named(self, name: str) -> list[PatchedFile]:
        return [
            file for file in self._files if name in {_stripped(each or "", self.strip) for each in (file.old, file.new)}
        ]

    def _lines_of(self, name: str) -> list[str]:
        path = self._folder / name
        if (link := link_target(path)) is not None:
            return [link]
        return path.read_text(errors="replace").splitlines() if path.is_file() else []


def _difference(content: Sequence[str], expected: Sequence[str], start: int) -> str:
    """The first line that differs, at the place near the hunk's own line that has the most lines in common."""
    best, best_score = start - 1, -1
    for start_at in range(max(0, start - _NEAR_LINES), min(len(content), start + _NEAR_LINES)):
        score = sum(
            actual == expected_line for actual, expected_line in zip(content[start_at:], expected, strict=False)
        )
        if score > best_score or (score == best_score and abs(start_at - start) < abs(best - start)):
            best, best_score = start_at, score
    for offset, expected_line in enumerate(expected):
        line = content[best + offset] if 0 <= best + offset < len(content) else None
        if line != expected_line:
            text = "the end of the file" if line is None else repr(line)
            return f"line {best + offset + 1} is {text}; expected {expected_line!r}"
    return f"the file has {counted(len(content), 'line')}, but the hunk starts at line {start}"


def _header(lines: Sequence[bytes], number: int) -> PatchedFile | None:
    """The header that starts at a line, counted from 1; None if there is none."""
    line = lines[number - 1]
    if line.startswith(b"--- ") and number < len(lines) and lines[number].startswith(b"+++ "):
        return PatchedFile(patch_line=number, old=_name(line[4:]), new=_name(lines[number][4:]))
    if line.startswith(b"diff --git ") and (names := _git_names(line.removeprefix(b"diff --git "))):
        return PatchedFile(patch_line=number, old=_name(names[0]), new=_name(names[1]))
    if line.startswith((b"rename from ", b"copy from ")) and number < len(lines):
        old, new = (_unquoted(each.partition(word)[2]) for each, word in ((line, b" from "), (lines[number], b" to ")))
        return PatchedFile(patch_line=number, old=f"a/{old}", new=f"b/{new}")
    return None


def _git_names(text: bytes) -> tuple[bytes, bytes] | None:
    """The two names after ``diff --git``; None for different ones with blanks, which other lines give."""
    if match := _QUOTED_NAMES.fullmatch(text) or re.fullmatch(rb"(\S+) (\S+)", text):
        return match[1], match[2]
    half = len(text) // 2
    return (
        (text[:half], text[half + 1 :])
        if text[:half].partition(b"/")[2] == text[half + 1 :].partition(b"/")[2]
        else None
    )


def _name(text: bytes) -> str | None:
    name = _unquoted(text.partition(b"\t")[0].strip())
    return None if name == os.devnull else name


def _unquoted(text: bytes) -> str:
    """A name as git writes it, in quotes and with escapes if it has to (core.quotePath in git-config(1))."""
    if len(text) < 2 or not text.startswith(b'"') or not text.endswith(b'"'):  # noqa: PLR2004 - two quotes
        return text.decode(errors="replace")
    return os.fsdecode(text[1:-1].decode("unicode_escape").encode("latin-1"))


def _stripped(name: str, strip: int) -> str:
    return "/".join(name.split("/")[strip:]) or name
