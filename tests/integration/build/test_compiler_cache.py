# SPDX-License-Identifier: BSD-3-Clause
"""``--compiler-cache``: what was compiled before is taken from the cache, and is what the compiler would give."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import pytest
import yaml

from channel_tools.build.compiler_cache import find_compiler_cache
from channel_tools.build.model import BuildJob
from channel_tools.channel import Foundation, create_channel
from channel_tools.conda.archive import read_info_json
from tests.integration.build.driver import build
from tests.support.programs import program

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_COMPILER = "x86_64-conda-linux-gnu-cc"
_SOURCE = '#include <stdio.h>\nint main(void) { return puts("hello from " __FILE__) < 0; }\n'


def recipe(folder: Path, name: str, build: str, script: str, *requirements: str) -> BuildJob:
    place = folder / "recipes" / f"{name}-{build}"
    place.mkdir(parents=True)
    text = {
        "schema_version": 1,
        "package": {"name": name, "version": "1.0"},
        "build": {"number": 0, "string": build, "script": [script]},
        "requirements": {"build": list(requirements)},
        "extra": {"channel_tools": {"schema": 1, "digest": f"digest of {name} {build}", "inputs": {}}},
    }
    (place / "recipe.yaml").write_text(yaml.safe_dump(text))
    return BuildJob(
        file_name=f"{name}-1.0-{build}.conda",
        subdir="linux-64",
        recipe_folder=place,
        waits_for=tuple(f"{needed}-1.0-h0.conda" for needed in requirements),
        work_name=f"{name}-1.0",
    )


def hello(folder: Path, build: str) -> BuildJob:
    """A package of one C file, which a script of its own compiles, by the path that activation gives to CC."""
    script = (
        f"cat > hello.c <<'END'\n{_SOURCE}END\nmkdir -p $PREFIX/share # {build}\n"
        f"$BUILD_PREFIX/bin/{_COMPILER} -ffile-prefix-map=$SRC_DIR=src -c $SRC_DIR/hello.c -o $PREFIX/share/hello"
    )
    return recipe(folder, "hello", build, script, "toolchain")


def compiled(folder: Path, build: str) -> str:
    """The hash of the object file in the package."""
    paths = read_info_json(folder / "channel" / "linux-64" / f"hello-1.0-{build}.conda", "paths.json")["paths"]
    return next(str(one["sha256"]) for one in paths if one["_path"] == "share/hello")


def statistics(folder: Path, build: str, words: str) -> int:
    """The number behind ``words`` in the build's log."""
    found = re.search(rf"{words}[ :]+([0-9]+)", (folder / "logs" / f"hello-1.0-{build}.log").read_text())
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize(("name", "hits"), [("ccache", "Hits"), ("sccache", "Cache hits")])
def test_what_was_compiled_before_is_found_by_another_digest_and_is_the_same(
    name: Literal["ccache", "sccache"], hits: str, tmp_path: Path
) -> None:
    place = Path(program(name)).parent
    cache = find_compiler_cache(name, {"PATH": str(place)}, cache=tmp_path)
    create_channel(tmp_path / "channel", Foundation(kind="registry"))
    compiler = f"mkdir -p $PREFIX/bin; printf '#!/bin/sh\\nexec {program('gcc')} \"$@\"\\n' > $PREFIX/bin/{_COMPILER}"
    toolchain = recipe(tmp_path, "toolchain", "h0", f"{compiler}; chmod +x $PREFIX/bin/{_COMPILER}")
    build(tmp_path, [toolchain, hello(tmp_path, "h1")])
    for digest in ("h2", "h3"):
        build(tmp_path, [hello(tmp_path, digest)], compiler_cache=cache)
    assert (statistics(tmp_path, "h2", hits), statistics(tmp_path, "h3", hits)) == (0, 1)
    assert compiled(tmp_path, "h1") == compiled(tmp_path, "h2") == compiled(tmp_path, "h3")
