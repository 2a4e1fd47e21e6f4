# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
from pathlib import Path

import pytest

from channel_tools.publish.wire import ErrorAnswer, PromoteRequest, ReportAnswer, SetRequest, WireFile
from channel_tools.serve.uploads.held import is_held, try_hold
from channel_tools.serve.uploads.store import STALE_S, JobStore, State, drop_files
from tests.unit.channel.toys import REGISTRY

FILE = WireFile(subdir="noarch", file_name="a-1-0.conda", sha256="0" * 64, size_bytes=3, foundation=False)
SET = SetRequest(label="main", name="a set", foundation=REGISTRY, files=(FILE,))
NOW_S = 1_900_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    return JobStore(tmp_path / "uploads", clock=lambda: NOW_S)


def test_a_lock_is_held_until_the_last_who_has_it_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_held(path)
    lock = try_hold(path)
    assert lock is not None
    assert is_held(path)
    assert try_hold(path) is None
    inherited = os.dup(lock)  # as by a fork
    os.close(lock)
    assert is_held(path)
    os.close(inherited)
    assert not is_held(path)


def test_the_same_set_is_the_same_job_and_another_is_not(store: JobStore) -> None:
    job = store.open("publish", "ours", SET)
    assert store.open("publish", "ours", SET) == job
    assert store.find("ours", job.id) == job
    other = SetRequest(label="testing", name="a set", foundation=REGISTRY, files=(FILE,))
    promotion = PromoteRequest(source="testing", label="main", keys=(FILE.key,))
    ids = {job.id, store.open("publish", "ours", other).id, store.open("publish", "theirs", SET).id}
    ids.add(store.open("promote", "ours", promotion).id)
    assert len(ids) == 4


@pytest.mark.parametrize("job_id", ["", "..", "0" * 31, "0" * 32, "../" + "0" * 29, "G" * 32])
def test_what_is_no_job_is_not_found(store: JobStore, job_id: str) -> None:
    store.open("publish", "ours", SET)
    assert store.find("ours", job_id) is None


def test_a_job_is_under_way_only_while_somebody_holds_it(store: JobStore) -> None:
    job = store.open("publish", "ours", SET)
    lock = try_hold(job.lock)
    assert lock is not None
    job.set_state(State(state="running"))
    assert job.answer().state == "running"
    assert store.open("publish", "ours", SET).state().state == "running"
    assert not store.remove(job)
    os.close(lock)  # killed
    assert job.answer().state == "open"


def test_how_it_ended_stays_until_it_is_opened_again(store: JobStore) -> None:
    job = store.open("publish", "ours", SET)
    error = ErrorAnswer(kind="ChannelError", message="m", hint="h")
    for state in (State(state="failed", error=error), State(state="done", report=ReportAnswer(uploaded=(FILE.key,)))):
        job.set_state(state)
        found = store.find("ours", job.id)
        assert found is not None
        assert found.state() == state
        assert store.open("publish", "ours", SET).state() == State()


def test_what_nobody_comes_back_to_is_removed(store: JobStore) -> None:
    old, held, fresh = (
        store.open("publish", "ours", SetRequest(label="main", name=name, foundation=REGISTRY, files=(FILE,)))
        for name in ("old", "held", "fresh")
    )
    for job in (old, held, fresh):
        job.file(FILE).parent.mkdir(parents=True)
        job.file(FILE).write_bytes(b"abc")
        age_s = 10.0 if job is fresh else STALE_S + 10
        os.utime(job.folder, (NOW_S - age_s, NOW_S - age_s))
    lock = try_hold(held.lock)
    assert lock is not None
    assert store.remove_stale() == [old.id]
    assert [store.find("ours", job.id) is not None for job in (old, held, fresh)] == [False, True, True]
    os.close(lock)
    drop_files(fresh)
    assert not fresh.file(FILE).exists()
    assert sorted(path.name for path in store.folder.glob("*/*")) == sorted((held.id, fresh.id))


def test_what_was_sent_for_a_job_that_is_done_goes_unless_it_was_opened_again(store: JobStore) -> None:
    done, again, under_way = (
        store.open("publish", "ours", SetRequest(label="main", name=name, foundation=REGISTRY, files=(FILE,)))
        for name in ("done", "again", "under way")
    )
    for job in (done, again, under_way):
        job.set_state(State(state="done", report=ReportAnswer()))
        job.file(FILE).parent.mkdir(parents=True)
    assert isinstance(again.request, SetRequest)
    store.open("publish", "ours", again.request)
    for job in (done, again, under_way):
        os.utime(job.folder, (NOW_S, NOW_S))
    lock = try_hold(under_way.lock)
    assert lock is not None
    assert store.remove_stale() == []
    os.close(lock)
    assert [job.has_files() for job in (done, again, under_way)] == [False, True, True]
    assert done.state().state == "done"


def test_messages_for_clients_name_no_folder_of_the_server(store: JobStore, tmp_path: Path) -> None:
    job = store.open("publish", "ours", SET)
    message = f"{job.file(FILE)} and {tmp_path / 'ours' / 'noarch'} and {tmp_path}"
    assert job.without_paths(message, tmp_path) == "noarch/a-1-0.conda and ours/noarch and the server"
