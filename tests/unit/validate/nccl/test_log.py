# SPDX-License-Identifier: BSD-3-Clause
"""NCCL's own log lines, as its releases print them."""

from __future__ import annotations

import pytest

from channel_tools.validate.nccl.method import NcclLog, read_nccl_log

# 2.21 with the plugin 1.6.0 on one host of Slingshot, both of its NICs
CLASSIC = """\
node1:2041:2041 [0] NCCL INFO Bootstrap : Using hsn0:10.150.0.1<0>
node1:2041:2041 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.
node1:2041:2041 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v7 symbol.
node1:2041:2041 [0] NCCL INFO NET/Plugin: Loaded net plugin AWS Libfabric (v6)
node1:2041:2076 [0] NCCL INFO NET/OFI Using aws-ofi-nccl 1.6.0
node1:2041:2076 [0] NCCL INFO NET/OFI Selected Provider is cxi
node1:2041:2076 [0] NCCL INFO Using network AWS Libfabric
node1:2041:2076 [0] NCCL INFO Channel 00/02 :    0   1
node1:2041:2076 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/AWS Libfabric/0/GDRDMA
node1:2041:2076 [0] NCCL INFO Channel 01/0 : 1[1] -> 0[0] [receive] via NET/AWS Libfabric/1(1)/GDRDMA
node1:2041:2076 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/AWS Libfabric/0/GDRDMA
node1:2041:2076 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] [send] via NET/AWS Libfabric/1(1)/GDRDMA/Shared
"""
# 2.30 and later with the plugin 1.21.1
CURRENT = """\
ip-10-0-0-1:11:52 [1] NCCL INFO Successfully loaded external network plugin libnccl-net.so
ip-10-0-0-1:11:52 [1] NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v12)
ip-10-0-0-1:11:52 [1] NCCL INFO Initialized NET plugin Libfabric
ip-10-0-0-1:11:52 [1] NCCL INFO Assigned NET plugin Libfabric to comm
ip-10-0-0-1:11:52 [1] NCCL INFO Using network Libfabric
ip-10-0-0-1:11:61 [1] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [receive] via NET/Libfabric/0/GDRDMA(PCI)
"""
SOCKETS = """\
vm:7:9 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.
vm:7:9 [0] NCCL INFO Using network Socket
vm:7:9 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
"""
PAST_THE_NETWORK = """\
vm:7:9 [0] NCCL INFO Using network Libfabric
vm:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
vm:7:9 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/direct pointer
vm:7:9 [0] NCCL INFO Channel 00 : 1[1] -> 2[2] via SHM/direct/direct
"""


@pytest.mark.parametrize(
    ("text", "networks", "abi", "plugins", "connections"),
    [
        pytest.param(CLASSIC, ("AWS Libfabric",), 6, ("AWS Libfabric",), {"NET/AWS Libfabric": 4}, id="classic"),
        pytest.param(CURRENT, ("Libfabric",), 12, ("Libfabric",), {"NET/Libfabric": 1}, id="current"),
        pytest.param(SOCKETS, ("Socket",), None, (), {"NET/Socket": 1}, id="sockets"),
        pytest.param(PAST_THE_NETWORK, ("Libfabric",), None, (), {"P2P": 2, "SHM": 1}, id="past-the-network"),
        pytest.param("", (), None, (), {}, id="nothing"),
    ],
)
def test_the_log_says_which_way_data_took(
    text: str, networks: tuple[str, ...], abi: int | None, plugins: tuple[str, ...], connections: dict[str, int]
) -> None:
    assert read_nccl_log(text) == NcclLog(networks=networks, abi=abi, plugins=plugins, connections=connections)
