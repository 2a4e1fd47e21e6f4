# SPDX-License-Identifier: BSD-3-Clause
"""Kinds of damage to the files and folders of a channel, each made in the place of one that the channel has."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from channel_tools.system.errors import ChannelToolsError

Use = Callable[[], object]
_VARIES = re.compile(r"[0-9a-f]{64}|(?<=/)(?:linux-64|noarch)(?=/|$)")
_LABEL = re.compile(r"^/label/[^/]+(?=/[^.])")
"""Files of a label that are not records of ours are those that main has, too."""
LARGE_BYTES = 8 << 30
_LIMIT_S = 60
"""A use takes up to a second of a processor, of which a busy machine gives it little."""
GROWTH_BYTES = 96 << 20
"""By so much more memory than before the uses of damaged folders take, however large what is there looks."""


def places_of(channel: Path) -> list[str]:
    """Every file and folder of a channel by its path, one of each sort: shards, subdirs and so on differ by name."""
    found: dict[str, str] = {}
    for folder, folders, files in os.walk(channel):
        for name in sorted([*folders, *files]):
            path = (Path(folder) / name).relative_to(channel).as_posix()
            found.setdefault(_LABEL.sub("", _VARIES.sub("*", f"/{path}")), path)
    return sorted(found.values())


def _folder(place: Path, _outside: Path) -> None:
    place.mkdir()
    (place / "below").write_bytes(b"x")


def _socket(place: Path, _outside: Path) -> None:
    here = Path.cwd()
    os.chdir(place.parent)  # the address of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(place.name)
    finally:
        os.chdir(here)


def _text(place: Path, _outside: Path) -> None:
    place.write_bytes(b"{")


def _large(place: Path, _outside: Path) -> None:
    with place.open("wb") as stream:
        stream.truncate(LARGE_BYTES)


DAMAGES: dict[str, Callable[[Path, Path], None]] = {
    "not JSON": _text,
    "folder": _folder,
    "pipe": lambda place, _outside: os.mkfifo(place),
    "socket": _socket,
    "link out": lambda place, outside: place.symlink_to(outside),
    "link to a device": lambda place, _outside: place.symlink_to("/dev/zero"),
    "link to nothing": lambda place, _outside: place.symlink_to("nothing"),
    "link to itself": lambda place, _outside: place.symlink_to(place.name),
    "empty": lambda place, _outside: place.touch(),
    "too large": _large,
    "gone": lambda _place, _outside: None,
}
SORTS: dict[str, tuple[str, ...]] = {
    "content": ("not JSON", "empty", "too large"),
    "no file": ("folder", "gone"),
    "no regular file": ("pipe", "socket", "link to a device"),
    "link": ("link out", "link to nothing", "link to itself"),
}
"""Kinds of damage by what a reader has to check."""


EXTENTS = [pytest.param(False, id="in turn"), pytest.param(True, id="all", marks=pytest.mark.slow)]
"""Whether each place gets every kind of damage and every use."""


def kinds_of(sort: str, number: int, *, every: bool) -> tuple[str, ...]:
    """The kinds of damage that the place with this number gets: one of the sort, in turn, so that places share all."""
    kinds = SORTS[sort]
    return kinds if every else (kinds[number % len(kinds)],)


def uses_of(uses: Mapping[str, Use], sort: str, number: int, *, each: int, every: bool) -> dict[str, Use]:
    """Of the uses, so many as are tried on the place with this number while its damage is of this sort, in turn.

    Over all sorts every place gets every use where ``each`` times the number of sorts is no less than that of the uses;
    over all places every kind of damage does, where there are enough of them.
    """
    if every:
        return dict(uses)
    kinds = math.lcm(*map(len, SORTS.values()))  # so many places until each has had every kind of each sort
    first = each * (number // kinds + list(SORTS).index(sort))
    names = list(uses)
    chosen = [names[(first + more) % len(names)] for more in range(min(each, len(names)))]
    return {name: uses[name] for name in chosen}


def damage(channel: Path, place: str, kind: str, outside: Path) -> None:
    """Put what ``kind`` names in the place of a file or folder of the channel; links out lead to ``outside``."""
    path = channel / place
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    DAMAGES[kind](path, outside)


def faults_of(use: Use, what: str) -> list[str]:
    """What is wrong with the end of ``use``: nothing if it has a result, or one error of ours with words in it."""
    try:
        with bounded(what):
            use()
    except ChannelToolsError as err:
        return [] if str(err).strip() else [f"{what}: no words"]
    except Exception as err:  # noqa: BLE001 - each is a fault, and all of them are to be seen
        return [f"{what}: {type(err).__name__}: {err}"]
    return []


@contextmanager
def bounded(what: str) -> Iterator[None]:
    """Fail instead of waiting for ever in the block."""

    def expired(_number: int, _frame: object) -> None:
        raise AssertionError(f"{what}: it did not end within {_LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, expired)
    signal.alarm(_LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def peak_memory_bytes(process: int | str = "self") -> int:
    """The most memory that a process has had so far."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    [line] = re.findall(r"^VmHWM:\s*(\d+) kB$", status, re.MULTILINE)
    return int(line) << 10


def state_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_nlink, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
