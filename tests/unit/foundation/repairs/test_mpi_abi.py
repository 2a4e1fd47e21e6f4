# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.elf import read_elf_file
from channel_tools.errors import FoundationError
from channel_tools.foundation.repairs.mpi_abi import use_mpich_abi_names
from tests.unit.foundation.repairs.libraries import library_that_needs
from tests.unit.foundation.repairs.trees import context

if TYPE_CHECKING:
    from pathlib import Path


def make_mpich(root: Path) -> Path:
    library_that_needs(root / "lib" / "libmpich.so.12.2.2")
    for name in ("libmpichcxx", "libmpichfort"):
        library_that_needs(root / "lib" / f"{name}.so.12.2.2", "libmpich.so.12")
    library_that_needs(root / "bin" / "mpichversion", "libmpich.so.12")
    (root / "lib" / "libmpi.so.12").symlink_to("libmpich.so.12")
    return root


def test_libraries_are_called_as_the_abi_calls_them(tmp_path: Path) -> None:
    root = make_mpich(tmp_path / "env")
    use_mpich_abi_names(root, context("mpich"))
    for name in ("libmpi", "libmpicxx", "libmpifort"):
        library = root / "lib" / f"{name}.so.12"
        assert library.resolve().name == f"{name}.so.12.2.2"
        assert read_elf_file(library).soname == f"{name}.so.12"
        assert (root / "lib" / f"{name}.so").resolve() == library.resolve()
    assert "libmpi.so.12" in read_elf_file(root / "bin" / "mpichversion").needed
    needed = {name for path in (root / "lib").iterdir() for name in read_elf_file(path).needed}
    assert not any(name.startswith("libmpich") for name in needed)


def test_what_is_linked_with_debians_names_still_starts(tmp_path: Path) -> None:
    root = make_mpich(tmp_path / "env")
    use_mpich_abi_names(root, context("mpich"))
    assert (root / "lib" / "libmpich.so.12").resolve() == (root / "lib" / "libmpi.so.12").resolve()
    assert (root / "lib" / "libmpich.so").is_file()


def test_another_layout_is_an_error(tmp_path: Path) -> None:
    root = make_mpich(tmp_path / "env")
    (root / "lib" / "libmpichcxx.so.12.2.2").unlink()
    with pytest.raises(FoundationError, match=r"expected one lib/libmpichcxx\.so\.12\.\*, found 0"):
        use_mpich_abi_names(root, context("mpich"))
