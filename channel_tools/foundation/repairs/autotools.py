# SPDX-License-Identifier: BSD-3-Clause
"""Autoconf, automake and libtool from any prefix: their folders are placeholders, their interpreter the environment's.

They are scripts with their folders written in, which is what placeholders are for; frozen m4 files count characters and
name no folder of these.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from channel_tools.foundation.model import PREFIX_PLACEHOLDER
from channel_tools.foundation.repairs.layout import files_in, relative_to_tree, step_error

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

_SHEBANG = re.compile(rb"\A#!\s*/usr/bin/perl\b")
_RESTART = re.compile(rb"\bexec /usr/bin/perl\b")
_OWN = re.compile(
    rb"/usr(?=/bin/(?:autoconf|autoheader|autom4te|m4)\b|/share/(?:autoconf|automake-|aclocal|libtool)|/share\")"
)
_SOLARIS = re.compile(rb":/usr/xpg4/bin(?=\")")
_VERSIONED = re.compile(r"(automake|aclocal)-[\d.]+")


def relocate_autotools(tree: Path, context: RepairContext) -> None:
    """Write the placeholder for the folders, and ``env perl`` for the interpreter; make the unversioned names."""
    changed = 0
    for path in list(files_in(tree)):
        if path.is_symlink() or path.suffix == ".m4f":
            continue
        before = path.read_bytes()
        after = _SHEBANG.sub(b"#!/usr/bin/env perl", before)
        after = _RESTART.sub(b"exec perl", after)
        after = _SOLARIS.sub(b"", after)
        after = _OWN.sub(PREFIX_PLACEHOLDER.encode(), after)
        if after != before:
            path.write_bytes(after)
            changed += 1
    if not changed:
        raise step_error(context, "no file names a folder below /usr; the step is no longer needed")
    for path in list((tree / "bin").iterdir()):
        # Debian's alternatives make these names at installation
        if match := _VERSIONED.fullmatch(path.name):
            (path.parent / match[1]).symlink_to(path.name)
    for path in files_in(tree):
        if str(relative_to_tree(path, tree)).startswith("bin/") and b"/usr/bin/perl" in path.read_bytes():
            raise step_error(context, f"bin/{path.name} still names the host's perl")


STEPS: dict[str, Repair] = {"relocate_autotools": relocate_autotools}
