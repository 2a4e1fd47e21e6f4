# SPDX-License-Identifier: BSD-3-Clause
"""Packages built twice: elsewhere, by another user, in other surroundings; and published ones built again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from channel_tools.channel.records import cached_package
from channel_tools.conda.archive import read_index_json, read_package
from channel_tools.conda.metadata import PackageMetadata
from channel_tools.conda.repodata import encode_repodata, encode_run_exports
from channel_tools.system.files import sha256_of_file
from tests.support.command_line import run_tool
from tests.support.packages import write_files
from tests.support.programs import in_namespaces

pytestmark = pytest.mark.integration

_DATE_S = 1_500_000_000
_TOY = """\
schema_version: 1
package: {name: toy, version: '1.0'}
source: {path: src}
build:
  number: 0
  script:
    - mkdir -p $PREFIX/bin
    - printf '#!%s/bin/sh\\n' "$PREFIX" > $PREFIX/bin/toy
    - chmod +x $PREFIX/bin/toy
    - cp hello $PREFIX/share/base $PREFIX/bin/
    - date -d @$SOURCE_DATE_EPOCH > $PREFIX/bin/date
    - ln -s toy $PREFIX/bin/same
    - test "$(readlink away)" = /etc/hostname && test "$(readlink out)" = ../../../shared/file
    - cp -d link $PREFIX/bin/
requirements: {host: [base]}
about: {license: BSD-3-Clause}
"""
_LINKS = {"link": "hello", "away": "/etc/hostname", "out": "../../../shared/file", "nowhere": "never", "folder": "."}
"""Links among the sources of toy."""
_NOISY = """\
schema_version: 1
package: {name: noisy, version: '1.0'}
build:
  number: 0
  script:
    - mkdir -p $PREFIX/share
    - echo $RANDOM$RANDOM$RANDOM > $PREFIX/share/number
    - pwd | cksum > $PREFIX/share/place
    - date +%s%N > $PREFIX/share/time
    - echo always > $PREFIX/share/same
about: {license: BSD-3-Clause}
"""
_STACKS = """\
default_stack: only
stacks:
  only:
    description: two packages
    variants: []
    packages: [toy, noisy]
    install: [toy]
    validate: {method: switchml}
"""
_ON_ONE_CORE = """\
import os, sys
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
os.execv(sys.executable, [sys.executable, "-m", "channel_tools", *sys.argv[1:]])
"""


def _write_foundation(folder: Path) -> None:
    """A channel with one package, of a date of its own."""
    metadata = PackageMetadata(
        name="base", version="1.0", build="h1_0", subdir="noarch", noarch="generic", timestamp_ms=_DATE_S * 1000
    )
    for subdir in ("linux-64", "noarch"):
        (folder / subdir).mkdir(parents=True)
        (folder / subdir / "repodata.json").write_bytes(encode_repodata(subdir, {}))
        (folder / subdir / "run_exports.json").write_bytes(encode_run_exports(subdir, {}))
    path = write_files(folder / "noarch", metadata, {"share/base": "base\n"})
    row = cached_package(path, read_package(path, contents=False), indexed_ms=0)
    repodata = encode_repodata("noarch", {path.name: msgspec.Raw(row.record_json)})
    (folder / "noarch" / "repodata.json").write_bytes(repodata)


def _write_tree(folder: Path) -> Path:
    files = {
        "recipes/toy/recipe.yaml": _TOY,
        "recipes/toy/src/hello": "hello\n",
        "recipes/noisy/recipe.yaml": _NOISY,
        "variants/stacks.yaml": _STACKS,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name, target in _LINKS.items():
        (folder / "recipes/toy/src" / name).symlink_to(target)
    return folder


def _build_words(tree: Path, foundation: Path) -> list[str]:
    words = ["build", "--root", tree, "--foundation", "conda-forge", "--foundation-channel", foundation.as_uri()]
    return [*map(str, words), "--no-attest"]


def _packages(tree: Path) -> dict[str, Path]:
    """The packages of the tree's channel by their names."""
    return {path.name.partition("-")[0]: path for path in (tree / "output/channel").glob("*/*.conda")}


@pytest.fixture(scope="module")
def foundation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("foundation") / "channel"
    _write_foundation(folder)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, foundation: Path) -> Path:
    """A tree with its packages built."""
    tree = _write_tree(tmp_path_factory.mktemp("first") / "tree")
    done = run_tool(*_build_words(tree, foundation), cwd=tree, environ=_cache(tree))
    assert done.returncode == 0, done.stderr
    return tree


def _cache(tree: Path) -> dict[str, str]:
    return {"CHANNEL_TOOLS_CACHE": str(tree.parent / "cache")}


@pytest.mark.parametrize("user", ["the same user", "another user"])
def test_a_package_has_the_same_bytes_wherever_and_whenever_it_is_built(
    built: Path, foundation: Path, tmp_path: Path, user: str
) -> None:
    tree = _write_tree(tmp_path / "another place, deeper and with spaces in it" / "tree")
    for path in tree.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    environ = {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "TZ": "Pacific/Kiritimati", "HOME": str(tmp_path)}
    before = in_namespaces() if user == "another user" else ()
    command = [*before, sys.executable, "-c", _ON_ONE_CORE, *_build_words(tree, foundation), "--package", "toy"]
    done = subprocess.run(
        [*command, "--jobs", "1"],
        cwd="/",
        env=os.environ | environ | _cache(tree),
        umask=0o077,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    first, second = _packages(built)["toy"], _packages(tree)["toy"]
    assert (first.name, sha256_of_file(first)) == (second.name, sha256_of_file(second))
    assert read_index_json(first)["timestamp"] == _DATE_S * 1000


def _files_of(folder: Path) -> Mapping[str, int]:
    return {str(path): path.lstat().st_mtime_ns for path in folder.rglob("*")}


def _rebuild(tree: Path, package: str | Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_tool("rebuild", package, *words, "--offline", "--root", tree, cwd=tree, environ=_cache(tree))


def test_a_published_package_is_built_again_from_its_own_recipe(built: Path) -> None:
    channel = built / "output" / "channel"
    before = _files_of(channel)
    (built / "recipes/toy/src/hello").write_text("another recipe by now\n")

    done = _rebuild(built, "toy", "--compare")

    assert done.returncode == 0, done.stderr
    package = _packages(built)["toy"]
    assert done.stdout == f"{package.name}: built again, the same bytes (sha256 {sha256_of_file(package)})\n"
    assert _files_of(channel) == before


def test_what_differs_is_named_file_by_file(built: Path) -> None:
    done = _rebuild(built, _packages(built)["noisy"], "--compare", "--json")

    assert done.returncode == 9, done.stderr
    assert "built again, installed files differ (3 files)" in done.stderr
    said = json.loads(done.stdout)
    assert said["verdict"] == "different"
    files = ["share/number", "share/place", "share/time"]
    assert [(one["file"], one["kind"]) for one in said["differences"]] == [(name, "content") for name in files]
    assert Path(said["rebuilt"]["path"]).is_file()


@pytest.mark.parametrize(
    ("package", "code", "message"),
    [
        ("toi", 2, "has no package 'toi' that was built from a recipe"),
        ("ELSEWHERE", 2, "is not in the folder of a channel made by channel_tools"),
        ("toy", 2, "is the folder of a channel; rebuilt packages are not added to channels"),
    ],
)
def test_what_cannot_be_built_again_is_an_error(
    built: Path, foundation: Path, tmp_path: Path, package: str, code: int, message: str
) -> None:
    if package == "ELSEWHERE":
        package = str(tmp_path / "noarch" / "base-1.0-h1_0.conda")
        Path(package).parent.mkdir()
        Path(package).write_bytes((foundation / "noarch" / "base-1.0-h1_0.conda").read_bytes())
    into = ("--output-dir", str(built / "output" / "channel")) if package == "toy" else ()
    done = _rebuild(built, package, "--compare", *into)

    assert done.returncode == code
    assert message in done.stderr
