# SPDX-License-Identifier: BSD-3-Clause
"""MPICH's libraries under the names of the MPICH ABI, on which MPICH and its relatives agreed.

Debian names them otherwise, also inside: what is linked with ``libmpich.so.12`` would not start on another MPI with the
same ABI, a site's Cray MPICH among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.elf import dynamic_elf_files
from channel_tools.foundation.repairs.layout import step_error
from channel_tools.foundation.repairs.patchelf import edit_elf

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

_LIBRARIES: Mapping[str, str] = {"libmpich": "libmpi", "libmpichcxx": "libmpicxx", "libmpichfort": "libmpifort"}
_ABI = "12"


def use_mpich_abi_names(tree: Path, context: RepairContext) -> None:
    """Rename MPICH's libraries and what asks for them; Debian's names stay as links."""
    replaced: list[str] = []
    for debian, name in _LIBRARIES.items():
        _rename(tree / "lib", debian, name, context)
        replaced += ["--replace-needed", f"{debian}.so.{_ABI}", f"{name}.so.{_ABI}"]
    edit_elf(replaced, [path for path, info in dynamic_elf_files(tree) if info.needed])


def _rename(folder: Path, debian: str, name: str, context: RepairContext) -> None:
    found = [path for path in folder.glob(f"{debian}.so.{_ABI}.*") if not path.is_symlink()]
    if len(found) != 1:
        raise step_error(context, f"expected one lib/{debian}.so.{_ABI}.*, found {len(found)}")
    path = found[0].rename(folder / found[0].name.replace(debian, name, 1))
    edit_elf(["--set-soname", f"{name}.so.{_ABI}"], [path])
    for link in (f"{name}.so", f"{name}.so.{_ABI}", f"{debian}.so", f"{debian}.so.{_ABI}"):
        (folder / link).unlink(missing_ok=True)
        (folder / link).symlink_to(path.name)


STEPS: dict[str, Repair] = {"use_mpich_abi_names": use_mpich_abi_names}
