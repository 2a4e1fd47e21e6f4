# SPDX-License-Identifier: BSD-3-Clause
"""What the supervising process does with jobs when the system fails it."""

from __future__ import annotations

import errno
import json
import logging
import multiprocessing.connection
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.channel import channel_writer, create_channel, open_channel
from channel_tools.channel.listing import Patch
from channel_tools.conda.package import sidecar_of, write_sidecar
from channel_tools.page.write import add_page
from channel_tools.publish.folder import FolderTarget, compare
from channel_tools.publish.server.protocol import JobState, SetRequest, YankRequest, set_request
from channel_tools.serve.uploads import jobs
from channel_tools.serve.uploads.checks import Limits, check_request
from channel_tools.serve.uploads.jobs import JobQueue, JobRunner, carry_out
from channel_tools.serve.uploads.store import Job, JobStore, State, jobs_folder
from channel_tools.system.errors import ChannelError, DiskFullError, IntegrityError, UsageError
from channel_tools.system.files import sha256_of_file
from channel_tools.system.progress import SilentProgress
from tests.support.packages import CONDA_FORGE, make_conda
from tests.support.serving import select_briefly
from tests.unit.publish.sets import make_set

YANK = YankRequest(label="main", keys=("noarch/a-1-0.conda",), reason="x")


class Process:
    """A process that was forked for a job, and has ended."""

    exitcode = 1
    fails = False

    def __init__(self, **_given: object) -> None:
        self.sentinel = 12345

    def start(self) -> None:
        if type(self).fails:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    def join(self, timeout: float | None = None) -> None:
        """It has ended."""


class Fork:
    Process = Process


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobQueue]:
    monkeypatch.setattr(jobs, "_fork", Fork)
    monkeypatch.setattr(Process, "fails", False)
    queue = JobQueue(tmp_path)
    yield queue
    queue.stop(0.0)


def send(queue: JobQueue, root: Path, *, with_lock: bool = True) -> Job:
    job = JobStore(jobs_folder(root), clock=lambda: 0.0).open("yank", "ours", YANK)
    with job.try_lock() as lock:
        assert lock is not None
        job.set_state(State(state="waiting"))
        socket.send_fds(queue.sending, [f"ours/{job.id}".encode()], [lock] if with_lock else [])
    return job


def test_an_end_that_cannot_be_noted_is_said_and_unlocks_the_job(
    queue: JobQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = send(queue, tmp_path)
    queue.handle([queue.waitables[0]])
    assert job.is_locked()

    def no_space(_job: Job, _state: State) -> None:
        raise DiskFullError("no space left")

    monkeypatch.setattr(Job, "set_state", no_space)
    with caplog.at_level(logging.ERROR):
        queue.handle([12345])
    assert f"job {job.id} of channel ours: its result cannot be recorded: no space left" in caplog.text
    assert not job.is_locked()
    assert job.state().state == "open"


def test_a_job_whose_process_cannot_be_made_waits(
    queue: JobQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Process, "fails", True)
    job = send(queue, tmp_path)
    with pytest.raises(OSError, match="temporarily"):
        queue.handle([queue.waitables[0]])
    assert job.is_locked()
    monkeypatch.setattr(Process, "fails", False)
    queue.handle([])
    assert queue.waitables[1:] == [12345]


def locked_at_first(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has the job's lock, until this one has tried once to get it."""
    held = ExitStack()
    held.enter_context(job.try_lock())
    original = Job.try_lock

    @contextmanager
    def in_vain_once(self: Job) -> Iterator[int | None]:
        with original(self) as lock, held.pop_all():
            yield lock

    monkeypatch.setattr(Job, "try_lock", in_vain_once)


@pytest.mark.parametrize("state", ["open", "done", "failed", "running"])
def test_a_job_whose_lock_is_held_for_a_moment_is_started_all_the_same(
    queue: JobQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: JobState
) -> None:
    """By a process that removes or has just ended it; of one that was killed, the state may still say it runs."""
    job = JobStore(jobs_folder(tmp_path), clock=lambda: 0.0).open("yank", "ours", YANK)
    if state != "open":
        job.set_state(State(state=state))
    locked_at_first(job, monkeypatch)
    starter = JobRunner(queue.sending)
    starter.start(job)
    if state == "running":  # with its lock held, it counts as under way, so its end is waited for
        assert job.state().state == "open"
        starter.start(job)
    assert job.state().state == "waiting"
    queue.handle([queue.waitables[0]])
    assert queue.waitables[1:] == [12345]


def test_a_job_that_waits_is_sent_once_and_its_end_is_that_of_all_who_started_it(
    queue: JobQueue, tmp_path: Path
) -> None:
    job = JobStore(jobs_folder(tmp_path), clock=lambda: 0.0).open("yank", "ours", YANK)
    for _worker in range(2):
        JobRunner(queue.sending).start(job)
    queue.handle([queue.waitables[0]])
    assert queue.waitables[1:] == [12345]
    assert socket_is_empty(queue)


def socket_is_empty(queue: JobQueue) -> bool:
    receiving = queue.waitables[0]
    assert isinstance(receiving, socket.socket)
    try:
        receiving.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    return False


def test_a_job_that_was_removed_meanwhile_is_not_started(queue: JobQueue, tmp_path: Path) -> None:
    store = JobStore(jobs_folder(tmp_path), clock=lambda: 0.0)
    job = store.open("yank", "ours", YANK)
    assert store.remove(job)
    with pytest.raises(ChannelError, match="was removed meanwhile"):
        JobRunner(queue.sending).start(job)
    assert not job.folder.exists()


def test_a_job_that_stays_locked_after_its_end_is_an_error(
    queue: JobQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(jobs, "_LOCK_WAIT_S", 0.0)
    store = JobStore(jobs_folder(tmp_path), clock=lambda: 0.0)
    job = store.open("yank", "ours", YANK)
    with job.try_lock() as lock:
        assert lock is not None
        job.set_state(State(state="done"))
        with pytest.raises(ChannelError, match="has ended, but is still locked"):
            JobRunner(queue.sending).start(job)
        JobRunner(queue.sending).remove(job, store)
    assert "still locked; removed later" in caplog.text
    JobRunner(queue.sending).remove(job, store)
    assert not job.folder.exists()


@contextmanager
def hanging(root: Path, *, limit_s: float = 3600.0) -> Iterator[tuple[JobQueue, Job]]:
    """A queue with a job that waits for a channel's lock, which this process keeps."""
    with channel_writer(create_channel(root / "ours", CONDA_FORGE)):
        queue = JobQueue(root, limit_s=limit_s)
        job = send(queue, root)
        queue.handle([queue.waitables[0]])
        while job.state().state != "running":
            select_briefly()
        yield queue, job


def test_a_job_that_hangs_is_killed_after_its_time(tmp_path: Path) -> None:
    with hanging(tmp_path, limit_s=0.1) as (queue, job):
        while job.state().state == "running":
            queue.handle(multiprocessing.connection.wait(queue.waitables, timeout=0.1))
        assert queue.waitables[1:] == []
        queue.stop(0.0)
    state = job.state()
    assert state.state == "failed"
    assert state.error is not None
    assert state.error.message == "the job was ended, since it took more than 0 minutes"
    assert not job.is_locked()


def test_a_queue_that_is_told_to_end_kills_the_job_that_hangs_and_it_can_be_run_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with hanging(tmp_path) as (queue, job):
        queue.stop(0.1)
        assert f"job {job.id} of channel ours: killed" in caplog.text
        assert job.state().state == "open"
        assert not job.is_locked()
    carry_out(tmp_path, job)
    assert job.state().state == "done"


def test_a_job_whose_lock_did_not_arrive_counts_as_interrupted(queue: JobQueue, tmp_path: Path) -> None:
    job = send(queue, tmp_path, with_lock=False)
    queue.handle([queue.waitables[0]])
    assert queue.waitables[1:] == []
    assert job.state().state == "open"


def test_a_job_that_was_damaged_meanwhile_is_left_alone(queue: JobQueue, tmp_path: Path) -> None:
    job = send(queue, tmp_path)
    (job.folder / "request.json").write_bytes(b"")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names only
    queue.handle([queue.waitables[0]])
    assert queue.waitables[1:] == []
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_read_only_file_system_is_an_error_for_who_runs_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client cannot choose another place."""

    def denied(*_given: object, **_named: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path / "ours" / "noarch"))

    monkeypatch.setattr(FolderTarget, "yank", denied)
    job = JobStore(jobs_folder(tmp_path), clock=lambda: 0.0).open("yank", "ours", YANK)
    carry_out(tmp_path, job)
    state = job.state()
    assert state.error is not None
    assert state.error.kind == "FileAccessError"
    assert state.error.message == "ours/noarch: read-only file system"
    assert state.error.hint == "ask who runs the server, which the system denies this"


def _other_bytes(place: Path, other: Path) -> None:
    shutil.copyfile(other, place)


def _link_out(place: Path, other: Path) -> None:
    place.unlink()
    place.symlink_to(other)


def _link_within(place: Path, other: Path) -> None:
    place.unlink()
    place.symlink_to(os.path.relpath(other, place.parent))


@pytest.mark.parametrize("exchange", [_other_bytes, _link_out, _link_within])
@pytest.mark.parametrize("step", ["audit_uploaded", "check_digests"])
def test_a_received_file_that_is_exchanged_while_it_is_published_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: Callable[[Path, Path], None], step: str
) -> None:
    """For a package that is sound, of another channel of the server: before its audit, or between that and its use."""
    root = tmp_path / "server"
    other = make_conda(root / "theirs", "toy", files={"secret": b"theirs"})
    package = make_conda(tmp_path / "made", "toy")
    request = set_request(make_set([package], on=CONDA_FORGE), "main", attested=False)
    job = JobStore(jobs_folder(root), clock=lambda: 0.0).open("publish", "ours", request)
    place = job.file(request.files[0])
    place.parent.mkdir(parents=True)
    shutil.copyfile(package, place)
    take_step = getattr(jobs, step)

    def exchange_first(*given: object, **named: object) -> object:
        exchange(place, other)
        return take_step(*given, **named)

    monkeypatch.setattr(jobs, step, exchange_first)
    with job.try_lock() as lock:
        assert lock is not None
        carry_out(root, job)
    state = job.state()
    assert state.state == "failed"
    assert state.error is not None
    assert "changed while it was published" in state.error.message or "link" in state.error.message
    assert not (root / "ours" / "linux-64" / package.name).exists()


def _received(root: Path, request: SetRequest, *packages: Path) -> Job:
    job = JobStore(jobs_folder(root), clock=lambda: 0.0).open("publish", "ours", request)
    for file in request.files:
        for package in packages:
            if package.name == file.file_name:
                job.file(file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(package, job.file(file))
    return job


def test_a_job_compares_its_set_once_with_the_channels_lock_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_conda(tmp_path / "made", "toy")
    request = set_request(make_set([package], on=CONDA_FORGE), "main")
    held = []

    def counted(*given: object, **named: object) -> object:
        with pytest.raises(ChannelError, match="is in use by"), channel_writer(open_channel(tmp_path / "ours")):
            pass
        held.append(True)
        return compare(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("channel_tools.publish.folder.compare", counted)
    job = _received(tmp_path, request, package)
    with job.try_lock():
        carry_out(tmp_path, job)
    assert (job.state().state, held) == ("done", [True])


def test_the_page_follows_what_a_job_publishes(tmp_path: Path) -> None:
    toy, tool = make_conda(tmp_path / "made", "toy"), make_conda(tmp_path / "made", "tool")
    target = FolderTarget(root=tmp_path / "ours")
    target.publish(target.plan(make_set([toy], on=CONDA_FORGE), label="main"), progress=SilentProgress())
    with channel_writer(open_channel(target.root)) as writer:
        add_page(writer)
    job = _received(tmp_path, set_request(make_set([tool], on=CONDA_FORGE), "main"), tool)
    with job.try_lock():
        carry_out(tmp_path, job)
    assert job.state().state == "done"
    assert "page/name/tool.html" in (target.root / "index.html").read_text()


def test_files_of_a_set_are_expected_that_were_to_be_uploaded_and_that_the_channel_lacks(tmp_path: Path) -> None:
    """Another client may have had the same set published meanwhile, and what was sent for it removed."""
    toy, tool, extra = (make_conda(tmp_path / "made", name) for name in ("toy", "tool", "extra"))
    request = set_request(make_set([toy, tool, extra], on=CONDA_FORGE), "main")
    target = FolderTarget(root=tmp_path / "ours")
    target.publish(target.plan(make_set([toy], on=CONDA_FORGE), label="main"), progress=SilentProgress())
    for upload, received, missing in (
        (None, [tool], "extra"),
        (("linux-64/toy-1.0-0.conda", "linux-64/extra-1.0-0.conda"), [tool], "extra"),
        (("linux-64/toy-1.0-0.conda",), [tool, extra], None),
        (None, [], None),
    ):
        job = _received(tmp_path, replace(request, upload=upload), *received)
        with job.try_lock():
            carry_out(tmp_path, job)
        error = job.state().error
        message = f"1 file of the set is missing, the first is linux-64/{missing}-1.0-0.conda"
        assert (None if error is None else error.message) == (message if missing else None)


def test_a_set_brings_the_attestations_of_its_packages(tmp_path: Path) -> None:
    package = make_conda(tmp_path / "made", "toy")
    write_sidecar(package, b"[{}]")
    request = set_request(make_set([package], on=CONDA_FORGE), "main", attested=True)
    job = JobStore(jobs_folder(tmp_path), clock=lambda: 0.0).open("publish", "ours", request)
    job.file(request.files[0]).parent.mkdir(parents=True)
    shutil.copyfile(package, job.file(request.files[0]))
    with job.try_lock() as lock:
        assert lock is not None
        carry_out(tmp_path, job)
    assert job.state().error is None
    there = tmp_path / "ours" / "linux-64" / package.name
    assert sidecar_of(there).read_bytes() == b"[{}]"
    record = json.loads((there.parent / "repodata.json").read_bytes())["packages.conda"][there.name]
    assert record["attestations_sha256"] == sha256_of_file(sidecar_of(package))


@pytest.mark.parametrize(
    ("key", "content", "message"),
    [
        ("linux-64/other-1.0-0.conda", "[{}]", "but not the package"),
        ("linux-64/toy-1.0-0.conda", "<script>", "not a JSON list"),
        ("linux-64/toy-1.0-0.conda", "[]", "an empty list"),
    ],
)
def test_attestations_that_no_client_could_read_are_refused(
    key: str, content: str, message: str, tmp_path: Path
) -> None:
    request = replace(set_request(make_set([make_conda(tmp_path, "toy")]), "main"), attestations={key: content})
    with pytest.raises(UsageError, match=message):
        check_request(request, Limits())


def test_attestations_that_are_no_text_are_not_sent(tmp_path: Path) -> None:
    package = make_conda(tmp_path, "toy")
    write_sidecar(package, b"\xff\xfe[]")
    with pytest.raises(IntegrityError, match=r"toy-1\.0-0\.conda\.sigs: not a file of attestations"):
        set_request(make_set([package]), "main", attested=True)


def test_a_set_brings_what_its_packages_channel_lists_otherwise(tmp_path: Path) -> None:
    package = make_conda(tmp_path / "made", "toy", index={"constrains": ["dsk[array] >=2"]})
    packages = make_set([package], on=CONDA_FORGE)
    tries: list[tuple[dict[str, object], str | None]] = [
        ({"depends": ["zlib"]}, "constrains 'dsk[array] >=2'"),
        ({"constrains": ["dsk"]}, None),
    ]
    for changes, error in tries:
        patches = {"linux-64": Patch(records={package.name: changes})}
        job = _received(tmp_path, set_request(replace(packages, patches=patches), "main"), package)
        with job.try_lock():
            carry_out(tmp_path, job)
        failed = job.state().error
        assert (failed is None) == (error is None)
        assert failed is None or str(error) in failed.message
    index = json.loads((tmp_path / "ours" / "linux-64" / "repodata.json").read_bytes())
    assert index["packages.conda"][package.name]["constrains"] == ["dsk"]


@pytest.mark.parametrize(
    "patch",
    [
        Patch(records={"other-1.0-0.conda": {"license": "MIT"}}),
        Patch(remove=("toy-1.0-0.conda",)),
        Patch(revoke=("x",)),
    ],
)
def test_a_set_patches_no_other_packages(tmp_path: Path, patch: Patch) -> None:
    package = make_conda(tmp_path / "made", "toy")
    packages = replace(make_set([package], on=CONDA_FORGE), patches={"linux-64": patch})
    job = _received(tmp_path, set_request(packages, "main"), package)
    with job.try_lock():
        carry_out(tmp_path, job)
    failed = job.state().error
    assert failed is not None
    assert "does not bring the package" in failed.message or "removes" in failed.message
    assert not (tmp_path / "ours" / "linux-64" / package.name).exists()
    with pytest.raises(UsageError, match="no packages for it"):
        check_request(replace(set_request(packages, "main"), patches={"noarch": {}}), Limits())
