# SPDX-License-Identifier: BSD-3-Clause
"""Keeps earlier reports of a stack, and checks whether its bandwidth has fallen.

Each run is one file with its whole report, so that simultaneous runs need no lock and each can be read by itself.

A size has dropped if its bandwidth is a fifth below the median of the earlier runs, and so is its ratio to the baseline
that was measured in turn with it. If the baseline has fallen as well, the machine is slower and not the stack.
"""

from __future__ import annotations

import secrets
import stat
import statistics
from typing import TYPE_CHECKING

from pydantic import TypeAdapter
from pydantic import ValidationError as PydanticValidationError
from pydantic.dataclasses import dataclass

from channel_tools.environments import InstalledPackage  # noqa: TC001 - pydantic reads the annotation
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import ConfigError, ValidationError
from channel_tools.validate.model import (
    SCHEMA_VERSION,
    ChangedPackage,
    Check,
    HistoryComparison,
    HistoryRow,
    KeptFigure,
    ValidationReport,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.validate.model import BandwidthRow

FEWEST_RUNS = 3
MOST_RUNS = 20
DROP = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptHost:
    """The properties of the machine that must be the same for figures to be comparable."""

    machine: str
    processor: str
    cores: int


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptEnvironment:
    """The installed packages."""

    packages: tuple[InstalledPackage, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptBandwidth:
    """The median figures of one size, and the quartiles where the report has them."""

    dtype: str
    size_bytes: int
    transport_mb_s: float
    baseline_mb_s: float
    transport_quartiles_mb_s: tuple[float, float] | None = None
    baseline_quartiles_mb_s: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptRates:
    """The figures of ranks with nothing set, and what carried them."""

    carrier: str
    bandwidth: tuple[KeptBandwidth, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptRun:
    """The data that is read from a kept report."""

    schema_version: int
    stack: str
    method: str
    passed: bool
    ranks: int
    started: str
    host: KeptHost
    environment: KeptEnvironment
    baseline: str
    bandwidth: tuple[KeptBandwidth, ...]
    hosts: tuple[str, ...] = ()
    seconds: float = 0.0
    checks: tuple[Check, ...] = ()
    on_this_host: KeptRates | None = None


_RUN = TypeAdapter(KeptRun)
_REPORT_BYTES = 64 << 20
_SUFFIX = ".json"
_HISTORY = "history"


def read_history(folder: Path) -> tuple[KeptRun, ...]:
    """The kept runs, oldest first; none if the folder does not exist yet.

    Raises ConfigError for a file that is not a report, or has another schema.
    """
    files = Beneath(root=folder)
    return tuple(read_run(files, name) for name in files.names() if name.endswith(_SUFFIX))


def read_runs(reports: Path) -> tuple[KeptRun, ...]:
    """The runs of all reports in a folder of reports and in its ``history``. Raises as read_history does."""
    files = Beneath(root=reports)
    stacks = [f"{_HISTORY}/{stack}" for stack in files.names(_HISTORY)]
    folders = ["", *(name for name in stacks if (status := files.stat(name)) and stat.S_ISDIR(status.st_mode))]
    names = [f"{folder}/{name}".lstrip("/") for folder in folders for name in files.names(folder)]
    return tuple(read_run(files, name) for name in sorted(names) if name.endswith(_SUFFIX))


def read_run(files: Beneath, name: str) -> KeptRun:
    """The run of a report.

    Raises ConfigError for a file that is not a report, or has another schema; ChannelError for one that is no regular
    file, is a link out of the folder, or is too large.
    """
    path = files.path / name
    try:
        run = _RUN.validate_json(files.read(name, limit_bytes=_REPORT_BYTES))
    except PydanticValidationError as err:
        fault = err.errors()[0]
        where = ".".join(map(str, fault["loc"])) or "the file"
        message = f"{path}: not a report of a validation: {where}: {fault['msg']}"
        raise ConfigError(message, hint="move it out of its folder") from None
    if run.schema_version != SCHEMA_VERSION:
        message = f"{path}: has schema_version {run.schema_version}; this program reads {SCHEMA_VERSION}"
        raise ConfigError(message, hint="move it out of its folder")
    return run


def kept_file(folder: Path, report: ValidationReport) -> Path:
    """The file name of a kept report: unique, and sorted by the start of the run."""
    moment = report.started.partition("+")[0].replace("-", "").replace(":", "")
    return folder / f"{moment}Z-{secrets.token_hex(4)}.json"


def compare_with_history(report: ValidationReport, runs: Sequence[KeptRun], folder: Path) -> HistoryComparison:
    """The report beside the last earlier runs that passed on the same machine with as many ranks and hosts."""
    alike = [run for run in runs if _is_comparable(run, report)][-MOST_RUNS:]
    return HistoryComparison(
        folder=str(folder),
        earlier_runs=len(alike),
        incomparable_runs=sum(not _is_comparable(run, report) for run in runs),
        changed_packages=_changed_packages(alike[-1], report) if alike else (),
        rows=tuple(_compare_row(row, alike) for row in report.result.bandwidth),
    )


def raise_for_drops(report: ValidationReport) -> None:
    """Raise ValidationError naming the sizes whose bandwidth has dropped, if any."""
    drops = [row for row in report.history.rows if row.verdict is Verdict.DROP] if report.history else []
    if not drops:
        return
    lines = [
        f"{row.dtype} of {row.size_bytes} bytes: {row.now_mb_s:.0f} MB/s, usual {row.usual_mb_s:.0f}, "
        f"at least {row.limit_mb_s:.0f} expected"
        for row in drops
    ]
    message = f"stack {report.stack}: bandwidth dropped below that of earlier runs\n" + "\n".join(lines)
    raise ValidationError(message, hint="changed_packages in the report's history lists the packages that differ")


def _is_comparable(run: KeptRun, report: ValidationReport) -> bool:
    host = KeptHost(machine=report.host.machine, processor=report.host.processor, cores=report.host.cores)
    conditions = (True, report.stack, report.method, report.ranks, len(report.hosts), report.result.baseline, host)
    return conditions == (run.passed, run.stack, run.method, run.ranks, len(run.hosts), run.baseline, run.host)


def _changed_packages(last: KeptRun, report: ValidationReport) -> tuple[ChangedPackage, ...]:
    before = {package.name: f"{package.version} {package.build}" for package in last.environment.packages}
    now = {package.name: f"{package.version} {package.build}" for package in report.environment.records}
    names = sorted(before.keys() | now.keys())
    pairs = [(name, before.get(name, ""), now.get(name, "")) for name in names]
    return tuple(ChangedPackage(name=name, before=old, now=new) for name, old, new in pairs if old != new)


def _compare_row(row: BandwidthRow, runs: Sequence[KeptRun]) -> HistoryRow:
    earlier = [
        KeptFigure(started=run.started, transport_mb_s=figure.transport_mb_s, baseline_mb_s=figure.baseline_mb_s)
        for run in runs
        for figure in run.bandwidth
        if (figure.dtype, figure.size_bytes) == (row.dtype, row.size_bytes)
    ]
    usual = limit = ratio_limit = None
    verdict = Verdict.TOO_FEW
    if len(earlier) >= FEWEST_RUNS:
        usual = statistics.median(figure.transport_mb_s for figure in earlier)
        limit = (1 - DROP) * usual
        ratio_limit = (1 - DROP) * statistics.median(run.transport_mb_s / run.baseline_mb_s for run in earlier)
        verdict = Verdict.USUAL
        if row.transport.median < limit:
            verdict = Verdict.DROP if row.ratio < ratio_limit else Verdict.MACHINE
    return HistoryRow(
        dtype=row.dtype,
        size_bytes=row.size_bytes,
        verdict=verdict,
        now_mb_s=row.transport.median,
        usual_mb_s=usual,
        limit_mb_s=limit,
        now_ratio=row.ratio,
        limit_ratio=ratio_limit,
        earlier=tuple(earlier),
    )
