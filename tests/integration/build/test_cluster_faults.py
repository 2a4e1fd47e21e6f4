# SPDX-License-Identifier: BSD-3-Clause
"""What goes wrong on a cluster, with a real Slurm: time that runs out, a node that dies, files that cannot be written.

All of it happens to one build of four packages, since Slurm takes a minute to notice most of it. This Slurm limits no
memory, so that what the kernel does when memory runs out is done by hand: SIGKILL for the process that builds. A squeue
in front of Slurm's own then says OUT_OF_MEMORY where that says FAILED, as it would where Slurm had limited the memory.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from channel_tools.system.errors import BuildError
from tests.support.processes import TEST_TIMEOUT_S, wait_for
from tests.support.slurm import running_slurm
from tests.support.toy_cluster import Recipe, Tool, job_of, read_pipe

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_FILE_BYTES = 2_000_000
# a node of its own for the one whose node dies
_RESOURCES = {"timed": {"minutes": 1}, "hungry": {"memory_mib": 700}, "node": {"cores": 8}}
_KILL = "kill -KILL $(cut -d ' ' -f 4 /proc/$PPID/stat)"
"""In a build's script, kills the process that builds; the script's parent is the program between them."""
_ENDS = {
    "timed": [("TIMEOUT", "1:00"), ("COMPLETED", "2:00")],
    "hungry": [("FAILED", "700M"), ("COMPLETED", "1400M")],
    "node": [("NODE_FAIL", "1000M"), ("COMPLETED", "2000M")],
    "large": [("COMPLETED", "1000M"), ("COMPLETED", "1000M")],
}
"""How the jobs of each package ended, and the time or memory that they asked for."""


def test_what_is_lost_is_built_again_with_more_and_nothing_is_built_twice() -> None:
    with tempfile.TemporaryDirectory(prefix="cluster-") as place, running_slurm() as slurm:
        folder = Path(place)
        pipe, go, begun, killed, built = (folder / name for name in ("pipe", "go", "begun", "killed", "built"))
        os.mkfifo(pipe)
        os.mkfifo(go)
        fills = "mkdir -p $PREFIX/share; for n in 1 2 3; do head -c 900000 /dev/urandom > $PREFIX/share/large$n; done"
        recipes: dict[str, Recipe] = {
            "timed": {"script": f"if test ! -e {begun}; then touch {begun}; sleep 1000; fi"},
            "hungry": {"script": f"if test ! -e {killed}; then touch {killed}; {_KILL}; fi"},
            "node": {"script": f"echo $$ > {pipe}; read line < {go}; echo $$ >> {built}"},
            "large": {"script": fills},
        }
        squeue = folder / "bin" / "squeue"
        squeue.parent.mkdir()
        squeue.write_text(f'#!/bin/sh\n{slurm.bin}/squeue "$@" | sed s/FAILED/OUT_OF_MEMORY/\n')
        squeue.chmod(0o755)
        tool = Tool(folder, slurm, recipes, resources=_RESOURCES, pbs=squeue.parent)
        with tool.start("--on", tool.profile, largest_file_bytes=_FILE_BYTES) as process:
            script = read_pipe(pipe)
            first = job_of(slurm, "node")
            lost = slurm.run("squeue", "--noheader", "--jobs", first, "--format=%N").strip()
            slurm.kill_node(lost)
            wait_for(lambda: "down" in slurm.state_of(lost))
            # the build lives on there; the next job for it waits, and takes over what it makes
            wait_for(lambda: any("_node-" in slurm.jobs()[job] for job in slurm.jobs() if job != first))
            go.write_text("on\n")
            _, said = process.communicate(timeout=TEST_TIMEOUT_S)
        assert process.returncode == BuildError.exit_code, said
        assert tool.said_by_snakemake().count("SLURM status is: 'OUT_OF_MEMORY'") == 1
        assert "large-1.0" in said
        assert "the build engine failed" in said
        assert tool.published() == ["hungry", "node", "timed"]
        assert built.read_text() == f"{script[0]}\n"
        with slurm.returned_node(lost):
            wait_for(lambda: slurm.state_of(lost) == "idle")
            tool.build("--on", tool.profile)  # with room for files
            assert tool.published() == ["hungry", "large", "node", "timed"]
        ended = slurm.run("squeue", "--states=all", "--noheader", "--sort=i", "--format=%k %T %m %l").splitlines()
    for name, ends in _ENDS.items():
        found = [line.split()[1:] for line in ended if f"_{name}-" in line]
        assert [(state, asked in figures) for (state, *figures), (_, asked) in zip(found, ends, strict=True)] == [
            (state, True) for state, _ in ends
        ]
