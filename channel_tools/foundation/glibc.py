# SPDX-License-Identifier: BSD-3-Clause
"""The glibc that a package asks of the host, read from the symbol versions of its ELF files.

Packages of the foundation come from a newer glibc than conda-forge's; without this requirement a solver would install
them on a host where nothing starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.elf import newest_glibc
from channel_tools.foundation.repairs.elf import dynamic_elf_files

if TYPE_CHECKING:
    from pathlib import Path

_SYSROOT = "sysroot"


def glibc_requirement(tree: Path) -> str | None:
    """``__glibc >=2.34,<3.0.a0`` for the newest symbol version in ``tree``; None when nothing asks for glibc.

    The sysroot's own libraries do not count: they are linked against, never loaded.
    """
    found = [
        newest
        for path, info in dynamic_elf_files(tree)
        if _SYSROOT not in path.relative_to(tree).parts and (newest := newest_glibc(info.symbol_versions))
    ]
    if not found:
        return None
    return f"__glibc >={'.'.join(str(part) for part in max(found))},<3.0.a0"
