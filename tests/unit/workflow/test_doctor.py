# SPDX-License-Identifier: BSD-3-Clause
"""``doctor --launch``: one rank on each host says what it has loaded, under stand-ins for mpiexec, srun and ssh."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

from tests.support.command_line import run_tool
from tests.unit.ranks.conftest import Site, make_site

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

HERE = socket.gethostname()
TORCH = "import os\n__version__ = '2.13.0'\n"
PROCESS = "a process with PyTorch"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = make_site(tmp_path)
    add_torch(site)
    return site


def add_torch(site: Site) -> None:
    """Packages of PyTorch in the environment, and the record of one that is installed."""
    packages = site.folder / "env/lib/python3.11/site-packages/torch"
    packages.mkdir(parents=True)
    (packages / "__init__.py").write_text("")
    record = {
        "name": "toy", "version": "1.0", "build": "0", "build_number": 0, "depends": [], "subdir": "noarch",
        "fn": "toy-1.0-0.conda", "url": "https://host/noarch/toy-1.0-0.conda", "channel": "https://host", "files": [],
    }  # fmt: skip
    (site.folder / "env/conda-meta/toy-1.0-0.json").write_text(json.dumps(record))
    with_torch(site, "")


def with_torch(site: Site, more: str) -> None:
    (site.folder / "modules/torch/__init__.py").write_text(TORCH + more)


def doctor(site: Site, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    given = ("doctor", "--launch", "--root", str(site.folder / "tree"), *words)
    return run_tool(*given, cwd=site.folder, environ={**site.environ, **variables})


def found(done: subprocess.CompletedProcess[str]) -> dict[str, tuple[str, str]]:
    """The level and the words of each finding about the processes."""
    assert done.stdout, done.stderr
    findings = json.loads(done.stdout)["findings"]
    return {one["subject"]: (one["level"], one["found"]) for one in findings if one["subject"].startswith(PROCESS)}


def hosts_file(site: Site) -> str:
    file = site.folder / "hosts"
    file.write_text(f"{HERE}:8\nother\n")
    return str(file)


def test_one_rank_on_each_host_answers(site: Site) -> None:
    starter, log = site.folder / "env/bin/mpiexec", site.folder / "words"
    noting = f"open({str(log)!r}, 'w').write(repr(sys.argv))\nwords = sys"
    starter.write_text(starter.read_text().replace("words = sys", noting, 1))
    done = doctor(site, "--hosts", hosts_file(site), "--json", str(site.folder / "env"))
    ((subject, (level, words)),) = found(done).items()
    assert (subject, level) == (f"{PROCESS} on {HERE}, {HERE}", "ok")
    assert words.startswith("PyTorch 2.13.0, no collective: AttributeError")
    assert f"'-hosts', '{HERE}:1,other:1', '-n', '2'" in log.read_text()


def test_a_job_of_slurm_is_asked_by_srun(site: Site) -> None:
    (site.folder / "env/bin/mpiexec").write_text("#!/bin/sh\nexit 9\n")
    done = doctor(site, "--json", str(site.folder / "env"), SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n1")
    assert found(done).keys() == {f"{PROCESS} on {HERE}"}


@pytest.mark.slow
def test_hosts_that_differ_have_findings_of_their_own(site: Site) -> None:
    with_torch(site, "__version__ = '2.1' + os.environ['RANK']\n")
    done = doctor(site, "--hosts", hosts_file(site), "--json", str(site.folder / "env"))
    words = sorted(
        one["found"].partition(",")[0]
        for one in json.loads(done.stdout)["findings"]
        if one["subject"].startswith(PROCESS)
    )
    assert words == ["PyTorch 2.10", "PyTorch 2.11"]


@pytest.mark.slow
def test_a_rank_that_ends_without_an_answer_is_a_fault(site: Site) -> None:
    with_torch(site, "if os.environ['RANK'] == '1': os.write(2, b'no room\\n'); os._exit(3)\n")
    done = doctor(site, "--hosts", hosts_file(site), str(site.folder / "env"))
    assert done.returncode == 10
    assert "fault    a process with PyTorch: 1 of 2 ranks did not answer, with: " in done.stdout or (
        "fault    a process with PyTorch: 2 of 2 ranks did not answer, with: no room" in done.stdout
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "variables", "message"),
    [
        pytest.param(("--stack", "toy"), {"CONDA_PREFIX": ""}, "--launch: no environment is active", id="none"),
        pytest.param(
            ("--hosts", "{far}", "{env}"), {}, "cannot start ranks on far: ssh: connect to host far", id="far"
        ),
        pytest.param(("--hosts", "{odd}", "{env}"), {}, "found 'two words'", id="hosts"),
    ],
)
def test_each_mistake_is_one_error(site: Site, words: tuple[str, ...], variables: dict[str, str], message: str) -> None:
    (site.folder / "far").write_text("far\n")
    (site.folder / "odd").write_text("two words\n")
    names = {"far": site.folder / "far", "odd": site.folder / "odd", "env": site.folder / "env"}
    done = doctor(site, *(word.format(**names) for word in words), **variables)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("error: ") == 1
