# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import io
import multiprocessing
import os
import tarfile
from pathlib import Path

import pytest

from channel_tools.sources.model import file_name_of
from channel_tools.sources.store import SourceStore, stored_entries, verify_store
from channel_tools.sources.transfer import MANIFEST_MEMBER, export_entries, import_file
from channel_tools.system.errors import IntegrityError, UsageError
from channel_tools.system.progress import SilentProgress
from tests.unit.sources.test_git import FILES, finder
from tests.unit.sources.toys import TEXT, file_need, git_need, make_repository, tar_gz

CONTENT = tar_gz({"toy-1/a": TEXT})
NEED = file_need(CONTENT)
QUIET = SilentProgress()


@pytest.fixture
def store(tmp_path: Path) -> SourceStore:
    return SourceStore(folder=tmp_path / "store")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "downloaded"
    path.write_bytes(CONTENT)
    return path


def listing(folder: Path) -> dict[str, bytes]:
    """Every file that counts: not the locks."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".locks" not in path.parts
    }


def test_a_file_enters_under_the_recipes_name_and_a_copy_of_its_own(store: SourceStore, file: Path) -> None:
    stored = store.add_file(file, NEED, origin="by hand")
    file.write_bytes(b"changed later")
    assert stored.path == store.files / NEED.identity / "toy-1.tar.gz"
    assert stored.path.read_bytes() == CONTENT
    assert store.find(NEED) == stored
    assert store.origin(NEED) == "by hand"


@pytest.mark.parametrize("content", [CONTENT[:-9], CONTENT + b"x", b""], ids=["cut", "longer", "empty"])
def test_other_bytes_are_refused_and_leave_nothing(store: SourceStore, file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(IntegrityError, match=f"{len(content)} bytes, sha256 .*expected sha256 {NEED.identity}"):
        store.add_file(file, NEED, origin="by hand")
    assert store.find(NEED) is None
    assert listing(store.folder) == {}


def test_an_unsafe_archive_leaves_nothing(store: SourceStore, file: Path) -> None:
    content = tar_gz({"/etc/passwd": b"x"})
    file.write_bytes(content)
    with pytest.raises(IntegrityError, match="'/etc/passwd'"):
        store.add_file(file, file_need(content), origin="by hand")
    assert listing(store.folder) == {}


def test_what_a_killed_process_left_is_cleared(store: SourceStore, file: Path, tmp_path: Path) -> None:
    left = store.entry(NEED) / ".tmp-left" / "toy-1.tar.gz"
    left.parent.mkdir(parents=True)
    left.write_bytes(CONTENT[:5])
    assert store.find(NEED) is None
    store.add_file(file, NEED, origin="by hand")
    commit = git_need(make_repository(tmp_path / "toy", FILES))
    half = store.commits / ".tmp-half" / store.entry(commit).name
    half.mkdir(parents=True)
    store.add_commit(commit, finder(tmp_path / "toy"), origin="here")
    assert [name for name in listing(store.folder) if ".tmp" in name] == []
    assert not half.exists()


def test_processes_that_add_the_same_at_once_all_succeed(store: SourceStore, file: Path) -> None:
    context = multiprocessing.get_context("spawn")
    # the method itself: for a function of this file each process would import all that tests do
    processes = [
        context.Process(target=store.add_file, args=(file, NEED), kwargs={"origin": "by hand"}) for _ in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert store.known(NEED).path.read_bytes() == CONTENT


def test_verify_reports_damage_and_moves_it_aside(store: SourceStore, file: Path, tmp_path: Path) -> None:
    stored = store.add_file(file, NEED, origin="by hand")
    commit = git_need(make_repository(tmp_path / "toy", FILES))
    store.add_commit(commit, finder(tmp_path / "toy"), origin="here")
    assert verify_store(store, dry_run=False, progress=QUIET) == (2, [])
    stored.path.write_bytes(CONTENT[:-1] + b"?")
    (store.entry(commit) / "manifest.json").write_text("{}")
    assert all(item.moved_to is None for item in verify_store(store, dry_run=True, progress=QUIET)[1])
    count, damaged = verify_store(store, dry_run=False, progress=QUIET)
    assert count == 2
    assert {item.entry for item in damaged} == {store.entry(NEED), store.entry(commit)}
    assert store.find(NEED) is None
    assert store.find(commit) is None
    kept = next(item.moved_to for item in damaged if item.entry == store.entry(NEED))
    assert kept is not None
    assert (kept / "toy-1.tar.gz").read_bytes() == CONTENT[:-1] + b"?"
    store.add_file(file, NEED, origin="again")
    assert verify_store(store, dry_run=False, progress=QUIET) == (1, [])


def test_check_notices_a_changed_file(store: SourceStore, file: Path) -> None:
    store.add_file(file, NEED, origin="by hand").path.write_bytes(b"other")
    with pytest.raises(IntegrityError, match=f"expected {NEED.identity}"):
        store.check(NEED)


@pytest.fixture
def exported(store: SourceStore, file: Path, tmp_path: Path) -> Path:
    store.add_file(file, NEED, origin="by hand")
    commit = git_need(make_repository(tmp_path / "toy", FILES), excludes=("deps/mpi/**",))
    store.add_commit(commit, finder(tmp_path / "toy"), origin="here")
    target = tmp_path / "out.tar"
    export_entries(store, stored_entries(store), target, QUIET)
    return target


def test_a_store_travels_as_one_file(store: SourceStore, exported: Path, tmp_path: Path) -> None:
    other = SourceStore(folder=tmp_path / "other")
    names = [entry.relative_to(store.folder).as_posix() for entry in stored_entries(store)]
    assert import_file(other, exported, dry_run=True, progress=QUIET) == (names, [])
    assert listing(other.folder) == {}
    assert import_file(other, exported, dry_run=False, progress=QUIET) == (names, [])
    assert listing(other.folder) == listing(store.folder)
    assert import_file(other, exported, dry_run=False, progress=QUIET) == ([], names)
    again = tmp_path / "again.tar"
    export_entries(other, stored_entries(other), again, QUIET)
    assert again.read_bytes() == exported.read_bytes()


def _rewritten(exported: Path, names: dict[str, str] | None = None, spoil: str = "", extra: str = "") -> None:
    """Write the tar again with members renamed, one spoiled, one added."""
    members = []
    with tarfile.open(exported) as tar:
        for member in tar:
            stream = tar.extractfile(member)
            assert stream is not None
            members.append((member, stream.read()))
    with tarfile.open(exported, "w") as tar:
        for member, content in members:
            data = content
            if spoil and spoil in member.name:
                data = content[:-1] + bytes([content[-1] ^ 1])
            if member.name == MANIFEST_MEMBER:
                for old, new in (names or {}).items():
                    data = data.replace(old.encode(), new.encode())
            for old, new in (names or {}).items():
                member.name = member.name.replace(old, new)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        if extra:
            tar.addfile(tarfile.TarInfo(extra))


@pytest.mark.parametrize(
    ("names", "spoil", "extra", "words"),
    [
        pytest.param({}, "toy-1.tar.gz", "", "toy-1.tar.gz' has sha256", id="changed-file"),
        pytest.param({}, "", "../../evil", r"member '\.\./\.\./evil' is not the one", id="added-up"),
        pytest.param({}, "", "/etc/evil", "member '/etc/evil' is not the one", id="added-absolute"),
        pytest.param({"sha256/": "sha256/../../"}, "", "", "is not a path of a source store", id="listed-up"),
        pytest.param({"sha256/": "/sha256/"}, "", "", "is not a path of a source store", id="listed-absolute"),
        pytest.param({NEED.identity: "0" * 64}, "", "", f"has sha256 {NEED.identity}", id="under-another-hash"),
        pytest.param({MANIFEST_MEMBER: "list.json"}, "", "", "does not start with", id="no-list"),
    ],
)
def test_imports_that_lie_are_refused_whole(
    exported: Path, tmp_path: Path, names: dict[str, str], spoil: str, extra: str, words: str
) -> None:
    _rewritten(exported, names, spoil, extra)
    other = SourceStore(folder=tmp_path / "other")
    with pytest.raises(IntegrityError, match=words):
        import_file(other, exported, dry_run=False, progress=QUIET)
    assert listing(other.folder) == {}
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("kept", [0, 100, 0.5, 0.9])
def test_an_import_that_is_cut_short_is_refused_whole(exported: Path, tmp_path: Path, kept: float) -> None:
    content = exported.read_bytes()
    exported.write_bytes(content[: int(kept if kept > 1 else kept * (len(content) - 10240))])
    other = SourceStore(folder=tmp_path / "other")
    with pytest.raises(IntegrityError, match=r"out\.tar"):
        import_file(other, exported, dry_run=False, progress=QUIET)
    assert listing(other.folder) == {}


def test_a_damaged_entry_is_not_exported(store: SourceStore, file: Path, tmp_path: Path) -> None:
    store.add_file(file, NEED, origin="by hand").path.write_bytes(b"other")
    with pytest.raises(IntegrityError, match=r"toy-1\.tar\.gz"):
        export_entries(store, stored_entries(store), tmp_path / "out.tar", QUIET)
    assert not (tmp_path / "out.tar").exists()


def test_an_import_that_is_not_there_is_named(store: SourceStore, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such file"):
        import_file(store, tmp_path / "absent.tar", dry_run=False, progress=QUIET)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://x.invalid/archive/refs/tags/v1.tar.gz", "v1.tar.gz"),
        ("https://x.invalid/a%2Bb.tgz?token=1#x", "a+b.tgz"),
        ("https://x.invalid/", "source"),
        ("https://x.invalid/a%2Fb.tgz", "b.tgz"),
    ],
)
def test_file_names_come_from_addresses(url: str, name: str) -> None:
    assert file_name_of(url) == name
    assert os.sep not in name
