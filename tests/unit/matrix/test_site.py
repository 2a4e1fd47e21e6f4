# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import shutil
import tarfile
from typing import TYPE_CHECKING

import pytest

from channel_tools.matrix import expand_stacks, find_stack, load_tree
from channel_tools.matrix.site import files_to_export, read_site, read_source_mirrors, upstream_trees
from channel_tools.mirror.exporting.extras import export_tree
from channel_tools.plan.inputs import TreeFiles, file_inputs
from channel_tools.system.errors import ConfigError
from channel_tools.system.settings import Tree
from channel_tools.system.source_files import link_target
from channel_tools.workflow.upstream import update_upstreams
from tests.unit.foundation.registries import NotedProgress
from tests.unit.matrix.toytree import PLATFORM, write_tree
from tests.unit.sources.toys import git

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.matrix import RenderedPackage

SITE = "upstreams: [{name: toys, path: ../toys}]\n"
OWN = "default_stack: own\nstacks:\n  own: {description: ours, packages: [mine], install: [mine]}\n"
MINE = (
    "package: {name: mine, version: '1'}\nbuild: {noarch: generic, script: ['true']}\nrequirements: {run: [libtoy]}\n"
)


def write_site(root: Path, stacks: str = OWN, files: Mapping[str, str] | None = None) -> Tree:
    """A site's tree beside the toy tree, which it has copied."""
    write_tree(root / "toys")
    content = {"site.yaml": SITE, "variants/stacks.yaml": stacks, "recipes/mine/recipe.yaml": MINE, **(files or {})}
    for name, text in content.items():
        path = root / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    tree = Tree(root=root / "site")
    update_upstreams(tree, (), progress=NotedProgress())
    return tree


def rendered(tree: Tree, stack: str | None = None, kind: str = "registry") -> dict[str, RenderedPackage]:
    """The packages of a stack by name; of several variants, the last."""
    loaded = load_tree(tree)
    packages = expand_stacks(loaded, [find_stack(loaded, stack)], foundation_kind=kind, platform=PLATFORM)  # type: ignore[arg-type]
    return {package.name: package for package in packages}


def test_what_an_upstream_has_can_be_used_by_name(tmp_path: Path) -> None:
    loaded = load_tree(write_site(tmp_path))
    assert list(loaded.stacks) == ["own", "udp"]
    assert [stack.name for stack in loaded.own_stacks] == ["own"]
    assert loaded.default_stack == "own"
    assert {"mine", "libtoy", "toy-meta"} <= loaded.recipes.keys()
    assert not loaded.notes


def test_what_a_tree_does_not_change_is_built_from_the_same_files_as_upstream(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    ours, theirs = rendered(site, "udp"), rendered(Tree(root=tmp_path / "toys"))
    assert ours.keys() == theirs.keys()
    for name, package in ours.items():
        assert package.recipe == theirs[name].recipe
        assert package.variant == theirs[name].variant
        files = TreeFiles(site.root).of_build(package)
        same = TreeFiles(tmp_path / "toys").of_build(theirs[name])
        assert [(file.name, file.sha256) for file in files] == [(file.name, file.sha256) for file in same]


def test_the_trees_own_recipes_and_files_come_first(tmp_path: Path) -> None:
    stacks = OWN + "  udp: {extends: udp, variants: [udp.yaml]}\n"
    own = {
        "recipes/libtoy/recipe.yaml": MINE.replace("mine", "libtoy").replace("'1'", "'9'").replace("[libtoy]", "[]"),
        "variants/udp.yaml": "python: ['3.13.*']\n",
    }
    packages = rendered(write_site(tmp_path, stacks, own), "udp")
    assert packages["libtoy"].version == "9"
    assert packages["toy-plugin"].variant["python"] == "3.13.*"
    assert packages["toy-switch"].variant["c_compiler_version"] == "12"


def test_shared_pins_of_a_tree_stand_over_those_of_its_upstream_key_by_key(tmp_path: Path) -> None:
    own = {
        "variants/pins.yaml": "python: ['3.13.*']\n",
        "variants/foundation-conda-forge.yaml": "c_compiler_version: ['16']\n",
    }
    site = write_site(tmp_path, files=own)
    assert rendered(site, "udp")["toy-plugin"].variant["python"] == "3.13.*"
    assert rendered(site, "udp")["libtoy"].variant["c_compiler_version"] == "12"
    found = rendered(site, "udp", "conda-forge")["libtoy"].variant
    assert (found["c_compiler_version"], found["libwire"]) == ("16", "1.82")


def test_an_upstream_is_read_as_it_was_copied_and_moved_on_purpose(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    changed = tmp_path / "toys" / "variants" / "udp.yaml"
    changed.write_text("transport: [rdma]\n")
    (tmp_path / "toys" / "recipes" / "new").mkdir()
    (tmp_path / "toys" / "recipes" / "new" / "recipe.yaml").write_text(MINE.replace("mine", "new"))
    (tmp_path / "toys" / "LICENSE").unlink()
    assert rendered(site, "udp")["libtoy"].variant["transport"] == "udp"
    (change,) = update_upstreams(site, ["toys"], progress=NotedProgress())
    assert (change.added, change.changed, change.removed) == (
        ("recipes/new/recipe.yaml",),
        ("variants/udp.yaml",),
        ("LICENSE",),
    )
    assert rendered(site, "udp")["libtoy"].variant["transport"] == "rdma"


def test_an_exported_tree_builds_from_the_same_files(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    (site.root / "output").mkdir()
    for left_out in ("output/x.txt", "notes.txt", "recipes/mine/__pycache__/x.pyc"):
        (site.root / left_out).parent.mkdir(exist_ok=True)
        (site.root / left_out).write_text("not a part of it")
    exported = Tree(root=tmp_path / "exported")
    names = list(files_to_export(site))
    for name in names:
        (exported.root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(site.root / name, exported.root / name)
    assert {"site.yaml", "locks/upstreams.json", "upstreams/toys/LICENSE"} <= set(names)
    assert not [name for name in names if "output" in name or "notes" in name or "pycache" in name]
    for stack in ("own", "udp"):
        ours, theirs = rendered(site, stack), rendered(exported, stack)
        for name, package in ours.items():
            files = [(file.name, file.sha256) for file in TreeFiles(site.root).of_build(package)]
            assert files == [(file.name, file.sha256) for file in TreeFiles(exported.root).of_build(theirs[name])]


@pytest.mark.parametrize("damage", ["changed", "added", "removed", "mode", "linked", "added-link", "linked-folder"])
def test_a_copy_that_is_not_as_recorded_is_refused(tmp_path: Path, damage: str) -> None:
    site = write_site(tmp_path)
    path = site.upstreams / "toys" / "recipes" / "libtoy" / "build.sh"
    if damage == "changed":
        path.write_text("make evil\n")
    elif damage == "added":
        path = path.with_name("more.sh")
        path.write_text("more\n")
    elif damage == "removed":
        path.unlink()
    elif damage == "linked":  # the same bytes, from elsewhere
        path.rename(tmp_path / "build.sh")
        path.symlink_to(tmp_path / "build.sh")
    elif damage == "added-link":
        path = path.with_name("more.sh")
        path.symlink_to(tmp_path / "toys" / "recipes" / "libtoy" / "build.sh")
    elif damage == "linked-folder":
        path = path.with_name("tests")
        path.symlink_to(tmp_path / "toys" / "recipes" / "libtoy")
    else:
        path.chmod(0o755)
    with pytest.raises(ConfigError, match=f"not as it was recorded: recipes/libtoy/{path.name}") as caught:
        load_tree(site)
    assert "overrides" in str(caught.value.hint)
    update_upstreams(site, (), progress=NotedProgress())
    load_tree(site)


BESIDE = {
    "recipes/libtoy/recipe.yaml": """\
context: {part: two}
package: {name: libtoy, version: "1"}
source:
  - path: src
  - {path: ../../lib, target_directory: lib}
  - if: unix
    then: {path: "../../parts/${{ part }}"}
  - path: ../../VERSION.txt
build: {noarch: generic, script: ["true"]}
about: {license: MIT, license_file: [../../legal/MIT.txt]}
""",
    "lib/a.c": "int a;\n",
    "lib/deep/b.c": "int b;\n",
    "lib/.gitignore": "*.o\n",
    "lib/a.o": "built\n",
    "parts/one/1.txt": "1\n",
    "parts/two/2.txt": "2\n",
    "VERSION.txt": "1\n",
    "legal/MIT.txt": "MIT\n",
    "legal/other.txt": "-\n",
    "notes.txt": "-\n",
}
NAMED = {
    "lib/a.c",
    "lib/deep/b.c",
    "lib/.gitignore",
    "parts/one/1.txt",
    "parts/two/2.txt",
    "VERSION.txt",
    "legal/MIT.txt",
}


@pytest.mark.parametrize("how", ["folder", "git"])
def test_what_an_upstreams_recipes_name_beside_them_is_copied_and_exported(tmp_path: Path, how: str) -> None:
    site = write_site(tmp_path)
    toys = write_tree(tmp_path / "toys", BESIDE)
    git(toys.root, "init", "-q", "--initial-branch=main")
    git(toys.root, "add", "--all")
    git(toys.root, "commit", "-q", "-m", "first")
    if how == "git":
        site.site_file.write_text("upstreams: [{name: toys, git: ../toys, rev: main}]\n")
    (change,) = update_upstreams(site, (), progress=NotedProgress())
    assert {path for path in change.added if path.partition("/")[0] not in {"recipes", "variants", "patches"}} == NAMED
    exported = set(files_to_export(site))
    assert {path for path in exported if path.startswith("upstreams/toys/lib/")} == {
        f"upstreams/toys/{path}" for path in NAMED if path.startswith("lib/")
    }
    assert set(files_to_export(toys)) >= NAMED
    assert "lib/a.o" not in files_to_export(toys)
    inputs = [file_inputs(TreeFiles(tree.root).of_build(rendered(tree, "udp")["libtoy"])) for tree in (site, toys)]
    assert inputs[0] == inputs[1]
    (site.upstreams / "toys" / "lib" / "c.c").write_text("int c;\n")
    with pytest.raises(ConfigError, match=r"not as it was recorded: lib/c\.c"):
        load_tree(site)


def test_a_recipe_that_builds_the_repository_around_it_is_copied_with_all_of_it(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    whole = MINE.replace("mine", "libtoy").replace("build:", "source: {path: ../..}\nbuild:").replace("[libtoy]", "[]")
    toys = write_tree(tmp_path / "toys", {"recipes/libtoy/recipe.yaml": whole, "lib/a.c": "int a;\n"})
    (change,) = update_upstreams(site, (), progress=NotedProgress())
    assert "lib/a.c" in change.added
    load_tree(site)
    assert "lib/a.c" in files_to_export(toys)


def test_a_copy_from_before_says_what_copies_what_its_recipes_name(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    package = rendered(site, "udp")["libtoy"]
    (site.upstreams / "toys" / "LICENSE").unlink()
    with pytest.raises(ConfigError, match=r"names \.\./\.\./LICENSE, which does not exist") as caught:
        TreeFiles(site.root).of_build(package)
    assert "channel_tools upstream update toys" in str(caught.value.hint)


def test_a_recipe_that_was_copied_from_an_upstream_finds_what_it_names_there(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    shutil.copytree(site.upstreams / "toys" / "recipes" / "libtoy", site.recipes / "libtoy")
    package = rendered(site, "udp")["libtoy"]
    assert package.recipe_file.folder == site.recipes / "libtoy"
    patch = "patches/libtoy/0001-louder.patch"
    copied = {file.path: file.target for file in TreeFiles(site.root).of_build(package)}
    assert copied[site.upstreams / "toys" / patch] == f"_tree/upstreams/toys/{patch}"
    # the tree's own is used from the moment when it is there
    (site.root / patch).parent.mkdir(parents=True)
    shutil.copy(site.upstreams / "toys" / patch, site.root / patch)
    assert site.root / patch in {file.path for file in TreeFiles(site.root).of_build(package)}


def test_a_recipe_of_the_trees_own_finds_nothing_in_upstreams(tmp_path: Path) -> None:
    own = MINE.replace("build:", "about: {license_file: ../../LICENSE}\nbuild:")
    site = write_site(tmp_path, files={"recipes/mine/recipe.yaml": own})
    with pytest.raises(ConfigError, match=r"names \.\./\.\./LICENSE, which does not exist") as caught:
        TreeFiles(site.root).of_build(rendered(site)["mine"])
    assert str(caught.value.hint) == "correct the name or add LICENSE"


LINKS = {
    "recipes/libtoy/src/link.c": "toy.c",
    "recipes/libtoy/src/linked": "proto",
    "recipes/libtoy/src/dangling": "nowhere",
    "recipes/libtoy/src/absolute": "/etc/hostname",
    "recipes/libtoy/src/outside": "../../../LICENSE",
    "recipes/libtoy/more.sh": "../toy-switch/src/switch.c",
}


def test_copies_and_exports_have_an_upstreams_links_and_nothing_that_git_ignores(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    toys = write_tree(tmp_path / "toys", {"recipes/libtoy/.gitignore": ".env\n", "recipes/libtoy/.env": "PASSWORD=x\n"})
    for name, target in LINKS.items():
        (toys.root / name).symlink_to(target)
    git(toys.root, "init", "-q")
    (change,) = update_upstreams(site, (), progress=NotedProgress())
    assert set(change.added) == {*LINKS, "recipes/libtoy/.gitignore"}
    assert {name: link_target(site.upstreams / "toys" / name) for name in LINKS} == LINKS

    (site.root / ".gitignore").write_text("*.c\n.env\n")
    (site.root / "recipes" / "mine" / ".env").write_text("PASSWORD=x\n")
    (site.root / "recipes" / "mine" / "link").symlink_to("recipe.yaml")
    git(site.root, "init", "-q")
    load_tree(site)  # what is copied is as recorded, whatever git ignores here
    with tarfile.open(export_tree(site, tmp_path).file) as tar:
        tar.extractall(tmp_path / "exported", filter="tar")
    exported = Tree(root=tmp_path / "exported")
    assert link_target(exported.recipes / "mine" / "link") == "recipe.yaml"
    assert not (exported.recipes / "mine" / ".env").exists()
    digests = []
    for tree in (site, exported, toys):
        files = TreeFiles(tree.root).of_build(rendered(tree, "udp")["libtoy"])
        digests.append(file_inputs(files))
    assert digests[0] == digests[1] == digests[2]
    assert digests[0]["file:src/absolute"] == "-> /etc/hostname"


@pytest.mark.parametrize(
    ("site", "message", "line"),
    [
        ("upstreams: [{name: toys}]", "needs either git and rev, or path", 1),
        ("upstreams:\n- {name: toys, path: a}\n- {name: toys, path: b}", "two upstreams are named 'toys'", 3),
        ("upstreams:\n- {name: toys, path: a, git: b}", "needs either git and rev, or path", 2),
        ("upstreams: [{name: toys, git: a}]", "has no rev", 1),
        ("upstreams: [{name: t, git: 'https://a:pw@h/x', rev: b}]", r"\(https://h/x\) is given with credentials", 1),
        ("upstreams: [{name: t, git: 'https://h/t/pw/x', rev: b}]", r"\(https://h/x\) is given with credentials", 1),
        ("upstreams: [{name: toys, path: a, rev: b}]", "has rev without git", 1),
        ("upstreams: [{name: ../toys, path: a}]", "name", 1),
        ("upstreams: [{path: a}]", "upstreams.0.name is missing", 1),
        ("upstream: []", "unknown key upstream", 1),
        ("upstreams: 3", "upstreams", 1),
    ],
)
def test_each_mistake_in_site_yaml_is_one_error_with_its_line(
    tmp_path: Path, site: str, message: str, line: int
) -> None:
    tree = write_tree(tmp_path)
    tree.site_file.write_text(site + "\n")
    with pytest.raises(ConfigError, match=message) as caught:
        read_site(tree)
    assert f"site.yaml:{line}" in str(caught.value)
    assert "pw" not in f"{caught.value} {caught.value.hint}"


def test_source_mirrors_are_addresses_or_folders_of_the_tree(tmp_path: Path) -> None:
    tree = write_tree(tmp_path)
    assert read_source_mirrors(tree) == ()
    tree.site_file.write_text(
        "source_mirrors:\n  https://github.com/: https://mirror.example/github/\n  https://ftp.gnu.org/: ../tars/\n"
    )
    folder = (tree.root.parent / "tars").as_uri()
    assert read_source_mirrors(tree) == (
        ("https://github.com/", "https://mirror.example/github/"),
        ("https://ftp.gnu.org/", f"{folder}/"),
    )
    assert read_site(tree) == ()


@pytest.mark.parametrize(
    ("of", "mirror", "message"),
    [
        ("https://github.com", "https://m.example/", "'https://github.com' .* does not end with a slash"),
        ("https://github.com/", "https://m.example", "'https://m.example' .* does not end with a slash"),
        ("github.com/", "https://m.example/", "'github.com/' is not the beginning of an address"),
        ("https://github.com/", "https://me:secret@m.example/", "https://m.example/ is given with credentials"),
        ("https://github.com/", "3", "does not end with a slash"),
    ],
)
def test_a_source_mirror_that_cannot_be_meant_is_an_error_with_its_line(
    tmp_path: Path, of: str, mirror: str, message: str
) -> None:
    tree = write_tree(tmp_path)
    tree.site_file.write_text(f"upstreams: []\nsource_mirrors:\n  {of}: '{mirror}'\n")
    with pytest.raises(ConfigError, match=message) as caught:
        read_source_mirrors(tree)
    assert "site.yaml:3" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("site", "message"),
    [
        (SITE.replace("toys,", "others,"), "'others' has not been copied"),
        (SITE.replace("../toys", "../elsewhere"), "was copied from ../toys"),
    ],
)
def test_an_upstream_that_was_not_copied_says_what_to_run(tmp_path: Path, site: str, message: str) -> None:
    tree = write_site(tmp_path)
    tree.site_file.write_text(site)
    with pytest.raises(ConfigError, match=message) as caught:
        upstream_trees(tree)
    assert "channel_tools upstream update" in str(caught.value.hint)


def test_an_address_with_a_password_that_was_recorded_is_not_shown(tmp_path: Path) -> None:
    tree = write_site(tmp_path)
    record = tree.locks / "upstreams.json"
    record.write_text(record.read_text().replace('"../toys"', '"https://me:pw@host/toys"'))
    with pytest.raises(ConfigError, match="was copied from https://host/toys,") as caught:
        upstream_trees(tree)
    assert "pw" not in f"{caught.value} {caught.value.hint}"


def test_a_damaged_record_is_one_error(tmp_path: Path) -> None:
    tree = write_site(tmp_path)
    for content in ("", "[]", '{"schema": 2, "upstreams": []}', '{"schema": 1, "upstreams": [{"name": 3}]}'):
        (tree.locks / "upstreams.json").write_text(content)
        with pytest.raises(ConfigError, match="not a record of upstreams"):
            load_tree(tree)


@pytest.mark.parametrize(
    ("stacks", "message"),
    [
        ("  own: {extends: upd}\n", "extends 'upd', which is not a stack"),
        ("  own: {extends: own}\n", "extends 'own', which is not a stack"),
        ("  own: {extends: a}\n  a: {extends: own}\n", "extends itself, by way of own and a"),
        ("  own: {extends: udp, variants: [none.yaml]}\n", "names the variant file 'none.yaml'"),
        ("  own: {extends: udp, packages: [none]}\n", "names the package 'none'"),
        ("  own: {packages: [mine], install: [mine]}\n", "stacks.own.description is missing"),
        ("  own: {description: x, packages: [], install: [mine]}\n", "stacks.own.packages is empty"),
    ],
)
def test_each_mistake_in_what_a_stack_extends_is_one_error(tmp_path: Path, stacks: str, message: str) -> None:
    tree = write_site(tmp_path)
    tree.stacks_file.write_text("default_stack: own\nstacks:\n" + stacks)
    with pytest.raises(ConfigError, match=message) as caught:
        load_tree(tree)
    assert "stacks.yaml:" in str(caught.value)


def test_a_stack_adds_to_what_it_extends(tmp_path: Path) -> None:
    stacks = (
        OWN + "  more: {extends: udp, packages: [mine], install: [mine, 'toy-meta >=1']}\n  most: {extends: more}\n"
    )
    loaded = load_tree(write_site(tmp_path, stacks))
    for name in ("more", "most"):
        stack = loaded.stacks[name]
        assert stack.description == "Sums over sockets"
        assert stack.packages == ("libtoy", "toy-switch", "toy-plugin", "toy-meta", "mine")
        assert stack.install == ("libtoy * udp*", "mine", "toy-meta >=1")
        assert stack.variants == ("udp.yaml",)
        assert stack.validation["method"] == "switchml"
