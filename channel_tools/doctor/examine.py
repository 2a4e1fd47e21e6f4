# SPDX-License-Identifier: BSD-3-Clause
"""Selects the checks for a stack: what every stack needs of a machine, then what its backend and transport need."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from channel_tools.doctor.devices import (
    fabric_adapters,
    find_adapters,
    find_amd_gpu,
    find_controller,
    find_gpu,
    find_huge_pages,
    find_locked_memory,
    find_loopback,
    find_offload,
    find_socket_buffers,
    find_verbs,
)
from channel_tools.doctor.libraries import find_mpi, find_nccl, find_oneccl, find_switchml, is_for_amd
from channel_tools.doctor.model import Diagnosis
from channel_tools.doctor.profile import find_profile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from channel_tools.doctor.model import ExaminedStack, Level

_MELLANOX = frozenset({"dpdk_mlx5", "dpdk_mlx4"})


def examine(subject: ExaminedStack) -> tuple[Diagnosis, ...]:
    """Run all checks for the stack, those of the machine first. Raises CommandError for a broken environment."""
    return (*_machine(subject), *_of_the_backend(subject))


def _machine(subject: ExaminedStack) -> Iterator[Diagnosis]:
    yield from find_loopback()
    yield from find_adapters(subject.root)
    if fabric_adapters(subject.root) or subject.transport in {"rdma"} | _MELLANOX:
        yield from find_locked_memory(subject.root)


def _of_the_backend(subject: ExaminedStack) -> Iterator[Diagnosis]:
    if subject.backend == "switchml":
        yield from _switchml(subject)
    elif subject.backend == "mpi":
        yield from find_mpi(subject)
    elif subject.backend == "ccl":
        yield from find_oneccl(subject)
    elif subject.backend == "nccl":
        yield from (find_amd_gpu if is_for_amd(subject) else find_gpu)(subject.root)
        yield from find_nccl(subject)
        yield from find_profile(subject)
    elif subject.backend == "accl" and subject.prefix is not None:
        executable = shutil.which("accl-emulator", path=subject.variables.get("PATH", ""))
        fix = "" if executable else f"conda install -p {subject.prefix_word} accl-emulator"
        level: Level = "ok" if executable else "fault"
        yield Diagnosis(subject="ACCL's emulator", level=level, found=executable or "not in the environment", fix=fix)
    if subject.device == "cuda":
        yield from find_gpu(subject.root)


def _switchml(subject: ExaminedStack) -> Iterator[Diagnosis]:
    yield from _plugin(subject)
    if subject.transport == "dummy":
        message = "none: this transport multiplies by the number of workers"
        yield Diagnosis(
            subject="SwitchML's network", level="fault", found=message, fix="conda install 'libswitchml=*=udp*'"
        )
        return
    if subject.transport == "udp":
        yield from find_socket_buffers(subject.root)
        yield from find_offload()
    elif subject.transport == "rdma":
        yield from find_verbs(subject.root)
    elif "--no-huge" not in subject.variable("SWITCHML_DPDK_EAL_OPTIONS"):
        yield from find_huge_pages(subject.root)
    if subject.transport in _MELLANOX:
        yield from find_verbs(subject.root)
    if not subject.starts_switch:
        yield from find_controller(subject.variables)


def _plugin(subject: ExaminedStack) -> Iterator[Diagnosis]:
    """Whether the environment has the plugin and a transport, and whether the transport loads."""
    if subject.prefix is None:
        return
    for name in ("torch-switchml", "libswitchml"):
        if name in subject.installed:
            yield Diagnosis(subject=name, level="ok", found=subject.installed[name])
        elif not (name == "torch-switchml" and "patched" in subject.installed.get("pytorch-switchml", "")):
            fix = f"channel_tools env add {subject.prefix_word} --variant {subject.stack}"
            yield Diagnosis(subject=name, level="fault", found="not in the environment", fix=fix)
    if "libswitchml" in subject.installed:
        yield from find_switchml(subject)
