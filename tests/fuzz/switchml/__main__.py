# SPDX-License-Identifier: BSD-3-Clause
"""``python -m tests.fuzz.switchml --minutes 10``: look for inputs of new behaviour of SwitchML's C++.

Debian's clang, with libFuzzer and the sanitizers for addresses and undefined behaviour, compiles a program for each
parser against the foundation's libraries; the default stack's channel has to be built. Inputs lie in
``output/fuzz/switchml/NAME``, beside them what failed. A finding, and what covers code that no committed input covers,
is added to ``tests/fuzz/switchml/corpus/NAME.zip`` by ``python -m tests.fuzz.switchml NAME --add FILE``;
tests/integration/recipes/test_sanitizers.py replays what is in there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from channel_tools.environments import activated_environment
from channel_tools.system.settings import make_settings
from tests.support.programs import program
from tests.support.stacks import install
from tests.support.switchml_sources import FUZZ_SOURCE, LIBRARIES, ROOT, TOOLCHAIN, compile_switch

CORPUS = FUZZ_SOURCE / "corpus"
"""Archives of the committed inputs, one for each target."""
TARGETS = (
    *("packets", "results", "requests", "reports", "scrapes"),
    *("settings", "configuration", "variables", "options", "bench", "tokens"),
)
_OPTIONS = ("-max_len=4096", "-rss_limit_mb=3000", "-timeout=30", "-print_final_stats=1")


def main() -> int:
    """Compile and run; gives the exit status, 0 where nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.switchml", description="Fuzz the C++ of SwitchML.")
    parser.add_argument("target", nargs="*", default=TARGETS, help=f"One of {', '.join(TARGETS)}; all without one.")
    parser.add_argument("--minutes", type=float, default=10.0, help="For each target.")
    parser.add_argument("--add", type=Path, nargs="+", metavar="FILE", help="Add inputs to those of the one target.")
    given = parser.parse_args()
    if unknown := set(given.target) - set(TARGETS):
        parser.error(f"unknown target {', '.join(sorted(unknown))}")
    if given.add:
        if len(given.target) != 1:
            parser.error(
                f"--add takes one target, found {len(given.target)}: python -m tests.fuzz.switchml NAME --add FILE"
            )
        add_inputs(CORPUS / f"{given.target[0]}.zip", given.add)
        return 0
    folder = make_settings(root=ROOT, output=None, environ=os.environ, cwd=ROOT).output / "fuzz" / "switchml"
    try:
        build = _compile(folder)
    except pytest.skip.Exception as err:
        parser.error(str(err))
    status = [_fuzz(build, folder, target, minutes=given.minutes) for target in given.target]
    return max(status)


def _compile(folder: Path) -> Path:
    """The folder with the programs."""
    settings = make_settings(root=ROOT, output=None, environ=os.environ, cwd=ROOT)
    prefix, build = folder / "env", folder / "build"
    install(settings, settings.channel, prefix, [*TOOLCHAIN, *LIBRARIES])
    flags = dict.fromkeys(("CFLAGS", "CPPFLAGS", "CXXFLAGS", "LDFLAGS"), "")  # those of the environment are gcc's
    toolchain = activated_environment(prefix, environ=os.environ) | flags
    toolchain |= {"CC": program("clang"), "CXX": program("clang++")}
    options = ["-DSWITCHML_LIBFUZZER=ON", "-DSWITCHML_SANITIZE=address,undefined", "-DSWITCHML_BUILD_TESTS=OFF"]
    options += ["-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1"]
    compile_switch(build, prefix=prefix, toolchain=toolchain, options=options, targets=["fuzzers"], source=FUZZ_SOURCE)
    return build


def _fuzz(build: Path, folder: Path, target: str, *, minutes: float) -> int:
    inputs, found = folder / target / "corpus", folder / target / "findings"
    for place in (inputs, found):
        place.mkdir(parents=True, exist_ok=True)
    words = [f"-max_total_time={int(minutes * 60)}", f"-artifact_prefix={found}/", *_OPTIONS]
    command: list[str | Path] = [build / f"fuzz_{target}", *words, inputs, build / "corpus" / target]
    return subprocess.run(command, check=False).returncode


def add_inputs(packed: Path, files: Iterable[Path]) -> None:
    """Add files to an archive of inputs under their names; the same inputs give the same bytes, in whatever order."""
    with zipfile.ZipFile(packed) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents |= {path.name: path.read_bytes() for path in files}
    partial = packed.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w") as archive:
        for name, content in sorted(contents.items()):
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, 9)
    partial.replace(packed)


if __name__ == "__main__":
    sys.exit(main())
