# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from channel_tools.conda.package import PackageRef
from channel_tools.publish.server.protocol import ErrorResponse, PromoteRequest, ReportResponse, SetRequest
from channel_tools.serve.uploads.store import (
    ARRIVING_FOLDER,
    STALE_S,
    Job,
    JobStore,
    State,
    drop_files,
    is_locked,
    try_lock,
)
from channel_tools.system.beneath import Beneath
from channel_tools.system.document import decode_json
from channel_tools.system.errors import IntegrityError
from tests.support.packages import REGISTRY

FILE = PackageRef(subdir="noarch", file_name="a-1-0.conda", sha256="0" * 64, size_bytes=3, foundation=False)
SET = SetRequest(label="main", name="a set", foundation=REGISTRY, files=(FILE,))
NOW_S = 1_900_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    return JobStore(Beneath(root=tmp_path).at("uploads"), clock=lambda: NOW_S)


def test_the_same_set_is_the_same_job_and_another_is_not(store: JobStore) -> None:
    job = store.open("publish", "ours", SET)
    assert store.open("publish", "ours", SET) == job
    assert store.find("ours", job.id) == job
    other = SetRequest(label="testing", name="a set", foundation=REGISTRY, files=(FILE,))
    promotion = PromoteRequest(source="testing", label="main", keys=(str(FILE.key),))
    ids = {job.id, store.open("publish", "ours", other).id, store.open("publish", "theirs", SET).id}
    ids.add(store.open("promote", "ours", promotion).id)
    assert len(ids) == 4


@pytest.mark.parametrize("job_id", ["", "..", "0" * 31, "0" * 32, "../" + "0" * 29, "G" * 32])
def test_what_is_no_job_is_not_found(store: JobStore, job_id: str) -> None:
    store.open("publish", "ours", SET)
    assert store.find("ours", job_id) is None


def test_a_job_is_under_way_only_while_somebody_holds_it(store: JobStore) -> None:
    job = store.open("publish", "ours", SET)
    with job.try_lock() as lock:
        assert lock is not None
        job.set_state(State(state="running"))
        assert job.response().state == "running"
        assert store.open("publish", "ours", SET).state().state == "running"
        assert not store.remove(job)
    assert job.response().state == "open"  # the process was killed


def test_each_run_of_a_shared_job_has_its_own_end(store: JobStore) -> None:
    """Who waits for a run is told of that one, although others have had the job run again before they looked."""
    job = store.open("publish", "ours", SET)
    sent = ReportResponse(uploaded=(str(FILE.key),))
    error = ErrorResponse(kind="ChannelError", message="m", hint="h")
    ends = [
        State(state="done", report=sent),
        State(state="done", report=ReportResponse()),
        State(state="failed", error=error),
    ]
    runs = []
    for end in ends:
        runs.append(job.set_state(State(state="waiting")))
        job.set_state(State(state="running"))
        job.set_state(end)
    assert runs == [1, 2, 3]
    told = [job.response(run) for run in runs]
    assert [(response.state, response.report, response.error, response.run) for response in told] == [
        (end.state, end.report, end.error, run) for end, run in zip(ends, runs, strict=True)
    ]
    assert job.response() == told[-1]


def test_a_run_that_was_interrupted_or_is_forgotten_is_to_be_repeated(store: JobStore) -> None:
    job = store.open("publish", "ours", SET)
    first = job.set_state(State(state="waiting"))  # nobody holds the job: its process was killed
    assert job.response(first).state == "open"
    for _run in range(20):
        latest = job.set_state(State(state="waiting"))
        job.set_state(State(state="done", report=ReportResponse()))
    assert [job.response(run).state for run in (first, first + 1, latest, latest + 1)] == [
        "open",
        "open",
        "done",
        "open",
    ]
    assert len(job.state().earlier) == 16


def test_how_it_ended_stays_for_those_who_wait_although_others_open_it_again(store: JobStore) -> None:
    job = store.open("publish", "ours", SET)
    error = ErrorResponse(kind="ChannelError", message="m", hint="h")
    for state in (
        State(state="failed", error=error),
        State(state="done", report=ReportResponse(uploaded=(str(FILE.key),))),
    ):
        job.set_state(state)
        again = store.open("publish", "ours", SET)
        assert again == store.find("ours", job.id)
        assert job.state() == state
        assert job.response().state == state.state
        opened = again.opened({"noarch/a-1-0.conda": 1})
        assert (opened.state, opened.report, opened.error, opened.missing) == (
            "open",
            None,
            None,
            {"noarch/a-1-0.conda": 1},
        )


def test_a_job_of_one_request_is_shared_with_no_other(store: JobStore) -> None:
    shared, mine, yours = (store.open("publish", "ours", SET, only=only) for only in (None, "a", "b"))
    assert len({shared.id, mine.id, yours.id}) == 3
    assert store.find("ours", mine.id) == mine
    assert mine.request == shared.request == SET


def test_a_job_that_ends_while_its_state_is_looked_up_was_not_interrupted(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = store.open("publish", "ours", SET)
    job.set_state(State(state="running"))

    def ended(self: Job) -> bool:
        self.set_state(State(state="done", report=ReportResponse()))
        return False

    monkeypatch.setattr(Job, "is_locked", ended)
    assert job.state().state == "done"


def test_what_nobody_comes_back_to_is_removed(store: JobStore) -> None:
    old, locked, fresh = (
        store.open("publish", "ours", SetRequest(label="main", name=name, foundation=REGISTRY, files=(FILE,)))
        for name in ("old", "locked", "fresh")
    )
    for job in (old, locked, fresh):
        job.file(FILE).parent.mkdir(parents=True)
        job.file(FILE).write_bytes(b"abc")
        age_s = 10.0 if job is fresh else STALE_S + 10
        os.utime(job.folder, (NOW_S - age_s, NOW_S - age_s))
    with locked.try_lock() as lock:
        assert lock is not None
        assert store.remove_stale() == [old.id]
        assert [store.find("ours", job.id) is not None for job in (old, locked, fresh)] == [False, True, True]
    drop_files(fresh)
    assert not fresh.file(FILE).exists()
    assert sorted(path.name for path in store.files.path.glob("*/*")) == sorted((locked.id, fresh.id))


def test_messages_for_clients_name_no_folder_of_the_server(store: JobStore, tmp_path: Path) -> None:
    job = store.open("publish", "ours", SET)
    message = f"{job.file(FILE)} and {tmp_path / 'ours' / 'noarch'} and {tmp_path}"
    assert job.without_paths(message, tmp_path) == "noarch/a-1-0.conda and ours/noarch and the server"


@pytest.mark.parametrize("content", [b"", b"[]", b'{"kind": "other", "body": {"label": "main"}}', b"\xff"])
def test_a_damaged_job_is_put_aside_once_and_the_set_can_be_opened_again(tmp_path: Path, content: bytes) -> None:
    store = JobStore(Beneath(root=tmp_path).at("uploads"), clock=lambda: NOW_S)
    job = store.open("publish", "ours", SET)
    (job.folder / "request.json").write_bytes(content)
    assert store.remove_stale() == []
    assert store.find("ours", job.id) is None
    (aside,) = job.folder.parent.glob(f".damaged-{job.id}-*")
    assert (aside / "request.json").read_bytes() == content
    assert store.open("publish", "ours", SET).request == SET
    os.utime(aside, (NOW_S - STALE_S - 10,) * 2)
    store.remove_stale()
    assert not aside.exists()


def test_two_processes_that_find_a_damaged_job_at_once_keep_it(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = store.open("publish", "ours", SET)
    (job.folder / "request.json").write_bytes(b"")
    other = [JobStore(Beneath(root=store.files.path), clock=lambda: NOW_S)]

    def meanwhile(content: bytes, kind: type[object]) -> object:
        if other:
            assert other.pop().find("ours", job.id) is None
        return decode_json(content, kind)

    monkeypatch.setattr("channel_tools.serve.uploads.store.decode_json", meanwhile)
    assert store.find("ours", job.id) is None
    assert len([*job.folder.parent.glob(f".damaged-{job.id}*")]) == 1


def test_opening_a_set_mends_its_damaged_request(store: JobStore) -> None:
    job = store.open("publish", "ours", SET)
    (job.folder / "request.json").write_bytes(b"")
    assert store.open("publish", "ours", SET).request == SET


def test_a_damaged_request_or_state_is_one_error_or_an_interruption(store: JobStore) -> None:
    job = store.open("publish", "ours", SET)
    (job.folder / "request.json").write_bytes(b'{"kind": "publish", "body": {"label": "main"}}')
    (job.folder / "state.json").write_bytes(b"")
    found = store.find("ours", job.id)
    assert found == job
    assert found.state() == State()
    with pytest.raises(IntegrityError, match=r"request\.json: not a valid request"):
        _ = found.request


def test_packages_that_nobody_sends_any_more_are_removed(store: JobStore) -> None:
    folder = store.files.path / "ours" / ARRIVING_FOLDER
    folder.mkdir(parents=True)
    for name, age_s in (("interrupted", 100.0), ("just begun", 1.0), ("locked", 100.0)):
        (folder / name).write_bytes(b"abc")
        os.utime(folder / name, (NOW_S - age_s,) * 2)
    with try_lock(Beneath(root=folder), "locked") as lock:
        assert lock is not None
        store.remove_stale()
    assert sorted(path.name for path in folder.iterdir()) == ["just begun", "locked"]


def test_one_job_that_cannot_be_looked_at_keeps_no_other_from_being_removed(
    store: JobStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (store.open("publish", channel, SET) for channel in ("a", "b"))
    for job in (first, second):
        os.utime(job.folder, (NOW_S - STALE_S - 10,) * 2)
    remove = JobStore.remove

    def failing(self: JobStore, job: Job) -> bool:
        if job == first:
            raise OSError(errno.EIO, "Input/output error")
        return remove(self, job)

    monkeypatch.setattr(JobStore, "remove", failing)
    assert store.remove_stale() == [second.id]
    assert "Input/output error" in caplog.text


def test_a_lock_is_held_until_the_last_who_has_it_lets_go(tmp_path: Path) -> None:
    files = Beneath(root=tmp_path)
    assert not is_locked(files, "lock")
    with try_lock(files, "lock") as lock:
        assert lock is not None
        assert is_locked(files, "lock")
        with try_lock(files, "lock") as second:
            assert second is None
        inherited = os.dup(lock)  # as by a fork
    assert is_locked(files, "lock")
    os.close(inherited)
    assert not is_locked(files, "lock")
