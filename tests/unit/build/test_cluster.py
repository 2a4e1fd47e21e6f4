# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace

import pytest

from channel_tools.build import cluster
from channel_tools.build.cluster import (
    EVENTS_FILE,
    Submissions,
    await_earlier_run,
    check_work_is_shared,
    check_workflow_folder,
    command_for,
    find_snakemake,
    run_workflow,
    snakemake_command,
    workflow_environ,
    write_workflow,
)
from channel_tools.build.compiler_cache import CompilerCache
from channel_tools.build.model import BuildJob, BuildPlaces, BuildResult
from channel_tools.build.node import lock_of
from channel_tools.build.remote import (
    BUILDS_FILE,
    Failure,
    Outcome,
    RemoteBuilds,
    read_builds,
    results_of,
    write_outcome,
)
from channel_tools.requests.build import ClusterRequest
from channel_tools.system.errors import BuildError, CommandError, DiskFullError, SolveError, UsageError
from channel_tools.system.locks import exclusive_lock
from channel_tools.system.schedulers import QueuedJob
from channel_tools.system.settings import Settings, Tree
from tests.support.processes import wait_for

DATA = Path(cluster.__file__).with_name("data")


def settings_in(folder: Path) -> Settings:
    return Settings(tree=Tree(root=folder), output=folder / "output", cache=folder / "cache")


def test_builds_run_in_a_folder_that_other_machines_can_access(tmp_path: Path) -> None:
    check_work_is_shared(Settings(tree=Tree(root=tmp_path), output=Path("/o"), cache=tmp_path / "cache"))
    with pytest.raises(UsageError, match="other machines cannot access") as caught:
        check_work_is_shared(settings_in(tmp_path / "a folder with spaces in its name"))
    assert "--output" in str(caught.value.hint)


def test_a_workflow_that_is_only_written_has_no_command(tmp_path: Path) -> None:
    settings = Settings(tree=Tree(root=tmp_path), output=Path("/o"), cache=tmp_path / "cache")
    request = ClusterRequest(emit="snakemake", destination=tmp_path / "there")
    assert command_for(settings, request, jobs=None) == ()
    assert not (tmp_path / "there").exists()


def job(name: str) -> BuildJob:
    return BuildJob(file_name=f"{name}-1.0-h_0.conda", subdir="noarch", recipe_folder=Path("recipes", name))


def builds(*names: str) -> RemoteBuilds:
    return RemoteBuilds(
        python="python",
        tree=Path("/tree"),
        output=Path("/tree/output"),
        places=BuildPlaces(work=Path("/tree/nodes"), logs=Path("/tree/logs"), cache=Path("/tree/cache")),
        platform="linux-64",
        channels=("file:///tree/output/channel",),
        jobs=tuple(map(job, names)),
        compiler_cache=CompilerCache(name="ccache", program=Path("/usr/bin/ccache"), folder=Path("/cache")),
    )


def test_snakemake_that_is_missing_says_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(CommandError) as caught:
        find_snakemake({"PATH": str(tmp_path)})
    assert caught.value.hint is not None
    assert "install the extra cluster" in caught.value.hint
    (tmp_path / "snakemake").touch(0o755)
    with pytest.raises(CommandError, match="flock: not found"):
        find_snakemake({"PATH": str(tmp_path)})
    (tmp_path / "flock").touch(0o755)
    assert find_snakemake({"PATH": str(tmp_path)}) == tmp_path / "snakemake"


def command(folder: Path, on: str, jobs: int | None = None) -> list[str]:
    return snakemake_command(Path("snakemake"), folder, on=on, jobs=jobs, environ={"PATH": f"{folder}:/usr/bin:/bin"})


def test_a_profile_says_how_many_jobs_unless_the_user_does(tmp_path: Path) -> None:
    assert command(tmp_path, str(tmp_path))[-2:] == ["--profile", str(tmp_path)]
    assert command(tmp_path, str(tmp_path), 3)[-2:] == ["--jobs", "3"]
    with pytest.raises(UsageError, match="--on slrum: expected slurm, pbs or a folder"):
        command(tmp_path, "slrum")


def test_pbs_gets_its_own_commands(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="qsub: not found"):
        command(tmp_path, "pbs")
    (tmp_path / "qsub").touch(0o755)
    made = command(tmp_path, "pbs", 7)
    submit = made[made.index("--cluster-generic-submit-cmd") + 1].format(
        threads=4, resources=SimpleNamespace(mem_mb=8000, runtime=240), wildcards=SimpleNamespace(stem="a-1.0-h_0")
    )
    assert "-m channel_tools.build.pbs submit a-1.0-h_0 -N build" in submit
    assert submit.endswith("/pbs-logs/ -l select=1:ncpus=4:mem=8000mb -l walltime=240:00")
    assert made[made.index("--cluster-generic-status-cmd") + 1].endswith("-m channel_tools.build.pbs state")
    assert made[-2:] == ["--jobs", "7"]


def test_a_slurm_without_accounting_is_asked_by_squeue(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="scontrol: the program was not found"):
        snakemake_command(Path("snakemake"), tmp_path, on="slurm", jobs=None, environ={"PATH": str(tmp_path)})
    scontrol = tmp_path / "scontrol"
    for kind, squeue in (("none", True), ("slurmdbd", False)):
        scontrol.write_text(f"#!/bin/sh\necho 'AccountingStorageType   = accounting_storage/{kind}'\n")
        scontrol.chmod(0o755)
        made = command(tmp_path, "slurm")
        assert made[-2:] == ["--jobs", "100"]
        assert made[made.index("--executor") + 1] == "slurm"
        assert ("--slurm-status-command" in made) is squeue


def test_a_workflow_replaces_only_its_like(tmp_path: Path) -> None:
    write_workflow(tmp_path / "new", builds("a"))
    check_workflow_folder(tmp_path / "new")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    for place in (tmp_path / "mine", tmp_path / "mine" / "notes.txt"):
        with pytest.raises(UsageError, match="contains files that are not part of"):
            check_workflow_folder(place)


def test_of_an_earlier_run_only_finished_builds_count(tmp_path: Path) -> None:
    package = tmp_path / "a-1.0-h_0.conda"
    package.touch()
    file = tmp_path / "workflow" / BUILDS_FILE
    write_workflow(file.parent, builds("a", "b", "c"))
    a, b, c = (results_of(file, f"{name}-1.0-h_0") for name in "abc")
    write_outcome(a.built, Outcome(seconds=1, package=package))
    write_outcome(b.built, Outcome(seconds=1, package=tmp_path / "removed.conda"))
    write_outcome(b.admitted, Outcome(seconds=1, package=package))
    write_outcome(c.built, Outcome(seconds=1, failure=Failure(error="BuildError", message="no", hint=None)))
    write_workflow(file.parent, builds("a", "b", "c"))
    assert sorted(path.name for path in a.folder.iterdir()) == [a.built.name]
    assert read_builds(file) == builds("a", "b", "c")


def test_snakemake_finds_the_logger_plugin_beside_what_the_caller_names() -> None:
    (folder,) = workflow_environ({})["PYTHONPATH"].split(":")
    assert [path.name for path in Path(folder).glob("snakemake_logger_plugin_*")] == [
        "snakemake_logger_plugin_channel_tools"
    ]
    assert workflow_environ({"PYTHONPATH": "/mine", "A": "b"}) == {"PYTHONPATH": f"{folder}:/mine", "A": "b"}


def test_of_snakemake_only_the_interface_for_logger_plugins_is_imported() -> None:
    imported: set[str] = set()
    sources = [path for path in DATA.rglob("*") if path.suffix in {"", ".py"} and path.is_file()]
    assert [path.name for path in sources] != []
    for path in sources:
        imported |= set(re.findall(r"^\s*(?:from|import) (snakemake\S*)", path.read_text(), re.MULTILINE))
        assert re.findall(r"^\s*(?:workflow|snakemake\w*)(?:\.\w+)+ *=", path.read_text(), re.MULTILINE) == []
    assert imported == {f"snakemake_interface_logger_plugins.{name}" for name in ("base", "common")}


def build_job(name: str, *waits_for: str) -> BuildJob:
    return BuildJob(
        file_name=f"{name}-1.0-h_0.conda",
        subdir="noarch",
        recipe_folder=Path("recipes", name),
        waits_for=tuple(f"{other}-1.0-h_0.conda" for other in waits_for),
    )


def places(folder: Path) -> BuildPlaces:
    return BuildPlaces(work=folder / "nodes", logs=folder / "logs", cache=folder / "cache")


def run(folder: Path, script: str, *jobs: BuildJob) -> list[BuildResult]:
    """The results of a workflow that the shell script runs in place of Snakemake."""
    command = ["sh", "-c", f"cd {folder}; mkdir -p results; {script}"]
    return list(run_workflow(command, folder, jobs, places=places(folder), environ=os.environ))


def events(folder: Path, *lines: dict[str, object]) -> None:
    """What the logger plugin has written."""
    (folder / EVENTS_FILE).write_text("".join(json.dumps({"rule": "build", **line}) + "\n" for line in lines))


def test_every_job_has_one_result(tmp_path: Path) -> None:
    jobs = [
        build_job("after", "bad"),
        build_job("bad"),
        build_job("good"),
        build_job("last", "after"),
        build_job("lost"),
        build_job("then", "lost"),
    ]
    good, bad = (results_of(tmp_path / BUILDS_FILE, f"{name}-1.0-h_0") for name in ("good", "bad"))
    write_outcome(good.admitted, Outcome(seconds=2, package=Path("/channel/good")))
    failure = Failure.of(SolveError("bad: cannot be solved", hint="look"))
    write_outcome(bad.failed, Outcome(seconds=1, failure=failure))
    results = run(tmp_path, "echo no such partition; exit 1", *jobs)
    assert {result.job.stem.partition("-")[0]: result.status for result in results} == {
        "bad": "failed",
        "after": "not_started",
        "last": "not_started",
        "good": "built",
        "lost": "failed",
        "then": "not_started",
    }
    errors = {result.job.stem.partition("-")[0]: result.error for result in results if result.error is not None}
    assert type(errors["bad"]) is SolveError
    assert (errors["bad"].message, errors["bad"].hint) == ("bad: cannot be solved", "look")
    assert type(errors["lost"]) is BuildError
    assert "no such partition" in errors["lost"].message


def test_of_a_lost_job_slurms_words_and_the_jobs_own_are_told(tmp_path: Path) -> None:
    log = tmp_path / "7.log"
    log.write_text("slurmstepd: error: *** JOB 7 ON n1 CANCELLED DUE TO TIME LIMIT ***\n")
    advice = "For further error details see the cluster/cloud log and the log files of the involved rule(s)."
    limit = "sbatch: error: Batch job submission failed: it's over a limit"
    rejected = f"SLURM sbatch failed. The error message was '{limit}'.\n    sbatch call:\n        sbatch ...\n{advice}"
    events(
        tmp_path,
        {"number": 2, "stem": "lost-1.0-h_0", "threads": 4},
        {"number": 3, "stem": "refused-1.0-h_0", "threads": 4},
        {
            "number": 2,
            "message": f"SLURM-job '6' failed: 'NODE_FAIL'.{advice}",
            "submitted": True,
            "logs": ["6.log"],
        },
        {
            "number": 2,
            "message": f"SLURM-job '7' failed: 'TIMEOUT'.{advice}",
            "submitted": True,
            "logs": [str(log)],
        },
        {"number": 3, "message": rejected},
        {"number": 3, "message": rejected},
    )
    results = run(
        tmp_path,
        "echo 'Exiting because a job failed'; exit 1",
        build_job("lost"),
        build_job("refused"),
        build_job("other"),
    )
    lost, refused, other = (str(result.error) for result in results)
    assert lost == (
        "lost-1.0-h_0: its jobs left no result\n"
        "    SLURM-job '6' failed: 'NODE_FAIL'.\n"
        "    SLURM-job '7' failed: 'TIMEOUT'.\n"
        "    slurmstepd: error: *** JOB 7 ON n1 CANCELLED DUE TO TIME LIMIT ***\n"
        f"log: {log}"
    )
    assert refused == (
        f"refused-1.0-h_0: its jobs left no result\n    SLURM sbatch failed. The error message was '{limit}'."
    )
    assert "other-1.0-h_0: its job left no result: cancelled" in other
    assert "Exiting because a job failed" in other  # Snakemake's own words


def test_a_snakemake_that_begins_nothing_says_why(tmp_path: Path) -> None:
    said = """cat >&2 <<'END'
usage: snakemake [--dry-run] [--profile PROFILE]
                 [targets ...]
snakemake: error: argument --executor/-e: invalid choice: 'lsf' (choose from 'slurm', 'local')
END
exit 2
"""
    with pytest.raises(CommandError) as caught:
        run(tmp_path, said, build_job("a"), build_job("b"))
    assert caught.value.message == (
        "snakemake: exit status 2 before it started a build\n"
        "    snakemake: error: argument --executor/-e: invalid choice: 'lsf' (choose from 'slurm', 'local')\n"
        f"log: {tmp_path}/logs/snakemake.log"
    )


def test_a_snakemake_that_cannot_start_for_another_reason_says_that(tmp_path: Path) -> None:
    with pytest.raises(
        CommandError, match=r"(?s)exit status 1 before.*Error: Directory cannot be locked\.\n    .*lock"
    ):
        run(
            tmp_path,
            "echo Error: Directory cannot be locked.; echo another Snakemake holds the lock; exit 1",
            build_job("a"),
        )


def test_a_snakemake_that_has_begun_a_job_may_end_without_its_result(tmp_path: Path) -> None:
    events(tmp_path, {"number": 1, "stem": "a-1.0-h_0"})
    (result,) = run(tmp_path, "exit 1", build_job("a"))
    assert str(result.error).startswith("a-1.0-h_0: its job left no result")


def test_what_a_killed_snakemake_had_locked_is_unlocked(tmp_path: Path) -> None:
    program = tmp_path / "snakemake"
    program.write_text('#!/bin/sh\necho "$@" >> said\ncase $2 in killed) kill -9 $$;; esac\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def run_once(word: str) -> None:
        command = [str(program), "run", word]
        list(run_workflow(command, tmp_path, [build_job("a")], places=places(tmp_path), environ=os.environ))

    for word in ("whole", "killed", "whole"):
        with contextlib.suppress(CommandError):
            run_once(word)
    unlock = f"--snakefile {tmp_path}/Snakefile --unlock"
    assert (tmp_path / "said").read_text().splitlines() == ["run whole", "run killed", unlock, "run whole"]


def test_a_package_that_was_built_and_did_not_enter_is_called_that(tmp_path: Path) -> None:
    write_outcome(results_of(tmp_path / BUILDS_FILE, "a-1.0-h_0").built, Outcome(seconds=1, package=Path("/scratch/a")))
    (result,) = run(tmp_path, "echo Killed", build_job("a"))
    assert str(result.error).startswith("a-1.0-h_0: was built, but the step that adds it to the channel was ended\n")
    assert "Killed" in str(result.error)


def test_where_the_disk_is_full_lost_jobs_are_called_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events(
        tmp_path,
        {"number": 1, "stem": "failed-1.0-h_0"},
        {
            "number": 1,
            "message": "SLURM-job '1' failed, SLURM status is: 'FAILED'.",
            "submitted": True,
        },
    )
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=4096))
    errors = [result.error for result in run(tmp_path, "exit 1", build_job("failed"), build_job("unknown"))]
    assert [type(error) for error in errors] == [DiskFullError, DiskFullError]
    assert "failed-1.0-h_0: its jobs left no result\n    SLURM-job '1' failed" in str(errors[0])
    assert f"no space is left on the device: {tmp_path}" in str(errors[0])
    assert errors[0] is not None
    assert str(errors[0].hint).startswith("free space")


def test_every_change_is_told_once(tmp_path: Path) -> None:
    place, said = places(tmp_path), list[str]()
    admitted = results_of(tmp_path / BUILDS_FILE, "a-1.0-h_0").admitted
    write_outcome(tmp_path / "ended", Outcome(seconds=2, package=Path("/channel/a"), notes=("kept",)))

    def tell(state: str) -> None:
        said.append(state)
        (tmp_path / f"told-{len(said)}").touch()

    waits = "while ! test -e told-{}; do sleep 0.05; done"
    script = f"cd {tmp_path}; mkdir {admitted.parent}; {waits.format(1)}; mv ended {admitted}; {waits.format(2)}"
    jobs = [build_job("a"), build_job("b", "a"), build_job("c")]
    with exclusive_lock(lock_of(place.work / jobs[0].folder_name), resource="the build"):
        running = run_workflow(["sh", "-c", script], tmp_path, jobs, places=place, environ=os.environ, on_state=tell)
        results = {result.job.stem: result.notes for result in running}
    assert said == [
        "0 done, 1 running, 2 waiting",
        "1 done, 0 running, 2 waiting",
    ]
    assert results == {"a-1.0-h_0": ("kept",), "b-1.0-h_0": (), "c-1.0-h_0": ()}


def test_leaving_a_run_has_snakemake_cancel_its_jobs(tmp_path: Path) -> None:
    write_outcome(tmp_path / "outcome", Outcome(seconds=2, package=Path("/channel/good")))
    good = results_of(tmp_path / BUILDS_FILE, "good-1.0-h_0").admitted
    trap = f"trap 'echo cancelled > {tmp_path}/said; exit 1' INT"
    command = ["bash", "-c", f"{trap}; mkdir {good.parent}; mv {tmp_path}/outcome {good}; while :; do sleep 0.1; done"]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in what a script starts in the background
    try:
        run = run_workflow(
            command,
            tmp_path,
            [build_job("good"), build_job("slow")],
            places=places(tmp_path),
            environ=os.environ,
        )
        assert next(run).status == "built"
        run.close()
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "said").read_text() == "cancelled\n"


def test_what_a_killed_command_has_left_running_is_waited_for(tmp_path: Path) -> None:
    notes: list[str] = []
    await_earlier_run(tmp_path, notes.append)
    assert notes == []
    command = [
        "sh",
        "-c",
        f"trap 'sleep 0.3; touch {tmp_path}/cancelled; kill $!; exit' INT; sleep 60 & touch {tmp_path}/begun; wait",
    ]
    driver = (
        "import os; from pathlib import Path; from channel_tools.build.model import BuildPlaces;"
        " from channel_tools.build.cluster import run_workflow;"
        f" folder = Path({str(tmp_path)!r}); places = BuildPlaces(work=folder, logs=folder, cache=folder);"
        f" list(run_workflow({command!r}, folder, [], places=places, environ=os.environ))"
    )
    with subprocess.Popen([sys.executable, "-c", driver]) as process:
        wait_for((tmp_path / "begun").exists)
        process.kill()
    await_earlier_run(tmp_path, notes.append)
    assert (tmp_path / "cancelled").exists()
    assert notes == [f"waiting for Snakemake of an earlier command in {tmp_path}, which cancels its jobs"]


def test_a_snakemake_that_waits_for_a_forgotten_job_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_FIRST_QUESTION_S", 0.0)
    monkeypatch.setattr(cluster, "_FORGOTTEN_S", 0.0)
    monkeypatch.setattr(cluster, "_LONGEST_PAUSE_S", 0.0)
    admitted = results_of(tmp_path / BUILDS_FILE, "a-1.0-h_0").admitted
    write_outcome(tmp_path / "outcome", Outcome(seconds=2, package=Path("/channel/a")))
    event = json.dumps({"rule": "build", "number": 1, "stem": "a-1.0-h_0"})
    comment = f"rule_build_wildcards_a-1.0-h_0|{tmp_path}|None"
    scripts = {
        # it knows the job when it is first asked
        "squeue": f"test -e {tmp_path}/asked || echo '7|RUNNING|{comment}'; touch {tmp_path}/asked",
        "snakemake": f"""echo "$1" >> said
case $1-$(grep -c start said) in
    start-1) echo '{event}' > events.jsonl; exec sleep 600;;
    start-2) mkdir results; mv outcome {admitted};;
esac""",
    }
    for name, script in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    warnings: list[str] = []
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [str(tmp_path / "snakemake"), "start"]
    (result,) = run_workflow(
        command,
        tmp_path,
        [build_job("a")],
        places=places(tmp_path),
        environ=environ,
        on_warning=warnings.append,
    )
    assert result.status == "built"
    assert (tmp_path / "said").read_text().splitlines() == ["start", "--snakefile", "start"]
    assert [line.partition(" is no longer known")[0] for line in warnings] == ["a-1.0-h_0: its job"]


MEMORY = "Memory specification can not be satisfied"
DETAILS = "\n    sbatch call:\n        sbatch --comment rule_build_wildcards_a-1.0 --wrap=...\n"
ADVICE = "For further error details see the cluster/cloud log and the log files of the involved rule(s)."
LESS = (
    "; request less under `resources` in variants/stacks.yaml, or name another partition or queue in a profile"
    " (--on FOLDER)"
)


class Cluster:
    """A file of events, a clock, and a scheduler; ``stuck_jobs`` None is one that does not answer."""

    def __init__(self, folder: Path) -> None:
        self.events = folder / "events.jsonl"
        self.now_s = 0.0
        self.stuck_jobs: dict[str, str] | None = {}
        self.forgotten: set[str] = set()
        self.questions: list[tuple[float, list[str]]] = []
        self.submissions = Submissions(self.events, self.queued, clock=lambda: self.now_s)

    def queued(self, stems: Collection[str]) -> dict[str, QueuedJob]:
        self.questions.append((self.now_s, [*stems]))
        if self.stuck_jobs is None:
            raise CommandError("no answer")
        jobs = {stem: QueuedJob(job=f"{7 + n}", stuck=self.stuck_jobs.get(stem, "")) for n, stem in enumerate(stems)}
        return {stem: job for stem, job in jobs.items() if stem not in self.forgotten}

    def says(self, text: str) -> None:
        with self.events.open("a") as stream:
            stream.write(text)

    def submits(self, number: int, stem: str, mib: int = 70000) -> None:
        event = {"rule": "build", "number": number, "stem": stem, "threads": 9, "mem_mb": mib, "runtime": 10}
        self.says(f"{json.dumps(event)}\n")

    def warnings(self, *waiting: str, until_s: float = 0.0) -> list[str]:
        """What is said from now on until then, with a look each half second."""
        said = [*self.submissions.warnings(waiting)]
        while self.now_s < until_s:
            self.now_s += 0.5
            said += self.submissions.warnings(waiting)
        return said


def failure(number: int, message: str, **more: object) -> str:
    return json.dumps({"rule": "build", "number": number, "message": message, **more}) + "\n"


def test_a_job_that_waits_for_ever_is_told_once_for_each_reason(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    assert cluster.warnings("a-1.0", until_s=5) == []  # Snakemake has not begun
    cluster.now_s = 0.0
    cluster.submits(1, "a-1.0")
    cluster.submits(2, "b-1.0")
    cluster.stuck_jobs = {"a-1.0": "PartitionTimeLimit"}
    asked = "it requests cores: 9, memory_mib: 70000, minutes: 10"
    assert cluster.warnings("a-1.0", "b-1.0", until_s=60) == [
        f"a-1.0: its job 7 cannot start: PartitionTimeLimit; {asked}{LESS}"
    ]
    assert cluster.questions == [(time_s, ["a-1.0", "b-1.0"]) for time_s in (3.0, 9.0, 21.0, 45.0)]
    cluster.stuck_jobs = {"a-1.0": "JobHeldUser"}
    assert cluster.warnings("a-1.0", until_s=100) == [f"a-1.0: its job 7 cannot start: JobHeldUser; {asked}"]
    cluster.stuck_jobs = None
    assert cluster.warnings("a-1.0", until_s=1000) == []
    assert len(cluster.questions) == 9
    assert cluster.warnings(until_s=2000) == []
    assert len(cluster.questions) == 9  # nothing waits


@pytest.mark.parametrize(
    ("message", "words", "advice"),
    [
        (
            f"SLURM sbatch failed. The message was 'sbatch: error: {MEMORY}\nsbatch: error: not available'.{DETAILS}",
            f"SLURM sbatch failed. The message was 'sbatch: error: {MEMORY}; sbatch: error: not available'.",
            LESS,
        ),
        (
            f"SLURM sbatch failed. The error message was 'sbatch: error: QOSMaxSubmitJobPerUserLimit'.{DETAILS}",
            "SLURM sbatch failed. The error message was 'sbatch: error: QOSMaxSubmitJobPerUserLimit'.",
            "; submit fewer jobs at once with --jobs N",
        ),
        (
            "Error submitting jobscript (exit code 13):\nqsub: status 188\nqsub: Job exceeds queue resource limits\n",
            "Error submitting jobscript (exit code 13):; qsub: status 188; qsub: Job exceeds queue resource limits",
            LESS,
        ),
        ("Error submitting jobscript (exit code 1):\n", "Error submitting jobscript (exit code 1):", ""),
    ],
    ids=["too much", "too many", "by qsub", "without a word"],
)
def test_a_rejected_job_is_told_at_once_with_what_it_requests(
    tmp_path: Path, message: str, words: str, advice: str
) -> None:
    cluster = Cluster(tmp_path)
    rejected = failure(1, message + ADVICE)
    cluster.submits(1, "a-1.0")
    cluster.says(rejected[:60])
    assert cluster.warnings("a-1.0") == []  # written in part
    cluster.says(rejected[60:])
    cluster.submits(1, "a-1.0", mib=140000)  # again, with more
    cluster.says(rejected)
    told = f"a-1.0: its job was rejected: {words}; it requests cores: 9, memory_mib: 70000, minutes: 10{advice}"
    assert cluster.warnings("a-1.0") == [told]
    assert cluster.warnings("a-1.0") == []
    assert cluster.questions == []
    assert cluster.submissions.lost["a-1.0"].reasons == [words]


def test_a_job_that_the_scheduler_has_forgotten_is_told_once(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.submits(1, "a-1.0")
    cluster.submits(2, "never-known-1.0")
    cluster.forgotten = {"never-known-1.0"}
    assert cluster.warnings("a-1.0", "never-known-1.0", until_s=2000) == []
    cluster.forgotten.add("a-1.0")
    assert cluster.warnings("a-1.0", "never-known-1.0", until_s=2500) == []  # its end may not have been noticed
    (told,) = cluster.warnings("a-1.0", "never-known-1.0", until_s=9000)
    assert told.startswith("a-1.0: its job is no longer known to the scheduler")


def test_a_job_that_is_submitted_again_was_not_forgotten(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.submits(1, "a-1.0")
    assert cluster.warnings("a-1.0", until_s=1000) == []
    cluster.forgotten = {"a-1.0"}
    assert cluster.warnings("a-1.0", until_s=1500) == []
    cluster.forgotten.clear()
    cluster.submits(1, "a-1.0")
    assert cluster.warnings("a-1.0", until_s=9000) == []


def test_what_is_no_job_of_the_scheduler_is_no_lost_job(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.says(json.dumps({"rule": "admit", "number": 3, "stem": "a-1.0"}) + "\n")
    cluster.says(json.dumps({"rule": "admit", "number": 3, "message": "", "submitted": False}) + "\n")
    assert cluster.warnings("a-1.0", until_s=10) == []
    assert cluster.submissions.has_begun
    assert cluster.submissions.lost == {}
    assert cluster.questions == []


def test_each_job_that_was_lost_has_its_reason_and_the_last_its_log(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.submits(1, "a-1.0")
    for job, state in ((6, "TIMEOUT"), (7, "TIMEOUT")):
        message = f"SLURM-job '{job}' failed, SLURM status is: '{state}'. {ADVICE}"
        cluster.says(failure(1, message, submitted=True, logs=[f"/logs/{job}.log"]))
    assert cluster.warnings("a-1.0") == []
    assert cluster.submissions.lost["a-1.0"].description_of("a-1.0") == (
        "a-1.0: its jobs left no result\n"
        "    SLURM-job '6' failed, SLURM status is: 'TIMEOUT'.\n"
        "    SLURM-job '7' failed, SLURM status is: 'TIMEOUT'.\n"
        "log: /logs/7.log"
    )
