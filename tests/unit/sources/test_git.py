# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import base64
import hashlib
import io
import os
import signal
import socket
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import zstandard

from channel_tools.requests.init import InitRequest
from channel_tools.sources.git import (
    GitFetcher,
    GitRepository,
    TreeEntry,
    clash_in,
    exclusion,
    fault_of,
    open_repository,
    submodule_address,
)
from channel_tools.sources.gitarchive import GitManifest, verify_archive, write_archive
from channel_tools.sources.model import SourceMirrors
from channel_tools.sources.store import MANIFEST, SourceStore, check_entry
from channel_tools.system.archives import members_of_tar
from channel_tools.system.errors import IntegrityError, NetworkError
from channel_tools.system.files import sha256_of_file
from channel_tools.system.settings import Tree
from channel_tools.workflow.init import init_tree
from channel_tools.workflow.upstream import update_upstreams
from tests.support.certificates import make_authority
from tests.support.ports import free_port
from tests.support.processes import wait_for
from tests.support.scripted_server import Asked, Reply, ScriptedServer, scripted
from tests.unit.foundation.registries import NotedProgress
from tests.unit.matrix.toytree import write_tree
from tests.unit.sources.hostile import CLASHES, FILE, HOSTILE, LINKS, NAMES, UNSENT, Entry, commit_with, write_object
from tests.unit.sources.toys import git, git_need, make_repository

FILES = {
    "README": b"read\r\nme\n",
    ".gitattributes": b"* text=auto eol=lf\n*.txt export-ignore\nversion export-subst\n",
    "notes.txt": b"kept though git archive would not\n",
    "version": b"$Format:%H$\n",
    "tool.sh": b"#!/bin/sh\n",
    "deep/er/file": bytes(range(256)) * 40,
    "deep.x": b"sorts between deep and deep/\n",
    "deep/link": b"-> er/file",
    "deps/mpi/lib.so": b"\x7fELF not ours",
    "deps/mpi/etc/a.dat": b"tuning",
}
EXCLUDES = ("deps/mpi/**",)


UPSTREAM = HOSTILE | LINKS | {f"clash-of-{kind}": case for kind, case in CLASHES.items()}
USUAL = {next(iter(kinds)) for kinds in (HOSTILE, LINKS)} | {f"clash-of-{next(iter(CLASHES))}"}
"""One of each sort."""
HARMLESS: tuple[str | bytes, ...] = (
    "...", "..x", "x..", ".gitx", ".git-", ".github", ".gitignore", "git~2", "git~10", "agit~1", "x\\y", "x\\..\\y",
    "-x", "a b ", "a.", "c:", "\u00e4", b"\xff\xfe", "\u200cgit", "con", "a:b", "\n", ".gitmodules", "gitmod~1",
)  # fmt: skip
"""Names that git makes files of."""


def finder(*repositories: Path) -> Callable[[str, str, str], GitRepository]:
    def find(path: str, commit: str, _url: str) -> GitRepository:
        for folder in repositories:
            repository = open_repository(folder)
            assert repository is not None
            if repository.holds(commit):
                return repository
        raise AssertionError(f"{path}: {commit}")

    return find


def members(archive: Path) -> dict[str, tuple[bytes, int]]:
    found = {}
    for member, stream in members_of_tar(archive):
        content = member.linkname.encode() if stream is None else stream.read()
        found[member.name.partition("/")[2]] = (content, member.mode)
    return found


@pytest.fixture
def store(tmp_path: Path) -> SourceStore:
    return SourceStore(folder=tmp_path / "store")


def test_the_archive_holds_the_commits_exact_files(tmp_path: Path, store: SourceStore) -> None:
    commit = make_repository(tmp_path / "toy", FILES)
    need = git_need(commit)
    stored = store.add_commit(need, finder(tmp_path / "toy"), origin="here")
    found = members(stored.path)
    blob = subprocess.run(
        ["git", "cat-file", "blob", f"{commit}:README"], cwd=tmp_path / "toy", capture_output=True, check=True
    ).stdout
    assert found.keys() == FILES.keys()
    assert found["README"] == (blob, 0o644)
    assert found["version"][0] == b"$Format:%H$\n"
    assert found["tool.sh"][1] == 0o755
    assert found["deep/link"][0] == b"er/file"
    assert found["deep/er/file"][0] == FILES["deep/er/file"]
    assert store.find(need) == stored
    assert stored.sha256 == sha256_of_file(stored.path)
    check_entry(store, store.entry(need))


def test_the_same_commit_gives_the_same_bytes_from_any_clone(tmp_path: Path) -> None:
    commit = make_repository(tmp_path / "toy", FILES)
    git(tmp_path, "clone", "--quiet", "--bare", "toy", "bare")
    one = SourceStore(folder=tmp_path / "1").add_commit(git_need(commit), finder(tmp_path / "toy"), origin="a")
    two = SourceStore(folder=tmp_path / "2").add_commit(git_need(commit), finder(tmp_path / "bare"), origin="b")
    assert one.path.read_bytes() == two.path.read_bytes()


def test_excluded_files_are_left_out_and_may_be_missing_from_the_clone(tmp_path: Path, store: SourceStore) -> None:
    commit = make_repository(tmp_path / "toy", FILES)
    for name in ("deps/mpi/lib.so", "deps/mpi/etc/a.dat"):
        blob = git(tmp_path / "toy", "rev-parse", f"{commit}:{name}")
        (tmp_path / "toy" / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    need = git_need(commit, excludes=EXCLUDES)
    stored = store.add_commit(need, finder(tmp_path / "toy"), origin="here")
    assert members(stored.path).keys() == {name for name in FILES if not name.startswith("deps/mpi")}
    check_entry(store, store.entry(need))
    whole = git_need(commit)
    assert store.find(whole) is None
    with pytest.raises(IntegrityError, match=r"deps/mpi/etc/a\.dat.* is missing from the repository") as caught:
        store.add_commit(whole, finder(tmp_path / "toy"), origin="here")
    assert "source_excludes" in str(caught.value.hint)
    assert store.find(whole) is None
    assert [path.name for path in store.commits.iterdir()] == [store.entry(need).name]


def test_submodules_come_along_at_any_depth(tmp_path: Path, store: SourceStore) -> None:
    inner = make_repository(tmp_path / "inner", {"inner": b"1"})
    middle = make_repository(tmp_path / "middle", {"middle": b"2"}, submodules={"third/inner": tmp_path / "inner"})
    commit = make_repository(tmp_path / "toy", {"top": b"3"}, submodules={"third/middle": tmp_path / "middle"})
    need = git_need(commit)
    stored = store.add_commit(need, finder(*(tmp_path / name for name in ("toy", "middle", "inner"))), origin="x")
    found = members(stored.path)
    assert {name for name in found if ".git" not in name} == {
        "top", "third/middle/middle", "third/middle/third/inner/inner",
    }  # fmt: skip
    assert [proof.commit for proof in store.manifest(need).commits] == [commit, middle, inner]
    check_entry(store, store.entry(need))
    alone = git_need(commit, submodules=False)
    assert members(store.add_commit(alone, finder(tmp_path / "toy"), origin="x").path).keys() == {"top", ".gitmodules"}
    check_entry(store, store.entry(alone))
    without = git_need(commit, excludes=("third",))
    assert "top" in members(store.add_commit(without, finder(tmp_path / "toy"), origin="x").path)
    check_entry(store, store.entry(without))


def _repacked(archive: Path, change: Callable[[tarfile.TarInfo, bytes], bytes | None]) -> None:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as out:
        for member, stream in members_of_tar(archive):
            content = change(member, b"" if stream is None else stream.read())
            if content is not None:
                member.size = len(content)
                out.addfile(member, io.BytesIO(content))
    archive.write_bytes(zstandard.compress(plain.getvalue()))


def _agree(entry: Path) -> None:
    """Make the manifest name the archive as it is now."""
    manifest = msgspec.json.decode((entry / MANIFEST).read_bytes(), type=GitManifest)
    archive = entry / f"{manifest.top}.tar.zst"
    manifest = replace(manifest, sha256=sha256_of_file(archive), size_bytes=archive.stat().st_size)
    (entry / MANIFEST).write_bytes(msgspec.json.encode(manifest))


def _executable(member: tarfile.TarInfo, content: bytes) -> bytes:
    member.mode = 0o755
    return content


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda _m, content: content.replace(b"\x7fELF", b"\x7fBAD"), id="a byte"),
        pytest.param(lambda m, content: None if m.name.endswith("README") else content, id="a file gone"),
        pytest.param(_executable, id="a mode"),
    ],
)
def test_a_manifest_that_agrees_with_changed_files_does_not_help(
    tmp_path: Path, store: SourceStore, change: Callable[[tarfile.TarInfo, bytes], bytes | None]
) -> None:
    need = git_need(make_repository(tmp_path / "toy", FILES))
    archive = store.add_commit(need, finder(tmp_path / "toy"), origin="here").path
    _repacked(archive, change)
    _agree(store.entry(need))
    with pytest.raises(IntegrityError, match=f"the files of the source make tree [0-9a-f]+; commit {need.identity}"):
        check_entry(store, store.entry(need))


def test_a_file_that_is_left_out_without_an_exclude_is_noticed(tmp_path: Path, store: SourceStore) -> None:
    commit = make_repository(tmp_path / "toy", FILES)
    need = git_need(commit, excludes=EXCLUDES)
    archive = store.add_commit(need, finder(tmp_path / "toy"), origin="here").path
    manifest = replace(store.manifest(need), excludes=("nothing",))
    with pytest.raises(IntegrityError, match=r"deps/mpi/etc/a\.dat is missing, although it is not excluded"):
        verify_archive(archive, manifest)


def test_another_commit_object_is_noticed(tmp_path: Path, store: SourceStore) -> None:
    commit = make_repository(tmp_path / "toy", FILES)
    archive = store.add_commit(git_need(commit), finder(tmp_path / "toy"), origin="here").path
    manifest = store.manifest(git_need(commit))
    content = base64.b64encode(base64.b64decode(manifest.commits[0].content) + b"!").decode()
    spoiled = replace(manifest, commits=(replace(manifest.commits[0], content=content),))
    with pytest.raises(IntegrityError, match="does not hash to"):
        verify_archive(archive, spoiled)


def test_a_damaged_object_in_the_clone_is_never_stored(tmp_path: Path, store: SourceStore) -> None:
    commit = make_repository(tmp_path / "toy", {"a": b"a" * 5000})
    blob = git(tmp_path / "toy", "rev-parse", f"{commit}:a")
    path = tmp_path / "toy" / ".git" / "objects" / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(IntegrityError, match=r"toy: object"):
        store.add_commit(git_need(commit), finder(tmp_path / "toy"), origin="here")
    assert list(store.commits.iterdir()) == []


def test_repositories_of_sha256_work_alike(tmp_path: Path, store: SourceStore) -> None:
    folder = tmp_path / "toy"
    folder.mkdir()
    git(folder, "init", "--quiet", "--object-format=sha256")
    (folder / "a").write_text("a")
    git(folder, "add", "a")
    git(folder, "commit", "--quiet", "-m", "all")
    need = git_need(git(folder, "rev-parse", "HEAD"))
    store.add_commit(need, finder(folder), origin="here")
    check_entry(store, store.entry(need))


@pytest.mark.parametrize(
    ("globs", "path", "expected"),
    [
        (("deps/mpi/**",), "deps/mpi/lib/x.so", True),
        (("deps/mpi",), "deps/mpi/lib/x.so", True),
        (("deps/mpi",), "deps/mpi2/x", False),
        (("*.spv",), "src/kernels/kernels.spv", True),
        (("src/kernels/kernels.spv",), "src/kernels/kernels.spv", True),
        ((), "anything", False),
    ],
)
def test_excludes(globs: tuple[str, ...], path: str, expected: bool) -> None:  # noqa: FBT001 - a table
    assert exclusion(globs)(path) is expected


def _served_repository(tmp_path: Path, folder: str) -> str:
    git(tmp_path / folder, "config", "uploadpack.allowFilter", "true")
    git(tmp_path / folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    return (tmp_path / folder).as_uri()


def test_fetching_takes_one_commit_and_its_submodules(
    tmp_path: Path, store: SourceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    make_repository(tmp_path / "inner", {"inner": b"1"})
    commit = make_repository(tmp_path / "toy", FILES, submodules={"third/inner": tmp_path / "inner"})
    _served_repository(tmp_path, "inner")
    need = git_need(commit, (tmp_path / "gone").as_uri(), _served_repository(tmp_path, "toy"))
    fetcher = GitFetcher(folder=tmp_path / "fetched.git", urls=need.urls, excludes=(), poll=lambda: None)
    stored = store.add_commit(need, fetcher.find, origin="fetched")
    assert "third/inner/inner" in members(stored.path)
    assert members(stored.path).keys() > FILES.keys()


def test_commits_and_submodules_come_from_a_sites_mirrors(
    tmp_path: Path, store: SourceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    make_repository(tmp_path / "inner", {"inner": b"1"})
    make_repository(tmp_path / "toy", FILES, submodules={"third/inner": tmp_path / "inner"})
    commit = _with_address(tmp_path / "toy", "third/inner", "../inner")
    inner, toy = _served_repository(tmp_path, "inner"), _served_repository(tmp_path, "toy")
    need = git_need(commit, "https://upstream.invalid/group/toy")
    mirrors = SourceMirrors(places=(("https://upstream.invalid/group/", f"{tmp_path.as_uri()}/"),))
    fetcher = GitFetcher(
        folder=tmp_path / "fetched.git", urls=need.urls, excludes=(), poll=lambda: None, mirrors=mirrors
    )
    assert "third/inner/inner" in members(store.add_commit(need, fetcher.find, origin=need.urls[0]).path)
    assert fetcher.mirrors.addresses(["https://upstream.invalid/group/inner"])[0] == inner
    assert fetcher.mirrors.addresses(need.urls) == (toy, need.urls[0])


def _with_address(repository: Path, submodule: str, address: str) -> str:
    """Commit another address of a submodule; the new commit."""
    git(repository, "config", "-f", ".gitmodules", f"submodule.{submodule}.url", address)
    git(repository, "commit", "-q", "-a", "--allow-empty", "-m", address)
    return git(repository, "rev-parse", "HEAD")


@pytest.mark.parametrize(
    ("base", "relative", "expected"),
    [
        ("https://h/g/top.git", "../sub.git", "https://h/g/sub.git"),
        ("https://h/g/top.git/", "../sub.git", "https://h/g/sub.git"),
        ("git://h:9418/g/top.git", "../sub.git", "git://h:9418/g/sub.git"),
        ("ssh://git@h:22/g/top", "../../other/sub", "ssh://git@h:22/other/sub"),
        ("git+ssh://h/g/top", "./sub", "git+ssh://h/g/top/sub"),
        ("file:///srv/top.git", "../sub.git", "file:///srv/sub.git"),
        ("git@h:g/top.git", "../sub.git", "git@h:g/sub.git"),
        ("git@h:top.git", "../sub.git", "git@h:sub.git"),
        ("git@h:/srv/top.git", "../sub.git", "git@h:/srv/sub.git"),
        ("/srv/g/top.git", ".././sub.git", "/srv/g/sub.git"),
        ("/srv/a:b/top.git", "../sub.git", "/srv/a:b/sub.git"),
        ("https://h/top.git", "../../../sub.git", "https://h/sub.git"),
        ("https://h/g/top.git", "../a/../sub.git", "https://h/g/a/../sub.git"),
    ],
)
def test_a_relative_submodule_is_beside_its_repository(base: str, relative: str, expected: str) -> None:
    assert submodule_address(base, relative) == expected


@pytest.mark.parametrize("scheme", ["git", "file"])
def test_relative_submodules_are_relative_to_what_names_them(
    tmp_path: Path, store: SourceStore, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """The inner one is beside the middle one, which is elsewhere."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    make_repository(tmp_path / "b" / "inner", {"inner": b"1"})
    make_repository(tmp_path / "b" / "middle", {"middle": b"2"}, submodules={"in": tmp_path / "b" / "inner"})
    _with_address(tmp_path / "b" / "middle", "in", "../inner")
    make_repository(tmp_path / "a" / "toy", {"top": b"3"}, submodules={"mid": tmp_path / "b" / "middle"})
    commit = _with_address(tmp_path / "a" / "toy", "mid", "../../b/middle")
    for name in ("b/inner", "b/middle", "a/toy"):
        _served_repository(tmp_path, name)
    with _served(tmp_path) if scheme == "git" else nullcontext(tmp_path.as_uri()) as base:
        need = git_need(commit, f"{base}/a/toy")
        fetcher = GitFetcher(folder=tmp_path / "fetched.git", urls=need.urls, excludes=(), poll=lambda: None)
        stored = store.add_commit(need, fetcher.find, origin="fetched")
    assert {"top", "mid/middle", "mid/in/inner"} <= members(stored.path).keys()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The address of git's own server for the repositories below ``folder``."""
    port = free_port()
    words = [
        "daemon",
        "--export-all",
        f"--base-path={folder}",
        "--listen=127.0.0.1",
        f"--port={port}",
        "--informative-errors",
    ]
    with subprocess.Popen(["git", *words, str(folder)], start_new_session=True) as process:
        try:
            wait_for(lambda: process.poll() is not None or _answers(port))
            yield f"git://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)


@pytest.mark.parametrize("address", ["{root}/inner", "file://{root}/inner", "inner"])
@pytest.mark.parametrize(
    "base", ["https://upstream.invalid/toy", "git@upstream.invalid:toy", "git://upstream.invalid/toy"]
)
def test_a_submodule_on_this_machine_is_refused_unless_its_repository_is(
    tmp_path: Path, store: SourceStore, monkeypatch: pytest.MonkeyPatch, address: str, base: str
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    make_repository(tmp_path / "inner", {"secret": b"of the machine"})
    make_repository(tmp_path / "toy", {"top": b"1"}, submodules={"in": tmp_path / "inner"})
    commit = _with_address(tmp_path / "toy", "in", address.format(root=tmp_path))
    toy = _served_repository(tmp_path, "toy")
    _served_repository(tmp_path, "inner")
    need = git_need(commit, base)
    mirrors = SourceMirrors(places=((base, toy),))
    fetcher = GitFetcher(
        folder=tmp_path / "fetched.git", urls=need.urls, excludes=(), poll=lambda: None, mirrors=mirrors
    )
    with pytest.raises(IntegrityError, match=r"the submodule in is named as .*, a repository on this machine"):
        store.add_commit(need, fetcher.find, origin="fetched")
    assert store.find(need) is None


def test_fetching_never_downloads_what_is_excluded(
    tmp_path: Path, store: SourceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    commit = make_repository(tmp_path / "toy", FILES)
    need = git_need(commit, _served_repository(tmp_path, "toy"), excludes=EXCLUDES)
    fetched = tmp_path / "fetched.git"
    store.add_commit(
        need, GitFetcher(folder=fetched, urls=need.urls, excludes=EXCLUDES, poll=lambda: None).find, origin="fetched"
    )
    check_entry(store, store.entry(need))
    held = git(fetched, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    excluded = git(tmp_path / "toy", "rev-parse", f"{commit}:deps/mpi/lib.so")
    kept = git(tmp_path / "toy", "rev-parse", f"{commit}:README")
    assert kept in held
    assert excluded not in held


def test_a_commit_that_no_address_has_is_named_with_every_address(
    tmp_path: Path, store: SourceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    make_repository(tmp_path / "toy", {"a": b"1"})
    urls = ((tmp_path / "gone").as_uri(), _served_repository(tmp_path, "toy"))
    need = git_need("0123456789" * 4, *urls)
    fetcher = GitFetcher(folder=tmp_path / "fetched.git", urls=urls, excludes=(), poll=lambda: None)
    with pytest.raises(NetworkError, match=need.identity) as caught:
        store.add_commit(need, fetcher.find, origin="fetched")
    assert all(url in caught.value.message for url in urls)


def test_git_sends_no_netrc_to_plain_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen by a proxy, as anybody on the way would; what else is in the home folder is there for git."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".netrc").write_text("machine lab.invalid login me password made-up-secret\n")
    (tmp_path / "home" / ".gitconfig").write_text("[http]\n\tuserAgent = from the home folder\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    with scripted(ScriptedServer(lambda _asked: (401, {"WWW-Authenticate": 'Basic realm="lab"'}, b""))) as proxy:
        for name in ("http_proxy", "no_proxy", "NO_PROXY"):
            monkeypatch.setenv(name, proxy.origin if name == "http_proxy" else "")
        fetcher = GitFetcher(
            folder=tmp_path / "r.git", urls=("http://lab.invalid/a.git",), excludes=(), poll=lambda: None
        )
        with pytest.raises(NetworkError, match=r"lab\.invalid"):
            fetcher.find("", "0" * 40, "")
        assert {asked.headers.get("User-Agent") for asked in proxy.asked} == {"from the home folder"}
        assert not [asked for asked in proxy.asked if "Authorization" in asked.headers]


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


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in USUAL else pytest.mark.slow) for kind in UPSTREAM]
)
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


def test_git_sends_no_netrc_to_plain_http_that_stands_for_another_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".netrc").write_text("machine lab.invalid login me password made-up-secret\n")
    (home / ".gitconfig").write_text('[url "http://lab.invalid/"]\n\tinsteadOf = https://lab.invalid/\n')
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    with scripted(ScriptedServer(lambda _asked: (401, {"WWW-Authenticate": 'Basic realm="lab"'}, b""))) as proxy:
        for name in ("http_proxy", "no_proxy", "NO_PROXY"):
            monkeypatch.setenv(name, proxy.origin if name == "http_proxy" else "")
        fetcher = GitFetcher(
            folder=tmp_path / "r.git", urls=("https://lab.invalid/a.git",), excludes=(), poll=lambda: None
        )
        with pytest.raises(NetworkError, match=r"lab\.invalid"):
            fetcher.find("", "0" * 40, "")
        assert proxy.asked
        assert not [asked for asked in proxy.asked if "Authorization" in asked.headers]


def test_git_follows_no_redirect_from_https_to_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    authority = make_authority(tmp_path)
    monkeypatch.setenv("GIT_SSL_CAINFO", str(authority.certificates))
    (tmp_path / ".netrc").write_text("default login me password made-up-secret\n")
    for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")
    with scripted(ScriptedServer(lambda _asked: (404, {}, b""))) as plain:

        def redirect(asked: Asked) -> Reply:
            return 302, {"Location": f"{plain.origin}{asked.path}"}, b""

        with scripted(ScriptedServer(redirect, tls=authority.context())) as server:
            address = f"{server.origin.replace('127.0.0.1', 'localhost')}/a.git"
            fetcher = GitFetcher(folder=tmp_path / "r.git", urls=(address,), excludes=(), poll=lambda: None)
            with pytest.raises(NetworkError, match=r"a\.git"):
                fetcher.find("", "0" * 40, "")
            assert server.asked
        assert plain.asked == []
