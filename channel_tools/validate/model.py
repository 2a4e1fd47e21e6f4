# SPDX-License-Identifier: BSD-3-Clause
"""The interface of validation methods, and the values of a validation's report.

The shell lines that methods share in ``ValidationMethod.how_to_run``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from channel_tools.ranks.plan import StartSettings
from channel_tools.ranks.services import RunContext
from channel_tools.system.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from channel_tools.doctor import Diagnosis
    from channel_tools.environments import EnvironmentResult
    from channel_tools.ranks.hosts import RankHosts
    from channel_tools.ranks.plan import Placement
    from channel_tools.system.yamlfile import YamlValue

SCHEMA_VERSION = 2


RANKS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One requirement of the stack: what was found and what was expected."""

    name: str
    passed: bool
    found: str
    expected: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseResult:
    """One collective as seen by all ranks.

    ``route`` is what had to carry it: the stack's transport or the baseline. ``reason`` says why it was not the
    transport ("" if it was). ``max_error`` is the largest over the ranks, by ``error_measure``: ``exact`` (values
    compared bit by bit, ``mismatches`` counts), ``element``, ``unit`` or ``tensor`` (the reference that an error is
    relative to; docs/reference/validation-report.md).
    """

    name: str
    dtype: str
    op: str
    numel: int
    calls: int
    route: str
    reason: str
    error_measure: str
    max_error: float
    max_error_allowed: float
    mismatches: int
    seconds: float
    problems: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether results and route were right on every rank."""
        return not self.problems


@dataclass(frozen=True, kw_only=True, slots=True)
class OmittedCase:
    """A row of the table of all stacks that does not apply to this one, and why."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """The median and the quartiles of some figures, in the unit of the containing value."""

    lower: float
    median: float
    upper: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TransportTotals:
    """What one transport carried per rank, by one counter; every rank carries the same elements.

    ``jobs`` is None if ``counted_by`` does not count them. The switch's elements include the padding of last packets
    and the packets that carry only exponents.
    """

    name: str
    jobs: int | None
    elements: int
    bytes: int
    counted_by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BandwidthRow:
    """MB (10^6 bytes) of tensor per second and rank over the calls, each timed on the slowest rank."""

    dtype: str
    numel: int
    size_bytes: int
    repetitions: int
    transport: Spread
    baseline: Spread

    @property
    def ratio(self) -> float:
        """Transport over baseline."""
        return self.transport.median / self.baseline.median


@dataclass(frozen=True, kw_only=True, slots=True)
class RatesOnThisHost:
    """Bandwidths that a user's ranks get on this host alone, with nothing set.

    ``carrier`` is what carried them: ``this host's memory``, or the baseline.
    """

    carrier: str
    bandwidth: tuple[BandwidthRow, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BusBandwidth:
    """One measurement of nccl-tests, with its own names: GB (10^9 bytes) per second, ``wrong`` None if not counted."""

    dtype: str
    op: str
    size_bytes: int
    place: Literal["out of place", "in place"]
    microseconds: float
    busbw_gb_s: float
    wrong: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodResult:
    """The result of a validation method."""

    checks: tuple[Check, ...]
    cases: tuple[CaseResult, ...]
    transports: tuple[TransportTotals, ...]
    bandwidth: tuple[BandwidthRow, ...]
    baseline: str
    omitted: tuple[OmittedCase, ...] = ()
    details: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    """What the bandwidths are of and where they differ from a user's, each in a sentence."""
    on_this_host: RatesOnThisHost | None = None
    """None where ``bandwidth`` is what users get, and for several hosts."""
    nccl_tests: tuple[BusBandwidth, ...] = ()
    """What a run of nccl-tests measured beside it, if its output was given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFacts:
    """The properties of the machine that figures depend on.

    ``load_average`` is that of the minute before the validation.
    """

    name: str

    system: str
    machine: str
    processor: str
    cores: int
    memory_bytes: int
    load_average: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationReport:
    """Everything that a validation of one stack found; ``started`` is UTC in ISO 8601."""

    stack: str
    method: str
    ranks: int
    started: str
    seconds: float
    tool_version: str
    host: HostFacts
    environment: EnvironmentResult
    result: MethodResult
    findings: tuple[Diagnosis, ...] = ()
    """Doctor's findings before the run; they do not affect whether it passed."""
    hosts: tuple[str, ...] = ()
    """The nodes of a scheduler's job, of which the first is ``host``; none for a run on one machine."""
    runs_on: str | None = None
    """The machines that the local channel's packages are for: ``glibc 2.36 or later, x86-64``; None if not known."""

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.result.checks)

    @property
    def failed_checks(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.result.checks if not check.passed)


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodContext(RunContext):
    """The environment to validate, and the stack's ``options`` of the method."""

    options: Mapping[str, object]
    hosts: RankHosts | None = None
    """The hosts of the ranks; None for this machine's loopback network."""


class ValidationMethod(ABC):
    """Runs a distributed job in an installed environment and checks it."""

    has_switch = False
    """Whether ranks can go through a software switch that ``start_settings`` has started beside them."""

    def specs(self, specs: Sequence[str], *, stack: str, options: Mapping[str, object]) -> tuple[str, ...]:  # noqa: ARG002
        """The specs to install on this machine for a stack whose users install ``specs``; by default the same."""
        return tuple(specs)

    def backend(self, options: Mapping[str, object]) -> str:
        """What carries the data, as doctor knows it; by default the process group's name in the options."""
        return str(options.get("backend", ""))

    def uses_gpus(self, options: Mapping[str, object]) -> bool:
        """Whether each rank uses a GPU; by default what the options say of the device."""
        return options.get("device") == "cuda"

    def start_settings(
        self,
        placement: Placement,  # noqa: ARG002
        *,
        stack: str,  # noqa: ARG002
        options: Mapping[str, object],  # noqa: ARG002
        switch: bool = False,  # noqa: ARG002
    ) -> StartSettings:
        """How ranks of the stack are started there: the same for a user's script and for a validation on hosts.

        With ``switch``, which only a method that ``has_switch`` is asked for, a software switch is started beside them,
        and they go through it even if all are on one host.

        Raises UsageError for a place where they cannot be, and ConfigError for invalid options.
        """
        return StartSettings()

    def how_to_run(self, options: Mapping[str, YamlValue]) -> Iterator[str]:  # noqa: ARG002
        """The lines for a shell that run a script without channel_tools: what starts, which variables, and the proof.

        HOST is a name to fill in. By default no line: only ``channel_tools launch`` can start the stack.
        """
        return iter(())

    @abstractmethod
    def check(self, *, stack: str, ranks: int, options: Mapping[str, object], hosts: int = 1) -> None:
        """Raise ConfigError or UsageError for options, ranks or hosts that the method does not support.

        In a scheduler's job, this is called on the first host; the ranks are divided equally among ``hosts``.
        """

    @abstractmethod
    def run(self, context: MethodContext) -> MethodResult:
        """Run the job. Raises ValidationError if it could not be completed; wrong results are failed checks."""


def read_method_options(kind: type[T], *, stack: str, method: str, values: Mapping[str, object]) -> T:
    """``values`` as the dataclass ``kind``. Raises ConfigError naming each unknown key or unusable value."""
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as err:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in err.errors())
        known = ", ".join(field.name for field in fields(_as_dataclass(kind)))
        raise ConfigError(
            f"stack {stack}: validate: {faults}", hint=f"the method {method} has the keys: {known}"
        ) from None


def _as_dataclass(kind: Any) -> Any:  # noqa: ANN401  (typeshed's protocol for dataclasses is private)
    return kind


def torchrun_line() -> str:
    """Starts ``train.py`` on this host, and says how on more."""
    more = "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint HOST:29500"
    return f"torchrun --nproc-per-node {RANKS} train.py   # on more hosts, on each: {more}"


def last_line(module: str, call: str) -> str:
    """What ``train.py`` prints at its end, to prove what carried its data."""
    return f"# at the end of train.py: import {module}; print({module}.{call})"
