# SPDX-License-Identifier: BSD-3-Clause
"""What a validation method is, what it works with, and how it reads its settings from a stack's ``validate`` block."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from channel_tools.system.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from channel_tools.system.processes import Deadline
    from channel_tools.system.progress import Progress
    from channel_tools.validate.model import MethodResult
    from channel_tools.validate.ranks import RankHosts

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodContext:
    """An installed environment, the variables of its activation, and where and how long to run."""

    stack: str
    prefix: Path
    variables: Mapping[str, str]
    ranks: int
    options: Mapping[str, object]
    folder: Path
    """Of this run alone: logs, plan and results."""
    deadline: Deadline
    progress: Progress
    hosts: RankHosts | None = None
    """Where the ranks run; None: here, on the loopback network."""


class ValidationMethod(Protocol):
    """Runs a distributed job in an installed environment and judges it."""

    def specs(self, specs: Sequence[str], *, stack: str, options: Mapping[str, object]) -> tuple[str, ...]:
        """What to install on this machine, of a stack whose users install ``specs``."""

    def check(self, *, stack: str, ranks: int, options: Mapping[str, object], hosts: int = 1) -> None:
        """Raise ConfigError or UsageError for options, ranks or hosts that the method cannot work with.

        Of a scheduler's job it is asked on the first host; the ranks are shared equally by ``hosts``.
        """

    def run(self, context: MethodContext) -> MethodResult:
        """Run it. Raises ValidationError when it could not be run to its end; wrong results are failed checks."""


def read_method_options(kind: type[T], *, stack: str, method: str, values: Mapping[str, object]) -> T:
    """``values`` as the dataclass ``kind``. Raises ConfigError naming each unknown key or unusable value."""
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as err:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in err.errors())
        known = ", ".join(one.name for one in fields(_as_dataclass(kind)))
        raise ConfigError(f"stack {stack}: validate: {faults}", hint=f"the method {method} knows: {known}") from None


def _as_dataclass(kind: Any) -> Any:  # noqa: ANN401  (typeshed's protocol for dataclasses is private)
    return kind
