# SPDX-License-Identifier: BSD-3-Clause
"""What a bill of materials is of: a package, or the packages of one environment on one platform."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from channel_tools.provenance.components import Component

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_OID, "channel_tools bill of materials")


@dataclass(frozen=True, kw_only=True, slots=True)
class Inventory:
    """``components`` in order of name; ``platform`` is None for a single package."""

    name: str
    platform: str | None
    components: tuple[Component, ...]

    @property
    def title(self) -> str:
        """The name with the platform."""
        return self.name if self.platform is None else f"{self.name} ({self.platform})"

    @property
    def uuid(self) -> uuid.UUID:
        """The same for the same packages, so that documents of the same content are equal."""
        text = "\n".join([self.title, *(f"{one.subdir}/{one.file_name} {one.sha256}" for one in self.components)])
        return uuid.uuid5(_NAMESPACE, text)
