# SPDX-License-Identifier: BSD-3-Clause
"""Damage to each file and folder that a server keeps of uploads, made from their own layout: one kind of each sort.

Whatever is in their place, every use ends at once with a result or with one error, and nothing outside changes.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from starlette.types import Message

from channel_tools.conda.package import PackageRef
from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.server.protocol import JobKind, ReceivedBytes, SetRequest, YankRequest
from channel_tools.serve.uploads.jobs import carry_out
from channel_tools.serve.uploads.receive import Span, receive_file, received_of
from channel_tools.serve.uploads.store import ARRIVING_FOLDER, Job, JobStore, jobs_folder
from channel_tools.system.progress import SilentProgress
from tests.support.damage import (
    EXTENTS,
    GROWTH_BYTES,
    SORTS,
    damage,
    faults_of,
    kinds_of,
    peak_memory_bytes,
    places_of,
    state_of,
    uses_of,
)
from tests.support.packages import make_conda
from tests.unit.publish.sets import make_set

NOW_S = 1_900_000_000.0
UPLOADS = ".channel_tools/uploads"
_USES = 3
"""Of the nine that are tried, on each damage; all sorts together make it all nine on each place."""


class Uploads:
    """A server's folder of channels, with one channel, an unfinished set of two packages and a job that ended."""

    def __init__(self, root: Path, packages: list[Path]) -> None:
        self.root = root
        ready = make_set(packages)
        self.contents = [file.path.read_bytes() for file in ready.files]
        self.wanted = SetRequest(
            label="main",
            name="a set",
            foundation=ready.foundation,
            files=tuple(file.ref() for file in ready.files),
        )
        self.yank = YankRequest(label="main", keys=("linux-64/toy-1.0-0.conda",), reason="broken")

    @property
    def store(self) -> JobStore:
        return JobStore(jobs_folder(self.root), clock=lambda: NOW_S)

    def job(self, kind: JobKind, request: SetRequest | YankRequest) -> Job:
        described = self.store.described(kind, "ours", request)
        return self.store.find("ours", described.id) or self.store.open(kind, "ours", request)

    def files(self) -> tuple[PackageRef, PackageRef]:
        first, second = self.wanted.files
        return first, second

    def send(self, job: Job, number: int, start: int, end: int) -> None:
        body: Message = {"type": "http.request", "body": self.contents[number][start:end], "more_body": False}

        async def receive() -> Message:
            return body

        span = Span(start=start, end=end)
        asyncio.run(receive_file(job, self.files()[number], span, receive))

    def make(self) -> None:
        """One file complete, one begun, one package alone that was being received, and a yank that was carried out."""
        job = self.job("publish", self.wanted)
        self.send(job, 0, 0, len(self.contents[0]))
        self.send(job, 1, 0, 10)
        carry_out(self.root, self.job("yank", self.yank))
        arriving = self.root / UPLOADS / "ours" / ARRIVING_FOLDER / "0123"
        arriving.parent.mkdir()
        arriving.write_bytes(b"x")

    def uses(self) -> Mapping[str, Callable[[], object]]:
        def asked() -> None:
            job = self.job("publish", self.wanted)
            job.response()
            for file in self.files():
                asyncio.run(received_of(job, file))

        def send_rest() -> None:
            self.send(self.job("publish", self.wanted), 1, 10, len(self.contents[1]))

        return {
            "state": lambda: self.job("yank", self.yank).response(),
            "received": asked,
            "send": send_rest,
            "begin again": lambda: self.send(self.job("publish", self.wanted), 1, 0, len(self.contents[1])),
            "publish": lambda: carry_out(self.root, self.job("publish", self.wanted)),
            "yank": lambda: carry_out(self.root, self.job("yank", self.yank)),
            "open again": lambda: self.store.open("publish", "ours", self.wanted),
            "clean": self.store.remove_stale,
            "remove": lambda: self.store.remove(self.job("publish", self.wanted)),
        }


@pytest.fixture(scope="module")
def uploads(tmp_path_factory: pytest.TempPathFactory) -> Uploads:
    work = tmp_path_factory.mktemp("uploads")
    target = FolderTarget(root=work / "channels" / "ours", wait_s=0)
    published = make_set([make_conda(work, "toy")])
    target.publish(target.plan(published, label="main"), progress=SilentProgress())
    made = Uploads(work / "channels", [make_conda(work, "tool", subdir="noarch"), make_conda(work, "new")])
    made.make()
    return made


@pytest.mark.parametrize("every", EXTENTS)
@pytest.mark.parametrize("sort", SORTS)
def test_every_use_of_damaged_uploads_ends_with_a_result_or_one_error(
    uploads: Uploads, tmp_path: Path, sort: str, *, every: bool
) -> None:
    victim, peak = tmp_path / "victim", peak_memory_bytes()
    shutil.copytree(uploads.root, victim)
    before, failures = state_of(victim), []
    places = [place for place in places_of(uploads.root) if place.startswith(UPLOADS)]
    assert len(places) > 12
    damaged = Uploads(tmp_path / "channels", [])
    damaged.contents, damaged.wanted, damaged.yank = uploads.contents, uploads.wanted, uploads.yank
    damages = [
        (number, place, kind) for number, place in enumerate(places) for kind in kinds_of(sort, number, every=every)
    ]
    for number, place, kind in damages:
        if kind == "too large" and place.endswith(".conda"):
            continue  # a package may be as large as that
        for name, use in uses_of(damaged.uses(), sort, number, each=_USES, every=every).items():
            shutil.copytree(uploads.root, damaged.root, symlinks=True)
            damage(damaged.root, place, kind, victim / place)
            failures += faults_of(use, f"{name}, {place}: {kind}")
            shutil.rmtree(damaged.root)
            if state_of(victim) != before:
                failures.append(f"{name}, {place}: {kind}: what the link leads to was changed")
                shutil.rmtree(victim)
                shutil.copytree(uploads.root, victim)
                before = state_of(victim)
    assert failures == []
    assert peak_memory_bytes() - peak < GROWTH_BYTES


@pytest.mark.parametrize("kept", ["part", "file"])
def test_a_file_with_more_bytes_than_it_has_is_sent_anew(uploads: Uploads, tmp_path: Path, kept: str) -> None:
    damaged = Uploads(tmp_path / "channels", [])
    damaged.contents, damaged.wanted = uploads.contents, uploads.wanted
    shutil.copytree(uploads.root, damaged.root, symlinks=True)
    job, number = damaged.job("publish", damaged.wanted), 0 if kept == "file" else 1
    wanted = damaged.files()[number]
    place = job.file(wanted) if kept == "file" else job.folder / job.part_name(wanted)
    with place.open("ab") as stream:
        stream.write(damaged.contents[number] + b"more")
    assert asyncio.run(received_of(job, wanted)) == ReceivedBytes(received=0, complete=False)
    damaged.send(job, number, 0, wanted.size_bytes)
    assert asyncio.run(received_of(job, wanted)) == ReceivedBytes(received=wanted.size_bytes, complete=True)
    assert job.file(wanted).read_bytes() == damaged.contents[number]
