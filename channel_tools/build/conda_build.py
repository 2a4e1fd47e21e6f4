# SPDX-License-Identifier: BSD-3-Clause
"""``--engine conda-build``: the user's own conda-build builds the rendered folder, for the same file name.

conda-build takes v1 recipes from 26.5 on and drives the same engine as we do, so a folder and its failures read alike;
the causes of its failures are read from its output, since its exit status is 1 for everything.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.build.failures import kind_of
from channel_tools.build.model import VARIANTS_FILE, WorkerResult
from channel_tools.system.errors import CommandError
from channel_tools.system.files import read_tail
from channel_tools.system.processes import run_command, start_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.build.model import FailureKind, WorkerSpec

PROGRAM = "conda-build"
OLDEST = (26, 5)
_OLDEST_TEXT = ".".join(map(str, OLDEST))
_VERSION_LIMIT_S = 120.0
_SUMMARY = "=== Build summary ==="
_REASON = re.compile(r"^ {2}- ❌ [^:]+: (.*)$", re.MULTILINE)


def find_conda_build(environ: Mapping[str, str]) -> Path:
    """The conda-build on the caller's PATH.

    Raises CommandError when there is none, when it does not say its version, and when that is older than 26.5, whose
    predecessors know no v1 recipes.
    """
    found = shutil.which(PROGRAM, path=environ.get("PATH", ""))
    if found is None:
        hint = f"install {PROGRAM} {_OLDEST_TEXT} or later and put it on the PATH, or leave out --engine {PROGRAM}"
        raise CommandError(f"{PROGRAM}: not found on the PATH", hint=hint)
    said = run_command([found, "--version"], env=environ, timeout_s=_VERSION_LIMIT_S)
    version = re.search(r"(\d+)\.(\d+)", said.stdout or said.stderr)
    if version is None:
        raise CommandError(f"{found} --version: found {said.stdout.strip()!r}, expected a version")
    if (int(version[1]), int(version[2])) < OLDEST:
        hint = f"update it: conda install 'conda-build>={_OLDEST_TEXT}', or leave out --engine {PROGRAM}"
        raise CommandError(f"{found}: is version {version[0]}; v1 recipes need {_OLDEST_TEXT} or later", hint=hint)
    return Path(found)


def run_conda_build(spec: WorkerSpec, program: str) -> WorkerResult:
    """Build and test the recipe folder with ``program``; its output is the build's log."""
    folder = Path(spec.recipe_folder)
    variants = folder / VARIANTS_FILE
    channels = [word for channel in spec.channels for word in ("--channel", channel)]
    command = [program, str(folder), *(["-m", str(variants)] if variants.is_file() else [])]
    command += ["--override-channels", *channels, "--output-folder", spec.output, "--no-anaconda-upload"]
    print("$", *command, flush=True)  # noqa: T201 - the worker's output is the build's log
    output = Path(spec.output).with_name("conda-build.log")
    with output.open("wb") as stream, start_command(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
        for line in run.stdout or ():
            stream.write(line)
            print(line.decode(errors="replace"), end="", flush=True)  # noqa: T201
    if run.returncode == 0:
        return WorkerResult(packages=tuple(str(path) for path in sorted(Path(spec.output).glob("*/*.conda"))))
    return _failure(output)


def _failure(output: Path) -> WorkerResult:
    text = read_tail(output)
    reason = _REASON.search(text[text.rfind(_SUMMARY) :])
    message = reason[1] if reason else " ".join(text.strip().splitlines()[-1:]) or f"{PROGRAM} failed"
    kind: FailureKind = "recipe" if f"  - ❌ recipe: {message}" in text else kind_of(message)
    return WorkerResult(failure=kind, message=message)
