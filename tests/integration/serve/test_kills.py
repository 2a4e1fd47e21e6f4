# SPDX-License-Identifier: BSD-3-Clause
"""Processes of the server are killed at random moments of uploads; readers notice nothing, publishers get through.

``RANDOM_KILLS`` moments are spread over sending, waiting, auditing and indexing; ``pytest -s`` prints where they fell.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from channel_tools.channel import open_channel, verify_channel
from channel_tools.conda.clients import make_http_client
from channel_tools.publish.model import PackageSet
from channel_tools.publish.server.target import SERVER_TIMEOUTS, ServerAddress, ServerConnection, ServerTarget
from channel_tools.serve.uploads.store import JobStore, jobs_folder
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import ChannelError, NetworkError
from channel_tools.system.http.pace import Retry
from channel_tools.system.progress import SilentProgress
from tests.support.damage import DAMAGES, damage, places_of
from tests.support.packages import REGISTRY, make_conda
from tests.support.processes import RANDOM_KILLS, wait_for
from tests.support.readers import reader_faults
from tests.support.serving import Server, make_token, running
from tests.unit.publish.sets import package_file

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_RUNS = 4


@dataclass
class Publisher:
    """Publishes one package in a thread of its own, again where that failed."""

    target: ServerTarget
    packages: PackageSet
    runs: int = 0
    failure: Exception | None = None
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._publish)
        self.thread.start()

    def _publish(self) -> None:
        while self.runs < _RUNS:
            self.runs += 1
            try:
                self.target.publish(self.target.plan(self.packages, label="main"), progress=SilentProgress())
            except NetworkError as err:  # what the command would end with; run it again
                self.failure = err
            else:
                self.failure = None
                return


def kill(process_id: int) -> bool:
    try:
        os.kill(process_id, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def strike(server: Server, rng: random.Random) -> str:
    """Kill all processes but the first, or one of them; what the server was doing."""
    while True:
        workers_and_jobs = [*server.children(), *server.workers()]  # and granian's main process
        victims = workers_and_jobs if rng.random() < 0.5 else [rng.choice(workers_and_jobs)]
        moment = where(server)
        if sum(map(kill, victims)):  # else it had ended by itself
            return moment


def connected(server: Server, token: str) -> ServerTarget:
    address = ServerAddress(url=f"{server.address}/ours", authorization=f"Bearer {token}")
    client = make_http_client(
        {}, timeouts=SERVER_TIMEOUTS, retry=Retry(attempts=9, first_wait_s=0.05, longest_wait_s=2.0)
    )
    return ServerTarget(connection=ServerConnection(address, client))


def one(work: Path, number: int) -> PackageSet:
    name = f"p{number}"
    path = make_conda(work, name, files={f"share/{name}": random.Random(number).randbytes(300_000)})  # noqa: S311
    return PackageSet(name=name, files=(package_file(path),), foundation=REGISTRY)


@contextmanager
def server_of(work: Path) -> Iterator[tuple[Server, ServerTarget]]:
    root = work / "channels"
    root.mkdir(exist_ok=True)
    with running(root, work=work, workers=2, quiet=False) as server:
        yield server, connected(server, make_token(root, "ours", access="write"))


def test_uploads_survive_kills_of_the_servers_processes(tmp_path: Path) -> None:
    rng = random.Random(20)  # noqa: S311 - the moments, not a secret
    struck: Counter[str] = Counter()
    with server_of(tmp_path) as (server, target):
        channel = server.root / "ours"
        started = time.monotonic()
        for number in range(3):
            Publisher(target, one(tmp_path, number)).thread.join()
        usual_s = (time.monotonic() - started) / 3
        for number in range(3, 3 + RANDOM_KILLS):
            publisher = Publisher(target, one(tmp_path, number))
            time.sleep(rng.uniform(0, usual_s))
            struck[strike(server, rng)] += 1
            assert reader_faults(channel) == []
            publisher.thread.join()
            assert publisher.failure is None
            struck["next run needed"] += publisher.runs - 1
        assert listed(channel) == sorted(f"p{number}-1.0-0.conda" for number in range(3 + RANDOM_KILLS))
    assert verify_channel(open_channel(channel)) == []
    JobStore(jobs_folder(server.root), clock=time.time).remove_stale()  # as the server does from time to time
    assert [path for path in (server.root / ".channel_tools").rglob("*.conda") if path.is_file()] == []
    print(f"kills by what the server was doing: {dict(struck)}")  # noqa: T201 - the figure for the documents
    assert sum(count for moment, count in struck.items() if moment != "next run needed") == RANDOM_KILLS


def where(server: Server) -> str:
    """What the server is doing for the set that is being published."""
    jobs = server.root / ".channel_tools" / "uploads" / "ours"
    states = [json.loads(path.read_bytes())["state"] for path in jobs.glob("*/state.json")]
    if {"waiting", "running"} & set(states):
        return "job"
    return "sending" if any(jobs.glob("*/parts/*/*.conda")) else "between"


def listed(channel: Path) -> list[str]:
    return sorted(json.loads((channel / "linux-64" / "repodata.json").read_bytes())["packages.conda"])


def test_an_upload_goes_on_at_a_new_server(tmp_path: Path) -> None:
    rng = random.Random(21)  # noqa: S311
    packages = [one(tmp_path, number) for number in range(3)]
    for number, wanted in enumerate(packages):
        work = tmp_path / f"killed-{number}"
        work.mkdir()
        moment = _after(rng.uniform(0, 0.15))
        with pytest.raises(AssertionError, match="-9"):
            publish_and_kill_all(work, wanted, when=moment)
        with server_of(work) as (server, target):
            target.publish(target.plan(wanted, label="main"), progress=SilentProgress())
            assert listed(server.root / "ours") == [f"p{number}-1.0-0.conda"]
        assert verify_channel(open_channel(work / "channels" / "ours")) == []


def test_an_upload_goes_on_at_a_new_server_although_what_was_kept_of_it_is_damaged(tmp_path: Path) -> None:
    """What cannot go on, such as a folder that is a pipe, is one error, and goes on once that is removed."""
    wanted, outside = one(tmp_path, 0), tmp_path / "outside"
    outside.mkdir()
    killed = tmp_path / "killed"
    killed.mkdir()
    with pytest.raises(AssertionError, match="-9"):
        publish_and_kill_all(killed, wanted, when=lambda jobs: any(jobs.glob("*/request.json")))
    ended: Counter[str] = Counter()
    kinds = sorted(DAMAGES)
    for number, place in enumerate(places_of(killed / "channels" / ".channel_tools")):
        if not place.startswith("uploads"):
            continue
        kind = kinds[number % len(kinds)]
        work = tmp_path / f"{number}"
        shutil.copytree(killed, work)
        damage(work / "channels" / ".channel_tools", place, kind, outside)
        with server_of(work) as (server, target):
            try:
                target.publish(target.plan(wanted, label="main"), progress=SilentProgress())
                ended["published"] += 1
            except ChannelError as err:
                assert "uploads" in str(err), f"{place}: {kind}"  # noqa: PT017
                Beneath(root=server.root / ".channel_tools").remove_tree("uploads")
                target.publish(target.plan(wanted, label="main"), progress=SilentProgress())
                ended["named"] += 1
            assert listed(server.root / "ours") == ["p0-1.0-0.conda"]
            assert "Traceback" not in server.errors_said()
        assert verify_channel(open_channel(work / "channels" / "ours")) == []
    print(f"uploads with damage after a kill: {dict(ended)}")  # noqa: T201 - the figure for the documents
    assert list(outside.iterdir()) == []
    assert ended.total() > 2


def _after(seconds: float) -> Callable[[Path], bool]:
    """So long after the first time that it is asked."""
    asked: list[float] = []

    def is_over(_jobs: Path) -> bool:
        asked.append(time.monotonic())
        return asked[-1] - asked[0] >= seconds

    return is_over


def publish_and_kill_all(work: Path, wanted: PackageSet, *, when: Callable[[Path], bool]) -> None:
    """Kill the whole server while it takes a set; ``when`` gets the folder of the channel's jobs."""
    with server_of(work) as (server, target):
        publisher = Publisher(target, wanted, runs=_RUNS - 1)
        wait_for(lambda: when(server.root / ".channel_tools" / "uploads" / "ours"))
        for victim in [server.process.pid, *server.children(), *server.workers()]:
            kill(victim)
        publisher.thread.join()
