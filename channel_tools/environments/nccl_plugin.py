# SPDX-License-Identifier: BSD-3-Clause
"""Whether an environment's NCCL can use its network plugin: the ABIs that both sides have.

NCCL looks for ``ncclNetPlugin_vN`` and ``ncclTunerPlugin_vN`` in a plugin that it has opened, from the newest N that it
knows to the oldest (src/plugin/net.cc, src/plugin/tuner.cc). The names of those that it knows are texts in its library.
"""

from __future__ import annotations

import mmap
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.system.errors import ValidationError

if TYPE_CHECKING:
    from pathlib import Path

_NAME = re.compile(rb"nccl(Net|Tuner)Plugin_v([0-9]{1,2})\0")


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginAbis:
    """The versions of NCCL's plugin ABIs that a library has or knows, ascending."""

    net: tuple[int, ...]
    tuner: tuple[int, ...]


def known_abis(nccl: Path) -> PluginAbis:
    """The versions that an NCCL library knows. Raises ValidationError for a file that names none."""
    found: dict[bytes, set[int]] = {b"Net": set(), b"Tuner": set()}
    with nccl.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for kind, number in _NAME.findall(content):
            found[kind].add(int(number))
    if not found[b"Net"]:
        message = f"{nccl}: names no ncclNetPlugin_v<number>: expected NCCL's library"
        raise ValidationError(message, hint="install nccl again")
    return PluginAbis(net=tuple(sorted(found[b"Net"])), tuner=tuple(sorted(found[b"Tuner"])))


def shared_net_abi(plugin: PluginAbis, nccl: PluginAbis) -> int:
    """The version that NCCL takes: the newest that both have. Raises ValidationError where there is none."""
    shared = set(plugin.net) & set(nccl.net)
    if not shared:
        message = (
            f"NCCL cannot use the plugin: it knows net ABIs {in_words(nccl.net)}, the plugin has {in_words(plugin.net)}"
        )
        raise ValidationError(
            message, hint="variants/nccl-ofi.yaml has the range of NCCL for each nccl-ofi; install one"
        )
    return max(shared)


def in_words(versions: tuple[int, ...]) -> str:
    """``v6, v7``, or ``none``."""
    return ", ".join(f"v{version}" for version in versions) or "none"
