# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig

from channel_tools.matrix import FoundationKind, Pin, RenderedPackage, expand_stacks, find_stack, load_tree
from channel_tools.matrix.engine import EvaluatedRecipe, RecipeEngine
from channel_tools.matrix.load import files_of_stack
from channel_tools.matrix.model import requirement_name
from channel_tools.matrix.variants import merge_variant_files
from channel_tools.system.errors import ConfigError, UsageError
from tests.support.golden import assert_golden
from tests.unit.matrix.toytree import FILES, PLATFORM, write_tree

GOLDEN = Path(__file__).parent / "golden"
META = "recipes/toy-meta/recipe.yaml"


def _expand(
    root: Path,
    changes: dict[str, str | None] | None = None,
    *,
    kind: FoundationKind = "registry",
    packages: tuple[str, ...] = (),
) -> list[RenderedPackage]:
    loaded = load_tree(write_tree(root, changes))
    return expand_stacks(loaded, [find_stack(loaded, None)], foundation_kind=kind, platform=PLATFORM, packages=packages)


def _names(packages: list[RenderedPackage]) -> list[str]:
    return [f"{package.name}-{package.version}-{package.engine_build_string}" for package in packages]


@pytest.mark.parametrize("kind", ["registry", "conda-forge"])
def test_the_expanded_stack(tmp_path: Path, kind: FoundationKind) -> None:
    packages = _expand(tmp_path, kind=kind)
    text = json.dumps(
        [
            {
                "file": f"{package.subdir}/{package.name}-{package.version}-{package.engine_build_string}",
                "variant": dict(package.variant),
                "build": [str(item) for item in package.build],
                "host": [str(item) for item in package.host],
                "run": [str(item) for item in package.run],
                "sources": [source.location for source in package.sources],
            }
            for package in packages
        ],
        indent=1,
    )
    assert_golden(GOLDEN / f"expanded-{kind}.json", text + "\n")


def test_names_are_those_of_the_engine_alone(tmp_path: Path) -> None:
    packages = _expand(tmp_path)
    files = [tmp_path / "variants" / name for name in ("pins.yaml", "foundation-registry.yaml", "udp.yaml")]
    config = RenderConfig(platform=PlatformConfig(target_platform=PLATFORM))
    expected = []
    for name in ("libtoy", "toy-switch", "toy-plugin", "toy-meta"):
        recipe = Stage0Recipe.from_file(tmp_path / "recipes" / name / "recipe.yaml")
        for variant in recipe.render(VariantConfig.from_files(list(files)), config):
            package = variant.recipe.package
            expected.append(f"{package.name}-{package.version}-{variant.recipe.build.string}")
    assert _names(packages) == expected


def test_pins_keep_their_bounds(tmp_path: Path) -> None:
    plugin = next(package for package in _expand(tmp_path) if package.name == "toy-plugin")
    expected = Pin(
        function="pin_compatible",
        name="torch",
        lower_bound="x.x.x.x.x.x",
        upper_bound="x.x",
        exact=False,
        build=None,
    )
    assert plugin.run == ("python", expected, "libtoy >=1,<2")


def test_tests_bring_their_requirements(tmp_path: Path) -> None:
    plugin = next(package for package in _expand(tmp_path) if package.name == "toy-plugin")
    assert [test.run for test in plugin.tests] == [("toy-switch",)]
    assert {"torch", "toy-switch", "libtoy", "python"} < plugin.requirement_names()


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (("libtoy",), {"libtoy"}),
        (("toy-switch",), {"libtoy", "toy-switch"}),
        (("toy-meta",), {"libtoy", "toy-switch", "toy-plugin", "toy-meta"}),
    ],
)
def test_chosen_packages_bring_what_they_need(tmp_path: Path, wanted: tuple[str, ...], expected: set[str]) -> None:
    assert {package.name for package in _expand(tmp_path, packages=wanted)} == expected


def test_an_unknown_package_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'libtoi' is not a package of the stack 'udp'") as caught:
        _expand(tmp_path, packages=("libtoi",))
    assert caught.value.hint == "did you mean libtoy?"


def test_a_recipe_that_is_skipped_outright_is_no_unknown_package(tmp_path: Path) -> None:
    recipe = "package: {name: toy-metapackage, version: '1'}\nbuild: {skip: true}\n"
    assert _expand(tmp_path, {META: recipe}, packages=("toy-meta",)) == []


def test_noarch_goes_to_its_own_subdir(tmp_path: Path) -> None:
    assert {package.name: package.subdir for package in _expand(tmp_path)}["toy-meta"] == "noarch"


@pytest.mark.parametrize(
    ("named", "left"),
    [("[linux-64, linux-aarch64]", {"linux-64"}), ("[linux-64]", {"linux-64"}), ("[osx-arm64]", set())],
    ids=["several", "this one", "another"],
)
def test_variants_for_other_platforms_are_left_out(tmp_path: Path, named: str, left: set[str]) -> None:
    text = FILES["variants/udp.yaml"] + f"target_platform: {named}\n"
    packages = _expand(tmp_path, {"variants/udp.yaml": text})
    here = [package for package in packages if package.subdir != "noarch"]
    assert {package.variant["target_platform"] for package in here} == left
    assert len(packages) == len({package.engine_build_string + package.name for package in packages})


@pytest.mark.parametrize("condition", ["match(python, '<3.12')", "python == '3.11.*'"])
def test_skipped_variants_are_left_out(tmp_path: Path, condition: str) -> None:
    recipe = FILES["recipes/toy-plugin/recipe.yaml"].replace("  number: 2\n", f'  number: 2\n  skip: ["{condition}"]\n')
    packages = _expand(tmp_path, {"recipes/toy-plugin/recipe.yaml": recipe})
    assert [package.variant["python"] for package in packages if package.name == "toy-plugin"] == ["3.12.*"]


IMPOSSIBLE = """extra:
  impossible:
    - if: transport not in ("udp", "tcp")
      then: transport is one of udp, tcp
    - if: transport == "udp" and match(python, ">=3.12")
      then: udp has no Python 3.12
"""


def test_a_combination_that_cannot_exist_is_an_error_with_its_reason(tmp_path: Path) -> None:
    recipe = FILES["recipes/toy-plugin/recipe.yaml"].replace(
        "  number: 2\n", "  number: 2\n  string: ${{ transport }}_0\n"
    )
    with pytest.raises(ConfigError, match=r"this combination cannot exist: udp has no Python 3\.12") as caught:
        _expand(tmp_path, {"recipes/toy-plugin/recipe.yaml": recipe + IMPOSSIBLE})
    assert caught.value.path == tmp_path / "recipes" / "toy-plugin" / "recipe.yaml"
    assert caught.value.line == recipe.count("\n") + 5
    assert "python 3.12.*, " in caught.value.message
    assert "transport udp)" in caught.value.message


def test_a_value_outside_a_closed_list_is_an_error_though_the_recipe_skips_it(tmp_path: Path) -> None:
    recipe = FILES["recipes/libtoy/recipe.yaml"].replace("  number: 0\n", '  number: 0\n  skip: [transport == "ftp"]\n')
    changes: dict[str, str | None] = {
        "recipes/libtoy/recipe.yaml": recipe + IMPOSSIBLE.partition("    - if: transport ==")[0]
    }
    assert "libtoy" in [package.name for package in _expand(tmp_path / "good", changes)]
    with pytest.raises(ConfigError, match=r"transport is one of udp, tcp \(found .*transport ftp"):
        _expand(tmp_path / "bad", changes | {"variants/udp.yaml": "transport: [ftp]\n"})


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("extra: {impossible: [text]}\n", "must have two keys, if and then"),
        ('extra: {impossible: [{if: "a =="}]}\n', "must have two keys, if and then"),
        ('extra: {impossible: [{if: "python >", then: x}]}\n', "extra.impossible cannot be evaluated"),
    ],
)
def test_a_wrong_entry_among_the_impossible_ones_names_its_line(tmp_path: Path, section: str, words: str) -> None:
    recipe = FILES["recipes/libtoy/recipe.yaml"] + section
    with pytest.raises(ConfigError, match=words) as caught:
        _expand(tmp_path, {"recipes/libtoy/recipe.yaml": recipe})
    assert caught.value.line == recipe.count("\n")


def test_a_recipe_skipped_outright_gives_nothing(tmp_path: Path) -> None:
    packages = _expand(tmp_path, {META: "package: {name: toy-meta, version: '1'}\nbuild: {skip: true}\n"})
    assert "toy-meta" not in {package.name for package in packages}


@pytest.mark.parametrize(
    ("recipe", "line", "message"),
    [
        pytest.param("build: {}\n", None, "missing required field 'package'", id="no package"),
        pytest.param(
            "package: {name: a, version: '1'}\nbild: {}\n", 2, "unknown top-level field 'bild'", id="unknown field"
        ),
        pytest.param("package:\n  name: a\n  version: 2024-01-02\n", 3, "version 2024-01-02 has a '-'", id="dash"),
        pytest.param("package:\n  name: a\n  version: ${{ vers }}\n", 3, "uses 'vers', which neither", id="undefined"),
        pytest.param(
            "package: {name: a, version: '1'}\nbuild:\n  number: ${{ 1 + }}\n", 3, "syntax error", id="syntax"
        ),
        pytest.param(
            "package: {name: a, version: '0.3'}\nrequirements:\n  host: [b]\n  run:\n    - c\n    - d 0.3 x\n",
            6,
            "missing range specifier for '0.3'",
            id="requirement",
        ),
        pytest.param(
            "package: {name: a, version: '1'}\nrequirements:\n  run:\n    - if: linux\n      then: d[flags=[b]]\n",
            5,
            "flags",
            id="requirement in a condition",
        ),
        pytest.param(
            "package: {name: a, version: '1'}\nbuild: {skip: ['python >']}\n", 2, "skip", id="skip that is no condition"
        ),
        pytest.param(
            "package: {name: a, version: '1'}\nsource:\n  url: https://example.org/a.tar.gz\n",
            2,
            "source https://example.org/a.tar.gz has no sha256",
            id="url without sha256",
        ),
        pytest.param(
            "package: {name: a, version: '1'}\nsource:\n  git: https://example.org/a.git\n  tag: v1\n",
            2,
            "a.git has rev refs/tags/v1",
            id="git without commit",
        ),
        pytest.param(
            "package: {name: a, version: '1'}\nsource:\n  url: https://me:pw@example.org/a.tar.gz\n",
            2,
            "source https://example.org/a.tar.gz is given with credentials",
            id="url with a password",
        ),
        pytest.param(
            "package: {name: a, version: '1'}\nsource:\n  git: https://token@example.org/a.git\n  tag: v1\n",
            2,
            "source https://example.org/a.git is given with credentials",
            id="git with a token",
        ),
        pytest.param(
            "recipe: {name: a, version: '1'}\noutputs:\n- staging: {name: s}\n- package: {name: b}\n  inherit: s\n",
            2,
            "staging outputs",
            id="staging",
        ),
    ],
)
def test_a_recipe_that_does_not_render_is_named(tmp_path: Path, recipe: str, line: int | None, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _expand(tmp_path, {META: recipe})
    assert caught.value.path == tmp_path / META
    assert message in str(caught.value)
    assert caught.value.line == line
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_every_output_of_a_recipe_is_a_package(tmp_path: Path) -> None:
    recipe = """\
recipe: {name: multi, version: "1.0"}
outputs:
  - package: {name: libmulti}
    requirements: {host: [python]}
  - package: {name: libmulti-devel}
    requirements:
      run: ["${{ pin_subpackage('libmulti', exact=True) }}"]
"""
    packages = [item for item in _expand(tmp_path, {META: recipe}) if item.recipe_file.name == "toy-meta"]
    found = [(item.name, item.variant.get("python")) for item in packages]
    assert sorted(found, key=str) == [
        ("libmulti", "3.11.*"),
        ("libmulti", "3.12.*"),
        ("libmulti-devel", None),
        ("libmulti-devel", None),
    ]
    builds = {item.engine_build_string for item in packages if item.name == "libmulti"}
    assert {item.siblings["libmulti"] for item in packages if item.name == "libmulti-devel"} == builds


@pytest.mark.parametrize(
    ("requirement", "name"),
    [
        ("Python >=3.11", "python"),
        ("libtoy==1.0", "libtoy"),
        ("libtoy[version='>=1']", "libtoy"),
        ("conda-forge::numpy =2", "numpy"),
        ("__cuda", "__cuda"),
    ],
)
def test_the_name_in_a_requirement(requirement: str, name: str) -> None:
    assert requirement_name(requirement) == name


def test_an_evaluation_is_remembered_with_every_value_that_its_recipe_can_use(tmp_path: Path) -> None:
    tree = load_tree(write_tree(tmp_path / "tree"))
    recipe = tree.recipes["libtoy"]
    (tmp_path / "engine").mkdir()
    engine = RecipeEngine(PLATFORM, tmp_path / "engine")

    def evaluate(**changes: tuple[str, ...]) -> list[EvaluatedRecipe]:
        matrix = merge_variant_files(files_of_stack(tree, tree.stacks["udp"], "registry", "linux-64"))
        return engine.evaluate(recipe, replace(matrix, values={**matrix.values, **changes}))

    first = evaluate()
    assert "python" not in recipe.used_keys
    assert evaluate(python=("3.13.*",)) is first
    other = evaluate(transport=("rdma",))
    assert other is not first
    assert [item.variant["transport"] for item in (*first, *other)] == ["udp", "rdma"]
    assert {item.hash for item in evaluate(transport=("udp", "rdma"))} == {item.hash for item in (*first, *other)}


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ("requirements: {host: ['${{ fabrc }}']}", "'fabrc'"),
        ("requirements: {host: ['${{ fabrc }} ${{ fabric_version }}']}", "'fabrc', 'fabric_version'"),
        ("requirements: {host: ['${{ fabrc | lower }} ${{ linux }} ${{ env.get(\"HOME\") }}']}", "'fabrc'"),
        ("requirements: {run: [{if: \"fabrc == 'x'\", then: a}]}", "'fabrc'"),
        ("requirements: {build: [\"${{ stdlib('c') }}\"]}", "'c_stdlib'"),
        ("build: {skip: fabrc == 'x'}", "'fabrc'"),
        ('build: {skip: ["${{ fabrc }}"]}', "'fabrc'"),
        ("context: {text: '${{ fabrc }}'}", "'fabrc'"),
    ],
)
def test_a_key_without_a_value_is_named_with_the_file_to_put_it_in(tmp_path: Path, section: str, names: str) -> None:
    recipe = f'package: {{name: toy-meta, version: "1"}}\n{section}\n'
    with pytest.raises(ConfigError) as caught:
        _expand(tmp_path, {META: recipe, "variants/udp.yaml": "transport: [udp]\nfabric: [x]\n"})
    assert f"the recipe uses {names}, which neither its context nor a variant file defines" in str(caught.value)
    assert (caught.value.path, caught.value.line) == (tmp_path / META, 2)
    hint = caught.value.hint or ""
    first = names.split(",", maxsplit=1)[0].strip("'")
    assert f'add {first}: ["VALUE"]' in hint
    assert f"{tmp_path / 'variants' / 'pins.yaml'}, for all stacks, or to {tmp_path / 'variants' / 'udp.yaml'}" in hint
    assert hint.startswith("did you mean fabric? otherwise add fabrc") == (names == "'fabrc'")


def test_a_name_that_the_recipe_or_the_engine_defines_is_not_a_missing_key(tmp_path: Path) -> None:
    recipe = """\
context: {flavour: x}
package: {name: toy-meta, version: "1"}
about: {summary: "${{ flavour.nothing.more }} ${{ linux }}"}
"""
    with pytest.raises(ConfigError, match=r"the recipe does not render: .*undefined value"):
        _expand(tmp_path, {META: recipe})
