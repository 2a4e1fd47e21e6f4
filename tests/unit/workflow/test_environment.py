# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.channel.results import read_validations
from channel_tools.matrix.choice import version_of
from channel_tools.system.errors import ChannelError, UsageError, ValidationError
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import make_settings
from channel_tools.validate import ValidationReport
from channel_tools.workflow import environment
from channel_tools.workflow.environment import (
    InstallRequest,
    ValidateRequest,
    install_specs,
    validate_installed,
)
from tests.support.packages import new_channel
from tests.unit.matrix.toytree import FILES, write_tree
from tests.unit.validate.conftest import report

__all__ = ["report"]

ROOT = Path(__file__).parents[3]


def test_a_stack_without_validation_is_not_validated(tmp_path: Path) -> None:
    stacks = FILES["variants/stacks.yaml"].replace("    validate: {method: switchml, num_threads: 2}\n", "")
    root = write_tree(tmp_path, {"variants/stacks.yaml": stacks}).root
    settings = make_settings(root=root, output=None, environ={}, cwd=tmp_path)
    request = ValidateRequest(install=InstallRequest(), ranks=2, prefix=None, keep=False, timeout_s=1.0, environ={})
    with pytest.raises(UsageError, match="the stack udp has no validation"):
        validate_installed(settings, request, progress=SilentProgress())
    assert not settings.output.exists()


def test_a_report_that_could_not_be_kept_is_no_reason_to_begin(tmp_path: Path) -> None:
    settings = make_settings(root=ROOT, output=tmp_path, environ={}, cwd=tmp_path)
    settings.reports.symlink_to("/proc")  # nobody may write there, root neither
    install = InstallRequest(stack="udp", channels=("file:///there/is/none",))
    request = ValidateRequest(install=install, ranks=2, prefix=None, keep=False, timeout_s=1.0, environ={})
    with pytest.raises(OSError, match=str(settings.reports)):
        validate_installed(settings, request, progress=SilentProgress())
    assert not settings.work.exists()


def test_a_validation_that_breaks_off_leaves_no_report_of_an_earlier_one(tmp_path: Path) -> None:
    settings = make_settings(root=ROOT, output=tmp_path, environ={}, cwd=tmp_path)
    settings.reports.mkdir()
    reports = [settings.reports / name for name in ("udp.json", "udp.html")]
    for path in reports:
        path.write_text("earlier")
    install = InstallRequest(stack="udp", channels=((tmp_path / "none").as_uri(),))
    request = ValidateRequest(install=install, ranks=10_000, prefix=None, keep=False, timeout_s=1.0, environ={})
    with pytest.raises(UsageError, match="rank"):  # refused: no run begins
        validate_installed(settings, request, progress=SilentProgress())
    assert all(path.is_file() for path in reports)
    with pytest.raises(ChannelError, match="none"):
        validate_installed(settings, replace(request, ranks=2), progress=SilentProgress())
    assert not any(path.exists() for path in reports)


def test_the_channel_remembers_a_validation_that_broke_off(
    tmp_path: Path, report: ValidationReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_settings(root=ROOT, output=tmp_path, environ={}, cwd=tmp_path)
    new_channel(tmp_path)
    request = ValidateRequest(
        install=InstallRequest(stack="udp"), ranks=2, prefix=None, keep=False, timeout_s=1.0, environ={}
    )
    monkeypatch.setattr(environment, "install_channels", lambda _settings, _install: ())
    monkeypatch.setattr(environment, "validate_stack", lambda _request, **_others: replace(report, stack="udp"))
    validate_installed(settings, request, progress=SilentProgress())
    assert [one.passed for one in read_validations(settings.channel)] == [True]

    def breaks_off(_request: object, *, on_broken: Callable[..., None], **_others: object) -> ValidationReport:
        on_broken(report.environment, "2026-01-02T03:04:05+00:00", 1.25)
        raise ValidationError("rank 1: gone")

    monkeypatch.setattr(environment, "validate_stack", breaks_off)
    with pytest.raises(ValidationError, match="rank 1: gone"):
        validate_installed(settings, request, progress=SilentProgress())
    (kept,) = read_validations(settings.channel)
    assert (kept.passed, kept.ranks, kept.started, kept.seconds) == (False, 2, "2026-01-02T03:04:05+00:00", 1.2)


def test_a_report_is_there_though_the_channel_cannot_note_it(
    tmp_path: Path, report: ValidationReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_settings(root=ROOT, output=tmp_path, environ={}, cwd=tmp_path)
    monkeypatch.setattr(environment, "validate_stack", lambda _request, **_others: report)
    monkeypatch.setattr(environment, "install_channels", lambda _settings, _install: ())
    request = ValidateRequest(
        install=InstallRequest(stack="udp"), ranks=2, prefix=None, keep=False, timeout_s=1.0, environ={}
    )
    with pytest.raises(OSError, match=str(settings.channel)):  # there is none
        validate_installed(settings, request, progress=SilentProgress())
    assert json.loads((settings.reports / "udp.json").read_bytes())["stack"] == report.stack


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, {"python": "3.11", "pytorch": "2.13"}, id="the default variant"),
        pytest.param({"pytorch": "2.12"}, {"python": "3.11", "pytorch": "2.12"}, id="the default Python"),
        pytest.param({"python": "3.13"}, {"python": "3.13", "pytorch": "2.13"}, id="the default PyTorch"),
        pytest.param({"channels": ("https://a.example",)}, {}, id="another channel's solver"),
    ],
)
def test_an_installation_is_of_one_python_and_pytorch(
    tmp_path: Path, given: dict[str, str], expected: dict[str, str]
) -> None:
    settings = make_settings(root=ROOT, output=tmp_path, environ={}, cwd=tmp_path)
    specs = install_specs(settings, InstallRequest(stack="cray-mpich", **given))  # type: ignore[arg-type]
    chosen = {key: version_of(value) for key, _, value in (spec.partition(" ") for spec in specs)}
    assert {key: value for key, value in chosen.items() if key in {"python", "pytorch"}} == expected
