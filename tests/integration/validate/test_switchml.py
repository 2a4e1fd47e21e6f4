# SPDX-License-Identifier: BSD-3-Clause
"""The udp stack of the built channel, validated for real by a small plan: first as it is, then with each fault.

test_whole_path.py validates it with the whole plan.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from channel_tools.system.errors import ValidationError
from channel_tools.system.settings import Settings
from channel_tools.validate.model import MethodResult
from channel_tools.validate.switchml import method as ranks
from channel_tools.validate.switchml import method as switchml
from channel_tools.validate.switchml.method import SwitchmlMethod
from tests.integration.conftest import ROOT
from tests.support.command_line import run_tool
from tests.support.processes import processes_naming, seconds_since_the_last_step
from tests.support.stacks import failed, install, method_context
from tests.support.switch import SUM_SCRIPT, SUMMED_BY_TWO
from tests.unit.validate.fakes import small_plan

pytestmark = pytest.mark.integration

SPECS = ("pytorch-switchml", "libswitchml * udp*", "switchml-switch")
SECONDS_TO_AN_ERROR = 120.0
"""Those of _SOON and what a busy machine adds; with others than these, an error takes minutes."""
LIMIT_S = 600.0
_PATIENT: dict[str, object] = {"connect_timeout_s": 300.0, "job_timeout_s": 300.0, "group_timeout_s": 600.0}
_SOON: dict[str, object] = {"connect_timeout_s": 3.0, "job_timeout_s": 10.0}
_WAITED_FOR = {"rank-dies", "rank-raises", "switch-dies", "no-controller"}
"""Faults after which the others wait for one that is gone; where none is, a busy machine has its time."""


@pytest.fixture(scope="module")
def settings(own_settings: Settings, stack_channel: Path) -> Settings:
    assert own_settings.channel == stack_channel
    return own_settings


@pytest.fixture(scope="module")
def prefix(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(settings, settings.channel, tmp_path_factory.mktemp("switchml") / "env", SPECS)


@dataclass(frozen=True, kw_only=True)
class Run:
    """The small plan in the installed environment, with a fault."""

    prefix: Path
    folder: Path

    def __call__(self, *, name: str = "run", **variables: str) -> MethodResult:
        folder = self.folder / name
        folder.mkdir()
        options = {**_PATIENT, **(_SOON if variables["VALIDATION_FAULT"] in _WAITED_FOR else {})}
        context = method_context("udp", self.prefix, folder, options, limit_s=LIMIT_S, **variables)
        return SwitchmlMethod().run(context)


@pytest.fixture
def run(prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(switchml, "make_plan", lambda options, **_: replace(small_plan(), options=options))
    monkeypatch.setattr(ranks, "WORKER", Path(__file__).with_name("faulty_rank.py"))
    return Run(prefix=prefix, folder=tmp_path)


@pytest.mark.slow
def test_runs_without_a_fault_pass_and_do_not_meet(run: Run) -> None:
    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(lambda name: run(name=name, VALIDATION_FAULT="none"), ("one", "two")))
    assert [failed(result) for result in results] == [set(), set()]
    assert processes_naming(run.folder) == []


def test_a_silent_fallback_fails(run: Run) -> None:
    assert failed(run(VALIDATION_FAULT="none", SWITCHML_ENABLE="0")) >= {
        "the plugin is active, with the environment's own library",
        "every eligible element was delegated",
        "each case was right and took its route on every rank",
        "the switch saw one session",
    }


def test_wrong_sums_fail(run: Run) -> None:
    assert failed(run(VALIDATION_FAULT="wrong-sums")) == {
        "whole numbers are summed exactly",
        "float32 sums are within 1e-6 of float64's",
        "each case was right and took its route on every rank",
        "measured calls went through SwitchML",
        "measured gloo calls were not delegated",
    }


@pytest.mark.slow
def test_lost_infinities_fail(run: Run) -> None:
    assert failed(run(VALIDATION_FAULT="infinities-lost")) == {
        "float32 sums are within 1e-6 of float64's",
        "each case was right and took its route on every rank",
    }


@pytest.mark.slow
def test_sums_in_a_narrower_type_fail(run: Run) -> None:
    assert failed(run(VALIDATION_FAULT="narrowed")) == {
        "what gloo carried is exact",
        "each case was right and took its route on every rank",
    }


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("rank-dies", r"rank 1: ended by itself with exit status -9"),
        pytest.param("rank-raises", r"(?s)rank 1: RuntimeError: out of luck.*rank 1: integers", marks=pytest.mark.slow),
        ("switch-dies", r"the switch ended while the ranks ran: signal SIGKILL"),
        pytest.param("no-controller", r"127\.0\.0\.1:1\b", marks=pytest.mark.slow),
    ],
    ids=["rank-dies", "rank-raises", "switch-dies", "no-controller"],
)
def test_a_fault_is_an_error_within_seconds(run: Run, fault: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        run(VALIDATION_FAULT=fault)
    assert seconds_since_the_last_step(run.folder / "run") < SECONDS_TO_AN_ERROR
    assert processes_naming(run.folder) == []


def launch(prefix: Path, folder: Path, *options: str) -> str:
    """What ``launch`` says on standard error of two ranks that have to be carried by SwitchML."""
    (folder / "script.py").write_text(SUM_SCRIPT)
    words = ("launch", "--root", str(ROOT), "--stack", "udp", "--ranks", "2", "--prefix", str(prefix), *options)
    result = run_tool(*words, "script.py", cwd=folder, environ={"SWITCHML_REQUIRE": "1"})
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == SUMMED_BY_TWO
    assert processes_naming(prefix) == []
    return result.stderr


def test_launch_brings_its_own_switch_to_be_tried_and_ends_it(prefix: Path, tmp_path: Path) -> None:
    assert "switchml-switch --address 127." in launch(prefix, tmp_path, "--switch")


def test_launch_needs_no_switch_on_one_host(prefix: Path, tmp_path: Path) -> None:
    assert "switchml-switch" not in launch(prefix, tmp_path)


def test_launch_gives_its_input_to_rank_0(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "reads.py").write_text(
        "import os, sys\nos.write(1, f\"{os.environ['RANK']} {sys.stdin.read()!r}\\n\".encode())\n"
    )
    words = ("launch", "-q", "--root", str(ROOT), "--stack", "udp", "--prefix", str(prefix), "reads.py")
    command = [sys.executable, "-m", "channel_tools", *words]
    result = subprocess.run(command, cwd=tmp_path, input="hello\n", capture_output=True, text=True, check=True)
    assert sorted(result.stdout.splitlines()) == ["0 'hello\\n'", "1 ''"]
