# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.foundation.model import PREFIX_PLACEHOLDER
from channel_tools.foundation.repairs.perl import relocate_autotools, relocate_perl
from channel_tools.system.errors import FoundationError
from channel_tools.system.processes import run_command
from tests.support.trees import make_tree
from tests.unit.foundation.repairs.trees import context

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS = b"\x7fELF\0/usr/share/perl/5.36\0/etc/perl\0/usr/lib/locale\0"


def make_perl(root: Path, program: bytes) -> Path:
    files: dict[str, str | bytes] = {
        "bin/perl": program,
        "lib/perl/5.36.0/POSIX.pm": "1;",
        "lib/perl/5.36": "-> 5.36.0",
        "share/perl/5.36.0/strict.pm": "1;",
        "share/perl/5.36": "-> 5.36.0",
    }
    return make_tree(root, files)


def test_compiled_in_folders_are_hidden(tmp_path: Path) -> None:
    root = make_perl(tmp_path / "env", FOLDERS)
    relocate_perl(root, context("perl"))
    assert (root / "libexec/perl").read_bytes() == FOLDERS.replace(b"/usr/share/perl", b"/non/share/perl").replace(
        b"/etc/perl", b"/non/perl"
    )


def test_the_wrapper_names_the_prefixs_modules_wherever_it_lies(tmp_path: Path) -> None:
    root = make_perl(tmp_path / "env", b'#!/bin/sh\necho "$@"\n# \0/usr/share/perl/5.36\0')
    relocate_perl(root, context("perl"))
    moved = root.rename(tmp_path / "moved")
    words = run_command([moved / "bin" / "perl", "-e", "1"]).stdout.split()
    assert words == [f"-I{moved}/lib/perl/5.36.0", f"-I{moved}/share/perl/5.36.0", "-MRelocatedPerl", "-e", "1"]


def test_another_layout_is_an_error(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "env", {"bin/perl": FOLDERS})
    with pytest.raises(FoundationError, match=r"expected bin/perl and one version's folders"):
        relocate_perl(root, context("perl"))


AUTOMAKE = """\
#!/usr/bin/perl -w
eval 'case $# in 0) exec /usr/bin/perl -S "$0";; esac'
unshift (@INC, '/usr/share/automake-1.16');
$m4 = $ENV{M4} || '/usr/bin/m4';
"""


def test_folders_become_placeholders_and_the_interpreter_the_environments(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "env", {"bin/automake-1.16": AUTOMAKE})
    relocate_autotools(root, context("automake"))
    assert (root / "bin" / "automake").read_text() == (
        "#!/usr/bin/env perl -w\n"
        "eval 'case $# in 0) exec perl -S \"$0\";; esac'\n"
        f"unshift (@INC, '{PREFIX_PLACEHOLDER}/share/automake-1.16');\n"
        f"$m4 = $ENV{{M4}} || '{PREFIX_PLACEHOLDER}/bin/m4';\n"
    )


def test_frozen_files_and_folders_of_other_systems_stay(tmp_path: Path) -> None:
    frozen = "F3,20\nx/usr/share/autoconf\n"
    solaris = 'find "$PATH:/usr/xpg4/bin"\nfind $PATH:/usr/xpg4/bin\n/usr/ucb/echo -n\n'
    shell = f'search="/lib /usr/lib"\ndatadir="/usr/share"\n{solaris}'
    root = make_tree(tmp_path / "env", {"bin/libtoolize": shell, "share/autoconf/a.m4f": frozen})
    relocate_autotools(root, context("libtool"))
    assert (root / "share/autoconf/a.m4f").read_text() == frozen
    assert (root / "bin/libtoolize").read_text() == (
        f'search="/lib /usr/lib"\ndatadir="{PREFIX_PLACEHOLDER}/share"\nfind "$PATH"\nfind $PATH\necho -n\n'
    )


def test_a_tree_without_such_folders_is_an_error(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "env", {"bin/tool": "#!/bin/sh\n"})
    with pytest.raises(FoundationError, match="no longer needed"):
        relocate_autotools(root, context("autoconf"))
