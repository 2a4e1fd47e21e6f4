# SPDX-License-Identifier: BSD-3-Clause
"""The files of a folder of sources, as git would keep them: their bytes, whether they are programs, and links as links.

Digests, rendered recipes, feedstocks, copies of upstreams and bundles all read folders through this module, so that
what is hashed is what is copied.
"""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path
from typing import IO, TYPE_CHECKING

from channel_tools.system.errors import ConfigError
from channel_tools.system.files import sha256_of_file
from channel_tools.system.processes import run_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LINK_MARK = "-> "
"""What stands before the text of a link where files have a hash."""
_PROGRAM_MODE, _FILE_MODE = 0o755, 0o644
_LOCATING = frozenset(
    {
        "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE", "GIT_REPLACE_REF_BASE",
    }
)  # fmt: skip
"""Environment variables that would make git use another repository than the given one."""
_SLOW_HTTP = {"GIT_HTTP_LOW_SPEED_LIMIT": "1000", "GIT_HTTP_LOW_SPEED_TIME": "300"}
"""By itself, git waits for ever for a server that has stopped sending; what the user has set holds."""


def list_source_files(
    folder: Path, *, without_folder: Callable[[str, str], bool], without_file: Callable[[str], bool]
) -> list[Path]:
    """The files and links below ``folder``, sorted; links to folders are not followed, special files are left out.

    ``without_folder(parent, name)`` and ``without_file(name)`` say what is left out; a link to a folder is asked both.
    """
    paths: list[str] = []
    for parent, folders, names in os.walk(folder):
        kept = [name for name in folders if not without_folder(parent, name)]
        folders[:] = [name for name in kept if not os.path.islink(f"{parent}{os.sep}{name}")]  # noqa: PTH114 - paths are slow
        links = set(kept).difference(folders)
        found = [f"{parent}{os.sep}{name}" for name in (*links, *names) if not without_file(name)]
        paths += [path for path in found if os.path.isfile(path) or os.path.islink(path)]  # noqa: PTH113, PTH114 - as above
    return [Path(path) for path in sorted(paths, key=lambda path: path.split(os.sep))]  # noqa: PTH206 - as above


def link_target(path: Path) -> str | None:
    """The text of a symbolic link; None for anything else."""
    return os.readlink(path) if path.is_symlink() else None  # noqa: PTH115 - a path would lose a slash at the end


def is_program(path: Path) -> bool:
    """Whether the owner of a file may run it, which is what git records of its mode."""
    return bool(path.stat().st_mode & 0o100)


def copy_source_file(path: Path, destination: Path, *, follow: bool = False) -> None:
    """Copy a file with mode 0644 or 0755, or a link as a link (unless ``follow``), making the folders above it."""
    link = None if follow else link_target(path)
    if link is not None:
        write_source_file(destination, io.BytesIO(), link=link)
        return
    with path.open("rb") as stream:
        write_source_file(destination, stream, executable=is_program(path))


def write_source_file(
    destination: Path, content: IO[bytes], *, executable: bool = False, link: str | None = None
) -> None:
    """Write a file with the bytes of a stream and mode 0644 or 0755, or a ``link``, making the folders above it."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    if link is not None:
        destination.symlink_to(link)
        return
    with destination.open("wb") as stream:
        shutil.copyfileobj(content, stream)
    destination.chmod(_PROGRAM_MODE if executable else _FILE_MODE)


def git_environment() -> dict[str, str]:
    """The environment for git: no prompts, no lazy fetching, untranslated messages, an end to what is too slow."""
    own = {"GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8"}
    inherited = {key: value for key, value in os.environ.items() if key not in _LOCATING}
    return _SLOW_HTTP | inherited | own


def work_tree_of(folder: Path) -> Path | None:
    """The folder with the ``.git`` of the repository that ``folder`` is in, if it is in one."""
    return next((above for above in (folder, *folder.parents) if os.path.lexists(above / ".git")), None)


def gitignore_of(folder: Path) -> Callable[[Path], bool]:
    """Whether a file or link below ``folder`` is left out by .gitignore files of its repository, if it is in one.

    What is tracked is not ignored, so that a clone and an archive of a commit have the same files. The user's own lists
    do not count. Raises ConfigError if git cannot read the repository.
    """
    top = work_tree_of(folder)
    if top is None:
        return lambda _path: False
    command: list[str | Path] = [
        "git",
        "-c",
        "safe.directory=*",
        "-c",
        "core.fsmonitor=false",
        "-C",
        top,
        "ls-files",
        "-z",
    ]
    words = [
        "--others",
        "--ignored",
        "--exclude-per-directory=.gitignore",
        "--",
        f":(literal){folder.relative_to(top)}",
    ]
    result = run_command([*command, *words], env=git_environment(), check=False)
    if result.returncode != 0 and "not a git repository" not in result.stderr:
        message = f"git cannot say which files it ignores: {' '.join(result.tail().split())}"
        raise ConfigError(message, path=top / ".git", hint="repair the repository, or copy the tree out of it")
    names = frozenset(result.stdout.split("\0"))
    # names of files are bytes, and the output was decoded
    return lambda path: os.fsencode(path.relative_to(top)).decode(errors="replace") in names


def ignored_among(
    files: Sequence[Path], folder: Path, *, is_ignored: Callable[[Path], bool] | None = None
) -> frozenset[Path]:
    """The files of ``folder`` that git ignores, by what gitignore_of says of it or of a folder above it.

    None where git ignores every one: the folder is then in a place for such things, not made of them.
    """
    ignored = frozenset(filter(is_ignored or gitignore_of(folder), files))
    return ignored if len(ignored) < len(files) else frozenset()


def source_digest(path: Path) -> str:
    """A file's sha256, with ``x:`` before it if it is a program, or ``-> `` and the text of a link."""
    link = link_target(path)
    if link is not None:
        return LINK_MARK + link
    return ("x:" if is_program(path) else "") + sha256_of_file(path)
