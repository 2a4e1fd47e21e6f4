# SPDX-License-Identifier: BSD-3-Clause
"""Where builds and validations run: a folder whose path every tool can take.

A build's folders reach shells, make, CMake, pkg-config and compilers' options, few of which take a blank, ``:``, ``,``,
``$`` or ``=`` in a path; sockets have 108 bytes for a path, and the engine pads the path of a build's prefix to 255.
So where the output folder's own path will not do, the work lies elsewhere, under the same name in every run, so that
the next run finds and clears what a killed one left. Nothing of it ends up in a package.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_WORK_PATH_BYTES = 80
_PLAIN = re.compile(r"/[A-Za-z0-9._/+@~-]*", re.ASCII)
_KEY_DIGITS = 12
_IN_OUTPUT = "work"
_SYSTEM_TEMPORARY = Path("/var/tmp")  # noqa: S108 - make_work_folder trusts only a folder of our own in it
_HINT = (
    "choose with --output, CHANNEL_TOOLS_CACHE or TMPDIR a folder that you may write to, "
    f"whose path has at most {MAX_WORK_PATH_BYTES - len('/work/') - _KEY_DIGITS} bytes of A-Z a-z 0-9 . _ + @ ~ -"
)


def is_plain(path: Path) -> bool:
    """Whether no tool can stumble over an absolute path: its characters, its length, and those of what it links to."""
    spellings = {str(path), str(path.resolve())}
    return all(len(text) <= MAX_WORK_PATH_BYTES and _PLAIN.fullmatch(text) for text in spellings)


def choose_work_folder(*, output: Path, cache: Path, environ: Mapping[str, str]) -> Path:
    """The first plain path of ``output/work``, a folder in the cache, in TMPDIR and in /var/tmp.

    The cache comes second because environments are hard links to the packages in it. The names of the latter ones
    follow from ``output``, absolute like ``cache``.
    """
    key = hashlib.sha256(os.fsencode(output)).hexdigest()[:_KEY_DIGITS]
    ours = f"channel_tools-{os.geteuid()}"
    candidates = [output / _IN_OUTPUT, cache / _IN_OUTPUT / key]
    if (temporary := environ.get("TMPDIR", "")).startswith("/"):
        candidates.append(Path(temporary, ours, key))
    last = _SYSTEM_TEMPORARY / ours / key
    return next((folder for folder in candidates if is_plain(folder)), last)


def make_work_folder(folder: Path) -> None:
    """Create what choose_work_folder chose.

    Raises UsageError when it lies in a folder that others can write to and is not ours alone: they could put there what
    we would build.
    """
    shared = folder.parent.name == f"channel_tools-{os.geteuid()}"
    try:
        if shared:
            folder.parent.parent.mkdir(parents=True, exist_ok=True)
            folder.parent.mkdir(mode=0o700, exist_ok=True)
            _check_private(folder.parent)
        folder.mkdir(mode=0o777 if folder.name == _IN_OUTPUT else 0o700, parents=True, exist_ok=True)
    except (PermissionError, FileExistsError, NotADirectoryError) as err:
        message = f"{err.filename}: {err.strerror}; builds need a folder of their own there"
        raise UsageError(message, hint=_HINT) from None


def _check_private(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{folder}: not a folder; expected one of our own to build in", hint=_HINT)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        found = f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}"
        message = f"{folder}: others can write there ({found}); expected owner {os.geteuid()}, mode 0700"
        raise UsageError(message, hint=f"remove it, or {_HINT}")
