# SPDX-License-Identifier: BSD-3-Clause
"""What NCCL's log (``NCCL_DEBUG=INFO``) says of the way that data took.

The lines read are printed by src/init.cc, src/plugin/net/net_v*.cc and src/transport/*.cc of NCCL 2.12 to 2.32:

    NET/Plugin: Loaded net plugin Libfabric (v11)
    Using network Libfabric
    Channel 00/0 : 0[0] -> 1[1] [send] via NET/Libfabric/0/GDRDMA
    Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOADED = re.compile(r"NCCL INFO NET/Plugin: Loaded net plugin (.+) \(v(\d+)\)\s*$", re.MULTILINE)
_NETWORK = re.compile(r"NCCL INFO Using network (.+?)\s*$", re.MULTILINE)
_CHANNEL = re.compile(
    r"NCCL INFO Channel \d+(?:/\d+)? : \d+\[\w+\] -> \d+\[\w+\](?: \[(?:send|receive)\])? via (\S.*?)\s*$", re.MULTILINE
)
# the number of the device, then perhaps the rank whose proxy is used and what the device does
_DEVICE = re.compile(r"/\d+(\(\d+\))?(/.*)?$")


@dataclass(frozen=True, kw_only=True, slots=True)
class NcclLog:
    """What one rank's log says: the networks it used, the plugin's ABI, its connections by transport."""

    networks: tuple[str, ...]
    abi: int | None
    connections: Mapping[str, int]
    """``NET/Libfabric`` or ``SHM``, ``P2P`` ... and how many connections went that way."""


def read_nccl_log(text: str) -> NcclLog:
    """Read a rank's log; a log without such lines has no network, ABI and connections."""
    loaded = _LOADED.findall(text)
    return NcclLog(
        networks=tuple(sorted(set(_NETWORK.findall(text)))),
        abi=int(loaded[-1][1]) if loaded else None,
        connections=Counter(_transport(way) for way in _CHANNEL.findall(text)),
    )


def _transport(way: str) -> str:
    return _DEVICE.sub("", way) if way.startswith("NET/") else way.partition("/")[0]
