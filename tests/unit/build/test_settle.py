# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from channel_tools.build.settle import cleaned_files, settle_built, settled, source_date_of
from channel_tools.conda.archive import read_info_files, stream_component
from channel_tools.system.errors import BuildError, IntegrityError
from channel_tools.system.yamlfile import dump_yaml
from tests.support.packages import make_conda
from tests.unit.audit.packages import BUILD_FOLDER, Entry, Toy
from tests.unit.audit.test_run import findings

RENDERED = """\
recipe:
  about:
    description: |
      timestamp: as the recipe writes it
build_configuration:
  host_platform:
    platform: linux-64
    virtual_packages:
    - __linux=6.18=0
    - __archspec=1=zen4
  channels:
  - channel
  timestamp: 2026-11-22T20:24:06.152444282Z
  packaging_settings:
    archive_type: conda
    compression_level: 1
finalized_dependencies:
  host:
    specs:
    - source: zlib
    - spec: libgcc >=12
      from: build
    resolved:
    - build: h_1
      depends:
      - z
      - a
      name: zlib
      timestamp: 1674385602000
    - build: h_2
      name: libgcc
  run:
    depends:
    - spec: libgcc >=12
    - spec: __glibc >=2.36
      from: build
    constraints: []
"""
SETTLED = """\
recipe:
  about:
    description: |
      timestamp: as the recipe writes it
build_configuration:
  host_platform:
    platform: linux-64
    virtual_packages: []
  channels:
  - channel
  timestamp: 2020-09-13T12:26:40Z
  packaging_settings:
    archive_type: conda
    compression_level: 15
finalized_dependencies:
  host:
    specs:
    - source: zlib
    - spec: libgcc >=12
      from: build
    resolved:
    - build: h_2
      name: libgcc
    - build: h_1
      depends:
      - z
      - a
      name: zlib
      timestamp: 1674385602000
  run:
    depends:
    - spec: __glibc >=2.36
      from: build
    - spec: libgcc >=12
    constraints: []
"""


def test_a_rendered_recipe_loses_the_hour_the_machine_and_the_order_of_hash_tables() -> None:
    content = settled("recipe/rendered_recipe.yaml", RENDERED.encode(), date_s=1_600_000_000)

    assert content.decode() == SETTLED
    assert settled("recipe/rendered_recipe.yaml", content, date_s=1_600_000_000) == content


def test_index_json_gets_the_date_and_an_order() -> None:
    given = {"depends": ["b", "a"], "name": "toy", "timestamp": 1795379046152}

    content = settled("index.json", json.dumps(given).encode(), date_s=1_600_000_000)

    assert json.loads(content) == {"depends": ["a", "b"], "name": "toy", "timestamp": 1_600_000_000_000}


@pytest.mark.parametrize(
    ("build", "date_s"),
    [({"script": {"env": {"SOURCE_DATE_EPOCH": "5"}}}, 5), ({"script": ["make"]}, None), ({}, None)],
)
def test_the_date_that_a_recipe_builds_with(build: dict[str, object], date_s: int | None) -> None:
    assert source_date_of({"build": build}) == date_s


HOST_PREFIX = f"{BUILD_FOLDER}/bld/rattler-build_toy/host_env{'_placehold' * 20}"
CHANNEL = "file:///srv/builder/out/channel"
ZLIB = {"name": "zlib", "version": "1.3", "build": "h1_0", "sha256": "aa"}
STORED = "file:///srv/builder/cache/sources/supplied/toy-1.0.tar.gz"
COMMIT = "a" * 40
ORIGINS = [
    {"url": ["https://example.org/toy-1.0.tar.gz", "https://mirror.example/toy"], "sha256": "0" * 64},
    {"git": ["https://example.org/toy.git"], "rev": COMMIT},
]
RENDERED_VALUES = {
    "recipe": {
        "source": [
            {"path": "src"},
            {"url": STORED, "sha256": "0" * 64},
            {"url": [STORED.replace("toy-1.0", COMMIT)], "sha256": "1" * 64, "target_directory": "more"},
        ]
    },
    "build_configuration": {
        "directories": {
            "host_prefix": HOST_PREFIX,
            "build_prefix": f"{BUILD_FOLDER}/bld/rattler-build_toy/build_env",
            "work_dir": f"{BUILD_FOLDER}/bld/rattler-build_toy/work",
            "build_dir": f"{BUILD_FOLDER}/bld/rattler-build_toy",
        },
        "channels": [CHANNEL, "https://user:word@example.org/t/secret/forge"],
    },
    "finalized_dependencies": {
        "host": {"resolved": [{**ZLIB, "url": f"{CHANNEL}/linux-64/zlib-1.conda", "channel": CHANNEL}]}
    },
    "finalized_sources": [{"url": STORED}],
}


def as_built(folder: Path) -> Path:
    """A package with the metadata that the engine writes."""
    about = {
        "channels": [f"{CHANNEL}/", "https://user:word@example.org/t/secret/forge"],
        "extra": {"channel_tools": {"sources": ORIGINS}},
    }
    info = {
        "about.json": json.dumps(about, indent=2).encode(),
        "recipe/rendered_recipe.yaml": yaml.safe_dump(RENDERED_VALUES, sort_keys=False, width=2000).encode(),
        "recipe/picture.png": b"\0" + CHANNEL.encode(),
    }
    script = Entry(content=f"cd {HOST_PREFIX}".encode(), placeholder=HOST_PREFIX)
    return Toy(files={"share/toy/where": script}, info=info).write(folder)


def clean(package: Path) -> None:
    recipe = package.parents[1] / "recipe"
    recipe.mkdir()
    (recipe / "recipe.yaml").write_text("build: {number: 0}")
    settle_built(package, recipe, threads=1)


def yaml_of(package: Path) -> dict[str, object]:
    name = "recipe/rendered_recipe.yaml"
    found = yaml.safe_load(read_info_files(package, frozenset({name}))[name])
    assert isinstance(found, dict)
    return found


def test_what_the_engine_wrote_names_the_machine_no_more(tmp_path: Path) -> None:
    package = as_built(tmp_path)
    assert {finding.file for finding in findings(package)} == {"info/about.json", "info/recipe/rendered_recipe.yaml"}
    clean(package)
    assert findings(package) == []


def test_channels_folders_and_sources_get_their_public_names(tmp_path: Path) -> None:
    package = as_built(tmp_path)
    clean(package)
    about = json.loads(read_info_files(package, frozenset({"about.json"}))["about.json"])
    assert about["channels"] == ["channel/", "https://example.org/forge"]
    assert about["extra"]["channel_tools"]["sources"] == ORIGINS
    assert yaml_of(package) == {
        "recipe": {
            "source": [
                {"path": "src"},
                {"url": "https://example.org/toy-1.0.tar.gz", "sha256": "0" * 64},
                {
                    "url": [f"git+https://example.org/toy.git@{COMMIT}"],
                    "sha256": "1" * 64,
                    "target_directory": "more",
                },
            ]
        },
        "build_configuration": {
            "directories": {
                "host_prefix": "$PREFIX",
                "build_prefix": "$BUILD_PREFIX",
                "work_dir": "$SRC_DIR",
                "build_dir": "$BUILD_DIR",
            },
            "channels": ["channel", "https://example.org/forge"],
        },
        "finalized_dependencies": {
            "host": {"resolved": [{**ZLIB, "url": "channel/linux-64/zlib-1.conda", "channel": "channel"}]}
        },
        "finalized_sources": [{"url": "https://example.org/toy-1.0.tar.gz"}],
    }


def test_only_what_names_the_machine_is_changed(tmp_path: Path) -> None:
    info = {
        member.name.removeprefix("info/"): stream.read()
        for member, stream in stream_component(as_built(tmp_path), "info")
        if stream is not None
    }
    about = json.loads(info["about.json"])
    changed = cleaned_files(info, about=about, rendered=RENDERED_VALUES)
    assert changed.keys() == {"about.json", "recipe/rendered_recipe.yaml"}
    assert cleaned_files({**info, **changed}, about=about, rendered=RENDERED_VALUES) == {}


def test_a_package_whose_metadata_cannot_be_read_stays_as_it_is(tmp_path: Path) -> None:
    package = Toy(info={"recipe/rendered_recipe.yaml": b"{"}).write(tmp_path)
    before = package.read_bytes()
    with pytest.raises(IntegrityError, match=r"toy-1\.0-h0123456_0\.conda: its metadata cannot be read"):
        clean(package)
    assert package.read_bytes() == before
    assert [path.name for path in package.parent.iterdir()] == [package.name]


if TYPE_CHECKING:
    from pathlib import Path

PLANNED = {"foundation:host/zlib": "1.3 h1_0 aa", "foundation:build/gcc": "15.1 h1_0 bb", "variant:python": "3.11"}
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
    assert settle_built(package, tmp_path / "recipe", threads=1) == ()


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
        settle_built(package, tmp_path / "recipe", threads=1)
    assert caught.value.hint is not None
    assert package.read_bytes() == before


def test_a_package_names_the_foundation_and_not_the_view_it_was_built_with(tmp_path: Path) -> None:
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "recipe.yaml").write_text(dump_yaml({"build": {"number": 0}}))
    view, address = "file:///tree/recipes-foundation/toy", "https://mirror.example/conda-forge"
    package = make_conda(tmp_path, "toy", about={"channels": ["file:///own/", f"{view}/"]})
    settle_built(package, tmp_path / "recipe", threads=1, renamed={"file:///own": "file:///own", view: address})
    about = json.loads(read_info_files(package, frozenset({"about.json"}))["about.json"])
    assert about["channels"] == ["own/", f"{address}/"]
