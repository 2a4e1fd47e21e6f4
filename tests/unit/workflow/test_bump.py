# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import hashlib
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from channel_tools.matrix import load_tree
from channel_tools.requests.init import BumpRequest
from channel_tools.system.errors import ConfigError, FileAccessError, IntegrityError, UsageError
from channel_tools.system.settings import Settings
from channel_tools.workflow.bump import Bumped, bump, bump_latest
from channel_tools.workflow.upstream import update_upstreams
from tests.unit.foundation.registries import NotedProgress
from tests.unit.matrix.test_site import write_site
from tests.unit.matrix.toytree import write_tree
from tests.unit.sources.toys import git, tar_gz

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.system.settings import Tree

PATCH = "--- a/toy.c\n+++ b/toy.c\n@@ -1 +1 @@\n-int toy(void) { return 1; }\n+int toy(void) { return 2; }\n"
SECOND = PATCH.replace("toy.c", "other.c")
TOY = b"int toy(void) { return 1; }\n"
RECIPE = """\
context:
  name: libtoy
  version: "1.0"   # the release
  number: 3

package: {name: libtoy, version: "${{ version }}"}
source:
  - url: %s/libtoy-${{ version }}.tar.gz
    sha256: %s  # as upstream says
    patches:
      - ../../patches/libtoy/1.0/0001-two.patch
      - ../../patches/libtoy/1.0/0002-other.patch
build: {number: "${{ number }}", script: ["true"], string: "${{ transport }}_h${{ hash }}_0"}
"""


@pytest.fixture(autouse=True)
def no_debian(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a source is missing, Debian's indexes would be fetched."""
    monkeypatch.setattr("channel_tools.workflow.sources.debian_sources", lambda _settings: ())


def tarball(folder: Path, version: str, **changes: bytes) -> str:
    """A release, beside those of other versions; its sha256."""
    files = {"toy.c": TOY, "other.c": TOY, "VERSION": version.encode(), **changes}
    content = tar_gz({f"libtoy-{version}/{name}": text for name, text in files.items()})
    folder.mkdir(exist_ok=True)
    (folder / f"libtoy-{version}.tar.gz").write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def own_tree(root: Path, recipe: str | None = None, **files: str) -> Tree:
    """A tree whose libtoy is a release with two patches."""
    old = tarball(root / "releases", "1.0")
    text = RECIPE % ((root / "releases").as_uri(), old) if recipe is None else recipe
    patches = {"patches/libtoy/1.0/0001-two.patch": PATCH, "patches/libtoy/1.0/0002-other.patch": SECOND}
    return write_tree(root / "tree", {"recipes/libtoy/recipe.yaml": text, **patches, **files})


def run(tree: Tree, package: str, version: str, **words: str | bool) -> Bumped:
    settings = Settings(tree=tree, output=tree.root / "output", cache=tree.root.parent / "cache")
    request = BumpRequest(package=package, version=version, **words)  # type: ignore[arg-type]
    return bump(settings, request, NotedProgress())


def content_of(tree: Tree) -> dict[str, bytes]:
    return {str(path.relative_to(tree.root)): path.read_bytes() for path in tree.root.rglob("*") if path.is_file()}


def test_version_sha256_and_patches_move_and_comments_stay(tmp_path: Path) -> None:
    tree = own_tree(tmp_path)
    before = (tree.recipes / "libtoy" / "recipe.yaml").read_text()
    old, new = tarball(tmp_path / "releases", "1.0"), tarball(tmp_path / "releases", "1.1")
    done = run(tree, "libtoy", "1.1")
    expected = before.replace('"1.0"', '"1.1"').replace("/1.0/", "/1.1/").replace(old, new).replace("er: 3", "er: 0")
    assert (tree.recipes / "libtoy" / "recipe.yaml").read_text() == expected
    assert (tree.patches / "libtoy" / "1.1" / "0001-two.patch").read_text() == PATCH
    assert not (tree.patches / "libtoy" / "1.0").exists()
    assert done.patches == ("patches/libtoy/1.1/0001-two.patch", "patches/libtoy/1.1/0002-other.patch")
    assert [(str(line.path), line.line) for line in done.lines] == [
        ("recipes/libtoy/recipe.yaml", number) for number in (3, 4, 9, 11, 12)
    ]
    assert done.sources[0].sha256 == new
    assert done.variants > 0
    load_tree(tree)


def test_a_patch_that_another_recipe_names_stays_where_it_is(tmp_path: Path) -> None:
    shared = "package: {name: toy-meta, version: '1'}\nbuild: {noarch: generic}\n# patches/libtoy/1.0/0001-two.patch\n"
    tree = own_tree(tmp_path, **{"recipes/toy-meta/recipe.yaml": shared})
    tarball(tmp_path / "releases", "1.1")
    run(tree, "libtoy", "1.1")
    assert [path.name for path in (tree.patches / "libtoy" / "1.0").iterdir()] == ["0001-two.patch"]


def test_check_writes_nothing(tmp_path: Path) -> None:
    tree = own_tree(tmp_path)
    tarball(tmp_path / "releases", "1.1")
    before = content_of(tree)
    done = run(tree, "libtoy", "1.1", check=True)
    assert done.moved
    assert content_of(tree) == before


def test_a_file_that_cannot_be_written_leaves_every_other_as_it_was(tmp_path: Path) -> None:
    tree = own_tree(tmp_path)
    tarball(tmp_path / "releases", "1.1")
    before = content_of(tree)
    (tree.patches / "libtoy" / "1.1").mkdir(parents=True)
    os.mkfifo(tree.patches / "libtoy" / "1.1" / "0002-other.patch")  # the second of three files
    with pytest.raises(FileAccessError, match=r"0002-other\.patch: is a pipe"):
        run(tree, "libtoy", "1.1")
    assert content_of(tree) == before


def test_every_patch_is_named_if_one_fails_and_one_that_is_there_already_is_used(tmp_path: Path) -> None:
    tree = own_tree(tmp_path)
    tarball(tmp_path / "releases", "1.1", **{"toy.c": b"int toy(int) { return 1; }\n"})
    before = content_of(tree)
    with pytest.raises(ConfigError, match=r"1 of 2 patches of libtoy does not apply to 1\.1; nothing was") as caught:
        run(tree, "libtoy", "1.1")
    said = str(caught.value)
    assert "patches/libtoy/1.1/0001-two.patch: fails" in said
    assert "hunk 1 of toy.c: line 1 is 'int toy(int) { return 1; }'" in said
    assert "patches/libtoy/1.1/0002-other.patch: applies" in said
    assert str(tmp_path / "tree") in said
    assert content_of(tree) == before
    fixed = PATCH.replace("(void)", "(int)")
    (tree.patches / "libtoy" / "1.1").mkdir()
    (tree.patches / "libtoy" / "1.1" / "0001-two.patch").write_text(fixed)
    run(tree, "libtoy", "1.1")
    assert (tree.patches / "libtoy" / "1.1" / "0001-two.patch").read_text() == fixed
    assert (tree.patches / "libtoy" / "1.1" / "0002-other.patch").read_text() == SECOND


BRANCHES = """\
context:
  version: ${{ toy_version }}
package: {name: libtoy, version: "${{ version }}"}
source:
  - if: toy_version == "1.0"
    then:
      url: RELEASES/libtoy-1.0.tar.gz   # kept
      sha256: OLD
      patches: [../../patches/libtoy/1.0/0001-two.patch]
  - if: toy_version == "1.0.5"
    then:
      url: RELEASES/libtoy-1.0.5.tar.gz
      sha256: OTHER
build: {script: ["true"], string: "${{ flavour }}_h${{ hash }}_0"}
"""
ZIPPED = """\
transport: [udp]
toy_version: ["1.0.5", "1.0"]   # both
flavour: [new, old]
zip_keys: [[toy_version, flavour]]
"""


def branched_tree(root: Path) -> Tree:
    text = BRANCHES.replace("RELEASES", (root / "releases").as_uri())
    text = text.replace("OLD", tarball(root / "releases", "1.0")).replace("OTHER", tarball(root / "releases", "1.0.5"))
    return own_tree(root, text, **{"variants/udp.yaml": ZIPPED})


def test_of_several_versions_one_is_replaced_and_zipped_keys_stay_aligned(tmp_path: Path) -> None:
    tree = branched_tree(tmp_path)
    old, new = tarball(tmp_path / "releases", "1.0"), tarball(tmp_path / "releases", "2.0")
    before = (tree.recipes / "libtoy" / "recipe.yaml").read_text()
    with pytest.raises(UsageError, match=r"several versions: 1\.0, 1\.0\.5"):
        run(tree, "libtoy", "2.0")
    with pytest.raises(UsageError, match=r"has the version 1\.0\.5 already"):
        run(tree, "libtoy", "1.0.5", old="1.0")
    done = run(tree, "libtoy", "2.0", old="1.0")
    assert (tree.variants / "udp.yaml").read_text() == ZIPPED.replace('"1.0"]', '"2.0"]')
    expected = before.replace('"1.0"', '"2.0"').replace("libtoy-1.0.tar", "libtoy-2.0.tar").replace(old, new)
    assert (tree.recipes / "libtoy" / "recipe.yaml").read_text() == expected.replace("/1.0/", "/2.0/")
    assert done.patches == ("patches/libtoy/2.0/0001-two.patch",)


def test_a_condition_that_does_not_follow_the_version_is_an_error(tmp_path: Path) -> None:
    tree = branched_tree(tmp_path)
    path = tree.recipes / "libtoy" / "recipe.yaml"
    path.write_text(path.read_text().replace('if: toy_version == "1.0"\n', 'if: match(toy_version, "1.0")\n'))
    tarball(tmp_path / "releases", "2.0")
    before = content_of(tree)
    with pytest.raises(ConfigError):
        run(tree, "libtoy", "2.0", old="1.0")
    assert content_of(tree) == before


def test_a_sha256_stands_in_for_a_source_that_cannot_be_reached(tmp_path: Path) -> None:
    tree = own_tree(tmp_path)
    with pytest.raises(Exception, match=r"there is no such file") as caught:
        run(tree, "libtoy", "1.1")
    assert "--sha256" in str(getattr(caught.value, "hint", ""))
    done = run(tree, "libtoy", "1.1", sha256="a" * 64)
    assert not done.sources[0].is_checked
    assert not done.patches
    assert len(done.unchecked) == 2
    assert "a" * 64 in (tree.recipes / "libtoy" / "recipe.yaml").read_text()


def test_a_sha256_that_the_source_does_not_have_is_refused(tmp_path: Path) -> None:
    tree = own_tree(tmp_path)
    tarball(tmp_path / "releases", "1.1")
    before = content_of(tree)
    with pytest.raises(IntegrityError):
        run(tree, "libtoy", "1.1", sha256="a" * 64)
    assert content_of(tree) == before


def test_a_git_source_needs_the_commit_of_the_version(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    commits = []
    for number in (1, 2):
        (repository / "toy.c").write_bytes(TOY + b"\n" * number)
        if number == 1:
            git(repository, "init", "-q")
        git(repository, "add", "-A")
        git(repository, "commit", "-q", "-m", str(number))
        commits.append(git(repository, "rev-parse", "HEAD").strip())
    recipe = (
        'context: {version: "1.0"}\npackage: {name: libtoy, version: "${{ version }}"}\n'
        f"source:\n  git: {repository.as_uri()}\n  rev: {commits[0]}\n"
        '  patches: [../../patches/libtoy/1.0/0001-two.patch]\nbuild: {script: ["true"]}\n'
    )
    tree = own_tree(tmp_path, recipe)
    before = content_of(tree)
    with pytest.raises(ConfigError, match="no source of libtoy changes with its version") as caught:
        run(tree, "libtoy", "1.1")
    assert "--commit" in str(caught.value.hint)
    assert content_of(tree) == before
    done = run(tree, "libtoy", "1.1", commit=commits[1])
    assert commits[1] in (tree.recipes / "libtoy" / "recipe.yaml").read_text()
    assert done.patches == ("patches/libtoy/1.1/0001-two.patch",)


STACKS = """\
default_stack: own
stacks:
  own:
    extends: udp
    packages: [mine]  # ours
%s  other: {description: another, packages: [mine], install: [mine]}
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", '    overrides: {"libtoy": {version: "1.1", sha256: "SHA"}}\n'),
        ("    overrides: {}\n", '    overrides: {libtoy: {version: "1.1", sha256: "SHA"}}\n'),
        (
            "    overrides:\n      libtoy:\n        environment: {A: b}  # kept\n",
            (
                "    overrides:\n      libtoy:\n        environment: {A: b}  # kept\n"
                '        version: "1.1"\n        sha256: "SHA"\n'
            ),
        ),
        (
            '    overrides: {libtoy: {version: "1.0", sha256: BEFORE}}  # kept\n',
            '    overrides: {libtoy: {version: "1.1", sha256: "SHA"}}  # kept\n',
        ),
    ],
)
def test_an_upstreams_recipe_is_bumped_by_the_override_of_the_stacks(tmp_path: Path, given: str, expected: str) -> None:
    old, new = tarball(tmp_path / "releases", "1.0"), tarball(tmp_path / "releases", "1.1")
    upstream = RECIPE % ((tmp_path / "releases").as_uri(), old)
    site = write_site(tmp_path, STACKS % "")
    theirs = {
        "recipes/libtoy/recipe.yaml": upstream,
        "patches/libtoy/1.0/0001-two.patch": PATCH,
        "patches/libtoy/1.0/0002-other.patch": SECOND,
    }
    write_tree(tmp_path / "toys", theirs)
    site = write_site_again(site, STACKS % given.replace("BEFORE", old))
    copy = content_of(site)
    done = run(site, "libtoy", "1.1")
    assert site.stacks_file.read_text() == STACKS % expected.replace("SHA", new)
    assert done.patches == tuple(
        f"upstreams/toys/patches/libtoy/1.0/{name}" for name in ("0001-two.patch", "0002-other.patch")
    )
    after = content_of(site)
    assert {name for name in after if after[name] != copy.get(name)} == {"variants/stacks.yaml"}


def write_site_again(site: Tree, stacks: str) -> Tree:
    site.stacks_file.write_text(stacks)
    update_upstreams(site, (), progress=NotedProgress())
    return site


@pytest.mark.parametrize(
    ("package", "version", "words", "message"),
    [
        ("libtou", "1.1", {}, "no recipe 'libtou'"),
        ("libtoy", "1.0", {}, "has the version 1.0 already"),
        ("libtoy", "1-1", {}, "is not a version"),
        ("libtoy", "1.1", {"old": "9"}, "has no version 9: it has 1.0"),
        ("libtoy", "1.1", {"sha256": "abc"}, "--sha256 must be 64"),
        ("libtoy", "1.1", {"commit": "v1"}, "--commit must be 40"),
        ("libtoy", "1.1", {"commit": "a" * 40}, "0 git sources"),
        ("libtoy", "1.1", {"stack": "udp"}, "the tree's own"),
    ],
)
def test_what_cannot_be_meant_is_one_error(
    tmp_path: Path, package: str, version: str, words: dict[str, str], message: str
) -> None:
    tree = own_tree(tmp_path)
    tarball(tmp_path / "releases", "1.1")
    before = content_of(tree)
    with pytest.raises(UsageError, match=message):
        run(tree, package, version, **words)
    assert content_of(tree) == before


def upstreams_site(root: Path, stacks: str) -> Tree:
    """A site's tree whose upstream has libtoy as own_tree has it."""
    own_tree(root)
    (root / "tree").rename(root / "toys")
    site = write_site(root, stacks)
    old = tarball(root / "releases", "1.0")
    (root / "toys" / "recipes" / "libtoy" / "recipe.yaml").write_text(RECIPE % ((root / "releases").as_uri(), old))
    update_upstreams(site, (), progress=NotedProgress())
    return site


def test_a_recipe_that_only_an_upstreams_stacks_build_is_bumped_after_the_line_that_the_error_names(
    tmp_path: Path,
) -> None:
    stacks = "default_stack: own\nstacks:\n  own: {description: ours, packages: [mine], install: [mine]}\n"
    site = upstreams_site(tmp_path, stacks)
    tarball(tmp_path / "releases", "1.1")
    with pytest.raises(UsageError, match="no stack of the tree builds libtoy") as caught:
        run(site, "libtoy", "1.1")
    hint = str(caught.value.hint)
    assert hint.startswith("of the upstream's, udp;")
    site.stacks_file.write_text(f"{stacks}  {hint.partition('stacks.yaml:')[2].strip()}\n")
    assert run(site, "libtoy", "1.1").variants > 0


def test_a_copied_recipe_is_bumped_with_its_own_patches_and_the_upstreams_stay(tmp_path: Path) -> None:
    site = upstreams_site(tmp_path, "default_stack: udp\nstacks:\n  udp: {extends: udp}\n")
    copy = site.upstreams / "toys"
    shutil.copytree(copy / "recipes" / "libtoy", site.recipes / "libtoy")
    tarball(tmp_path / "releases", "1.1")
    done = run(site, "libtoy", "1.1")
    assert done.moved[0] == ("upstreams/toys/patches/libtoy/1.0/0001-two.patch", "patches/libtoy/1.1/0001-two.patch")
    assert (site.patches / "libtoy" / "1.1" / "0002-other.patch").read_text() == SECOND
    assert (copy / "patches" / "libtoy" / "1.0" / "0001-two.patch").is_file()
    load_tree(site)


def test_the_latest_release_is_found_beside_the_source_and_what_fails_stops_no_other(tmp_path: Path) -> None:
    other = RECIPE.replace("libtoy", "zother") % ("file:///absent", "0" * 64)
    tree = own_tree(tmp_path, **{"recipes/zother/recipe.yaml": other.partition("    patches:")[0] + "build: {}\n"})
    settings = Settings(tree=tree, output=tree.root / "output", cache=tree.root.parent / "cache")
    for version in ("1.0", "1.9", "1.10"):
        tarball(tmp_path / "releases", version)
    (row,) = bump_latest(settings, BumpRequest(package="libtoy", latest=True, check=True), NotedProgress())
    assert (row.version, row.bumped is not None) == ("1.10", True)
    rows = bump_latest(settings, BumpRequest(latest=True), NotedProgress())
    assert next((row.recipe, row.version, row.error is None) for row in rows) == ("libtoy", "1.10", True)
    (row,) = bump_latest(settings, BumpRequest(package="libtoy", latest=True), NotedProgress())
    assert (row.version, row.bumped) == ("1.10", None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"package": "libtoy"}, "nothing says which version"),
        ({"package": "libtoy", "version": "1", "latest": True}, "--latest with a version"),
        ({"latest": True, "sha256": "0" * 64}, "are of one recipe"),
    ],
)
def test_what_to_bump_to_is_said_once(words: dict[str, str | bool], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BumpRequest(**words)  # type: ignore[arg-type]
