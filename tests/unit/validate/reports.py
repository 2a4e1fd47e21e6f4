# SPDX-License-Identifier: BSD-3-Clause
"""A report as the judge makes it of ranks and a switch that did all as planned."""

from __future__ import annotations

from pathlib import Path

from channel_tools.doctor import Diagnosis
from channel_tools.environments import EnvironmentResult, InstalledPackage
from channel_tools.validate.model import HostFacts, ValidationReport
from channel_tools.validate.switchml.method import judge
from tests.unit.validate.fakes import perfect_results, perfect_stats, small_plan

PREFIX = Path("/opt/env")


def whole_report() -> ValidationReport:
    """A report as the judge makes it of ranks and a switch that did all as planned."""
    plan = small_plan()
    result = judge(plan, perfect_results(plan, PREFIX), perfect_stats(plan), prefix=PREFIX)
    return ValidationReport(
        stack="udp",
        method="switchml",
        ranks=2,
        started="2026-01-02T03:04:05+00:00",
        seconds=12.34567,
        tool_version="0.1.0",
        host=HostFacts(
            name="node7",
            system="Linux 6.1",
            machine="x86_64",
            processor="A CPU",
            cores=2,
            memory_bytes=8 << 30,
            load_average=0.25,
        ),
        environment=EnvironmentResult(
            prefix=PREFIX,
            records=(
                InstalledPackage(
                    name="pytorch",
                    version="2.13.0",
                    build="cpu_h1_0",
                    subdir="linux-64",
                    channel="file:///srv/ours",
                    file_name="pytorch-2.13.0-cpu_h1_0.conda",
                    sha256="0" * 64,
                ),
            ),
            changed=1,
            seconds=3.21,
            size_bytes=770_000_000,
        ),
        result=result,
        findings=(Diagnosis(subject="MTU", level="warning", found="100", fix="sudo ip link set eth0 mtu 1500"),),
    )
