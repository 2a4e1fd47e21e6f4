# SPDX-License-Identifier: BSD-3-Clause
"""Libraries that load plugins: from the prefix, never from the host's folders of the same name.

Debian compiles absolute folders in. Strings in a binary can be overwritten by equally long ones only, so the folders
become one that does not exist; each library then finds its plugins in its other ways, which are relative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.activation import Setting, write_activation
from channel_tools.foundation.repairs.elf import dynamic_elf_files, write_rpath
from channel_tools.foundation.repairs.layout import step_error

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

_NOWHERE = b"/nonexistent"
_DRIVER = "driver "


def hide_host_plugins(tree: Path, context: RepairContext) -> None:
    """Overwrite the compiled-in plugin folders below ``/usr/lib/<multiarch>/`` in the package's libraries."""
    folder = f"/usr/lib/{context.multiarch}/".encode()
    nowhere = _NOWHERE.ljust(len(folder), b"/")
    changed = 0
    for path, _info in list(dynamic_elf_files(tree)):
        content = path.read_bytes()
        if folder in content:
            path.write_bytes(content.replace(folder, nowhere))
            changed += 1
    if not changed:
        raise step_error(context, f"no library names {folder.decode()}; the step is no longer needed")


def find_verbs_drivers(tree: Path, context: RepairContext) -> None:
    """Let libibverbs find its drivers: through its rpath, and by name from the activation.

    libibverbs looks for ``/usr/lib/.../libibverbs/lib<name>-rdmav34.so`` and then for the same name on its rpath; the
    first is hidden and the second made to work. The names stand in ``/etc/libibverbs.d``, which cannot be moved, so
    the activation says them (``IBV_DRIVERS``) unless the user has chosen. Without activation the host's list counts.
    """
    hide_host_plugins(tree, context)
    drivers = sorted(
        line.removeprefix(_DRIVER).strip()
        for path in (tree / "etc" / "libibverbs.d").glob("*.driver")
        for line in path.read_text().splitlines()
        if line.startswith(_DRIVER)
    )
    libraries = [path for path in sorted((tree / "lib").glob("libibverbs.so.*")) if not path.is_symlink()]
    missing = [name for name in drivers if not list((tree / "lib" / "libibverbs").glob(f"lib{name}-rdmav*.so"))]
    if not drivers or missing or len(libraries) != 1:
        found = f"{len(drivers)} driver names, without library: {missing}, {len(libraries)} libibverbs"
        raise step_error(context, f"expected libibverbs with drivers, found {found}")
    write_rpath("$ORIGIN:$ORIGIN/libibverbs", libraries)
    setting = Setting(name="IBV_DRIVERS", value=":".join(drivers), only_if_unset=("IBV_DRIVERS", "RDMAV_DRIVERS"))
    what = "The RDMA drivers of this environment; libibverbs has the folder of its list compiled in."
    write_activation(tree, context.entry.name, [setting], what=what)


STEPS: dict[str, Repair] = {
    "hide_host_plugins": hide_host_plugins,
    "find_verbs_drivers": find_verbs_drivers,
}
