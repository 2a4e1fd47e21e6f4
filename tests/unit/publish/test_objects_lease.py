# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import dataclasses
import subprocess
import sys

from channel_tools.publish.objects_lease import _myself


def test_a_process_of_this_machine_that_has_ended_is_known_to_have() -> None:
    me = _myself()
    assert not me.has_ended()
    assert str(me) == f"process {me.process} on {me.host}"
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    ended = dataclasses.replace(me, process=process.pid)
    assert ended.has_ended()


def test_another_process_with_the_same_number_is_not_the_owner() -> None:
    assert dataclasses.replace(_myself(), started="1").has_ended()


def test_nothing_is_known_of_processes_of_other_machines_and_namespaces() -> None:
    for machine in ("", "another boot"):
        assert not dataclasses.replace(_myself(), machine=machine, process=1, started="x").has_ended()
