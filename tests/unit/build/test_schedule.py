# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from channel_tools.build.model import FINISHED, BuildJob, BuildOptions, BuildResult, WorkerResult, encode
from channel_tools.build.node import lock_of
from channel_tools.build.remote import Outcome, write_outcome
from channel_tools.build.schedule import BuildRun, build_packages, channels_of, phase_of, take_in, take_over_finished
from channel_tools.build.worker import Child
from channel_tools.channel import Channel, ChannelWriter, channel_writer, published_packages
from channel_tools.system.errors import BuildError, ChannelError, ConfigError
from channel_tools.system.locks import exclusive_lock
from channel_tools.system.processes import start_command
from channel_tools.system.progress import NotesOnly, SilentProgress
from tests.support.packages import CONDA_FORGE, REGISTRY, new_channel
from tests.unit.audit.packages import BUILD, Toy


def job(name: str, *waits_for: str) -> BuildJob:
    waits = tuple(f"{other}-1-0.conda" for other in waits_for)
    return BuildJob(file_name=f"{name}-1-0.conda", subdir="noarch", recipe_folder=Path(name), waits_for=waits)


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        pytest.param([job("a", "b"), job("b", "a")], "wait for each other: ", id="circle"),
        pytest.param([job("a"), job("a")], "is to be built twice", id="twice"),
    ],
)
def test_an_impossible_order_is_refused(tmp_path: Path, jobs: list[BuildJob], message: str) -> None:
    writer = ChannelWriter(channel=Channel(path=tmp_path, foundation=REGISTRY), clock=time.time)
    with pytest.raises(ConfigError, match=message):
        build_packages(
            jobs,
            BuildOptions(platform="linux-64", max_jobs=1, cores=1, environ={}),
            writer=writer,
            places=None,  # type: ignore[arg-type]
            admit=lambda _package: None,
            progress=SilentProgress(),
        )


def test_builds_solve_from_the_channel_and_then_from_its_foundation(tmp_path: Path) -> None:
    own = Channel(path=tmp_path, foundation=REGISTRY)
    assert channels_of(own) == (tmp_path.as_uri(),)
    beside = Channel(path=tmp_path, foundation=CONDA_FORGE)
    assert channels_of(beside) == (tmp_path.as_uri(), CONDA_FORGE.address)


class Nodes:
    """What a cluster's jobs left, and the channel that it is taken into."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.nodes, self.channel = folder / "nodes", new_channel(folder)
        self.notes = NotesOnly()
        self.heard: list[BuildResult] = []
        for name in names:
            package = Toy(name=name, files={"share/toy": b"sound"}).write(self.folder(name) / "out")
            write_outcome(self.folder(name) / FINISHED, Outcome(seconds=3.0, package=package))

    def folder(self, name: str) -> Path:
        return self.nodes / f"{name}-1.0-{BUILD}"

    def take_over(self, jobs: Sequence[BuildJob], *, refused: str = "") -> list[str]:
        def admit(package: Path) -> None:
            if package.name == f"{refused}-1.0-{BUILD}.conda":
                raise BuildError(f"{package.name}: 1 findings")

        with channel_writer(self.channel) as writer:
            taken = take_over_finished(
                self.nodes, jobs, writer=writer, logs=self.nodes, admit=admit, progress=self.notes,
                on_result=self.heard.append,
            )  # fmt: skip
        assert taken == self.heard
        assert [result.package for result in taken] == [
            self.channel.path / "linux-64" / result.job.file_name for result in taken
        ]
        return [package.row.name for package in published_packages(self.channel)]


def toy_job(name: str, *waits_for: str) -> BuildJob:
    waits = tuple(f"{other}-1.0-{BUILD}.conda" for other in waits_for)
    return BuildJob(file_name=f"{name}-1.0-{BUILD}.conda", subdir="linux-64", recipe_folder=Path(name), waits_for=waits)


def test_what_a_cluster_had_built_is_taken_over_in_the_plans_order(tmp_path: Path) -> None:
    cluster = Nodes(tmp_path, "upper", "lower", "after")
    jobs = [toy_job("upper", "lower"), toy_job("lower"), toy_job("after", "missing"), toy_job("missing")]
    assert cluster.take_over(jobs) == ["lower", "upper"]
    assert [(result.job.stem.partition("-")[0], result.seconds) for result in cluster.heard] == [
        ("lower", 3.0),
        ("upper", 3.0),
    ]
    assert [path.name for path in cluster.nodes.iterdir()] == [cluster.folder("after").name]


def test_what_is_refused_or_in_use_is_left_to_be_built(tmp_path: Path) -> None:
    cluster = Nodes(tmp_path, "bad", "used", "good")
    with exclusive_lock(lock_of(cluster.folder("used")), resource="the build folder"):
        assert cluster.take_over([toy_job(name) for name in ("bad", "used", "good")], refused="bad") == ["good"]
    said = [note for note in cluster.notes.notes if "is not used" in note]
    assert [note.partition("-")[0] for note in said] == ["bad", "used"]
    assert "1 findings" in said[0]
    assert f"in use by process {os.getpid()}" in said[1]
    assert all((cluster.folder(name) / FINISHED).is_file() for name in ("bad", "used"))


def test_a_package_whose_name_the_channel_has_enters_only_if_it_is_built_from_the_same(tmp_path: Path) -> None:
    channel, notes = new_channel(tmp_path), NotesOnly()
    earlier = Toy(name="taken", files={"share/toy": b"earlier"}).write(tmp_path / "earlier")
    other = Toy(name="taken", files={"share/toy": b"new"}).write(tmp_path / "built")

    with channel_writer(channel) as writer:
        published = take_in(writer, earlier, admit=lambda _package: None, progress=notes)
        assert take_in(writer, earlier, admit=lambda _package: None, progress=notes) == published
        with pytest.raises(ChannelError, match="other bytes under this name"):
            take_in(writer, other, admit=lambda _package: None, progress=notes)
    assert [package.path for package in published_packages(channel)] == [published]


class FakeBuilds:
    """Children that are tiny shell commands beside the result that a worker would have written."""

    def __init__(self, folder: Path, *, failing: tuple[str, ...] = (), command: str = "exit 0") -> None:
        self.started: list[str] = []
        self.entered: list[str] = []
        self.at_once: list[int] = []
        self._folder = folder
        self._failing = failing
        self._command = command

    def start(self, job: BuildJob, at_once: int) -> Child:
        self.at_once.append(at_once)
        name = job.stem.partition("-")[0]
        self.started.append(name)
        folder = self._folder / job.stem
        folder.mkdir()
        result = WorkerResult(packages=(folder / "noarch" / job.file_name,))
        if name in self._failing:
            result = WorkerResult(failure="script", message="Script failed")
        (folder / "result.json").write_bytes(encode(result))
        (folder / "log").write_text("last words\n")
        process = start_command(["sh", "-c", self._command])
        return Child(
            job=job, process=process, folder=folder, log=folder / "log", cache=folder, started_s=time.monotonic()
        )

    def enter(self, package: Path) -> Path:
        self.entered.append(package.name.partition("-")[0])
        return package


def run(builds: FakeBuilds, jobs: list[BuildJob], *, max_jobs: int = 2) -> dict[str, BuildResult]:
    with BuildRun(jobs, start=builds.start, enter=builds.enter, progress=SilentProgress()) as build_run:
        return {result.job.stem.partition("-")[0]: result for result in build_run.results(max_jobs)}


def test_nothing_starts_before_what_it_waits_for_has_entered(tmp_path: Path) -> None:
    builds = FakeBuilds(tmp_path)
    original = builds.start

    def start(job: BuildJob, at_once: int) -> Child:
        assert {name.partition("-")[0] for name in job.waits_for} <= set(builds.entered)
        return original(job, at_once)

    builds.start = start  # type: ignore[method-assign]
    jobs = [job("d", "b", "c"), job("c", "a"), job("b", "a"), job("a")]
    results = run(builds, jobs, max_jobs=4)
    assert {name: result.status for name, result in results.items()} == dict.fromkeys("abcd", "built")


def test_a_job_is_told_how_many_share_the_machine_when_it_starts(tmp_path: Path) -> None:
    builds = FakeBuilds(tmp_path)
    run(builds, [job("a"), job("b", "a"), job("c", "a"), job("d", "b", "c")], max_jobs=3)
    assert (builds.started, builds.at_once) == (["a", "b", "c", "d"], [1, 2, 2, 1])


def test_what_may_be_done_meanwhile_is_done_once_while_the_first_run(tmp_path: Path) -> None:
    builds, seen = FakeBuilds(tmp_path), list[list[str]]()
    with BuildRun(
        [job("a"), job("b"), job("c", "a")], start=builds.start, enter=builds.enter, progress=SilentProgress()
    ) as build_run:
        results = list(build_run.results(2, lambda: seen.append([*builds.started])))
    assert seen == [["a", "b"]]
    assert len(results) == 3


def test_an_error_meanwhile_ends_what_runs(tmp_path: Path) -> None:
    builds, children = FakeBuilds(tmp_path, command="exec sleep 1000"), list[Child]()

    def start(job: BuildJob, at_once: int) -> Child:
        children.append(builds.start(job, at_once))
        return children[-1]

    def refuse() -> None:
        raise ConfigError("no key")

    def ended_early() -> None:
        with BuildRun([job("a")], start=start, enter=builds.enter, progress=SilentProgress()) as build_run:
            list(build_run.results(1, refuse))

    with pytest.raises(ConfigError, match="no key"):
        ended_early()
    assert [child.process.wait() for child in children] == [-signal.SIGTERM]


def test_what_waits_for_none_of_those_that_ended_starts_before_they_are_entered(tmp_path: Path) -> None:
    builds, started = FakeBuilds(tmp_path), list[list[str]]()
    original = builds.enter

    def enter(package: Path) -> Path:
        started.append([*builds.started])
        return original(package)

    builds.enter = enter  # type: ignore[method-assign]
    run(builds, [job("a"), job("b", "a"), job("c")], max_jobs=1)
    assert (builds.entered, started[0]) == (["a", "c", "b"], ["a", "c"])


def test_packages_that_are_no_jobs_count_as_there(tmp_path: Path) -> None:
    assert run(FakeBuilds(tmp_path), [job("a", "published")])["a"].status == "built"


def test_a_failure_holds_back_only_what_waits_for_it(tmp_path: Path) -> None:
    builds = FakeBuilds(tmp_path, failing=("b",))
    results = run(builds, [job("a"), job("b"), job("c", "b"), job("d", "c"), job("e", "a")], max_jobs=1)
    statuses = {name: result.status for name, result in results.items()}
    assert statuses == {"a": "built", "b": "failed", "c": "not_started", "d": "not_started", "e": "built"}
    assert builds.started == ["a", "b", "e"]
    assert isinstance(results["b"].error, BuildError)
    assert "last words" in str(results["b"].error)


def test_a_package_that_the_channel_refuses_fails_its_job(tmp_path: Path) -> None:
    builds = FakeBuilds(tmp_path)

    def refuse(package: Path) -> Path:
        raise ChannelError(f"{package}: refused")

    builds.enter = refuse  # type: ignore[method-assign]
    result = run(builds, [job("a")])["a"]
    assert result.status == "failed"
    assert isinstance(result.error, ChannelError)


@pytest.mark.parametrize("command", ["kill -9 $$", "exit 137"])
def test_a_killed_worker_is_a_failure(tmp_path: Path, command: str) -> None:
    result = run(FakeBuilds(tmp_path, command=command), [job("a")])["a"]
    assert "it was killed (signal 9)" in str(result.error)


def test_a_worker_without_a_result_is_a_failure(tmp_path: Path) -> None:
    result = run(FakeBuilds(tmp_path, command="exit 3"), [job("a")])["a"]
    assert "exit status 3" in str(result.error)


def test_independent_jobs_run_at_once_up_to_the_limit(tmp_path: Path) -> None:
    # Each child opens a pipe that the other reads: alone, either would wait forever.
    for name in ("one", "two"):
        os.mkfifo(tmp_path / name)
    commands = iter(["echo x > one; read y < two", "read y < one; echo x > two"])
    builds = FakeBuilds(tmp_path)
    original = builds.start

    def start(job: BuildJob, at_once: int) -> Child:
        builds._command = f"cd {tmp_path}; {next(commands)}"
        return original(job, at_once)

    builds.start = start  # type: ignore[method-assign]
    results = run(builds, [job("a"), job("b")], max_jobs=2)
    assert {result.status for result in results.values()} == {"built"}


def test_leaving_early_ends_the_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds = FakeBuilds(tmp_path, command="exec sleep 1000")
    children: list[Child] = []
    original = builds.start

    def start(job: BuildJob, at_once: int) -> Child:
        children.append(original(job, at_once))
        return children[-1]

    def interrupted() -> Iterator[BuildResult]:
        with BuildRun([job("a"), job("b")], start=start, enter=builds.enter, progress=SilentProgress()) as build_run:
            yield from build_run.results(2)

    def interrupt(_descriptors: Iterable[int]) -> tuple[int, ...]:
        raise KeyboardInterrupt

    monkeypatch.setattr("channel_tools.build.schedule.wait_for_any", interrupt)
    with pytest.raises(KeyboardInterrupt):
        list(interrupted())
    assert [child.process.wait() for child in children] == [-signal.SIGTERM] * 2


LINES = {
    "sources": "Fetching source from path: /src\nCopied 12 files into isolated environment\n",
    "environment": "  Platform: linux-64 [__unix=0=0]\n  Specs:\n   - ninja\n",
    "script": "\u2714 Successfully updated the host environment\nconfiguring\n",
    "ninja": "[1/345] Building CXX object a.o\r[12/345] Building CXX object b.o\n",
    "make": "[  4%] Building C object a.o\n[ 45%] Linking C\n",
    "package": "Copying done!\nFiles in package:\n",
    "tests": "Collecting tests from '/out'\n[1/2] is a test's own line\n",
}


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([], ""),
        (["sources"], "sources"),
        (["sources", "environment"], "environment"),
        (["sources", "environment", "script"], "compile"),
        (["sources", "environment", "script", "ninja"], "compile 12 of 345"),
        (["script", "make"], "compile 45 %"),
        (["script", "ninja", "package"], "package"),
        (["script", "ninja", "package", "tests"], "tests"),
        (["ninja"], "compile 12 of 345"),
    ],
    ids=lambda value: "-".join(value) or "nothing" if isinstance(value, list) else None,
)
def test_the_phase_is_that_of_the_last_line_that_begins_one(tmp_path: Path, parts: list[str], said: str) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(LINES[part] for part in parts))
    assert phase_of(log) == said


def test_a_long_log_shows_its_end_and_a_missing_one_nothing(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(LINES["sources"] + LINES["script"] + "warning: " * 20_000 + "\n" + LINES["ninja"])
    assert phase_of(log) == "compile 12 of 345"
    assert phase_of(tmp_path / "none.log") == ""
