# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from channel_tools.conda.platforms import current_platform
from channel_tools.matrix import expand_stacks, load_tree
from channel_tools.requests.init import InitRequest
from channel_tools.system.errors import ChannelToolsError, ConfigError, IntegrityError, NetworkError, UsageError
from channel_tools.system.settings import Tree
from channel_tools.system.yamlfile import read_yaml
from channel_tools.workflow.init import init_tree
from channel_tools.workflow.upstream import update_upstreams
from tests.unit.foundation.registries import NotedProgress
from tests.unit.matrix.toytree import write_tree
from tests.unit.sources.toys import git

if TYPE_CHECKING:
    from channel_tools.matrix import FoundationKind
    from channel_tools.requests.names import CiService

WORDS = ("SITE_NAME", "BASE_STACK", "UPSTREAM_NAME", "UPSTREAM_KEYS")


def _init(folder: Path, upstream: str | None = None, ci: CiService | None = None) -> tuple[str, ...]:
    return init_tree(InitRequest(folder=folder, upstream=upstream, ci=ci), progress=NotedProgress())


def _repository(root: Path) -> Path:
    """The toy tree as a git repository with a tag."""
    write_tree(root)
    (root / "recipes" / "libtoy" / "build.sh").chmod(0o755)
    (root / "recipes" / "libtoy" / "link").symlink_to("build.sh")
    (root / "docs").mkdir()
    (root / "docs" / "large.md").write_text("not copied\n")
    for words in (
        ("init", "-q", "-b", "main"),
        ("add", "-A"),
        ("commit", "-q", "-m", "first"),
        ("tag", "-a", "v1", "-m", "v1"),
        ("tag", "release/2026.11"),
    ):
        git(root, *words)
    return root


@pytest.mark.parametrize("kind", ["registry", "conda-forge"])
@pytest.mark.parametrize("ci", [None, "github", "gitlab"])
def test_a_new_tree_can_be_planned_as_it_is(tmp_path: Path, kind: FoundationKind, ci: CiService | None) -> None:
    files = _init(tmp_path / "my.site-2", ci=ci)
    tree = Tree(root=tmp_path / "my.site-2")
    written = {path.relative_to(tree.root).as_posix() for path in tree.root.rglob("*") if path.is_file()}
    assert written == set(files)
    assert not [name for name in files if name.endswith(".in")]
    for name in files:
        text = (tree.root / name).read_text()
        assert not [word for word in WORDS if word in text], name
        if name.endswith((".yaml", ".yml")):
            yaml.safe_load(text)
    loaded = load_tree(tree)
    assert not loaded.notes
    packages = expand_stacks(loaded, loaded.stacks.values(), foundation_kind=kind, platform=current_platform())
    assert [package.name for package in packages] == ["hello", "hello-python", "channel_tools-stacks"]
    assert ci is None or any(ci in name for name in files)


def test_a_tree_on_a_folder_extends_its_default_stack(tmp_path: Path) -> None:
    write_tree(tmp_path / "The Toys")
    _init(tmp_path / "sites" / "mine", str(tmp_path / "The Toys"))
    tree = Tree(root=tmp_path / "sites" / "mine")
    assert read_yaml(tree.site_file).value == {"upstreams": [{"name": "the-toys", "path": "../../The Toys"}]}
    stack = load_tree(tree).stacks["mine"]
    assert stack.packages == (
        "libtoy",
        "toy-switch",
        "toy-plugin",
        "toy-meta",
        "hello",
        "hello-python",
        "channel_tools-stacks",
    )
    assert stack.validation["method"] == "switchml"
    update_upstreams(tree, (), progress=NotedProgress())


@pytest.mark.parametrize("rev", ["v1", "release/2026.11", "main", "commit"])
def test_a_tree_on_a_repository_records_the_commit_of_a_revision(tmp_path: Path, rev: str) -> None:
    repository = _repository(tmp_path / "toys")
    commit = git(repository, "rev-parse", "HEAD")
    _init(tmp_path / "mine", f"file://{repository}@{commit if rev == 'commit' else rev}")
    tree = Tree(root=tmp_path / "mine")
    load_tree(tree)
    copy = tree.upstreams / "toys"
    assert f'"commit": "{commit}"' in (tree.locks / "upstreams.json").read_text()
    assert (copy / "recipes" / "libtoy" / "build.sh").stat().st_mode & 0o777 == 0o755
    assert not (copy / "docs").exists()
    assert (copy / "recipes" / "libtoy" / "link").readlink() == Path("build.sh")

    (repository / "variants" / "udp.yaml").write_text("transport: [rdma]\n")
    git(repository, "commit", "-q", "-a", "-m", "second")
    (change,) = update_upstreams(tree, (), progress=NotedProgress())
    moved = rev == "main"
    assert (change.commit != commit, bool(change.changed)) == (moved, moved)
    load_tree(tree)


def test_an_upstream_with_a_submodule_in_its_recipes_is_not_copied_without_it(tmp_path: Path) -> None:
    repository = _repository(tmp_path / "toys")
    commit = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{commit},recipes/libtoy/third")
    git(repository, "commit", "-q", "-m", "a submodule")
    git(repository, "tag", "v2")
    with pytest.raises(IntegrityError, match="submodule 'recipes/libtoy/third', whose files a copy would lack"):
        _init(tmp_path / "mine", f"file://{repository}@v2")
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("kind", ["annotated", "lightweight", "branch", "named anew"])
def test_a_tag_that_was_moved_is_named(tmp_path: Path, kind: str) -> None:
    repository = _repository(tmp_path / "toys")
    commit = git(repository, "rev-parse", "HEAD")
    _init(tmp_path / "mine", f"file://{repository}@{'main' if kind == 'branch' else 'v1'}")
    tree = Tree(root=tmp_path / "mine")
    (repository / "variants" / "udp.yaml").write_text("transport: [rdma]\n")
    git(repository, "commit", "-q", "-a", "-m", "second")
    if kind == "named anew":
        git(repository, "tag", "v2")
        tree.site_file.write_text(tree.site_file.read_text().replace("v1", "v2"))
    else:
        git(repository, "tag", "-f", *(("-a", "-m", "again") if kind == "annotated" else ()), "v1")
    (change,) = update_upstreams(tree, (), progress=NotedProgress())
    assert change.changed == ("variants/udp.yaml",)
    assert change.moved_from == (commit if kind in {"annotated", "lightweight"} else None)


@pytest.mark.parametrize(
    ("name", "upstream", "error", "message"),
    [
        ("My Site", None, UsageError, "cannot be the name of a stack"),
        ("full", None, UsageError, "is not an empty folder"),
        ("file", None, UsageError, "is not an empty folder"),
        ("new", "nowhere", UsageError, "neither a folder nor ADDRESS@REV"),
        ("new", "~nosuchuser/x", UsageError, "there is no such home folder"),
        ("new", "git@host:trees/toys", UsageError, "neither a folder nor ADDRESS@REV"),
        ("new", "https://me:pw@host/toys.git@v1", UsageError, "https://host/toys.git.*: given with credentials"),
        ("new", "https://me:pw@host/toys.git", UsageError, "https://host/toys.git: given with credentials"),
        ("new", "https://host/t/pw/toys.git@v1", UsageError, "given with credentials"),
        ("new", "{root}/full", ConfigError, "so it is no tree of recipes"),
        ("new", "file://{root}/toys@v2", ConfigError, "no tag or branch 'v2'"),
        ("new", "file://{root}/none@v1", NetworkError, "cannot be read from"),
    ],
)
def test_a_tree_that_cannot_be_started_leaves_nothing(
    tmp_path: Path, name: str, upstream: str | None, error: type[ChannelToolsError], message: str
) -> None:
    _repository(tmp_path / "toys")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file.txt").write_text("mine\n")
    (tmp_path / "file").write_text("mine\n")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error, match=message) as caught:
        _init(tmp_path / name, upstream.format(root=tmp_path) if upstream else None)
    assert caught.value.hint
    assert "pw" not in f"{caught.value} {caught.value.hint}"
    assert sorted(tmp_path.rglob("*")) == before


def test_an_upstream_that_site_yaml_does_not_name_is_refused(tmp_path: Path) -> None:
    write_tree(tmp_path / "toys")
    _init(tmp_path / "mine", str(tmp_path / "toys"))
    with pytest.raises(ConfigError, match="no upstream is named 'toy'") as caught:
        update_upstreams(Tree(root=tmp_path / "mine"), ["toy"], progress=NotedProgress())
    assert "toys" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="names no upstream"):
        update_upstreams(Tree(root=tmp_path / "toys"), (), progress=NotedProgress())
