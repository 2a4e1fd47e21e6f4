# SPDX-License-Identifier: BSD-3-Clause
"""What conda makes of ``conda-meta/history``: the rules of conda/history.py (conda 26.7), written again for tests."""

from __future__ import annotations

import re
from ast import literal_eval
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_SPECS = re.compile(r"#\s*(\w+)\s*specs:\s*(.+)?")
_NAME = re.compile(r"(?:.*::)?([\w.-]+)")


def conda_requests(prefix: Path) -> dict[str, str]:
    """What conda takes to be asked for, by name; packages that are not installed included."""
    requests: dict[str, str] = {}
    for revision in re.split(r"^==>.*<==$", (prefix / "conda-meta/history").read_text(), flags=re.MULTILINE)[1:]:
        assert "\n# cmd: " in revision, "conda ignores a revision without a command"
        actions: dict[str, list[str]] = {}
        for line in revision.splitlines():
            if (match := _SPECS.match(line)) is not None:
                actions[match[1]] = literal_eval(match[2])
        for spec in actions.get("remove", []):
            requests.pop(_name_of(spec), None)
        for action in ("update", "neutered"):
            requests |= {_name_of(spec): spec for spec in actions.get(action, [])}
    return requests


def _name_of(spec: str) -> str:
    match = _NAME.match(spec)
    assert match is not None, spec
    return match[1]
