# SPDX-License-Identifier: BSD-3-Clause
"""What the packages of the registry foundation are, for those made from Debian packages, which carry no summary.

Wheels bring their own summary. These lines are no part of a package, so a changed line changes no package.
"""

from __future__ import annotations

import functools
from pathlib import Path

from channel_tools.conda.platforms import without_platform
from channel_tools.system.document import decode_json

_FILE = Path(__file__).parent / "data" / "summaries.json"


def summary_of(name: str) -> str:
    """The line about the package ``name``, "" if there is none."""
    return _lines().get(without_platform(name), "").replace("{subdir}", name.rpartition("_")[2])


@functools.cache
def _lines() -> dict[str, str]:
    return decode_json(_FILE.read_bytes(), dict[str, str])
