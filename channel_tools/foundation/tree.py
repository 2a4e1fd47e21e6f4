# SPDX-License-Identifier: BSD-3-Clause
"""What an unpacked tree is asked and loses besides repair steps: globs kept and dropped, licenses, the glibc it needs.

Packages of the foundation come from a newer glibc than conda-forge's; without the requirement a solver would install
them on a host where nothing starts.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from debian.deb822 import Deb822

from channel_tools.foundation.repairs.elf import dynamic_elf_files
from channel_tools.system.elf import newest_glibc
from channel_tools.system.errors import FoundationError
from channel_tools.system.files import tree_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

UNKNOWN_LICENSE = "LicenseRef-see-license-files"
_LICENSE_FILE = re.compile(r"(?:licen[cs]es?/.+|(?:licen[cs]e|copying|notice|copyright)[^/]*)", re.IGNORECASE)
_SYSROOT = "sysroot"


def prune(tree: Path, *, keep: Sequence[str], drop: Sequence[str]) -> None:
    """Remove what ``keep`` (unless empty) does not match and what ``drop`` matches, then folders left empty.

    A glob matches a path or any folder above it. Raises FoundationError for a ``keep`` glob that matches nothing: the
    file it was written for is gone.
    """
    files = list(tree_files(tree))
    for glob in keep:
        if not any(map(_matcher([glob]), files)):
            raise FoundationError(f"keep glob {glob!r} matches none of the {len(files)} files")
    is_kept, is_dropped = _matcher(keep), _matcher(drop)
    for name in files:
        if (keep and not is_kept(name)) or (drop and is_dropped(name)):
            (tree / name).unlink()
    for folder, _, _ in os.walk(tree, topdown=False):
        if folder != os.fspath(tree) and not os.listdir(folder):  # noqa: PTH208 - os.walk gives text
            Path(folder).rmdir()


def _matcher(globs: Sequence[str]) -> Callable[[str], object]:
    return re.compile("|".join(f"(?:{fnmatch.translate(glob)[:-2]}(?:/.*)?\\Z)" for glob in globs) or r"(?!)").match


def deb_licenses(tree: Path, debs: Sequence[str], destination: Path) -> str:
    """Copy the debs' copyright files out of the tree and say which license the first machine-readable one states.

    Some packages share their documentation folder with another through a link; those bring no file of their own.
    """
    stated: list[str] = []
    for deb in debs:
        source = tree / "usr" / "share" / "doc" / deb / "copyright"
        if source.is_file() and not source.is_symlink():
            target = destination / deb / "copyright"
            target.parent.mkdir(parents=True)
            shutil.copyfile(source, target)
            stated += _stated_license(source)
    return stated[0] if stated else UNKNOWN_LICENSE


def _stated_license(source: Path) -> list[str]:
    """The license of the files in general, where the copyright file is of Debian's machine-readable form.

    python-debian's own reader of that form is not asked: it compiles every glob of files that have thousands.
    """
    with source.open("rb") as stream:
        try:
            for paragraph in Deb822.iter_paragraphs(stream, use_apt_pkg=False, encoding="utf-8"):
                if "*" in paragraph.get("Files", "").split() and (stated := paragraph.get("License", "").strip()):
                    return [" ".join(stated.splitlines()[0].split())]
        except ValueError:  # not of that form: no fields, or no UTF-8
            return []
    return []


def wheel_licenses(tree: Path, dist_info: str, metadata: Mapping[str, object], destination: Path) -> str:
    """Copy a wheel's license files and say what its metadata states."""
    folder = tree / dist_info
    for name in tree_files(folder):
        if _LICENSE_FILE.fullmatch(name):
            target = destination / folder.name / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, target)
    stated = metadata.get("license_expression") or metadata.get("license")
    return stated if isinstance(stated, str) and len(stated.splitlines()) == 1 else _from_classifiers(metadata)


def _from_classifiers(metadata: Mapping[str, object]) -> str:
    classifiers = metadata.get("classifiers")
    texts = [str(text) for text in classifiers] if isinstance(classifiers, list) else []
    names = [text.rpartition(" :: ")[2] for text in texts if text.startswith("License :: OSI Approved :: ")]
    return names[0] if names else UNKNOWN_LICENSE


def glibc_requirements(tree: Path) -> list[str]:
    """``__glibc >=2.34,<3.0.a0`` for the newest symbol version in ``tree``; none when nothing asks for glibc.

    The sysroot's own libraries do not count: they are linked against, never loaded.
    """
    versions = [
        newest
        for path, info in dynamic_elf_files(tree)
        if _SYSROOT not in path.relative_to(tree).parts and (newest := newest_glibc(info.symbol_versions))
    ]
    return [f"__glibc >={'.'.join(map(str, max(versions)))},<3.0.a0"] if versions else []
