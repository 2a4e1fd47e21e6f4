# SPDX-License-Identifier: BSD-3-Clause
"""Keeps the reports of a stack's runs, and reads them for the channel's page.

Each run is one file with its whole report, so that simultaneous runs need no lock and each can be read by itself.
"""

from __future__ import annotations

import secrets
import stat
from typing import TYPE_CHECKING

from pydantic import TypeAdapter
from pydantic import ValidationError as PydanticValidationError
from pydantic.dataclasses import dataclass

from channel_tools.environments import InstalledPackage  # noqa: TC001 - pydantic reads the annotation
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import ConfigError
from channel_tools.validate.model import SCHEMA_VERSION, Check

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.validate.model import ValidationReport


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptHost:
    """The properties of the machine that the figures depend on."""

    machine: str
    processor: str
    cores: int


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptEnvironment:
    """The installed packages."""

    packages: tuple[InstalledPackage, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptBandwidth:
    """The median figures of one size."""

    dtype: str
    size_bytes: int
    transport_mb_s: float
    baseline_mb_s: float


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


def read_runs(reports: Path) -> tuple[KeptRun, ...]:
    """The runs of all reports in a folder of reports and in its ``history``. Raises as read_run does."""
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
    if not 1 <= run.schema_version <= SCHEMA_VERSION:
        message = f"{path}: has schema_version {run.schema_version}; this program reads 1 to {SCHEMA_VERSION}"
        raise ConfigError(message, hint="move it out of its folder")
    return run


def kept_file(folder: Path, report: ValidationReport) -> Path:
    """The file name of a kept report: unique, and sorted by the start of the run."""
    moment = report.started.partition("+")[0].replace("-", "").replace(":", "")
    return folder / f"{moment}Z-{secrets.token_hex(4)}.json"
