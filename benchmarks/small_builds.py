# SPDX-License-Identifier: BSD-3-Clause
"""Building small packages, beside the engine alone and beside conda-build: what a build costs that compiles nothing.

    python -m benchmarks.small_builds [--before PROGRAM]

One recipe of one line, and twenty. Ours plans, builds, tests, audits, signs and indexes; the others build and test. All
run in turn as whole processes, each in an empty folder. conda-build is measured if it is on the PATH, and PROGRAM (the
channel_tools of another version) if it is named.

Seconds depend on the machine, so those of ours have an aim, which the table says is met or missed. What fails, with
exit status 1, is a greater multiple of py-rattler-build's time in the same run than where the aims were set.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, in_turn, print_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_AIMS_S = {1: 0.6, 20: 1.4}
_ENGINE_S = {1: 0.06, 20: 0.48}
"""What py-rattler-build alone took on the machine for which the aims were set."""
_OURS, _ALONE = "channel_tools build", "py-rattler-build alone"
_RECIPE = """\
schema_version: 1
package: {{name: {name}, version: '1.0'}}
build: {{noarch: generic, number: 0, script: ["mkdir -p $PREFIX/share; echo {name} > $PREFIX/share/{name}"]}}
about: {{license: BSD-3-Clause, homepage: "https://toy.example", summary: toy}}
"""
_ENGINE = """\
import os, sys
from pathlib import Path
from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, ToolConfiguration, VariantConfig
for recipe in sorted(Path(sys.argv[1]).glob("*/recipe.yaml")):
    (variant,) = Stage0Recipe.from_file(recipe).render(VariantConfig(), RenderConfig(platform=PlatformConfig()))
    variant.run_build(ToolConfiguration(test_strategy="native"), output_dir=Path(sys.argv[2]), channels=[])
sys.stdout.flush()
os._exit(0)
"""


def write_tree(folder: Path, count: int) -> Path:
    """A tree with ``count`` recipes and, beside it, an empty channel as its foundation."""
    for subdir in ("noarch", "linux-64", "linux-aarch64"):
        (folder / "foundation" / subdir).mkdir(parents=True)
        index = {"info": {"subdir": subdir}, "packages": {}}
        (folder / "foundation" / subdir / "repodata.json").write_text(json.dumps(index), encoding="utf-8")
    names = [f"toy{number:02}" for number in range(count)]
    tree = folder / "tree"
    for name in names:
        (tree / "recipes" / name).mkdir(parents=True)
        (tree / "recipes" / name / "recipe.yaml").write_text(_RECIPE.format(name=name), encoding="utf-8")
    stack = {"description": "toys", "packages": names, "install": names, "validate": {"method": "switchml"}}
    (tree / "variants").mkdir()
    stacks = {"default_stack": "toys", "stacks": {"toys": stack}}
    (tree / "variants" / "stacks.yaml").write_text(json.dumps(stacks), encoding="utf-8")
    return tree


def seconds_of(command: list[str | Path], tree: Path) -> float:
    """The seconds that ``command`` takes from nothing."""
    out = tree / "output"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("CHANNEL_TOOLS_", "PYTHON"))}
    environ["CHANNEL_TOOLS_CACHE"] = str(tree.parent / "cache")
    started_s = time.monotonic()
    subprocess.run(command, cwd=tree, env=environ, check=True, capture_output=True)
    return time.monotonic() - started_s


def commands(tree: Path, before: Path | None) -> Iterator[tuple[str, list[str | Path]]]:
    """What is measured, by name, ours first."""
    arguments = ["build", "--foundation", "conda-forge", "--foundation-channel", (tree.parent / "foundation").as_uri()]
    yield _OURS, [Path(sys.executable).with_name("channel_tools"), *arguments]
    if before is not None:
        yield f"{_OURS}, the version before", [before, *arguments]
    yield _ALONE, [sys.executable, "-c", _ENGINE, tree / "recipes", tree / "output"]
    if (conda_build := shutil.which("conda-build")) is None:
        sys.stderr.write("conda-build: not on the PATH, not measured\n")
        return
    recipes = sorted((tree / "recipes").iterdir())
    yield "conda-build", [conda_build, "--override-channels", "--output-folder", tree / "output", *recipes]


def figures_of(title: str, seconds: Mapping[str, float], aim_s: float, engine_s: float) -> Iterator[Figure]:
    """The seconds of each, ours with their aim, and the multiple of the engine's, with the aim's multiple as limit."""
    for name, taken_s in seconds.items():
        aim = aim_s if name == _OURS else float("inf")
        yield Figure(name=f"{title}: {name}", value=taken_s, unit="s", limit=aim, at_most=True, aim=True)
    value = seconds[_OURS] / seconds[_ALONE]
    yield Figure(name=f"{title}: of {_ALONE}", value=value, unit="times", limit=aim_s / engine_s, at_most=True)


def main() -> int:
    """Measure and print; 1 when a limit is missed, not for an aim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, metavar="PROGRAM")
    before: Path | None = parser.parse_args().before
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="channel-tools-bench-") as holder:
        for count, aim_s in _AIMS_S.items():
            tree = write_tree(Path(holder, str(count)), count)
            named = dict(commands(tree, before and before.absolute()))
            ways: list[Callable[[], float]] = [functools.partial(seconds_of, words, tree) for words in named.values()]
            seconds = dict(zip(named, in_turn(*ways), strict=True))
            figures += figures_of(f"{count} small package{'s' if count > 1 else ''}", seconds, aim_s, _ENGINE_S[count])
    return print_figures(figures)


if __name__ == "__main__":
    sys.exit(main())
