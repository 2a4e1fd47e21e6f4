# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from channel_tools.build import snakemake
from channel_tools.build.model import BuildJob, BuildPlaces, BuildTools
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
    snakemake_command,
    workflow_environ,
    write_workflow,
)
from channel_tools.system.errors import CommandError, UsageError

DATA = Path(snakemake.__file__).with_name("data")


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
        tools=BuildTools(conda_build=Path("/usr/bin/conda-build")),
    )


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
