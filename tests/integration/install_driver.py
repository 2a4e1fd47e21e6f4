# SPDX-License-Identifier: BSD-3-Clause
"""Installs an environment, in a process that rattler's runtime may crash.

``python -m tests.integration.install_driver CHANNEL CACHE PREFIX SPEC...`` prints the names of the installed files.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from channel_tools.environments import create_environment
from channel_tools.progress import SilentProgress

if __name__ == "__main__":
    made = create_environment(
        Path(sys.argv[3]),
        sys.argv[4:],
        [sys.argv[1]],
        package_cache=Path(sys.argv[2]),
        subdir="linux-64",
        progress=SilentProgress(),
    )
    print(json.dumps([f"{package.name}-{package.version}-{package.build}" for package in made.records]))  # noqa: T201
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
