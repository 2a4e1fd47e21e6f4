# SPDX-License-Identifier: BSD-3-Clause
"""fabric-profile's activation without its package, on stand-ins for machines with a NIC of Slingshot or EFA."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

RECIPE = Path(__file__).parents[2] / "recipes" / "fabric-profile"
NET = "AWS Libfabric"
_OF_FABRICS = re.compile(r"(NCCL|RCCL|FI|OFI_NCCL|MPICH|HSA)_.*")


def profiles() -> list[str]:
    """The names of the recipe's profiles."""
    return sorted(path.stem for path in (RECIPE / "profiles").glob("*.toml"))


def written_profile(file: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """What the recipe's program says of a profile, which it writes to ``folder``."""
    command = [sys.executable, "-I", "-S", str(RECIPE / "write.py"), str(file), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def add_nic(root: Path, device: str) -> Path:
    """The folder of a NIC in /sys of a machine that has one."""
    if device == "cxi":
        nic = root / "sys/class/cxi/cxi0"
        (nic / "device/properties").mkdir(parents=True)
    else:
        nic = root / f"sys/bus/pci/drivers/{device}/0000:00:1d.0"
        nic.mkdir(parents=True)
        for name in ("bind", "new_id", "remove_id", "uevent", "unbind"):
            (nic.parent / name).touch()
    return nic


def installed_activation(folder: Path, profile: str = "slingshot") -> Path:
    """An environment in ``folder`` with what the recipe installs; beside it ``root``, whose /sys has its NIC."""
    prefix = folder / "an environment"
    for kind in ("activate", "deactivate"):
        script = prefix / "etc" / "conda" / f"{kind}.d" / f"{kind}-fabric-profile.sh"
        script.parent.mkdir(parents=True)
        script.write_bytes((RECIPE / "activation" / f"{kind}.sh").read_bytes())
    done = written_profile(RECIPE / "profiles" / f"{profile}.toml", prefix / "share" / "fabric-profile")
    assert (done.returncode, done.stderr) == (0, "")
    add_nic(folder / "root", (prefix / "share/fabric-profile/device").read_text().strip())
    return prefix


def activation_line(prefix: Path) -> str:
    """Shell code that activates the environment and prints its variables, each ended by NUL."""
    script = prefix / "etc" / "conda" / "activate.d" / "activate-fabric-profile.sh"
    exported = f"CONDA_PREFIX={shlex.quote(str(prefix))} CHANNEL_FABRIC_ROOT={shlex.quote(str(prefix.parent / 'root'))}"
    return f"set -eu; export {exported}; . {shlex.quote(str(script))}; env -0"


def read_variables(printed: str) -> dict[str, str]:
    """The variables that a profile may set among what ``env -0`` has printed."""
    pairs = (line.partition("=") for line in printed.split("\0") if line)
    return {name: value for name, _, value in pairs if _OF_FABRICS.fullmatch(name)}


def variables_set(prefix: Path, shell: Sequence[str], job: Mapping[str, str]) -> dict[str, str]:
    """The variables that a profile may set after the activation in a job; it must print nothing."""
    done = subprocess.run(
        [*shell, "-c", activation_line(prefix)],
        env={"PATH": "/usr/bin:/bin", **job},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return read_variables(done.stdout)
