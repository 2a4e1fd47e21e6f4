# SPDX-License-Identifier: BSD-3-Clause
"""Trees of which git makes no files: refused whole and by name, wherever a commit becomes files."""

from __future__ import annotations

import hashlib
import os
import subprocess
import zlib
from typing import TYPE_CHECKING

import pytest

from channel_tools.requests.init import InitRequest
from channel_tools.sources.git import GitFetcher, GitRepository
from channel_tools.sources.gitarchive import write_archive
from channel_tools.sources.gittree import TreeEntry, clash_in, fault_of
from channel_tools.sources.store import SourceStore
from channel_tools.system.errors import IntegrityError, NetworkError
from channel_tools.system.settings import Tree
from channel_tools.workflow.init import init_tree
from channel_tools.workflow.upstream import update_upstreams
from tests.unit.foundation.registries import NotedProgress
from tests.unit.matrix.toytree import write_tree
from tests.unit.sources.hostile import CLASHES, FILE, HOSTILE, LINKS, NAMES, UNSENT, Entry, commit_with, write_object
from tests.unit.sources.toys import git, git_need, make_repository

if TYPE_CHECKING:
    from pathlib import Path

UPSTREAM = HOSTILE | LINKS | {f"clash-of-{kind}": case for kind, case in CLASHES.items()}
HARMLESS: tuple[str | bytes, ...] = (
    "...", "..x", "x..", ".gitx", ".git-", ".github", ".gitignore", "git~2", "git~10", "agit~1", "x\\y", "x\\..\\y",
    "-x", "a b ", "a.", "c:", "\u00e4", b"\xff\xfe", "\u200cgit", "con", "a:b", "\n", ".gitmodules", "gitmod~1",
)  # fmt: skip
"""Names that git makes files of."""


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """The toy tree as a git repository with the tag v1."""
    root = tmp_path / "toys"
    write_tree(root)
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "first"), ("tag", "v1")):
        git(root, *words)
    return root


def _snapshot(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if not path.name.endswith(".lock")
    }


@pytest.mark.parametrize("kind", UPSTREAM)
def test_a_hostile_upstream_is_refused_by_name_and_nothing_is_written(
    tmp_path: Path, upstream: Path, kind: str
) -> None:
    """As the first upstream of a new tree, and as the next revision of one that was harmless."""
    entries, name = UPSTREAM[kind]
    init_tree(InitRequest(folder=tmp_path / "site", upstream=f"file://{upstream}@v1"), progress=NotedProgress())
    tree = Tree(root=tmp_path / "site")
    for place in ("recipes", "variants", "patches", "") if kind == "folder-dot-dot" else ("recipes",):
        tag = f"evil-{place}"
        commit_with(upstream, place, entries, tag=tag)
        site_file = tree.site_file.read_text()
        tree.site_file.write_text(site_file.replace("v1", tag))
        before = _snapshot(tmp_path)
        for attempt in (
            lambda tag=tag: init_tree(
                InitRequest(folder=tmp_path / "new", upstream=f"file://{upstream}@{tag}"), progress=NotedProgress()
            ),
            lambda: update_upstreams(tree, (), progress=NotedProgress()),
        ):
            with pytest.raises(NetworkError if kind in UNSENT else IntegrityError) as caught:
                attempt()
            assert f"file://{upstream}" in caught.value.message
            if kind not in UNSENT:
                assert name in caught.value.message
                assert "nothing of it was written" in str(caught.value.hint)
            assert _snapshot(tmp_path) == before
        tree.site_file.write_text(site_file)


@pytest.mark.parametrize("kind", HOSTILE | LINKS)
def test_a_hostile_git_source_is_refused_by_name_and_not_stored(tmp_path: Path, kind: str) -> None:
    """From a local clone, and fetched: with all files, with some left out, and as a submodule."""
    entries, name = (HOSTILE | LINKS)[kind]
    make_repository(tmp_path / "toy", {"file": b"x"})
    commit = commit_with(tmp_path / "toy", "", entries, tag="evil")
    git(tmp_path / "toy", "config", "uploadpack.allowAnySHA1InWant", "true")
    git(tmp_path / "toy", "config", "uploadpack.allowFilter", "true")
    store = SourceStore(folder=tmp_path / "store")
    url = f"file://{tmp_path / 'toy'}"
    local = GitRepository(folder=tmp_path / "toy")
    choices: tuple[tuple[str, ...], ...] = ((), ("file",))
    for number, excludes in enumerate(choices):
        fetcher = GitFetcher(
            folder=tmp_path / f"fetched-{number}.git", urls=(url,), excludes=excludes, poll=lambda: None
        )
        for find in (lambda _path, _commit, _url: local, fetcher.find):
            need = git_need(commit, url, excludes=excludes)
            unsent = kind in UNSENT and find == fetcher.find
            with pytest.raises(NetworkError if unsent else IntegrityError) as caught:
                store.add_commit(need, find, origin=url)
            assert unsent or name in caught.value.message
            assert store.find(need) is None
    assert not [path for path in store.commits.iterdir() if not path.name.startswith(".")]


def _git_takes(folder: Path, name: bytes) -> bool:
    """Whether git puts an entry of this name into its index, by the rules of all systems."""
    blob = git(folder, "hash-object", "-w", "-t", "blob", os.devnull)
    rules = ["-c", "core.protectHFS=true", "-c", "core.protectNTFS=true"]
    words = [
        b"git",
        *map(os.fsencode, rules),
        b"update-index",
        b"--add",
        b"--cacheinfo",
        b"100644",
        blob.encode(),
        name,
    ]
    return subprocess.run(words, cwd=folder, capture_output=True, check=False).returncode == 0


def test_names_are_refused_as_git_refuses_them(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for name in [*map(os.fsencode, NAMES.values()), *map(os.fsencode, HARMLESS)]:
        entry = TreeEntry(path=os.fsdecode(name), mode=FILE, object="0" * 40)
        assert (fault_of(entry) is None) is _git_takes(tmp_path, name), name


def test_harmless_names_and_all_of_gits_modes_become_files(tmp_path: Path) -> None:
    make_repository(tmp_path / "toy", {"file": b"x"})
    entries = (
        *(Entry(name=os.fsencode(name)) for name in HARMLESS),
        Entry(name=b"old", mode="100664"),
        Entry(name=b"program", mode="100755"),
        Entry(name=b"Upper"),
        Entry(name=b"upper"),
        Entry(name=b"link", mode="120000", content=b"old"),
    )
    ordered = tuple(sorted(entries, key=lambda entry: entry.name))
    commit = commit_with(tmp_path / "toy", "", ordered, tag="v1")
    store = SourceStore(folder=tmp_path / "store")
    repository = GitRepository(folder=tmp_path / "toy")
    found = {entry.path: entry for entry in repository.entries(commit)}
    assert found.keys() == {"file", *(f"hostile/{os.fsdecode(entry.name)}" for entry in entries)}
    assert found["hostile/old"].is_file
    assert not found["hostile/old"].is_program
    assert found["hostile/program"].is_program
    assert found["hostile/link"].is_link
    need = git_need(commit)
    store.add_commit(need, lambda _path, _commit, _url: repository, origin="here")
    assert store.find(need) is not None


def test_names_that_differ_only_in_case_are_one_on_some_systems() -> None:
    assert clash_in(["a/b", "a/c", "b/B"]) is None
    assert clash_in(["a/b", "A/c"]) == ("A", "a")
    assert clash_in(["a/x.yaml", "a/X.yaml"]) == ("a/X.yaml", "a/x.yaml")


def test_a_few_trees_with_more_entries_than_memory_holds_are_refused(tmp_path: Path) -> None:
    make_repository(tmp_path / "toy", {"file": b"x"})
    bomb = tmp_path / "toy"
    name = git(bomb, "rev-parse", "HEAD^{tree}")
    for _ in range(9):
        lines = "".join(f"40000 tree {name}\t{letter}\n" for letter in "abcdefghij")
        made = subprocess.run(["git", "mktree"], cwd=bomb, input=lines.encode(), capture_output=True, check=True)
        name = made.stdout.decode().strip()
    commit = git(bomb, "commit-tree", "-m", "bomb", name)
    with pytest.raises(IntegrityError, match="has more than 20000 entries"):
        GitRepository(folder=bomb, max_entries=20_000).entries(commit)


def test_a_tree_two_thousand_folders_deep_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("channel_tools.sources.git.FOLDERS_DEEP", 20)  # git runs once for each
    make_repository(tmp_path / "toy", {"file": b"x"})
    name = git(tmp_path / "toy", "rev-parse", "HEAD^{tree}")
    name = deepened(tmp_path / "toy", name, 2000)
    commit = git(tmp_path / "toy", "commit-tree", "-m", "deep", name)
    with pytest.raises(IntegrityError, match=f"commit {commit} has folders that are more than 20 deep: d/d/d/"):
        GitRepository(folder=tmp_path / "toy").entries(commit)


def deepened(repository: Path, tree: str, depth: int) -> str:
    """The name of a tree with ``tree`` below so many folders."""
    objects = repository / ".git" / "objects"
    for _ in range(depth):
        content = b"40000 d\0" + bytes.fromhex(tree)
        whole = b"tree %d\0" % len(content) + content
        tree = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
        (objects / tree[:2]).mkdir(exist_ok=True)
        (objects / tree[:2] / tree[2:]).write_bytes(zlib.compress(whole))
    return tree


@pytest.mark.parametrize("kind", ["tree", "commit", ".gitmodules", "link"])
def test_what_is_read_whole_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr("channel_tools.sources.git._SMALL_BYTES", 20_000)
    repository = tmp_path / "toy"
    commit = make_repository(repository, {"file": b"x", "recipes/r/recipe.yaml": b"x"})
    large = write_object(repository, "blob", b"[" * 100_000)
    if kind == "tree":
        lines = "".join(f"100644 blob {large}\t{number:0100d}\n" for number in range(1000))
    else:
        lines = f"{'120000' if kind == 'link' else '100644'} blob {large}\t{kind}\n"
        lines += f"160000 commit {commit}\tsubmodule\n" if kind == ".gitmodules" else ""
    made = subprocess.run(["git", "mktree", "--missing"], cwd=repository, input=lines.encode(), stdout=-1, check=True)
    message = "m" * 100_000 if kind == "commit" else "m"
    commit = git(repository, "commit-tree", "-m", message, made.stdout.decode().strip())
    words = "a target of 100000 bytes" if kind == "link" else r"has \d+ bytes; at most 20000 are read"
    with pytest.raises(IntegrityError, match=words):
        write_archive(
            tmp_path / "toy.tar.zst",
            commit=commit,
            top="toy",
            find=lambda _path, _commit, _url: GitRepository(folder=repository),
            excludes=(),
            submodules=True,
        )
