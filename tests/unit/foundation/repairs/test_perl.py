# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.commands import run_command
from channel_tools.errors import FoundationError
from channel_tools.foundation.repairs.perl import relocate_perl
from tests.unit.foundation.repairs.trees import context, make_tree

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
