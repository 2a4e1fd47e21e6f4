# SPDX-License-Identifier: BSD-3-Clause
"""A toy tree planned, rendered and built for real, with packages of a few bytes for a foundation."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from channel_tools.conda.archive import read_info_files
from channel_tools.conda.metadata import PackageMetadata
from channel_tools.conda.solving import detect_virtual_packages
from channel_tools.matrix import expand_stacks, find_stack, load_tree
from channel_tools.plan import (
    Plan,
    PublishedPackage,
    make_plan,
    open_foundation,
    render_folder,
)
from channel_tools.system.processes import run_command
from tests.support.packages import write_files
from tests.unit.matrix.toytree import FILES, PLATFORM, write_tree

if TYPE_CHECKING:
    from channel_tools.system.settings import Tree

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]

# the recipes of the toy tree, with scripts that need no compiler; the patch really applies
CHANGES: dict[str, str | None] = {
    "recipes/libtoy/build.sh": (
        'mkdir -p "$PREFIX/lib"\ncp toy.c "$PREFIX/lib/libtoy.so"\necho "$transport" > "$PREFIX/lib/toy.txt"\n'
    ),
    "recipes/libtoy/recipe.yaml": FILES["recipes/libtoy/recipe.yaml"].replace(
        "  - package_contents:\n      lib: [toy]\n",
        '  - script: [\'test "$(cat $PREFIX/lib/toy.txt)" = udp\', "grep -q louder $PREFIX/lib/libtoy.so"]\n',
    ),
    "patches/libtoy/0001-louder.patch": (
        "From: maintainers\nSubject: [PATCH] Say it louder\n\n--- a/toy.c\n+++ b/toy.c\n"
        "@@ -1 +1 @@\n-int toy(void) { return 1; }\n+int louder(void) { return 1; }\n"
    ),
    "recipes/toy-switch/build.sh": (
        'mkdir -p "$PREFIX/bin"\ntest -f proto/toy.proto\n'
        'printf "#!/bin/sh\\necho 0.3\\n" > "$PREFIX/bin/toy-switch"\nchmod +x "$PREFIX/bin/toy-switch"\n'
    ),
    "recipes/toy-plugin/recipe.yaml": FILES["recipes/toy-plugin/recipe.yaml"]
    .replace("[pip install .]", "['mkdir -p $PREFIX/share', 'cp $PREFIX/lib/toy.txt $PREFIX/share/plugin.txt']")
    .replace("  - python: {imports: [toy]}\n", "")
    .replace("[toy-run]", "[toy-switch --version, test -f $PREFIX/share/plugin.txt]"),
}
FOUNDATION: tuple[tuple[str, str, tuple[str, ...], dict[str, tuple[str, ...]]], ...] = (
    ("gcc_linux-64", "12.2.0", (), {"strong": ("libgcc >=12",)}),
    ("libgcc", "12.2.0", (), {}),
    ("libwire", "1.51.1", (), {"weak": ("libwire >=1.51.1,<1.52.0a0",)}),
    ("libwire", "1.52.0", (), {}),
    ("python", "3.11.2", (), {}),
    ("torch", "2.13.0", ("python 3.11.*",), {}),
)


def _driver(*words: str | Path) -> str:
    return run_command([sys.executable, "-m", "tests.integration.plan.driver", *words], cwd=ROOT).stdout


@pytest.fixture(scope="module")
def foundation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("foundation")
    exports: dict[str, Any] = {}
    for name, version, depends, run_exports in FOUNDATION:
        metadata = PackageMetadata(
            name=name, version=version, build="h1_0", subdir=PLATFORM, depends=depends, run_exports=run_exports
        )
        write_files(folder / PLATFORM, metadata, {f"share/{name}.txt": version})
        exports[metadata.file_name] = {"run_exports": {kind: list(specs) for kind, specs in run_exports.items()}}
    _driver("index", folder)
    text = json.dumps({"info": {"subdir": PLATFORM}, "packages": {}, "packages.conda": exports})
    (folder / PLATFORM / "run_exports.json").write_text(text, encoding="utf-8")
    return folder


def _plan(tree: Tree, foundation: Path, published: dict[str, PublishedPackage]) -> Plan:
    loaded = load_tree(tree)
    return asyncio.run(
        make_plan(
            expand_stacks(loaded, [find_stack(loaded, None)], foundation_kind="registry", platform=PLATFORM),
            root=tree.root,
            foundation=open_foundation(foundation, kind="registry", platform=PLATFORM),
            published=published,
            virtual_packages=detect_virtual_packages(),
        )
    )


def _info(package: Path) -> dict[str, Any]:
    names = frozenset({"about.json", "index.json", "recipe/rendered_recipe.yaml"})
    return {name: yaml.safe_load(content) for name, content in read_info_files(package, names).items()}


def _published(channel: Path) -> dict[str, PublishedPackage]:
    packages = {}
    for path in sorted(channel.glob("*/*.conda")):
        mark = _info(path)["about.json"]["extra"]["channel_tools"]
        name = path.name.rsplit("-", 2)[0]
        packages[path.name] = PublishedPackage(
            name=name, file_name=path.name, digest=mark["digest"], inputs=mark["inputs"]
        )
    return packages


def test_rendered_folders_build_to_what_was_planned(tmp_path: Path, foundation: Path) -> None:
    tree = write_tree(tmp_path / "tree", CHANGES)
    channel = tmp_path / "channel"
    _driver("index", channel)
    plan = _plan(tree, foundation, {})
    assert [package.name for package in plan.to_build] == ["libtoy", "toy-switch", "toy-plugin", "toy-meta"]
    for package in plan.to_build:
        folder = render_folder(package, tmp_path / "rendered", tree=tree)
        built = _driver("build", folder, channel, foundation).splitlines()[-1]
        assert built == f"{package.subdir}/{package.file_name}"
        info = _info(channel / built)
        resolved = info["recipe/rendered_recipe.yaml"]["finalized_dependencies"]
        for environment in ("build", "host"):
            records = (resolved[environment] or {}).get("resolved") or []
            found = {item["name"]: f"{item['version']} {item['build']} {item['sha256']}" for item in records}
            planned = {
                key.partition("/")[2]: value
                for key, value in package.inputs.items()
                if key.startswith(f"foundation:{environment}/")
            }
            own = {item["name"] for item in records if item["url"].startswith(channel.as_uri())}
            assert {name: value for name, value in found.items() if name not in own} == planned
            assert bool(found) == bool(getattr(package.rendered, environment) or planned)
            assert own == {pin.name for pin in package.own_pins if pin.environment == environment}

    depends = _info(channel / PLATFORM / plan.packages[2].file_name)["index.json"]["depends"]
    assert "torch >=2.13.0,<2.14.0a0" in depends
    assert "libtoy >=1,<2" in depends

    again = _plan(tree, foundation, _published(channel))
    assert {package.status for package in again.packages} == {"skip"}

    write_tree(tree.root, {**CHANGES, "recipes/toy-switch/src/switch.c": "int main(void) { return 1; }\n"})
    changed = _plan(tree, foundation, _published(channel))
    assert {package.name: package.reasons for package in changed.to_build} == {"toy-switch": ("changed: src/switch.c",)}


def test_outputs_of_one_recipe_build_to_packages_that_pin_each_other(tmp_path: Path, foundation: Path) -> None:
    recipe = """\
recipe: {name: multi, version: "1.0"}
outputs:
  - package: {name: libmulti}
    build:
      script: ["mkdir -p $PREFIX/lib", "echo ${{ version | default('1.0') }} > $PREFIX/lib/multi.txt"]
    requirements: {host: [libwire]}
  - package: {name: libmulti-devel}
    requirements:
      host: ["${{ pin_subpackage('libmulti', exact=True) }}"]
      run: ["${{ pin_subpackage('libmulti', exact=True) }}"]
    build:
      script: ["test -f $PREFIX/lib/multi.txt", "mkdir -p $PREFIX/include", "touch $PREFIX/include/multi.h"]
"""
    stacks = FILES["variants/stacks.yaml"].replace("[libtoy, toy-switch, toy-plugin, toy-meta]", "[toy-meta]")
    tree = write_tree(
        tmp_path / "tree", {**CHANGES, "recipes/toy-meta/recipe.yaml": recipe, "variants/stacks.yaml": stacks}
    )
    channel = tmp_path / "channel"
    _driver("index", channel)
    plan = _plan(tree, foundation, {})
    assert [package.name for package in plan.packages] == ["libmulti", "libmulti-devel"]
    for package in plan.packages:
        folder = render_folder(package, tmp_path / "rendered", tree=tree)
        built = _driver("build", folder, channel, foundation).splitlines()[-1]
        assert built == f"{package.subdir}/{package.file_name}"
    devel = _info(channel / PLATFORM / plan.packages[1].file_name)["index.json"]
    assert devel["depends"] == [f"libmulti ==1.0 {plan.packages[0].build_string}"]
    assert {package.status for package in _plan(tree, foundation, _published(channel)).packages} == {"skip"}
