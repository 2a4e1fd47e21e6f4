# SPDX-License-Identifier: BSD-3-Clause
"""``--engine conda-build``: the user's own conda-build builds the rendered folder, with the same file name as result.

conda-build accepts v1 recipes from 26.5 on and runs the same engine as we do, so its output has the same format. The
causes of failures are read from this output, since its exit status is 1 for everything.
"""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

from channel_tools.build.failures import kind_of
from channel_tools.build.model import RECIPE_FILE, VARIANTS_FILE, WorkerResult
from channel_tools.conda.engine_messages import explained
from channel_tools.system.files import read_tail
from channel_tools.system.processes import start_command

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.build.model import FailureKind, WorkerSpec

PROGRAM = "conda-build"
_SUMMARY = "=== Build summary ==="
_REASON = re.compile(r"^ {2}- ❌ [^:]+: (.*)$", re.MULTILINE)


def run_conda_build(spec: WorkerSpec, program: Path) -> WorkerResult:
    """Build and test the recipe folder with ``program``; its output is the build's log.

    A recipe with patches that its engine would apply in part (needs_git) fails before that.
    """
    from channel_tools.sources.patches import needs_git, patches_of_recipe  # noqa: PLC0415 - only such builds need it

    if partly := [patch.path for patch in patches_of_recipe(spec.recipe_folder / RECIPE_FILE) if needs_git(patch.path)]:
        message = f"{partly[0].name}: {PROGRAM} leaves out the modes and links of a patch"
        print(f"error: {message}", flush=True)  # noqa: T201 - the worker's output is the build's log
        hint = "leave out --engine conda-build, or change the modes and links in the build script"
        return WorkerResult(failure="recipe", message=message, hint=hint)
    variants = spec.recipe_folder / VARIANTS_FILE
    channels = [word for channel in spec.channels for word in ("--channel", channel)]
    command = [str(program), str(spec.recipe_folder), *(["-m", str(variants)] if variants.is_file() else [])]
    command += ["--override-channels", *channels, "--output-folder", str(spec.output), "--no-anaconda-upload"]
    print("$", *command, flush=True)  # noqa: T201 - the worker's output is the build's log
    output = spec.output.with_name("conda-build.log")
    with output.open("wb") as stream, start_command(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
        for line in run.stdout or ():
            stream.write(line)
            print(line.decode(errors="replace"), end="", flush=True)  # noqa: T201
    if run.returncode == 0:
        return WorkerResult(packages=tuple(sorted(spec.output.glob("*/*.conda"))))
    return _failure(output)


def _failure(output: Path) -> WorkerResult:
    text = read_tail(output)
    reason = _REASON.search(text[text.rfind(_SUMMARY) :])
    message = reason[1] if reason else " ".join(text.strip().splitlines()[-1:]) or f"{PROGRAM} failed"
    kind: FailureKind = "recipe" if f"  - ❌ recipe: {message}" in text else kind_of(message)
    explanation = explained(message)
    return WorkerResult(failure=kind, message=explanation.message, hint=explanation.hint)
