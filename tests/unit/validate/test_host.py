# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from channel_tools.validate.host import _processor, describe_host


def test_this_host_has_cores_and_memory() -> None:
    host = describe_host()
    assert host.cores >= 1
    assert host.memory_bytes > 1 << 28
    assert host.system.startswith("Linux")


def test_processor_is_read_or_empty() -> None:
    assert _processor("vendor_id\t: X\nmodel name\t: A CPU @ 2 GHz\nmodel name\t: B\n") == "A CPU @ 2 GHz"
    assert _processor("Hardware\t: board\n") == ""
