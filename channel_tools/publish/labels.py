# SPDX-License-Identifier: BSD-3-Clause
"""Names of labels, and where a label lies below its target's address."""

from __future__ import annotations

import re

from channel_tools.errors import UsageError
from channel_tools.publish.model import MAIN_LABEL

LABEL_FOLDER = "label"
_LABEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def is_label(name: str) -> bool:
    """Whether ``name`` can be a label's."""
    return _LABEL.fullmatch(name) is not None


def check_label(label: str) -> str:
    """``label`` as it is. Raises UsageError unless it can stand in an address."""
    if not is_label(label):
        message = f"{label!r} is no label: expected small letters, digits, '.', '_' and '-', a letter or digit first"
        raise UsageError(message, hint=f"for example {MAIN_LABEL} or testing")
    return label


def label_path(label: str) -> str:
    """Where the label's channel lies below the target's address: empty for main, else ``label/NAME``."""
    return "" if check_label(label) == MAIN_LABEL else f"{LABEL_FOLDER}/{label}"


def label_address(address: str, label: str) -> str:
    """The channel address that clients take for the label."""
    path = label_path(label)
    return f"{address.rstrip('/')}/{path}" if path else address
