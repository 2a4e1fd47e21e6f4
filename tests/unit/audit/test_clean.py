# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import yaml

from channel_tools.audit.clean import clean_package
from channel_tools.conda.archive import read_info_files, stream_component
from channel_tools.system.errors import IntegrityError
from channel_tools.system.files import sha256_of_file
from tests.unit.audit.packages import BUILD_FOLDER, HOST_PREFIX, Entry, Toy
from tests.unit.audit.test_rules import findings

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


def yaml_of(package: Path) -> dict[str, object]:
    name = "recipe/rendered_recipe.yaml"
    found = yaml.safe_load(read_info_files(package, frozenset({name}))[name])
    assert isinstance(found, dict)
    return found


def test_what_the_engine_wrote_names_the_machine_no_more(tmp_path: Path) -> None:
    package = as_built(tmp_path)
    assert {finding.file for finding in findings(package)} == {"info/about.json", "info/recipe/rendered_recipe.yaml"}
    assert clean_package(package)
    assert findings(package) == []


def test_channels_folders_and_sources_get_their_public_names(tmp_path: Path) -> None:
    package = as_built(tmp_path)
    clean_package(package)
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


def test_the_payload_and_what_describes_it_stay_byte_for_byte(tmp_path: Path) -> None:
    package = as_built(tmp_path)
    payload = f"pkg-{package.stem}.tar.zst"
    kept = frozenset({"paths.json", "index.json", "recipe/picture.png"})
    with zipfile.ZipFile(package) as archive:
        before, names = archive.read(payload), archive.namelist()
    info = read_info_files(package, kept)
    members = [(member.name, member.mode, member.mtime) for member, _ in stream_component(package, "info")]
    clean_package(package)
    with zipfile.ZipFile(package) as archive:
        assert (archive.read(payload), archive.namelist()) == (before, names)
    assert read_info_files(package, kept) == info
    assert [(member.name, member.mode, member.mtime) for member, _ in stream_component(package, "info")] == members


def test_the_same_package_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = as_built(tmp_path / "one"), as_built(tmp_path / "two")
    two.write_bytes(one.read_bytes())
    clean_package(one)
    clean_package(two)
    assert sha256_of_file(one) == sha256_of_file(two)


def test_a_clean_package_is_left_alone(tmp_path: Path) -> None:
    package = as_built(tmp_path)
    clean_package(package)
    before = package.stat()
    assert not clean_package(package)
    after = package.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_damaged_package_stays_as_it_is(tmp_path: Path) -> None:
    package = as_built(tmp_path)
    package.write_bytes(package.read_bytes()[:200])
    before = package.read_bytes()
    with pytest.raises(IntegrityError, match=r"toy-1\.0-h0123456_0\.conda"):
        clean_package(package)
    assert package.read_bytes() == before
    assert [path.name for path in package.parent.iterdir()] == [package.name]
