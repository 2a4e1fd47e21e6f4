# SPDX-License-Identifier: BSD-3-Clause
"""How stacks are validated: one method per way of starting ranks and counting what carried their data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from channel_tools.errors import ConfigError
from channel_tools.validate.distributed import DistributedMethod
from channel_tools.validate.switchml import SwitchmlMethod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.validate.context import MethodContext
    from channel_tools.validate.model import MethodResult


class ValidationMethod(Protocol):
    """Runs a distributed job in an installed environment and judges it."""

    def check(self, *, stack: str, ranks: int, options: Mapping[str, object]) -> None:
        """Raise ConfigError or UsageError for options or a number of ranks that the method cannot work with."""

    def run(self, context: MethodContext) -> MethodResult:
        """Run it. Raises ValidationError when it could not be run to its end; wrong results are failed checks."""


METHODS: dict[str, ValidationMethod] = {"distributed": DistributedMethod(), "switchml": SwitchmlMethod()}


def find_method(stack: str, name: str) -> ValidationMethod:
    """The method of that name. Raises ConfigError naming the known ones."""
    method = METHODS.get(name)
    if method is None:
        known = ", ".join(sorted(METHODS))
        raise ConfigError(f"stack {stack}: validate: method: found {name!r}, expected one of {known}")
    return method
