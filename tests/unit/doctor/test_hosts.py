# SPDX-License-Identifier: BSD-3-Clause
"""Hosts are asked through an ``ssh`` of the test, which answers for some and reaches others not at all."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from channel_tools.doctor import ExaminedStack
from channel_tools.doctor.hosts import compare_hosts

_SSH = """#!/bin/sh
while [ "$1" != -- ]; do host=$1; shift; done
shift
case $host in
  far) echo "ssh: connect to host far port 22: No route to host" >&2; exit 255 ;;
  slow) eval "$1" | sed '1s/.*/1000000000.5/' ;;
  old) eval "$1" | sed '5s/.*/no such environment/' ;;
  *) eval "$1" ;;
esac
"""


@pytest.fixture
def subject(tmp_path: Path) -> ExaminedStack:
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(_SSH)
    ssh.chmod(0o755)
    (tmp_path / "env" / "conda-meta").mkdir(parents=True)
    (tmp_path / "env" / "conda-meta" / "a-1-0.json").touch()
    path = f"{ssh.parent}:{os.environ['PATH']}"
    return ExaminedStack(
        stack="s", backend="mpi", settings={}, prefix=tmp_path / "env", variables={"PATH": path}, installed={}
    )


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("good", {}),
        ("far", {"host far": ("fault", "No route to host")}),
        ("slow", {"clocks": ("warning", "slow is off by")}),
        ("old", {"packages of the environment": ("fault", "old: no such environment")}),
    ],
)
def test_the_host_that_differs_is_named(subject: ExaminedStack, host: str, named: dict[str, tuple[str, str]]) -> None:
    findings = {one.subject: one for one in compare_hosts(["here", host], frozenset({"here"}), subject)}
    assert {name for name, one in findings.items() if one.level != "ok"} == set(named)
    for name, (level, found) in named.items():
        assert findings[name].level == level
        assert re.search(found, findings[name].found)
        assert findings[name].fix
