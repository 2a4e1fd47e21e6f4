# SPDX-License-Identifier: BSD-3-Clause
"""The profile of an environment: what its site's fabric wants set, as the package fabric-profile has it.

The package's activation sets the same variables in a shell, by the same conditions; what only a launcher knows, as how
many hosts ranks run on, is decided from this.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from channel_tools.doctor.devices import names_in
from channel_tools.doctor.model import Diagnosis
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from channel_tools.doctor.model import ExaminedStack

PROFILE_FILE = "share/fabric-profile/profile.json"
NETWORK_OPTION = "--network=disable_rdzv_get"
"""sbatch's and srun's option that gives a job alternative rendezvous (HPE's shs-ccl-docs, ccl_env.sh)."""
_CXI = "sys/class/cxi"
_PLUGIN = re.compile(r"(?:aws-ofi-nccl|nccl-ofi)-(?P<major>\d+)\.(?P<minor>\d+).*\.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileVariable:
    """A variable and the conditions under which it is set; a condition that is None always holds."""

    name: str
    value: str
    nodes: Literal["several"] | None = None
    rendezvous: Literal["alternative"] | None = None
    gpu: Literal["nvidia", "amd"] | None = None
    plugin: Annotated[str, msgspec.Meta(pattern=r"^(<|>=)\d+\.\d+$")] | None = None
    """The versions of the environment's plugin."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FabricProfile:
    """A profile; ``source`` says where the values are from, ``reviewed`` on which day they were compared with it."""

    schema: Literal[1]
    name: str
    summary: str
    source: tuple[str, ...]
    reviewed: str
    device: Literal["cxi", "efa"]
    variables: tuple[ProfileVariable, ...]

    def is_for(self, root: Path) -> bool:
        """Whether the machine has the fabric; ``root`` is the folder that has /sys."""
        if self.device == "cxi":
            return bool(names_in(root / _CXI))
        # beside the addresses of its devices, a driver's folder has files with which they are bound to it
        return any(":" in name for name in names_in(root / "sys/bus/pci/drivers" / self.device))

    @property
    def fabric(self) -> str:
        """For people: whose NICs it is for."""
        return "Slingshot" if self.device == "cxi" else self.device.upper()

    def of_several_nodes(self, prefix: Path) -> dict[str, str]:
        """What ranks on several hosts are given that an activation of the environment on one host leaves out."""
        several = [one for one in self.variables if one.nodes and not one.rendezvous and not one.gpu]
        return {one.name: one.value for one in several if one.plugin is None or _has_plugin(prefix, one.plugin)}

    @property
    def wants_alternative_rendezvous(self) -> bool:
        """Whether any of its variables is right only with alternative rendezvous."""
        return any(one.rendezvous for one in self.variables)


def read_profile(prefix: Path) -> FabricProfile | None:
    """The profile of the environment, None if it has none. Raises ConfigError for a file that is no profile."""
    path = prefix / PROFILE_FILE
    try:
        return decode_json(path.read_bytes(), FabricProfile)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as err:
        message = f"not a profile of a fabric: {err}"
        raise ConfigError(
            message, path=path, hint=f"conda install -p {shlex.quote(str(prefix))} --force-reinstall fabric-profile"
        ) from None


def has_alternative_rendezvous(root: Path, variables: Mapping[str, str]) -> bool:
    """Whether rendezvous messages are left to software here: for the job, or by the property of each of the NICs."""
    if "disable_rdzv_get" in variables.get("SLURM_NETWORK", "").split(","):
        return True
    nics = sorted((root / _CXI).glob("*"))
    return bool(nics) and all(_property(nic / "device/properties/rdzv_get_en") == "0" for nic in nics)


def find_profile(subject: ExaminedStack) -> Iterator[Diagnosis]:
    """What the profile says, what of it the user has set otherwise, and values with which NCCL hangs.

    Of an environment without a profile, and on a machine without its fabric, only that. Raises ConfigError for a file
    that is no profile.
    """
    profile = None if subject.prefix is None else read_profile(subject.prefix)
    if profile is None:
        return
    title = "fabric profile"
    if not profile.is_for(subject.root):
        found = f"{profile.name}: sets nothing here, for the kernel lists no {profile.fabric} NIC"
        yield Diagnosis(subject=title, level="ok", found=found)
        return
    own = {one.name: subject.variables[one.name] for one in profile.variables if one.name in subject.variables}
    others = [f"{one.name}={own[one.name]!r}" for one in profile.variables if own.get(one.name, one.value) != one.value]
    instead = f"; set otherwise: {', '.join(others)}" if others else ""
    yield Diagnosis(subject=title, level="ok", found=f"{profile.name}, of {profile.reviewed}{instead}")
    yield from _what_hangs(subject)


def _what_hangs(subject: ExaminedStack) -> Iterator[Diagnosis]:
    rendezvous = subject.variable("FI_CXI_RDZV_PROTO")
    if rendezvous == "alt_read" and not has_alternative_rendezvous(subject.root, subject.variables):
        found = (
            "FI_CXI_RDZV_PROTO is 'alt_read', and neither this job nor this node has alternative rendezvous: it hangs"
        )
        fix = f"give the job {NETWORK_OPTION}, or: unset FI_CXI_RDZV_PROTO"
        yield Diagnosis(subject="Slingshot's rendezvous", level="warning", found=found, fix=fix)
    # HPE's shs-ccl-docs, nccl_tuning_guide.md
    if subject.variable("FI_MR_CACHE_MONITOR") == "memhooks":
        found = "FI_MR_CACHE_MONITOR is 'memhooks', which can end in a deadlock with NCCL"
        fix = "export FI_MR_CACHE_MONITOR=userfaultfd"
        yield Diagnosis(subject="libfabric's cache monitor", level="warning", found=found, fix=fix)
    # NCCL's user guide, "Inter-GPU communication with CUDA-aware MPI"
    if subject.variable("MPICH_GPU_SUPPORT_ENABLED") == "1":
        found = "MPICH_GPU_SUPPORT_ENABLED is 1: GPU-aware MPI beside NCCL can end in a deadlock"
        yield Diagnosis(
            subject="MPI beside NCCL", level="warning", found=found, fix="export MPICH_GPU_SUPPORT_ENABLED=0"
        )


def _has_plugin(prefix: Path, condition: str) -> bool:
    """Whether the environment has a plugin for NCCL or RCCL of such a version, ``<1.7`` or ``>=1.7``."""
    found = [match for name in names_in(prefix / "conda-meta") if (match := _PLUGIN.match(name))]
    wanted = tuple(map(int, condition.lstrip("<>=").split(".")))
    versions = [(int(match["major"]), int(match["minor"])) for match in found]
    return any(version < wanted if condition.startswith("<") else version >= wanted for version in versions)


def _property(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
