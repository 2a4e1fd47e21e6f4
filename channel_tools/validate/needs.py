# SPDX-License-Identifier: BSD-3-Clause
"""What a stack asks of the machine that no channel can give: a GPU, an RDMA device, the site's own libraries.

Looked for before anything runs, so that what is absent is one sentence and not a rank's traceback.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.commands import run_command
from channel_tools.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path("/")
_HINT = "validate on a machine that has it; building and installing the stack do not need it"
_LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"


def check_devices(stack: str, needs: Sequence[str], *, root: Path = ROOT) -> None:
    """Raise ValidationError naming the devices that this machine lacks; before anything is installed."""
    _refuse(stack, list(_absent_devices(needs, root)))


def check_site(stack: str, needs: Sequence[str], *, variables: Mapping[str, str]) -> None:
    """Raise ValidationError naming what the activated environment does not find of the site's."""
    _refuse(stack, list(_absent_of_site(needs, variables)))


def _refuse(stack: str, absent: Sequence[str]) -> None:
    if absent:
        raise ValidationError(f"stack {stack}: this machine lacks: {'; '.join(absent)}", hint=_HINT)


def _absent_devices(needs: Sequence[str], root: Path) -> Iterator[str]:
    if "gpu" in needs and not any((root / "dev").glob("nvidia[0-9]*")):
        yield f"an NVIDIA GPU with its driver (no {root / 'dev'}/nvidia0)"
    if "amdgpu" in needs and not (root / "dev/kfd").exists():
        yield f"an AMD GPU with its driver (no {root / 'dev'}/kfd)"
    devices = root / "sys/class/infiniband"
    if "rdma" in needs and not (devices.is_dir() and any(devices.iterdir())):
        yield f"an RDMA device (none in {devices})"


def _absent_of_site(needs: Sequence[str], variables: Mapping[str, str]) -> Iterator[str]:
    for need in needs:
        kind, _, name = need.partition(":")
        if kind == "library" and (reason := _why_not_loaded(name, variables)):
            yield f"the library {name} ({reason})"
        if kind == "program" and shutil.which(name, path=variables.get("PATH", "")) is None:
            yield f"the program {name} (not on the PATH of the activated environment)"
        if kind == "variable" and not variables.get(name):
            yield f"the variable {name} (not set in the activated environment)"


def _why_not_loaded(name: str, variables: Mapping[str, str]) -> str:
    """What the loader says of a library in the activated environment; "" when it loads."""
    result = run_command([sys.executable, "-I", "-S", "-c", _LOAD, name], env=variables, check=False)
    return "" if result.returncode == 0 else result.tail().splitlines()[-1].removeprefix("OSError: ")
