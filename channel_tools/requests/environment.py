# SPDX-License-Identifier: BSD-3-Clause
"""What ``env create`` is asked for; and which stack's environment ``pins``, ``validate`` and others mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from channel_tools.requests.trust import TrustRequest
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.pins.choice import LockChoice


@dataclass(frozen=True, kw_only=True, slots=True)
class InstallRequest:
    """A stack (None: the default one) and the channels it comes from (empty: the local channel and its foundation).

    ``python`` and ``pytorch`` choose one of its variants by their versions. With neither, the local channel gives the
    default variant, and for other channels the solver chooses.
    """

    stack: str | None = None
    channels: tuple[str, ...] = ()
    python: str | None = None
    pytorch: str | None = None

    @property
    def names_a_variant(self) -> bool:
        """Whether the stack, the Python or the PyTorch is given."""
        return self.stack is not None or self.python is not None or self.pytorch is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentRequest:
    """What to install into ``prefix``: the stack of ``install``, what the MatchSpecs ``specs`` ask for, or a lock.

    ``lock`` is a file; ``platform``, ``categories`` and ``environment`` say which part of it (LockChoice). An
    environment.yml is solved. ``install.channels`` replace those of a lock. ``virtual_packages`` are assumed, as
    ``NAME=VERSION``. With ``require_attestation``, every package must be signed by whom ``trust`` names.
    ``modulefiles`` are written as well.

    Raises UsageError for options that contradict each other.
    """

    prefix: Path
    specs: tuple[str, ...] = ()
    install: InstallRequest = field(default_factory=InstallRequest)
    lock: Path | None = None
    platform: str | None = None
    categories: tuple[str, ...] = ()
    environment: str | None = None
    virtual_packages: tuple[str, ...] = ()
    require_attestation: bool = False
    trust: TrustRequest = field(default_factory=TrustRequest)
    modulefiles: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if self.specs and (self.install.names_a_variant or self.lock is not None):
            message = "MatchSpecs with --variant, --python, --pytorch or --lock: only one of these says what to install"
            raise UsageError(message, hint="name Python and PyTorch among the MatchSpecs: 'python 3.13.*'")
        if self.platform is not None and self.lock is None:
            raise UsageError("--platform without --lock: a stack is installed for this machine", hint="leave it out")
        if self.lock is not None and self.install.names_a_variant:
            message = "--variant, --python or --pytorch with --lock: a lock already determines them"
            raise UsageError(message, hint="give the lock alone")
        if self.trust.names_someone and not self.require_attestation:
            message = "trust options without --require-attestation: nothing would be checked"
            raise UsageError(message, hint="give both")
        self.choice  # noqa: B018 - for its errors

    @property
    def choice(self) -> LockChoice:
        """The part of the lock that is meant. Raises UsageError as lock_choice does."""
        from channel_tools.pins.choice import lock_choice  # noqa: PLC0415 - slow to import

        platforms = [] if self.platform is None else [self.platform]
        return lock_choice(platforms, self.categories, self.environment, has_lock=self.lock is not None)

    @property
    def needs_stacks(self) -> bool:
        """Whether it is a stack that is installed."""
        return not self.specs and self.lock is None
