# SPDX-License-Identifier: BSD-3-Clause
"""A package whose build got other packages than planned does not enter a channel under the planned name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from channel_tools.build.settle import settle_built
from channel_tools.conda.archive import read_info_files
from channel_tools.system.errors import BuildError
from channel_tools.system.yamlfile import dump_yaml
from tests.support.packages import make_conda

if TYPE_CHECKING:
    from pathlib import Path

PLANNED = {"foundation:host/zlib": "1.3 h1_0 aa", "foundation:build/gcc": "15.1 h1_0 bb", "variant:python": "3.11"}
ZLIB = {"name": "zlib", "version": "1.3", "build": "h1_0", "sha256": "aa"}
GCC = {"name": "gcc", "version": "15.1", "build": "h1_0", "sha256": "bb"}
DATA = {"name": "tzdata", "version": "2026a", "build": "0", "sha256": "cc"}


def _package(folder: Path, *, build: list[dict[str, str]], host: list[dict[str, str]]) -> Path:
    (folder / "recipe").mkdir()
    recipe = {"extra": {"channel_tools": {"inputs": dict(PLANNED)}}}
    (folder / "recipe" / "recipe.yaml").write_text(json.dumps(recipe))
    rendered = {"finalized_dependencies": {"build": {"resolved": build}, "host": {"resolved": host}}}
    info: dict[str, bytes] = {"info/recipe/rendered_recipe.yaml": json.dumps(rendered).encode()}
    return make_conda(folder, "toy", info=info)


def test_what_was_planned_is_taken(tmp_path: Path) -> None:
    package = _package(tmp_path, build=[GCC], host=[ZLIB, DATA])
    assert settle_built(package, tmp_path / "recipe", threads=1, is_planned=True) == ()


@pytest.mark.parametrize(
    ("build", "host", "message"),
    [
        ([GCC], [ZLIB | {"version": "1.4"}], "host/zlib 1.4-h1_0 instead of 1.3-h1_0"),
        ([GCC], [ZLIB | {"build": "h2_0"}], "host/zlib 1.3-h2_0 instead of 1.3-h1_0"),
        ([GCC], [ZLIB | {"sha256": "dd"}], "host/zlib 1.3-h1_0 instead of 1.3-h1_0"),
        ([], [ZLIB], r"build/gcc \(none\) instead of 15.1-h1_0"),
        ([ZLIB], [GCC], "build/gcc .*; host/zlib|host/zlib .*; build/gcc"),
    ],
)
def test_anything_else_is_an_error(
    tmp_path: Path, build: list[dict[str, str]], host: list[dict[str, str]], message: str
) -> None:
    package = _package(tmp_path, build=build, host=host)
    before = package.read_bytes()
    with pytest.raises(BuildError, match=message) as caught:
        settle_built(package, tmp_path / "recipe", threads=1, is_planned=True)
    assert caught.value.hint is not None
    assert package.read_bytes() == before
    settle_built(package, tmp_path / "recipe", threads=1)
    assert package.read_bytes() != before


def test_a_package_names_the_foundation_and_not_the_view_it_was_built_with(tmp_path: Path) -> None:
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "recipe.yaml").write_text(dump_yaml({"build": {"number": 0}}))
    view, address = "file:///tree/recipes-foundation/toy", "https://mirror.example/conda-forge"
    package = make_conda(tmp_path, "toy", about={"channels": ["file:///own/", f"{view}/"]})
    settle_built(package, tmp_path / "recipe", threads=1, renamed={"file:///own": "file:///own", view: address})
    about = json.loads(read_info_files(package, frozenset({"about.json"}))["about.json"])
    assert about["channels"] == ["own/", f"{address}/"]
