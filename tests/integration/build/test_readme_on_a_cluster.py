# SPDX-License-Identifier: BSD-3-Clause
"""The README's section on clusters, typed as it stands: on a Slurm of two nodes, into an empty output folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from channel_tools.system.settings import find_cache
from tests.integration.conftest import ROOT, build_into_output
from tests.support.slurm import running_slurm

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_TITLE = "## On a cluster"
_LIMIT_S = 3600


def commands() -> list[str]:
    """The indented lines of the section."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition(f"{_TITLE}\n")[2].partition("\n## ")[0]
    return [line.strip() for line in section.splitlines() if line.startswith("    ")]


def test_the_commands_of_the_readme_install_build_and_validate() -> None:
    typed = commands()
    assert [words.split()[:2] for words in typed] == [
        ["pip", "install"],
        ["channel_tools", "build"],
        ["channel_tools", "validate"],
    ]
    made = build_into_output("foundation", "build")
    assert made.returncode == 0, made.stderr
    with tempfile.TemporaryDirectory(prefix="readme-") as place, running_slurm() as slurm:
        folder = Path(place)
        output = folder / "output"
        shutil.copytree(ROOT / "output" / "foundation", output / "foundation")
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CHANNEL_TOOLS_")},
            "PATH": os.pathsep.join([str(folder / "venv" / "bin"), str(slurm.bin), os.environ["PATH"]]),
            "CHANNEL_TOOLS_OUTPUT": str(output),
            "CHANNEL_TOOLS_CACHE": str(find_cache(os.environ)),
        }
        for line in typed:
            done = subprocess.run(
                ["bash", "-c", line],
                env=environ, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_LIMIT_S,
            )  # fmt: skip
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        report = json.loads((output / "report" / "udp.json").read_bytes())
        jobs = slurm.run("squeue", "--states=all", "--noheader", "--format=%k %T").splitlines()
    assert (report["passed"], report["hosts"], report["ranks"]) == (True, ["n1", "n2"], 4)
    built = [line.split()[0].removeprefix("rule_build_wildcards_") for line in jobs if line.startswith("rule_build")]
    assert sorted(name.rsplit("-", 2)[0] for name in built) == [
        "channel_tools-stacks", "libswitchml", "pytorch-switchml", "switchml-switch", "torch-switchml",
    ]  # fmt: skip
