# SPDX-License-Identifier: BSD-3-Clause
"""Which Debian release a registry foundation is made from: what is asked for, else the folders', else the newest.

What is built has to run where it is built, so a base that is newer than this machine is refused. Where its PyTorch
comes from is settled when it is made, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.channel import open_channel
from channel_tools.channel.state import CHANNEL_RECORD
from channel_tools.conda.platforms import current_platform
from channel_tools.foundation.model import table_summary
from channel_tools.requests.names import BASES, FIRST_BASE
from channel_tools.system.errors import FoundationError

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.model import PytorchSource
    from channel_tools.requests.names import BaseName
    from channel_tools.system.settings import Settings

_ELSEWHERE = "build on conda-forge, whose packages need less: --foundation conda-forge"


def recorded_base(settings: Settings) -> BaseName | None:
    """The base that the local channel or, without one, the registry foundation has; None if neither is made of one.

    Raises ChannelError for a folder whose record cannot be read.
    """
    for folder in (settings.channel, settings.foundation):
        if _is_channel(folder) and (foundation := open_channel(folder).foundation).is_made_here:
            return foundation.release
    return None


def own_base(settings: Settings, *, glibc: tuple[int, ...] | None) -> BaseName:
    """The recorded base, else the default. Raises FoundationError as default_base does."""
    return recorded_base(settings) or default_base(glibc)


def listed_base(settings: Settings) -> BaseName:
    """As own_base, for what builds nothing, also on a machine that runs no base."""
    return recorded_base(settings) or FIRST_BASE


def recorded_pytorch(settings: Settings, base: BaseName) -> PytorchSource | None:
    """Where the PyTorch of the registry foundation comes from; None if it may be either and there is no foundation.

    Raises ConfigError for a record that is not valid.
    """
    if table_summary(base, current_platform()).debian_pytorch is None:
        return "wheel"
    from channel_tools.foundation.record import RECORD_NAME, read_record  # noqa: PLC0415 - slow, and for few bases

    is_made = (settings.foundation / RECORD_NAME).is_file()
    return read_record(settings.foundation).pytorch_source if is_made else None


def default_base(glibc: tuple[int, ...] | None) -> BaseName:
    """The base of a new channel on a machine with this glibc: the newest that it runs.

    Raises FoundationError if the machine is older than all bases, or has another C library (None).
    """
    if running := _running(glibc):
        return running[0]
    oldest = next(iter(BASES))
    message = f"this machine has {_shown(glibc)}, and the oldest base, {oldest}, needs glibc {BASES[oldest].glibc}"
    raise FoundationError(message, hint=f"build on a newer machine, or {_ELSEWHERE}")


def require_runs(base: BaseName, *, glibc: tuple[int, ...] | None) -> None:
    """Raise FoundationError if packages of this base do not run with this glibc: making them runs some of them."""
    if base in _running(glibc):
        return
    message = f"base {base} needs glibc {BASES[base].glibc}, and this machine has {_shown(glibc)}"
    older = _running(glibc)
    hint = f"give --base {older[0]}" if older else _ELSEWHERE
    raise FoundationError(message, hint=f"build on a newer machine, or {hint}")


def _running(glibc: tuple[int, ...] | None) -> list[BaseName]:
    """The bases whose packages run with this glibc, newest first."""
    return [] if glibc is None else [name for name, base in [*BASES.items()][::-1] if _numbers(base.glibc) <= glibc]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _shown(glibc: tuple[int, ...] | None) -> str:
    return "no glibc" if glibc is None else f"glibc {'.'.join(map(str, glibc))}"


def _is_channel(folder: Path) -> bool:
    return (folder / CHANNEL_RECORD).is_file()
