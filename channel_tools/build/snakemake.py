# SPDX-License-Identifier: BSD-3-Clause
"""Builds on a cluster with Snakemake: the folder of its workflow, and its command.

Snakemake deals with schedulers, partitions and lost jobs; we decide which package is built when and how, and what is
added to the channel. So the Snakefile is the same for every plan. Of Snakemake, only documented options are used, and
the interfaces for those who write a Snakefile or a logger plugin.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from channel_tools.build import pbs
from channel_tools.build.remote import BUILDS_FILE, read_outcome, results_of, write_builds
from channel_tools.system.errors import CommandError, UsageError
from channel_tools.system.extras import missing
from channel_tools.system.files import absolute_path, write_text_atomically
from channel_tools.system.processes import run_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.build.remote import RemoteBuilds

SLURM: Final = "slurm"
PBS: Final = "pbs"
EVENTS_FILE: Final = "events.jsonl"
"""What the logger plugin writes in the workflow's folder."""
_PBS_LOGS = "pbs-logs"
_PROGRAM = "snakemake"
_SNAKEFILE = "Snakefile"
_DATA = Path(__file__).with_name("data")
_JOBS_AT_ONCE = 100
_SCONTROL_LIMIT_S = 60.0
_LATENCY_S = 120
"""How long it may take until a job's result is visible here: NFS caches the list of a folder for a minute."""
_OWN_OPTIONS = (
    *("--rerun-incomplete", "--rerun-triggers", "mtime", "--latency-wait", str(_LATENCY_S), "--keep-going"),
    *("--local-cores", "1", "--scheduler", "greedy", "--nocolor"),
    *("--logger", "channel-tools"),
)
_SLURM_OPTIONS = (
    *("--executor", "slurm", "--slurm-keep-successful-logs", "--retries", "2"),
    *("--slurm-init-seconds-before-status-checks", "10"),
    # where Slurm does not answer, it is asked again every ten seconds: after its last attempt, the plugin forgets all
    # jobs, and waits for ever
    *("--slurm-status-attempts", "1000000", "--max-status-checks-per-second", "0.1"),
)


def find_snakemake(environ: Mapping[str, str]) -> Path:
    """The path of Snakemake: beside this program's Python, else on the caller's PATH.

    Raises CommandError if there is none, or no flock, which serialises its steps on this machine.
    """
    places = os.pathsep.join([str(Path(sys.executable).parent), environ.get("PATH", "")])
    if (program := shutil.which(_PROGRAM, path=places)) is None:
        raise missing(_PROGRAM, "cluster", purpose="building on a cluster")
    if shutil.which("flock", path=environ.get("PATH", "")) is None:
        raise CommandError("flock: not found; builds on a cluster need it on the PATH", hint="install util-linux")
    return Path(program)


def check_workflow_folder(folder: Path) -> None:
    """Raise UsageError if ``folder`` contains anything but a workflow that write_workflow wrote."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / BUILDS_FILE).is_file()):
        message = f"{folder}: contains files that are not part of a workflow of builds"
        raise UsageError(message, hint="name a folder that is empty or does not exist")


def write_workflow(folder: Path, builds: RemoteBuilds) -> None:
    """Write the Snakefile and its input files into ``folder``; finished builds of an earlier run are used."""
    (folder / _PBS_LOGS).mkdir(parents=True, exist_ok=True)
    (folder / EVENTS_FILE).unlink(missing_ok=True)
    write_builds(folder / BUILDS_FILE, builds)
    for job in builds.jobs:
        results = results_of(folder / BUILDS_FILE, job.stem)
        for ended in (results.admitted, results.failed):
            ended.unlink(missing_ok=True)
        if results.built.is_file() and not ((package := read_outcome(results.built).package) and package.is_file()):
            results.built.unlink()
    write_text_atomically(folder / _SNAKEFILE, (_DATA / _SNAKEFILE).read_text(encoding="utf-8"))


def workflow_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which Snakemake finds our logger plugin."""
    return {
        **environ,
        "PYTHONPATH": os.pathsep.join([str(_DATA / "plugins"), *filter(None, [environ.get("PYTHONPATH")])]),
    }


def unlock_command(program: Path, folder: Path) -> list[str]:
    """The command that removes the lock that a killed Snakemake has left in the folder."""
    return [str(program), "--snakefile", str(folder / _SNAKEFILE), "--unlock"]


def snakemake_command(
    program: Path, folder: Path, *, on: str, jobs: int | None, environ: Mapping[str, str]
) -> list[str]:
    """The command that runs the workflow; ``on`` is ``slurm``, ``pbs`` or the folder of a Snakemake profile.

    ``jobs`` is how many may wait or run at once, None for the profile's number. Raises UsageError for another ``on``,
    CommandError if the commands of Slurm or PBS are not on the PATH of ``environ``.
    """
    command = [str(program), "--snakefile", str(folder / _SNAKEFILE), *_OWN_OPTIONS]
    if on == SLURM:
        return [*command, *_SLURM_OPTIONS, *_status_options(environ), "--jobs", str(jobs or _JOBS_AT_ONCE)]
    if on == PBS:
        return [*command, *_pbs_options(folder, environ), "--jobs", str(jobs or _JOBS_AT_ONCE)]
    if not Path(on).is_dir():
        message = f"--on {on}: expected {SLURM}, {PBS} or a folder"
        raise UsageError(message, hint="name the folder of a Snakemake profile, which has a config.yaml")
    return [*command, "--profile", str(absolute_path(Path(on))), *(["--jobs", str(jobs)] if jobs else [])]


def _pbs_options(folder: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """PBS's commands for the plugin cluster-generic, which fills in the braces and appends the script or job."""
    if shutil.which("qsub", path=environ.get("PATH", "")) is None:
        raise CommandError("qsub: not found; --on pbs needs PBS's commands on the PATH", hint="load PBS's module")
    logs = shlex.quote(f"{folder / _PBS_LOGS}/").replace("{", "{{").replace("}", "}}")
    submit = (
        f"{shlex.join(pbs.command_of('submit'))} {{wildcards.stem}} -N build -r n -j oe -o {logs}"
        " -l select=1:ncpus={threads}:mem={resources.mem_mb}mb"
        # PBS reads this as minutes and seconds, even if there are more than 60 minutes
        " -l walltime={resources.runtime}:00"
    )
    return (
        *("--executor", "cluster-generic", "--retries", "2", "--cluster-generic-submit-cmd", submit),
        *("--cluster-generic-status-cmd", shlex.join(pbs.command_of("state")), "--cluster-generic-cancel-cmd", "qdel"),
    )


def _status_options(environ: Mapping[str, str]) -> tuple[str, ...]:
    """How to ask for the state of jobs: as the plugin chooses, but with squeue if Slurm has no job accounting."""
    stated = run_command(["scontrol", "show", "config"], env=environ, timeout_s=_SCONTROL_LIMIT_S).stdout
    storage_type = re.search(r"^AccountingStorageType\s*=\s*(\S+)$", stated, re.MULTILINE)
    without = storage_type is not None and storage_type[1] in {"accounting_storage/none", "(null)"}
    return ("--slurm-status-command", "squeue") if without else ()
