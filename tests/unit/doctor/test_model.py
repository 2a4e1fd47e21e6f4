# SPDX-License-Identifier: BSD-3-Clause
"""What a stack's install list says about what is examined."""

from __future__ import annotations

import pytest

from channel_tools.doctor import subject_of


@pytest.mark.parametrize(
    ("specs", "backend", "transport"),
    [
        (["pytorch-switchml", "libswitchml * udp*"], "switchml", "udp"),
        (["libswitchml=*=rdma*"], "switchml", "rdma"),
        (["libswitchml[build='dpdk*']"], "switchml", "dpdk"),
        (["ours::libswitchml"], "switchml", ""),
        (["mpich>=4"], "mpi", ""),
        (["numpy"], "", ""),
    ],
)
def test_the_fabric_is_found_in_every_form_of_matchspec(specs: list[str], backend: str, transport: str) -> None:
    subject = subject_of("some", "", {}, specs, prefix=None, variables={}, installed={})
    assert (subject.backend, subject.transport) == (backend, transport)
