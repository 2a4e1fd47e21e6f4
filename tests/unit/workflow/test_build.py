# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from channel_tools.build.model import BuildJob, BuildResult, BuildUsage
from channel_tools.channel.results import read_builds
from channel_tools.workflow.build import record_result
from tests.support.packages import new_channel

if TYPE_CHECKING:
    from pathlib import Path

NAME = "toy-1.0-h1_0.conda"


def test_the_channel_keeps_how_long_a_whole_build_took_and_not_how_long_its_rest(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    job = BuildJob(file_name=NAME, subdir="linux-64", recipe_folder=tmp_path)
    usage = BuildUsage(seconds=7.5, cpu_s=7.0, memory_bytes=1, cores=1)
    whole = BuildResult(job=job, status="built", package=tmp_path / NAME, seconds=8.0, usage=usage)
    record_result(channel, replace(whole, status="failed", package=None))
    assert read_builds(channel.path) == {}
    record_result(channel, whole)
    assert read_builds(channel.path)[NAME].seconds == 8.0
    record_result(channel, replace(whole, usage=None))
    assert read_builds(channel.path)[NAME].seconds is None


NEEDLESS = {
    "urllib3",
    "jinja2",
    "debian",
    "installer",
    "securesystemslib",
    "channel_tools.build.snakemake",
    "channel_tools.foundation.build",
    "channel_tools.foundation.record",
    "channel_tools.foundation.repairs",
    "channel_tools.pins.lock",
    "channel_tools.provenance.statements",
    "channel_tools.sources.patches",
    "channel_tools.sources.transfer",
    "channel_tools.system.http.client",
}


@pytest.mark.parametrize(
    ("script", "needless"),
    [
        pytest.param("import channel_tools.workflow.build", NEEDLESS | {"elftools"}, id="the command"),
        pytest.param("import channel_tools.build.worker as w; w._load()", NEEDLESS | {"rattler"}, id="the builds"),
        pytest.param(
            "import channel_tools.build.environment",
            {"msgspec", "yaml", "rattler_build"},
            id="before the builds' process",
        ),
    ],
)
def test_a_build_imports_only_what_every_build_needs(script: str, needless: set[str]) -> None:
    """Importing is most of a small build: what downloads, signs or makes a foundation is imported where it is used."""
    script = f"import sys; {script}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert needless.isdisjoint(result.stdout.split())
