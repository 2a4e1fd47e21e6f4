# SPDX-License-Identifier: BSD-3-Clause
"""Which packages a lock file names: conda-lock.yml, pixi.lock, explicit lists, environments with exact pins.

Read as text, not as any one format: everything that looks like a package file, a hash or an exact pin counts. So a
format of tomorrow is understood as well, and what is read too much only keeps a file longer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from channel_tools.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_FILE = re.compile(r"([A-Za-z0-9_][^/\s\"'#,?]*-[^-/\s\"'#,?]+-[^-/\s\"'#,?]+)\.(?:conda|tar\.bz2)")
_HASH = re.compile(r"(?<![0-9a-fA-F])(?:[0-9a-fA-F]{64}|[0-9a-fA-F]{32})(?![0-9a-fA-F])")
_PIN = re.compile(r"(?<![\w.=-])([A-Za-z0-9_][A-Za-z0-9_.-]*) ?={1,2}([^\s=<>\"',|*]+) ?=([^\s=<>\"',|*]+)")
_SUFFIX = ".conda"


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedNames:
    """Package file names (without subdir) and hashes (sha256 and md5) that lock files name."""

    files: frozenset[str] = frozenset()
    hashes: frozenset[str] = frozenset()


def read_locked_names(paths: Iterable[Path]) -> LockedNames:
    """Everything that the lock files name. Raises ConfigError for one that cannot be read or names no package."""
    files: set[str] = set()
    hashes: set[str] = set()
    for path in paths:
        text = unquote(_text_of(path))
        named = {stem + _SUFFIX for stem in _FILE.findall(text)}
        named |= {"-".join(pin) + _SUFFIX for pin in _PIN.findall(text)}
        if not named:
            hint = "give a conda-lock.yml, a pixi.lock, an explicit list or an environment with exact pins"
            raise ConfigError("names no package: this is no lock file", path=path, hint=hint)
        files |= named
        hashes |= {found.lower() for found in _HASH.findall(text)}
    return LockedNames(files=frozenset(files), hashes=frozenset(hashes))


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError("there is no such lock file", path=path) from None
    except (UnicodeDecodeError, OSError) as err:
        raise ConfigError(f"cannot be read as text: {err}", path=path) from None
