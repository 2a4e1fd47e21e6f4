# SPDX-License-Identifier: BSD-3-Clause
"""From request to report with a real environment from a toy channel and a method that only looks around."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from channel_tools.system.errors import ConfigError, SolveError, UsageError, ValidationError
from channel_tools.system.progress import SilentProgress
from channel_tools.validate import ValidationSetup, runner, validate_stack
from channel_tools.validate.model import Check, MethodResult, ValidationMethod
from channel_tools.validate.runner import _processor, describe_host, find_method
from tests.unit.environments.toychannel import SUBDIR, ToyChannel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from channel_tools.validate import ValidationReport
    from channel_tools.validate.model import MethodContext


@dataclass
class LookingMethod(ValidationMethod):
    """Passes, remembers what it was given, and fails as told."""

    failure: BaseException | None = None
    context: MethodContext | None = None

    def specs(self, specs: Sequence[str], *, stack: str, options: Mapping[str, object]) -> tuple[str, ...]:
        del stack, options
        return tuple(spec for spec in specs if spec != "user-only")

    def check(self, *, stack: str, ranks: int, options: Mapping[str, object], hosts: int = 1) -> None:
        del stack, ranks, options, hosts

    def run(self, context: MethodContext) -> MethodResult:
        self.context = context
        (context.folder / "ranks.log").write_text("words", encoding="utf-8")
        if self.failure is not None:
            raise self.failure
        check = Check(name="looked", passed=(context.prefix / "share/tool").is_file(), found="", expected="")
        return MethodResult(checks=(check,), cases=(), transports=(), bandwidth=(), baseline="none")


@pytest.fixture
def method(monkeypatch: pytest.MonkeyPatch) -> LookingMethod:
    fake = LookingMethod()
    monkeypatch.setattr(runner, "find_method", lambda _stack, _name: fake)
    return fake


@pytest.fixture
def request_(tmp_path: Path) -> ValidationSetup:
    channel = ToyChannel(root=tmp_path / "channel")
    channel.add("tool")
    return ValidationSetup(
        stack="toy",
        method="looking",
        options={},
        specs=("tool",),
        channels=(channel.address,),
        ranks=2,
        subdir=SUBDIR,
        package_cache=tmp_path / "pkgs",
        work=tmp_path / "work",
        forbidden=(tmp_path,),
    )


def validate(request: ValidationSetup) -> ValidationReport:
    environ = {"HOME": "/home/me", "PYTHONPATH": "/leak"}
    return validate_stack(request, environ=environ, progress=SilentProgress())


def left_behind(request: ValidationSetup) -> list[str]:
    """The files in the run's folder, the package manager's own left out."""
    own = {"CACHEDIR.TAG", "conda-meta"}
    return sorted(path.name for path in request.work.rglob("*") if path.is_file() and not own & set(path.parts))


def test_a_report_tells_of_the_environment(method: LookingMethod, request_: ValidationSetup) -> None:
    report = validate(request_)
    assert report.passed
    assert [package.name for package in report.environment.records] == ["tool"]
    assert report.environment.size_bytes > 0
    assert report.started.endswith("+00:00")
    assert method.context is not None
    assert method.context.variables["CONDA_PREFIX"] == str(method.context.prefix)
    assert "PYTHONPATH" not in method.context.variables


def test_the_method_says_what_is_installed(method: LookingMethod, request_: ValidationSetup) -> None:
    assert validate(replace(request_, specs=("tool", "user-only"))).passed
    assert method.context is not None


def test_nothing_is_left_of_a_run_in_its_own_folder(method: LookingMethod, request_: ValidationSetup) -> None:
    validate(request_)
    assert method.context is not None
    assert list(request_.work.iterdir()) == []


def test_keep_keeps_everything(method: LookingMethod, request_: ValidationSetup) -> None:
    validate(replace(request_, keep=True))
    assert method.context is not None
    assert left_behind(request_) == ["ranks.log", "tool"]


def test_a_given_prefix_stays(method: LookingMethod, request_: ValidationSetup, tmp_path: Path) -> None:
    validate(replace(request_, prefix=tmp_path / "mine"))
    assert method.context is not None
    assert (tmp_path / "mine/share/tool").is_file()


@pytest.mark.usefixtures("method")
def test_an_environment_that_is_there_is_validated_as_it_is(request_: ValidationSetup, tmp_path: Path) -> None:
    channel = ToyChannel(root=tmp_path / "channel")
    channel.add("stacks")
    mine = replace(request_, prefix=tmp_path / "mine")
    validate(replace(mine, specs=("tool", "stacks")))
    channel.add("tool", version="2.0")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "mine").rglob("*")}
    report = validate(mine)
    assert {record.name: record.version for record in report.environment.records} == {"tool": "1.0", "stacks": "1.0"}
    with pytest.raises(UsageError, match=r"is an environment already, .*; it lacks tool >=2") as caught:
        validate(replace(mine, specs=("tool >=2",)))
    assert f"channel_tools env add {tmp_path / 'mine'} --variant toy" in str(caught.value.hint)
    assert "--as-installed" in str(caught.value.hint)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "mine").rglob("*")} == before


def test_logs_of_a_broken_run_stay(method: LookingMethod, request_: ValidationSetup) -> None:
    method.failure = ValidationError("a rank died")
    with pytest.raises(ValidationError, match="a rank died"):
        validate(request_)
    assert left_behind(request_) == ["ranks.log"]


def test_an_interrupted_run_leaves_nothing(method: LookingMethod, request_: ValidationSetup) -> None:
    method.failure = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        validate(request_)
    assert list(request_.work.iterdir()) == []


def test_an_environment_that_names_the_tree_fails(
    method: LookingMethod, request_: ValidationSetup, tmp_path: Path
) -> None:
    channel = ToyChannel(root=tmp_path / "channel")
    channel.add("leaky", files={"lib/leak.pc": f"-I{tmp_path}/recipes/leaky/include".encode()})
    report = validate(replace(request_, specs=("tool", "leaky")))
    assert method.context is not None
    (check,) = report.failed_checks
    assert check.found == f"lib/leak.pc names {tmp_path}"


def test_wrong_requests_fail_before_anything_is_installed(request_: ValidationSetup) -> None:
    with pytest.raises(ConfigError, match=r"found 'telepathy', expected one of .*switchml"):
        validate(replace(request_, method="telepathy"))
    with pytest.raises(UsageError, match="33 ranks: a SwitchML switch serves 1 to 32"):
        validate(replace(request_, method="switchml", ranks=33))
    with pytest.raises(ConfigError, match="validate: speed"):
        validate(replace(request_, method="switchml", options={"speed": 1}))
    assert not request_.work.exists()


def test_a_stack_that_cannot_be_installed_leaves_nothing(method: LookingMethod, request_: ValidationSetup) -> None:
    with pytest.raises(SolveError):
        validate(replace(request_, specs=("absent",)))
    assert method.context is None
    assert list(request_.work.iterdir()) == []


def test_this_host_has_cores_and_memory() -> None:
    host = describe_host()
    assert host.cores >= 1
    assert host.memory_bytes > 1 << 28
    assert host.system.startswith("Linux")


def test_processor_is_read_or_empty() -> None:
    assert _processor("vendor_id\t: X\nmodel name\t: A CPU @ 2 GHz\nmodel name\t: B\n") == "A CPU @ 2 GHz"
    assert _processor("Hardware\t: board\n") == ""


@pytest.mark.parametrize(
    ("name", "options", "backend", "uses_gpus"),
    [
        ("switchml", {}, "switchml", False),
        ("nccl", {"network": "OFI"}, "nccl", True),
        ("distributed", {"backend": "mpi"}, "mpi", False),
        ("distributed", {"backend": "accl", "device": "cuda"}, "accl", True),
    ],
)
def test_a_method_says_what_carries_the_data_and_whether_on_gpus(
    name: str, options: dict[str, object], backend: str, *, uses_gpus: bool
) -> None:
    method = find_method("some", name)
    assert (method.backend(options), method.uses_gpus(options)) == (backend, uses_gpus)
