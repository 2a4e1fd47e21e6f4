# SPDX-License-Identifier: BSD-3-Clause
"""Snakemake for tests, with its plugins for Slurm and PBS: a virtual environment of its own, since they are 300 MB."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from channel_tools.system.settings import find_cache

_REQUIREMENTS = (
    "snakemake==9.27.1",
    "snakemake-executor-plugin-slurm==2.8.0",
    "snakemake-executor-plugin-cluster-generic==1.0.9",
)
_LIMIT_S = 600


def snakemake_folder() -> Path:
    """The folder with the program, made on the first call and kept; skips the test where it cannot be installed."""
    name = "-".join(requirement.partition("==")[2] for requirement in _REQUIREMENTS)
    cache = find_cache(os.environ) / "tests"
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / f"snakemake-{name}-{sys.version_info.major}.{sys.version_info.minor}"
    done = place / "installed"
    with FileLock(cache / "snakemake.lock"):
        if not done.is_file():
            uv = [sys.executable, "-m", "uv"]
            environ = {**os.environ, "UV_NATIVE_TLS": "1"}  # the machine's certificates, as for pip
            for words in (
                ("venv", "--clear", "--quiet", "--python", sys.executable, place),
                ("pip", "install", "--quiet", "--python", place / "bin" / "python", *_REQUIREMENTS),
            ):
                made = subprocess.run(
                    [*uv, *words], env=environ, capture_output=True, text=True, check=False, timeout=_LIMIT_S
                )
                if made.returncode != 0:
                    pytest.skip(f"Snakemake could not be installed: {made.stderr.strip()[-500:]}")
            done.touch()
    return place / "bin"
