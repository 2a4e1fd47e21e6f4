# SPDX-License-Identifier: BSD-3-Clause
"""The validations of several variants of a stack, and the error that stands for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from channel_tools.system.counting import counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.system.errors import ChannelToolsError
    from channel_tools.validate.model import ValidationReport


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
    """The validation of the variant for a Python and a PyTorch: its report, its path, and the error if it failed.

    There is no report if the run was not completed.
    """

    python: str | None = None
    pytorch: str | None = None
    report: ValidationReport | None = None
    path: Path | None = None
    error: ChannelToolsError | None = None

    @property
    def name(self) -> str:
        """The versions of the variant, as words."""
        versions = {"pytorch": self.pytorch, "python": self.python}
        return ", ".join(f"{key} {version}" for key, version in versions.items() if version) or "the only variant"

    @property
    def verdict(self) -> VariantOutcome:
        """The outcome of the validation."""
        if self.error is None:
            return VariantOutcome.PASSED
        if self.report is None:
            return VariantOutcome.NOT_VALIDATED
        return VariantOutcome.DROPPED if self.report.passed else VariantOutcome.FAILED


def raise_worst(results: Sequence[VariantResult]) -> None:
    """Raise the error of the worst variant, with the errors of all that did not pass."""
    worst_first = sorted(results, key=lambda result: -result.verdict)
    errors = [(result.name, result.error) for result in worst_first if result.error is not None]
    if not errors:
        return
    worst = errors[0][1]
    if len(results) > 1:
        lines = "\n".join(f"{name}: {error}" for name, error in errors)
        worst = worst.with_message(f"{len(errors)} of {counted(len(results), 'variant')} did not pass\n{lines}")
    raise worst
