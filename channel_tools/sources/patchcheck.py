# SPDX-License-Identifier: BSD-3-Clause
"""Whether a recipe's patches fit the source in the store, before anything is built from it.

Only the files that the patches name are read out of the archive, and nothing is unpacked to disk.
"""

from __future__ import annotations

import zipfile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from channel_tools.errors import ConfigError
from channel_tools.sources.archives import is_zip, open_tar
from channel_tools.sources.patching import (
    FilePatch,
    HunkError,
    PatchFormatError,
    apply_patch,
    names_in,
    parse_patch,
    stripped,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

_STRIP_LEVELS = (1, 0, 2)
"""Leading folders that names in patches may have; git's ``a/`` and ``b/`` are one."""


def check_patches(archive: Path, patches: Sequence[Path], *, what: str) -> None:
    """Apply ``patches`` one upon the other to ``archive``'s files in memory; ``what`` names the source in errors.

    Raises ConfigError naming the patch, its line, the hunk and the file where one does not fit exactly.
    """
    parsed = [(path, _parsed(path)) for path in patches]
    wanted = {name for _path, files in parsed for level in _STRIP_LEVELS for name in names_in(stripped(files, level))}
    texts = read_files(archive, wanted)
    for path, files in parsed:
        try:
            apply_patch(_fitting(files, texts), texts)
        except HunkError as err:
            message = f"the patch does not apply to {what}: {err}"
            hint = "make it anew for this version; a patch before it in the recipe may change the same lines"
            raise ConfigError(message, path=path, line=err.line, hint=hint) from None


def read_files(archive: Path, wanted: Collection[str]) -> dict[str, bytes | None]:
    """The content of the archive's files with these names, below its one top folder where it has one; None: absent."""
    tops: set[str] = set()
    found: dict[PurePosixPath, bytes] = {}
    for name, content in _members(archive, wanted):
        tops.add(name.parts[0] if name.parts else "")
        if content is not None:
            found[name] = content
    shared = next(iter(tops)) if len(tops) == 1 else None
    texts: dict[str, bytes | None] = dict.fromkeys(wanted)
    for name, content in found.items():
        inside = name.relative_to(shared).as_posix() if shared is not None else name.as_posix()
        if inside in texts:
            texts[inside] = content
    return texts


def _members(archive: Path, wanted: Collection[str]) -> Iterator[tuple[PurePosixPath, bytes | None]]:
    """Every member's name, with its content where it may be one of those wanted."""
    if is_zip(archive.name):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                name = PurePosixPath(info.filename)
                yield name, packed.read(info) if not info.is_dir() and _may_be(name, wanted) else None
        return
    with open_tar(archive) as tar:
        for member in tar:
            name = PurePosixPath(member.name)
            stream = tar.extractfile(member) if member.isreg() and _may_be(name, wanted) else None
            yield name, None if stream is None else stream.read()


def _may_be(name: PurePosixPath, wanted: Collection[str]) -> bool:
    return name.as_posix() in wanted or PurePosixPath(*name.parts[1:]).as_posix() in wanted


def _parsed(path: Path) -> list[FilePatch]:
    try:
        return parse_patch(path.read_bytes())
    except PatchFormatError as err:
        hint = "write it with git diff or git format-patch"
        raise ConfigError(f"the patch {err}", path=path, line=err.line, hint=hint) from None


def _fitting(files: Sequence[FilePatch], texts: dict[str, bytes | None]) -> list[FilePatch]:
    """The patch with as many leading folders taken off as makes the most of its files known; one where none are."""

    def known(level: int) -> int:
        return sum(texts.get(file.old) is not None for file in stripped(files, level) if file.old is not None)

    return stripped(files, max(_STRIP_LEVELS, key=known))
