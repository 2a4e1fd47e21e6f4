# SPDX-License-Identifier: BSD-3-Clause
"""The error for a package that may not enter a channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.errors import IntegrityError

if TYPE_CHECKING:
    from pathlib import Path


def damaged(path: Path, what: str) -> IntegrityError:
    """The error for a package that must not be indexed."""
    hint = f"delete {path.name} and make it again (build, foundation build) or copy it again from where it is sound"
    return IntegrityError(f"{path}: {what}; it is not taken into the channel", hint=hint)
