# SPDX-License-Identifier: BSD-3-Clause
"""A writer of a channel's folder exchanges a link while requests are answered: no byte from outside is ever sent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from channel_tools.serve.addresses import ChannelFile
from channel_tools.serve.files import IN_MEMORY_LIMIT_BYTES, FileCache, FileReplacedError, open_unchanged

_REQUESTS = 20_000
_PLACE = ChannelFile(channel="ours", label="main", folder="noarch", name="x-1-0.conda")
_SWAP = """
import os, sys
swapped, aside, link = sys.argv[1:]
print("swapping", flush=True)
while True:
    os.rename(swapped, aside)
    os.rename(link, swapped)
    os.rename(swapped, link)
    os.rename(aside, swapped)
"""


@contextmanager
def swapping(swapped: Path, link: Path) -> Iterator[None]:
    """Exchange what is at ``swapped`` for the link and back, in another process, while the block runs."""
    command = [sys.executable, "-c", _SWAP, str(swapped), str(swapped.with_name("aside")), str(link)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()


def sent(files: FileCache) -> bytes:
    """The first byte that a request gets, from memory or from the disk; nothing if there is no such file just then."""
    file = files.find(_PLACE)
    if file is None or file.content is not None:
        return b"" if file is None or file.content is None else file.content[:1]
    try:
        descriptor = open_unchanged(file)
    except FileReplacedError:
        return b""
    try:
        return os.read(descriptor, 1)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("size", [100, IN_MEMORY_LIMIT_BYTES + 1], ids=["kept", "from-disk"])
@pytest.mark.parametrize("which", ["file", "folder"])
def test_a_link_exchanged_during_requests_leads_nowhere(tmp_path: Path, which: str, size: int) -> None:
    root = tmp_path / "channels"
    folder, victim = root / "ours" / "noarch", tmp_path / "victim"
    for place, letter in ((folder, b"o"), (victim, b"v")):
        place.mkdir(parents=True)
        (place / _PLACE.name).write_bytes(letter * size)
    swapped, target = (folder, victim) if which == "folder" else (folder / _PLACE.name, victim / _PLACE.name)
    link = swapped.with_name("link")
    link.symlink_to(target)
    found, other = set(), (victim / _PLACE.name).stat().st_ino
    with swapping(swapped, link):
        for _request in range(_REQUESTS):
            files = FileCache(root)
            found.add(sent(files))
            assert not any(file.signature[0] == other for file in files._files.values())
    assert found - {b""} == {b"o"}
