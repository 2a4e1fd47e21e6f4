# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from channel_tools.build.model import BuildJob, BuildPlaces, BuildResult, BuildTools
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
from channel_tools.build.snakemake import (
    check_workflow_folder,
    find_snakemake,
    run_workflow,
    snakemake_command,
    write_workflow,
)
from channel_tools.system.errors import BuildError, CommandError, DiskFullError, SolveError, UsageError
from channel_tools.system.files import exclusive_lock


def job(name: str, *waits_for: str) -> BuildJob:
    return BuildJob(
        file_name=f"{name}-1.0-h_0.conda",
        subdir="noarch",
        recipe_folder=Path("recipes", name),
        waits_for=tuple(f"{other}-1.0-h_0.conda" for other in waits_for),
    )


def builds(*names: str) -> RemoteBuilds:
    return RemoteBuilds(
        python="python",
        tree=Path("/tree"),
        output=Path("/tree/output"),
        places=places(Path("/tree/output")),
        platform="linux-64",
        channels=("file:///tree/output/channel",),
        jobs=tuple(map(job, names)),
        tools=BuildTools(conda_build=Path("/usr/bin/conda-build")),
    )


def places(folder: Path) -> BuildPlaces:
    return BuildPlaces(work=folder / "nodes", logs=folder / "logs", cache=folder / "cache")


def run(folder: Path, script: str, *jobs: BuildJob) -> list[BuildResult]:
    """The results of a workflow that the shell script runs in place of Snakemake."""
    command = ["sh", "-c", f"cd {folder}; mkdir -p results; {script}"]
    return list(run_workflow(command, folder, jobs, places=places(folder), environ=os.environ))


def test_snakemake_that_is_missing_says_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(CommandError) as caught:
        find_snakemake({"PATH": str(tmp_path)})
    assert caught.value.hint is not None
    assert "channel-tools[cluster]" in caught.value.hint
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
        threads=4, resources=SimpleNamespace(mem_mb=8000, runtime=240)
    )
    assert submit.endswith("/pbs-logs/ -l select=1:ncpus=4:mem=8000mb -l walltime=240:00")
    assert made[made.index("--cluster-generic-status-cmd") + 1].endswith("-m channel_tools.system.schedulers pbs")
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


def test_every_job_has_one_result(tmp_path: Path) -> None:
    jobs = [job("after", "bad"), job("bad"), job("good"), job("last", "after"), job("lost"), job("then", "lost")]
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
    said = f"""
[Mon Jan  1 00:00:00 2026]
Error in rule build:
    message: SLURM-job '6_1' failed, SLURM status is: 'NODE_FAIL'. Reason: Unknown.
    jobid: 2
    output: results/lost-1.0-h_0.built
    log: {tmp_path}/6.log (check log file(s) for error details)
Trying to restart job 2.
[Mon Jan  1 00:00:00 2026]
Error in rule build:
    message: SLURM-job '7' failed, SLURM status is: 'TIMEOUT'. Reason: Unknown.
    jobid: 2
    output: results/lost-1.0-h_0.built
    log: {log} (check log file(s) for error details)
[Mon Jan  1 00:00:00 2026]
Error in rule build:
    message: SLURM sbatch failed. The error message was 'sbatch: error: QOSMaxSubmitJobPerUserLimit
sbatch: error: Batch job submission failed: it's over a limit'.
    sbatch call:
        sbatch --comment rule_build_wildcards_refused-1.0-h_0 --wrap="..."
For further error details see the cluster/cloud log and the log files of the involved rule(s).
    jobid: 3
    output: results/refused-1.0-h_0.built
    shell:
        ...
"""
    (tmp_path / "said").write_text(said + said[said.rindex("[Mon") :])
    results = run(tmp_path, "cat said", job("lost"), job("refused"), job("other"))
    lost, refused, other = (str(result.error) for result in results)
    assert lost.splitlines()[0] == "lost-1.0-h_0: its jobs left no result: NODE_FAIL, TIMEOUT"
    words = "sbatch rejected it (QOSMaxSubmitJobPerUserLimit; Batch job submission failed: it's over a limit)"
    assert refused == f"refused-1.0-h_0: its jobs left no result: {words}"
    assert "CANCELLED DUE TO TIME LIMIT" in lost
    assert f"log: {log}" in lost
    assert "other-1.0-h_0: its job left no result: cancelled" in other
    assert "refused-1.0-h_0.built" in other  # Snakemake's own words


def test_a_snakemake_that_begins_nothing_says_why(tmp_path: Path) -> None:
    said = """cat >&2 <<'END'
usage: snakemake [--dry-run] [--profile PROFILE]
                 [targets ...]
snakemake: error: argument --executor/-e: invalid choice: 'lsf' (choose from 'slurm', 'local')
END
exit 2
"""
    with pytest.raises(CommandError) as caught:
        run(tmp_path, said, job("a"), job("b"))
    assert caught.value.message == (
        "snakemake: exit status 2 before it started a build\n"
        "    snakemake: error: argument --executor/-e: invalid choice: 'lsf' (choose from 'slurm', 'local')\n"
        f"log: {tmp_path}/logs/snakemake.log"
    )


def test_a_snakemake_that_says_nothing_of_jobs_may_have_begun_them(tmp_path: Path) -> None:
    said = "echo Using profile; echo WorkflowError:; echo At least one job did not complete successfully.; exit 1"
    (result,) = run(tmp_path, said, job("a"))
    assert str(result.error).startswith("a-1.0-h_0: its job left no result")


def test_a_package_that_was_built_and_did_not_enter_is_called_that(tmp_path: Path) -> None:
    write_outcome(results_of(tmp_path / BUILDS_FILE, "a-1.0-h_0").built, Outcome(seconds=1, package=Path("/scratch/a")))
    (result,) = run(tmp_path, "echo Killed", job("a"))
    assert str(result.error).startswith("a-1.0-h_0: was built, but the step that adds it to the channel was ended\n")
    assert "Killed" in str(result.error)


def test_where_the_disk_is_full_lost_jobs_are_called_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = """[Mon Jan  1 00:00:00 2026]
Error in rule build:
    message: SLURM-job '{number}' failed, SLURM status is: '{state}'. Reason: Unknown.
    jobid: {number}
    output: results/{name}-1.0-h_0.built
"""
    names = {"failed": "FAILED", "timed": "TIMEOUT"}
    entries = [failed.format(number=number, name=name, state=names[name]) for number, name in enumerate(names)]
    (tmp_path / "said").write_text("".join(entries))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=4096))
    errors = [result.error for result in run(tmp_path, "cat said", job("failed"), job("timed"), job("unknown"))]
    assert [type(error) for error in errors] == [DiskFullError, BuildError, DiskFullError]
    assert "failed-1.0-h_0: its jobs left no result: FAILED" in str(errors[0])
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
    jobs = [job("a"), job("b", "a"), job("c")]
    with exclusive_lock(lock_of(place.work / jobs[0].folder_name), what="the build"):
        running = run_workflow(["sh", "-c", script], tmp_path, jobs, places=place, environ=os.environ, on_state=tell)
        results = {result.job.stem: result.notes for result in running}
    assert said == [
        "0 done, 1 running, 2 waiting; time left unknown",
        "1 done, 0 running, 2 waiting; time left unknown",
    ]
    assert results == {"a-1.0-h_0": ("kept",), "b-1.0-h_0": (), "c-1.0-h_0": ()}


def test_leaving_a_run_has_snakemake_cancel_its_jobs(tmp_path: Path) -> None:
    write_outcome(tmp_path / "outcome", Outcome(seconds=2, package=Path("/channel/good")))
    good = results_of(tmp_path / BUILDS_FILE, "good-1.0-h_0").admitted
    trap = f"trap 'echo cancelled > {tmp_path}/said; exit 1' INT"
    command = ["bash", "-c", f"{trap}; mkdir {good.parent}; mv {tmp_path}/outcome {good}; while :; do sleep 0.1; done"]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in what a script starts in the background
    try:
        run = run_workflow(command, tmp_path, [job("good"), job("slow")], places=places(tmp_path), environ=os.environ)
        assert next(run).status == "built"
        run.close()
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "said").read_text() == "cancelled\n"
