# SPDX-License-Identifier: BSD-3-Clause
"""Labels: their names, and where each lies below its target's address.

A label is a channel of its own: ``main`` is the target's address itself, any other lies at ``label/NAME`` below it, as
on anaconda.org. So every label can be read by every client from static files, and promoting is linking. Publishing and
serving take the same names: what conda clients take as a part of an address, capitals too.
"""

from __future__ import annotations

import re

from channel_tools.system.errors import UsageError

MAIN_LABEL = "main"
LABEL_FOLDER = "label"
LABEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def is_label(name: str) -> bool:
    """Whether ``name`` can be a label's."""
    return LABEL_NAME.fullmatch(name) is not None


def check_label(label: str) -> str:
    """``label`` as it is. Raises UsageError unless it can stand in an address."""
    if not is_label(label):
        message = (
            f"{label!r} is not a valid label: expected at most 64 letters, digits, '.', '_' and '-', "
            "a letter or digit first"
        )
        raise UsageError(message, hint=f"for example {MAIN_LABEL} or testing")
    return label


def label_path(label: str) -> str:
    """Where the label's channel lies below the target's address: empty for main, else ``label/NAME``."""
    return "" if check_label(label) == MAIN_LABEL else f"{LABEL_FOLDER}/{label}"


def label_address(address: str, label: str) -> str:
    """The channel address that clients take for the label."""
    path = label_path(label)
    return f"{address.rstrip('/')}/{path}" if path else address
