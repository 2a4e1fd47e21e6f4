# SPDX-License-Identifier: BSD-3-Clause
"""What ``publish`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from channel_tools.requests.plan import PlanRequest
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.requests.plan import FoundationKind


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishRequest:
    """Publish package ``files``, or the packages of ``plan`` from the local channel, to ``target`` under ``label``.

    The files were built on ``foundation`` at ``address``; None: on that of the channels they are in, else the local
    channel's, else the target's. ``dry_run`` only compares.

    Raises UsageError for options that contradict each other.
    """

    target: str
    label: str = "main"
    plan: PlanRequest = field(default_factory=PlanRequest)
    files: tuple[Path, ...] = ()
    foundation: FoundationKind | None = None
    address: str | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.files and (self.plan.stack or self.plan.every_stack or self.plan.packages):
            raise UsageError("publish takes package files or a stack, not both", hint="run it twice")
        if not self.files and (self.foundation or self.address):
            hint = "a stack is published with the local channel's"
            raise UsageError("--foundation without package files", hint=hint)
