# SPDX-License-Identifier: BSD-3-Clause
"""Which files go into a build: the recipe's folder, and what the recipe names outside of it.

One rule serves the digest and the rendered folder, so what is not hashed cannot be used. It knows no .gitignore: the
same tree must give the same digest from an archive as from a clone.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Protocol

from channel_tools.errors import ConfigError
from channel_tools.files import sha256_of_file
from channel_tools.plan.model import BuildFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from channel_tools.matrix.model import RenderedPackage
    from channel_tools.yamlfile import YamlValue

OUTSIDE_FOLDER = "_tree"
"""Where files from outside the recipe's folder stand in a rendered folder, by their path in the tree."""

_SKIPPED_FOLDERS = re.compile(
    r"__pycache__|\..*_cache|\.git|\.hg|\.svn|\.idea|\.vscode|\.venv|.*\.egg-info|_?build|cmake-build-.*|build-.*|output"
)
_SKIPPED_FILES = re.compile(r".*\.py[co]|.*~|\.#.*|#.*#|.*\.sw[op]|.*\.orig|.*\.rej|\.DS_Store|\.tmp-.*")
_GENERATED = frozenset({"recipe.yaml", "variants.yaml", "conda_build_config.yaml"})
_SCRIPT_SUFFIXES = frozenset({".sh", ".bash", ".bat", ".py"})
_OUTSIDE_OF_RECIPE_DIR = re.compile(r"\$\{?RECIPE_DIR\}?['\"]?/\.\./?|%RECIPE_DIR%\\\.\.")


class FileReader(Protocol):
    """The file system as planning sees it."""

    def list_files(self, folder: Path) -> list[Path]:
        """All files below ``folder`` that the skip rule leaves, sorted by their path."""

    def is_folder(self, path: Path) -> bool:
        """Whether ``path`` is a folder."""

    def is_file(self, path: Path) -> bool:
        """Whether ``path`` is a file."""

    def is_executable(self, path: Path) -> bool:
        """Whether a file may be run."""

    def sha256(self, path: Path) -> str:
        """The hash of a file."""

    def read_bytes(self, path: Path) -> bytes:
        """The content of a script."""


class DiskFiles:
    """The real file system; every file is hashed once in the object's life."""

    def __init__(self) -> None:
        self._hashes: dict[Path, str] = {}

    def list_files(self, folder: Path) -> list[Path]:
        """As FileReader."""
        found: list[Path] = []
        for parent, folders, names in os.walk(folder):
            folders[:] = [name for name in folders if not _SKIPPED_FOLDERS.fullmatch(name)]
            found += [Path(parent, name) for name in names if not _SKIPPED_FILES.fullmatch(name)]
        return sorted(path for path in found if path.is_file())

    def is_folder(self, path: Path) -> bool:
        """As FileReader."""
        return path.is_dir()

    def is_file(self, path: Path) -> bool:
        """As FileReader."""
        return path.is_file()

    def is_executable(self, path: Path) -> bool:
        """As FileReader."""
        return bool(path.stat().st_mode & 0o100)

    def sha256(self, path: Path) -> str:
        """As FileReader."""
        if path not in self._hashes:
            self._hashes[path] = sha256_of_file(path)
        return self._hashes[path]

    def read_bytes(self, path: Path) -> bytes:
        """As FileReader."""
        return path.read_bytes()


def collect_build_files(rendered: RenderedPackage, root: Path, reader: FileReader) -> tuple[BuildFile, ...]:
    """The files of a build, sorted by target; README files beside the recipe count only where the recipe names them.

    Raises ConfigError (file, line) when the recipe names a file that does not exist or lies outside the tree, or when a
    script reaches out of the recipe's folder.
    """
    folder = rendered.recipe_file.folder
    named = dict(_named_files(rendered, root, reader))
    inside = [path for path in reader.list_files(folder) if path in named or not _is_left_out(path, folder)]
    for path in (rendered.recipe_file.path, *inside):
        _check_stays_inside(path, reader)
    paths = {**dict.fromkeys(inside), **named}
    files = (_build_file(path, folder, root, reader) for path in paths)
    return tuple(sorted(files, key=lambda file: file.target))


def target_of(path: Path, folder: Path, root: Path) -> str:
    """Where a file or folder of the tree stands in the rendered folder of the recipe in ``folder``."""
    if path.is_relative_to(folder):
        return path.relative_to(folder).as_posix()
    return str(PurePosixPath(OUTSIDE_FOLDER, path.relative_to(root).as_posix()))


def located(folder: Path, text: str) -> Path:
    """The path that a recipe in ``folder`` means by ``text``, without ``..``; links are not followed."""
    return Path(os.path.normpath(folder / text))


def _is_left_out(path: Path, folder: Path) -> bool:
    return path.parent == folder and (path.name in _GENERATED or path.name.upper().startswith("README"))


def _build_file(path: Path, folder: Path, root: Path, reader: FileReader) -> BuildFile:
    return BuildFile(
        path=path,
        name=Path(os.path.relpath(path, folder)).as_posix(),
        target=target_of(path, folder, root),
        sha256=reader.sha256(path),
        executable=reader.is_executable(path),
    )


def _named_files(rendered: RenderedPackage, root: Path, reader: FileReader) -> Iterator[tuple[Path, None]]:
    """Files that the recipe names by path: local sources, patches, licence files outside its folder."""
    folder = rendered.recipe_file.folder
    for source in rendered.sources:
        names = [*([source.location] if source.kind == "path" else []), *source.patches]
        for name in names:
            yield from _files_at(rendered, located(folder, name), name, root, reader, key_path=("source",))
    for name in license_files(rendered.recipe):
        path = located(folder, name)
        if ".." in PurePosixPath(name).parts or (path.parent == folder and reader.is_file(path)):
            yield from _files_at(rendered, path, name, root, reader, key_path=("about", "license_file"))


def license_files(recipe: YamlValue | object) -> Sequence[str]:
    """``about.license_file`` of an evaluated recipe as a list."""
    about = recipe.get("about") if isinstance(recipe, dict) else None
    value = about.get("license_file") if isinstance(about, dict) else None
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]


def _files_at(
    rendered: RenderedPackage, path: Path, name: str, root: Path, reader: FileReader, *, key_path: tuple[str, ...]
) -> Iterator[tuple[Path, None]]:
    document = rendered.recipe_file.document
    if not path.is_relative_to(root):
        message = f"{name} lies outside the tree {root}"
        raise document.error(message, *key_path, hint="move it into the tree: a rendered recipe holds all it needs")
    if reader.is_folder(path):
        yield from ((file, None) for file in reader.list_files(path))
    elif reader.is_file(path):
        yield path, None
    else:
        message = f"the recipe names {name}, which does not exist"
        raise document.error(message, *key_path, hint=f"correct the name or add {path.relative_to(root)}")


def _check_stays_inside(path: Path, reader: FileReader) -> None:
    if path.suffix not in _SCRIPT_SUFFIXES and path.name != "recipe.yaml":
        return
    for number, line in enumerate(reader.read_bytes(path).splitlines(), start=1):
        if _OUTSIDE_OF_RECIPE_DIR.search(line.decode("utf-8", "replace")):
            message = "the script reaches out of the recipe's folder through RECIPE_DIR"
            hint = (
                "name the files as a source of the recipe (`source: - path: ../other/src`), then they are rendered too"
            )
            raise ConfigError(message, path=path, line=number, hint=hint)
