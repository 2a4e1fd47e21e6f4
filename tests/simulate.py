# SPDX-License-Identifier: BSD-3-Clause
"""``python -m tests.simulate --schedules N``: many schedules of recipes/switchml-switch/src/tests/simulation.

The default stack's channel has to be built; the compiler comes from it. What is compiled lies in ``output/simulate``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from channel_tools.environments import activated_environment
from channel_tools.system.settings import make_settings
from tests.support.stacks import install
from tests.support.switchml_sources import LIBRARIES, ROOT, TOOLCHAIN, compile_switch


def main() -> int:
    """Compile the simulation and run it; gives its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulate", description="Simulate SwitchML under faults.")
    parser.add_argument("--schedules", type=int, required=True)
    parser.add_argument("--first", type=int, default=1, help="The first schedule's seed.")
    given = parser.parse_args()
    settings = make_settings(root=ROOT, output=None, environ=os.environ, cwd=ROOT)
    folder = settings.output / "simulate"
    prefix, build = folder / "env", folder / "build"
    install(settings, settings.channel, prefix, [*TOOLCHAIN, *LIBRARIES])
    toolchain = activated_environment(prefix, environ=os.environ)
    compile_switch(build, prefix=prefix, toolchain=toolchain, targets=["simulate"])
    simulate = build / "tests" / "simulation" / "simulate"
    threads = len(os.sched_getaffinity(0))
    words = ["--schedules", str(given.schedules), "--first", str(given.first), "--threads", str(threads)]
    return subprocess.run([simulate, *words], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
