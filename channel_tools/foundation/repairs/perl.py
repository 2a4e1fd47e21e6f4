# SPDX-License-Identifier: BSD-3-Clause
"""Perl that finds its modules from where it lies, and only there; the autotools, which run on it, from any prefix.

Debian compiles absolute module folders into perl. They become folders that do not exist, and ``bin/perl`` is a wrapper
that names the prefix's own; the module that it loads makes ``$^X`` the wrapper, for programs that start perl again.
Autoconf, automake and libtool are scripts with their folders written in, which is what placeholders are for; frozen m4
files count characters and name no folder of these.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from channel_tools.foundation.model import PREFIX_PLACEHOLDER
from channel_tools.foundation.repairs.layout import files_in, relative_to_tree, step_error
from channel_tools.foundation.repairs.scripts import FIND_PREFIX, write_program

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

VERSION = 1
"""Raised with each change of what a step here makes of a tree."""

_FOLDER = re.compile(rb"(?<=\0)/(?:usr|etc)(?=/[^\0]*perl[^\0]*\0)")
_NOWHERE = b"/non"
_WRAPPER = """\
#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# perl with the modules of this environment
{find_prefix}\
exec "$prefix/libexec/perl" "-I$prefix/lib/perl/{version}" "-I$prefix/share/perl/{version}" -MRelocatedPerl "$@"
"""
_MODULE = """\
# SPDX-License-Identifier: BSD-3-Clause
package RelocatedPerl;
# share/perl/<version>/RelocatedPerl.pm: programs that start perl again get the wrapper, which knows the folders
($^X = __FILE__) =~ s{share/perl/[^/]+/RelocatedPerl\\.pm\\z}{bin/perl};
1;
"""
_SHEBANG = re.compile(rb"\A#!\s*/usr/bin/perl\b")
_RESTART = re.compile(rb"\bexec /usr/bin/perl\b")
_OWN = re.compile(
    rb"/usr(?=/bin/(?:autoconf|autoheader|autom4te|m4)\b|/share/(?:autoconf|automake-|aclocal|libtool)|/share\")"
)
_SOLARIS = re.compile(rb":/usr/xpg4/bin(?=[\"\n])|/usr/ucb/(?=echo\b)")
_VERSIONED = re.compile(r"(automake|aclocal)-[\d.]+")


def relocate_perl(tree: Path, context: RepairContext) -> None:
    """Put a wrapper at bin/perl and hide the compiled-in folders."""
    program, moved = tree / "bin" / "perl", tree / "libexec" / "perl"
    modules = sorted((tree / "share" / "perl").glob("5.*.*"))
    if not program.is_file() or len(modules) != 1 or not (tree / "lib" / "perl" / modules[0].name).is_dir():
        raise step_error(context, "expected bin/perl and one version's folders share/perl/5.* and lib/perl/5.*")
    content, count = _FOLDER.subn(_NOWHERE, program.read_bytes())
    if not count:
        raise step_error(context, "bin/perl names no folder below /usr; the step is no longer needed")
    moved.parent.mkdir(exist_ok=True)
    program.rename(moved)
    moved.write_bytes(content)
    version = modules[0].name
    write_program(program, _WRAPPER.format(find_prefix=FIND_PREFIX, version=version))
    (modules[0] / "RelocatedPerl.pm").write_text(_MODULE)


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


STEPS: dict[str, Repair] = {
    "relocate_perl": relocate_perl,
    "relocate_autotools": relocate_autotools,
}
