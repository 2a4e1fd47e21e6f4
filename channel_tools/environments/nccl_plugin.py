# SPDX-License-Identifier: BSD-3-Clause
"""Whether an environment's NCCL can use its network plugin: the interfaces of both sides, and libfabric's providers.

NCCL looks for ``ncclNetPlugin_vN`` and ``ncclTunerPlugin_vN`` in a plugin that it has opened, from the newest N that it
knows to the oldest (src/plugin/net.cc, src/plugin/tuner.cc). The names of those that it knows are texts in its library.
"""

from __future__ import annotations

import json
import mmap
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.system.errors import ValidationError
from channel_tools.system.processes import run_command

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_NAME = re.compile(rb"nccl(Net|Tuner)Plugin_v([0-9]{1,2})\0")
_TIMEOUT_S = 60.0
# a process of its own: a plugin that crashes when it is opened ends that alone
_OPEN = """
import ctypes, json, sys
found = {"Net": [], "Tuner": []}
for path in sys.argv[1:]:
    library = ctypes.CDLL(path)
    for kind, numbers in found.items():
        numbers += [number for number in range(1, 100) if hasattr(library, f"nccl{kind}Plugin_v{number}")]
print(json.dumps(found))
"""
_PROVIDER = re.compile(r"^\s*provider: (\S+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginInterfaces:
    """The versions of NCCL's plugin interfaces that a library has or knows, ascending."""

    net: tuple[int, ...]
    tuner: tuple[int, ...]


def known_interfaces(nccl: Path) -> PluginInterfaces:
    """The versions that an NCCL library knows. Raises ValidationError for a file that names none."""
    found: dict[bytes, set[int]] = {b"Net": set(), b"Tuner": set()}
    with nccl.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for kind, number in _NAME.findall(content):
            found[kind].add(int(number))
    if not found[b"Net"]:
        message = f"{nccl}: names no ncclNetPlugin_v<number>: expected NCCL's library"
        raise ValidationError(message, hint="install nccl again")
    return PluginInterfaces(net=tuple(sorted(found[b"Net"])), tuner=tuple(sorted(found[b"Tuner"])))


def exported_interfaces(plugins: tuple[Path, ...], *, variables: Mapping[str, str]) -> PluginInterfaces:
    """The versions that plugins export, which are opened for it. Raises ValidationError for one that does not open."""
    result = run_command(
        [sys.executable, "-I", "-S", "-c", _OPEN, *plugins], env=variables, check=False, timeout_s=_TIMEOUT_S
    )
    if result.returncode != 0:
        message = f"{plugins[0].name}: does not open: {(result.tail().splitlines() or ['it crashed'])[-1]}"
        raise ValidationError(message, hint="install nccl-ofi and libfabric again, or load the site's libfabric")
    found = json.loads(result.stdout)
    return PluginInterfaces(net=tuple(found["Net"]), tuner=tuple(found["Tuner"]))


def shared_net_interface(plugin: PluginInterfaces, nccl: PluginInterfaces) -> int:
    """The version that NCCL takes: the newest that both have. Raises ValidationError where there is none."""
    shared = set(plugin.net) & set(nccl.net)
    if not shared:
        message = (
            f"NCCL cannot use the plugin: it knows net interfaces {in_words(nccl.net)}, "
            f"the plugin has {in_words(plugin.net)}"
        )
        raise ValidationError(
            message, hint="variants/nccl-ofi.yaml has the range of NCCL for each nccl-ofi; install one"
        )
    return max(shared)


def libfabric_providers(fi_info: Path, *, variables: Mapping[str, str]) -> tuple[str, ...]:
    """The providers that libfabric has an interface for on this machine, as its ``fi_info`` lists them, sorted."""
    result = run_command([fi_info], env=variables, check=False, timeout_s=_TIMEOUT_S)
    return tuple(sorted(set(_PROVIDER.findall(result.stdout))))


def in_words(versions: tuple[int, ...]) -> str:
    """``v6, v7``, or ``none``."""
    return ", ".join(f"v{version}" for version in versions) or "none"
