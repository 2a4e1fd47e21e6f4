# SPDX-License-Identifier: BSD-3-Clause
"""Clients of others that PyPI has, each in a virtual environment of its own, since their dependencies contradict ours.

An environment is made by uv once, in the user's cache, and kept under a name made from its requirements. Where the
package index cannot be reached and none was kept, the tests that want it skip and say why.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock

from channel_tools.system.settings import find_cache
from tests.support.processes import TEST_TIMEOUT_S

CLIENTS = {
    "tools": ("conda-lock==4.0.3", "conda-pack==0.9.2", "conda-mirror==0.10.0", "conda-package-handling==2.6.0"),
    "py-rattler-0.27": ("py-rattler>=0.27,<0.28",),
    "py-rattler-0.26": ("py-rattler>=0.26,<0.27",),
}
"""By name of the environment: conda's own tools, and the two minors of py-rattler before the one that we install."""


def client(environment: str, name: str = "python") -> Path:
    """A program of one of CLIENTS; skips the test, with the reason, where it cannot be had."""
    folder, reason = _environment(environment)
    if folder is None:
        pytest.skip(reason)
    return folder / "bin" / name


def run_client(environment: str, name: str, *arguments: object, cwd: Path | None = None) -> str:
    """Run a program of one of CLIENTS without our packages on its path; its output. Fails the test if it fails."""
    command = [str(client(environment, name)), *map(str, arguments)]
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "RATTLER", "CONDA"))}
    done = subprocess.run(
        command, cwd=cwd, env=clean, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@functools.cache
def _environment(name: str) -> tuple[Path | None, str]:
    """The folder of the environment, or None and why there is none."""
    wanted = CLIENTS[name]
    key = hashlib.sha256(repr((sys.version_info[:2], wanted)).encode()).hexdigest()[:16]
    cache = find_cache(os.environ) / "tests"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"client-{name}-{key}"
    with FileLock(cache / f"client-{name}.lock"):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache, prefix=".making-") as work:
                made = Path(work) / "venv"
                if failed := _make(made, wanted):
                    return None, f"no {name}: {', '.join(wanted)} cannot be installed: {failed}"
                shutil.move(made, folder)
    return folder, ""


def _make(folder: Path, wanted: tuple[str, ...]) -> str:
    """Make the environment; the last line of what uv said if it could not, else ""."""
    uv = str(Path(sys.executable).with_name("uv"))
    environ = os.environ | {"UV_NATIVE_TLS": "1"}
    for command in (
        [uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(folder)],
        [uv, "pip", "install", "--quiet", "--python", str(folder), *wanted],
    ):
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S)
        if done.returncode != 0:
            return " ".join(done.stderr.split())[-300:]
    return ""
