# SPDX-License-Identifier: BSD-3-Clause
"""Perl that finds its modules from where it lies, and only there.

Debian compiles absolute module folders in. They become folders that do not exist, and ``bin/perl`` is a wrapper that
names the prefix's own; the module that it loads makes ``$^X`` the wrapper, for programs that start perl again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.layout import step_error
from channel_tools.foundation.repairs.scripts import FIND_PREFIX, write_program

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

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


STEPS: dict[str, Repair] = {"relocate_perl": relocate_perl}
