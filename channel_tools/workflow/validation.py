# SPDX-License-Identifier: BSD-3-Clause
"""Validates variants of a stack in turn, here or within a scheduler's job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING

from channel_tools.system.counting import counted
from channel_tools.system.errors import ChannelToolsError
from channel_tools.validate import raise_for_drops, raise_for_failures
from channel_tools.workflow.environment import validate_installed
from channel_tools.workflow.plan import asked_versions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Settings
    from channel_tools.validate import ValidationReport
    from channel_tools.workflow.environment import InstallRequest, ValidateRequest


class VariantOutcome(IntEnum):
    """The outcome of a variant's validation, the worst last."""

    PASSED = 0
    DROPPED = 1
    FAILED = 2
    NOT_VALIDATED = 3

    @property
    def words(self) -> str:
        """The outcome as words for a table."""
        return self.name.replace("_", " ") if self else "ok"


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantResult:
    """The validation of one variant: its report and the report's path, and the error if it did not pass.

    There is no report if the run was not completed.
    """

    install: InstallRequest
    report: ValidationReport | None = None
    path: Path | None = None
    error: ChannelToolsError | None = None

    @property
    def name(self) -> str:
        """The versions of the variant, as words."""
        asked = asked_versions(python=self.install.python, pytorch=self.install.pytorch)
        return ", ".join(f"{key} {version}" for key, version in asked.items()) or "the only variant"

    @property
    def verdict(self) -> VariantOutcome:
        """The outcome of the validation."""
        if self.error is None:
            return VariantOutcome.PASSED
        if self.report is None:
            return VariantOutcome.NOT_VALIDATED
        return VariantOutcome.DROPPED if self.report.passed else VariantOutcome.FAILED


def validate_variants(
    settings: Settings,
    request: ValidateRequest,
    installs: Sequence[InstallRequest],
    *,
    fails_on_drop: bool,
    progress: Progress,
) -> list[VariantResult]:
    """Validate each of ``installs`` in turn, in place of the request's own; a failure does not stop the others.

    With ``fails_on_drop``, a bandwidth that has dropped by more than the noise of earlier runs is an error.
    """
    results = []
    for install in installs:
        report = path = error = None
        try:
            report, path = validate_installed(settings, replace(request, install=install), progress=progress)
            raise_for_failures(report, report_file=path)
            if fails_on_drop:
                raise_for_drops(report)
        except ChannelToolsError as err:
            error = err
        results.append(VariantResult(install=install, report=report, path=path, error=error))
    return results


def raise_worst(results: Sequence[VariantResult]) -> None:
    """Raise the error of the worst variant, with the errors of all that did not pass."""
    worst_first = sorted(results, key=lambda one: -one.verdict)
    errors = [(one.name, one.error) for one in worst_first if one.error is not None]
    if not errors:
        return
    worst = errors[0][1]
    if len(results) > 1:
        said = "\n".join(f"{name}: {error}" for name, error in errors)
        worst = type(worst)(
            f"{len(errors)} of {counted(len(results), 'variant')} did not pass\n{said}", hint=worst.hint
        )
    raise worst
