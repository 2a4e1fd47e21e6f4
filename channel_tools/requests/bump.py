# SPDX-License-Identifier: BSD-3-Clause
"""What ``bump`` is asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from channel_tools.system.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class BumpRequest:
    """The recipe, by its folder's name, and its new version.

    ``old`` is the version to replace (None: the only one there is). ``sha256`` is that of the new version's source
    (None: as it is downloaded), ``commit`` the new version's, for a recipe whose source is named by one. For an
    upstream's recipe, ``stack`` is the only one whose override is changed (None: every stack of the tree with it).
    ``check`` writes nothing.

    Raises UsageError for a sha256 or a commit that cannot be one.
    """

    package: str
    version: str
    old: str | None = None
    sha256: str | None = None
    commit: str | None = None
    stack: str | None = None
    check: bool = False

    def __post_init__(self) -> None:
        for option, digits, value in (("--sha256", 64, self.sha256), ("--commit", 40, self.commit)):
            if value is not None and not re.fullmatch(rf"[0-9a-f]{{{digits}}}", value):
                message = f"{option} must be {digits} hexadecimal digits in lower case, got {value!r}"
                raise UsageError(message, hint="copy it from the release's page, or leave it out")
