# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any, cast

import pytest

from channel_tools.plan.inputs import TreeFiles
from channel_tools.system.errors import ConfigError
from channel_tools.workflow.upstream import update_upstreams
from tests.unit.foundation.registries import NotedProgress
from tests.unit.matrix.test_site import MINE, rendered, write_site
from tests.unit.matrix.toytree import FILES

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.matrix import RenderedPackage
    from channel_tools.system.settings import Tree

PATCH = "--- a/toy.c\n+++ b/toy.c\n@@ -1 +1 @@\n-int toy(void) { return 1; }\n+int toy(void) { return 2; }\n"
SHA256 = "0" * 63 + "1"
TARBALL = """\
context:
  version: "1.0"   # the release
package: {name: mine, version: "${{ version }}"}
source:
  url: https://example.invalid/mine-${{ version }}.tar.gz
  sha256: %s
build: {script: ["true"]}
""" % ("f" * 64)


def _site(root: Path, overrides: str, files: dict[str, str] | None = None) -> Tree:
    stacks = "default_stack: own\nstacks:\n  own:\n    extends: udp\n    packages: [mine]\n    overrides:\n"
    return write_site(root, stacks + "".join(f"      {line}\n" for line in overrides.splitlines()), files)


def _build(package: RenderedPackage) -> dict[str, Any]:
    return cast("dict[str, Any]", package.recipe["build"])


def test_patches_are_added_to_the_recipes_own_and_are_files_of_the_build(tmp_path: Path) -> None:
    site = _site(tmp_path, "libtoy: {patches: patches/libtoy}", {"patches/libtoy/0001-two.patch": PATCH})
    package = rendered(site)["libtoy"]
    own, added = package.sources[0].patches
    assert own.endswith("0001-louder.patch")
    assert (package.recipe_file.folder / added).resolve() == site.patches / "libtoy" / "0001-two.patch"
    files = {file.target: file.path for file in TreeFiles(site.root).of_build(package)}
    assert files["_tree/patches/libtoy/0001-two.patch"] == site.patches / "libtoy" / "0001-two.patch"
    assert "_tree/upstreams/toys/patches/libtoy/0001-louder.patch" in files
    assert len(rendered(site, "udp")["libtoy"].sources[0].patches) == 1


def test_patches_may_be_kept_for_each_version(tmp_path: Path) -> None:
    files = {f"patches/libtoy/{version}/0001-a.patch": PATCH for version in ("1.1.0", "1.2.0")}
    site = _site(tmp_path, "libtoy: {patches: patches/libtoy}", files)
    assert rendered(site)["libtoy"].sources[0].patches[1].endswith("patches/libtoy/1.2.0/0001-a.patch")
    recipe = site.upstreams / "toys" / "recipes" / "libtoy" / "recipe.yaml"
    (tmp_path / "toys" / "recipes" / "libtoy" / "recipe.yaml").write_text(recipe.read_text().replace("1.2.0", "1.3.0"))

    update_upstreams(site, (), progress=NotedProgress())
    with pytest.raises(ConfigError, match=r"patches for 1\.1\.0, 1\.2\.0, but the version is now 1\.3\.0") as caught:
        rendered(site)
    assert "1.3.0" in str(caught.value.hint)
    assert "stacks.yaml:7" in str(caught.value)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (None, ['bash -ex "$RECIPE_DIR/build.sh"']),
        ("script: build.sh", ['bash -ex "$RECIPE_DIR/build.sh"']),
        ("script: {file: build.sh, env: {A: b}}", ['bash -ex "$RECIPE_DIR/build.sh"']),
        ("script: make", ["make"]),
        ("script: [make, make install]", ["make", "make install"]),
        ("script: {content: [make]}", ["make"]),
    ],
)
def test_variables_are_written_at_the_end_of_every_form_of_a_build_script(
    tmp_path: Path, script: str | None, expected: list[str]
) -> None:
    recipe = FILES["recipes/libtoy/recipe.yaml"].replace(
        "build:\n", f"build:\n  {script}\n" if script else "build:\n", 1
    )
    files = {"recipes/libtoy/recipe.yaml": recipe.replace("../../patches/libtoy/0001-louder.patch", "0001.patch")}
    files |= {"recipes/libtoy/build.sh": "true\n", "recipes/libtoy/src/toy.c": "", "recipes/libtoy/0001.patch": PATCH}
    site = _site(tmp_path, 'libtoy: {environment: {B: "it\'s \\"two\\"", A: "1"}}', files)
    written = _build(rendered(site)["libtoy"])["script"]
    *before, line = written["content"]
    assert before == expected
    assert written.get("env") == ({"A": "b"} if script and "env" in script else None)
    prefix = tmp_path / "prefix"
    subprocess.run(["bash", "-euc", line], env={"PREFIX": str(prefix), "PATH": "/usr/bin:/bin"}, check=True)
    content = json.loads((prefix / "etc/conda/env_vars.d/libtoy-override.json").read_text())
    assert content == {"A": "1", "B": 'it\'s "two"'}
    scripts = sorted(str(path.relative_to(prefix / "etc/conda")) for path in prefix.rglob("*.sh"))
    assert scripts == ["activate.d/00-libtoy-override.sh", "deactivate.d/00-libtoy-override.sh"]


BY_CONDA_PACK = 'for one in "$PREFIX"/etc/conda/%s.d/*.sh; do . "$one"; done\n'


@pytest.mark.parametrize("shell", ["bash", "sh"])
@pytest.mark.parametrize(
    ("before", "client"),
    [
        pytest.param("unset A", "", id="unset"),
        pytest.param("export A='the user'", "", id="the user's"),
        pytest.param("export A=", "", id="empty"),
        pytest.param("unset A", 'export A="$VALUE"', id="set by a client from env_vars.d"),
    ],
)
def test_the_scripts_set_the_variables_and_put_back_what_was_there(
    tmp_path: Path, shell: str, before: str, client: str
) -> None:
    value = 'it\'s "two" $(words)'
    override = f"mine: {{environment: {{A: {json.dumps(value)}, B: ''}}}}"
    package = rendered(_site(tmp_path, override, {"recipes/mine/recipe.yaml": MINE}))["mine"]
    *_, line = _build(package)["script"]["content"]
    say = 'echo "${A-unset}|${B-unset}|${CONDA_SET_A-}${CONDA_BACKUP_A-}"\n'
    script = f"set -eu\n{line}\n{before}\n{say}{client}\n"
    script += f"{BY_CONDA_PACK % 'activate'}{say}{client and 'unset A'}\n{BY_CONDA_PACK % 'deactivate'}{say}"
    env = {"PREFIX": str(tmp_path / "prefix"), "PATH": "/usr/bin:/bin", "VALUE": value}
    done = subprocess.run([shell, "-c", script], env=env, capture_output=True, text=True, check=True)
    first, active, last = done.stdout.splitlines()
    assert active.startswith(f"{value}||")
    assert last == first  # with a client, A is the client's to undo


def test_variant_values_are_for_that_recipe_alone(tmp_path: Path) -> None:
    packages = rendered(_site(tmp_path, 'libtoy: {variants: {c_compiler_version: ["13"]}}'))
    assert packages["libtoy"].variant["c_compiler_version"] == "13"
    assert packages["toy-switch"].variant["c_compiler_version"] == "12"


def test_another_version_is_rendered_with_its_source(tmp_path: Path) -> None:
    site = _site(tmp_path, f'mine: {{version: "2.10", sha256: "{SHA256}"}}', {"recipes/mine/recipe.yaml": TARBALL})
    package = rendered(site)["mine"]
    assert (site.recipes / "mine" / "recipe.yaml").read_text() == TARBALL
    assert package.version == "2.10"
    assert package.sources[0].location == "https://example.invalid/mine-2.10.tar.gz"
    assert package.sources[0].sha256 == SHA256
    assert package.recipe_file.document.line_of("source") == 4


@pytest.mark.parametrize(
    ("override", "message", "recipe"),
    [
        ("none: {environment: {A: b}}", "overrides 'none', which it does not build", MINE),
        ("mine: {patches: patches/none}", "there is no folder", MINE),
        ("mine: {patches: recipes}", r"has no \*.patch", MINE),
        ('mine: {version: "2"}', "both version and sha256", MINE),
        (f'mine: {{sha256: "{SHA256}"}}', "both version and sha256", MINE),
        ('mine: {version: "2", sha256: "12"}', "sha256", MINE),
        (f'mine: {{version: "2", sha256: "{SHA256}"}}', "the recipe has no context.version", MINE),
        (
            f'mine: {{version: "2", sha256: "{SHA256}"}}',
            r"the recipe has context.version: '\$\{\{ python",
            TARBALL.replace('"1.0"', "${{ python }}"),
        ),
        (
            f'mine: {{version: "2", sha256: "{SHA256}"}}',
            "the recipe has 0 sources with a sha256",
            "context: {version: '1'}\n" + MINE,
        ),
        ("mine: {variants: {c_compiler_versoin: ['13']}}", "which its recipe does not use", MINE),
        ("mine: {variants: {python: []}}", "python has no values", MINE),
        ("mine: {variants: {python: [3.10]}}", "found 3.1", MINE),
        ('mine: {environment: {"A B": c}}', "A B", MINE),
        ("mine: {environments: {A: c}}", "unknown key", MINE),
        (
            "mine: {environment: {A: c}}",
            "its build script is for python",
            MINE.replace("script: ['true']", "script: {content: ['pass'], interpreter: python}"),
        ),
    ],
)
def test_what_an_override_cannot_mean_is_one_error_with_its_line(
    tmp_path: Path, override: str, message: str, recipe: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        rendered(_site(tmp_path, override, {"recipes/mine/recipe.yaml": recipe}))
    assert "stacks.yaml:7" in str(caught.value)
    assert caught.value.hint


def test_patches_outside_the_tree_are_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "0001.patch").write_text(PATCH)
    site = _site(tmp_path, "libtoy: {patches: ../outside}")
    with pytest.raises(ConfigError, match="outside the tree"):
        TreeFiles(site.root).of_build(rendered(site)["libtoy"])
