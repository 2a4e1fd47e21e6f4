# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from channel_tools.build.clean import cleaned_files
from channel_tools.build.settle import settle_built
from channel_tools.conda.archive import read_info_files, stream_component
from channel_tools.system.errors import IntegrityError
from tests.unit.audit.packages import BUILD_FOLDER, Entry, Toy
from tests.unit.audit.test_run import findings

HOST_PREFIX = f"{BUILD_FOLDER}/bld/rattler-build_toy/host_env{'_placehold' * 20}"
CHANNEL = "file:///srv/builder/out/channel"
STORED = "file:///srv/builder/cache/sources/supplied/toy-1.0.tar.gz"
COMMIT = "a" * 40
ORIGINS = [
    {"url": ["https://example.org/toy-1.0.tar.gz", "https://mirror.example/toy"], "sha256": "0" * 64},
    {"git": ["https://example.org/toy.git"], "rev": COMMIT},
]
RENDERED = {
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
    "finalized_dependencies": {"host": {"resolved": [{"url": f"{CHANNEL}/linux-64/zlib-1.conda", "channel": CHANNEL}]}},
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
        "recipe/rendered_recipe.yaml": yaml.safe_dump(RENDERED, sort_keys=False, width=2000).encode(),
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
            "host": {"resolved": [{"url": "channel/linux-64/zlib-1.conda", "channel": "channel"}]}
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
    changed = cleaned_files(info, about=about, rendered=RENDERED)
    assert changed.keys() == {"about.json", "recipe/rendered_recipe.yaml"}
    assert cleaned_files({**info, **changed}, about=about, rendered=RENDERED) == {}


def test_a_package_whose_metadata_cannot_be_read_stays_as_it_is(tmp_path: Path) -> None:
    package = Toy(info={"recipe/rendered_recipe.yaml": b"{"}).write(tmp_path)
    before = package.read_bytes()
    with pytest.raises(IntegrityError, match=r"toy-1\.0-h0123456_0\.conda: its metadata cannot be read"):
        clean(package)
    assert package.read_bytes() == before
    assert [path.name for path in package.parent.iterdir()] == [package.name]
