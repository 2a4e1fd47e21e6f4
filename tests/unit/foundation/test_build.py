# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from channel_tools.conda.archive import read_index_json, read_info_json
from channel_tools.foundation import build, worker
from channel_tools.foundation.build import FoundationResult, build_foundation, is_outdated, remove_superseded
from channel_tools.foundation.record import RECORD_NAME, read_record
from channel_tools.requests.foundation import FoundationRequest
from channel_tools.system.errors import ChannelError, FoundationError, IntegrityError, NetworkError, UsageError
from channel_tools.system.files import sha256_of_file
from channel_tools.system.locks import exclusive_lock
from tests.support.processes import run_here
from tests.unit.foundation.archives import make_table, write_apt_repository, write_deb
from tests.unit.foundation.registries import NotedProgress, Registries, make_registries, needs_apt

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.downloads import Sources

ROWS = """
toy: {debs: [toy], repairs: [flatten], depends: [demo]}
demo: {wheels: [demo]}
"""

pytestmark = needs_apt


@pytest.fixture
def with_processes() -> None:
    """For tests of a whole run: pip and workers are started; both have tests of their own too."""


@pytest.fixture
def registries(registries: Registries, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Registries:
    """Offers what ROWS need."""
    _offer(registries)
    if "with_processes" in request.fixturenames:
        return registries
    monkeypatch.setattr(worker, "run_in_processes", run_here)
    return registries.without_pip()


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FoundationResult]:
    """A folder with the store and the foundation of ROWS, and what making it said."""
    root = tmp_path_factory.mktemp("made-once")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(worker, "run_in_processes", run_here)
        registries = make_registries(root, patched).without_pip()
        _offer(registries)
        return root, _build(registries, root, NotedProgress())


@pytest.fixture
def first(made_once: tuple[Path, FoundationResult], tmp_path: Path) -> FoundationResult:
    """The foundation of ROWS as a former run left it in ``tmp_path``."""
    root, result = made_once
    for name in ("store", "foundation"):
        shutil.copytree(root / name, tmp_path / name, dirs_exist_ok=True)
    return result


def _offer(registries: Registries) -> None:
    registries.add_deb("toy", {"usr/share/toy/a.txt": "one"})
    registries.add_wheel("demo", {"demo.py": "x = 1\n"}, requires=("dep",))
    registries.add_wheel("dep", {"dep.py": ""})


def _build(
    registries: Registries,
    root: Path,
    progress: NotedProgress,
    *,
    rows: str = ROWS,
    sources: Sources | None = None,
    **options: Any,  # noqa: ANN401 - FoundationRequest's own
) -> FoundationResult:
    return build_foundation(
        make_table(root, rows),
        FoundationRequest(jobs=1, **options),
        destination=root / "foundation",
        downloads=root / "store",
        subdir="linux-64",
        progress=progress,
        sources=sources or registries.sources,
    )


def _files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "foundation").glob("*/*.conda"))


@pytest.mark.usefixtures("with_processes")
def test_a_table_becomes_packages_and_a_record(registries: Registries, tmp_path: Path, progress: NotedProgress) -> None:
    result = _build(registries, tmp_path, progress)
    assert [name.rsplit("-", 1)[0] for name in result.made] == ["linux-64/toy-1.0", "noarch/demo-1.0", "noarch/dep-1.0"]
    record = read_record(tmp_path / "foundation")
    assert [(package.name, package.taken[0].name) for package in record.packages] == [
        ("demo", "demo"),
        ("dep", "dep"),
        ("toy", "toy"),
    ]
    demo = tmp_path / "foundation" / "noarch" / record.packages[0].file_name
    index = read_index_json(demo)
    assert index["depends"] == ["dep", "python"]
    assert index["timestamp"] == 1651406400000
    taken = read_info_json(demo, "about.json")["extra"]["channel_tools"]["taken"]
    assert taken[0]["sha256"] == record.packages[0].taken[0].sha256
    assert str(tmp_path) not in (tmp_path / "foundation" / RECORD_NAME).read_text()


def test_a_second_run_asks_nobody_and_makes_nothing(
    registries: Registries, tmp_path: Path, progress: NotedProgress, first: FoundationResult
) -> None:
    again = _build(registries, tmp_path, progress, sources=registries.unreachable())
    assert (again.made, again.kept, again.removed) == ((), first.made, ())


def test_a_changed_row_changes_one_package_without_the_network(
    registries: Registries, tmp_path: Path, progress: NotedProgress, first: FoundationResult
) -> None:
    registries.add_deb("toy", {"usr/share/toy/a.txt": "two"}, version="2.0-1")
    rows = ROWS.replace("depends: [demo]", "depends: [dep]")
    changed = _build(registries, tmp_path, progress, rows=rows, sources=registries.unreachable())
    assert [name.split("-h")[0] for name in changed.made] == ["linux-64/toy-1.0"]
    assert changed.removed == first.made[:1]
    remove_superseded(tmp_path / "foundation", changed, listed=changed.removed)
    assert len(_files(tmp_path)) == 4
    remove_superseded(tmp_path / "foundation", changed)
    assert len(_files(tmp_path)) == 3


OPTIONAL_ROWS = (
    ROWS
    + """
extra: {wheels: [extra], optional: true, depends: [native]}
native: {debs: [native], repairs: [flatten], optional: true}
"""
)


def test_an_optional_package_is_made_when_asked_for_and_then_stays(
    registries: Registries, tmp_path: Path, progress: NotedProgress
) -> None:
    first = _build(registries, tmp_path, progress, rows=OPTIONAL_ROWS)
    assert len(first.made) == 3
    registries.add_deb("native", {"usr/share/native/b.txt": "b"})
    registries.add_wheel("extra", {"extra.py": ""})
    registries.add_wheel("dep", {"dep.py": "y = 2\n"}, version="9.0")
    asked = _build(registries, tmp_path, progress, rows=OPTIONAL_ROWS, asked=frozenset({"extra"}))
    assert [name.split("-1.0-")[0] for name in asked.made] == ["linux-64/native", "noarch/extra"]
    assert (asked.kept, asked.removed) == (first.made, ())
    assert read_record(tmp_path / "foundation").asked == ("extra", "native")
    again = _build(registries, tmp_path, progress, rows=OPTIONAL_ROWS, sources=registries.unreachable())
    assert (again.made, len(again.kept), again.removed) == ((), 5, ())


NEEDED_ROWS = """
base: {debs: [base], repairs: [flatten], run_exports: {weak: [exported]}}
exported: {debs: [exported], repairs: [flatten]}
demo: {wheels: [demo], depends: [libgcc]}
dep: {wheels: [dep], depends: [base]}
other: {wheels: [other]}
libgcc: {debs: [libgcc], repairs: [flatten]}
libstdcxx: {debs: [libstdcxx], repairs: [flatten]}
"""


def _offer_needed(registries: Registries) -> None:
    for name in ("base", "exported", "libgcc", "libstdcxx"):
        registries.add_deb(name, {f"usr/share/{name}/a.txt": name})
    registries.add_wheel("other", {"other.py": ""})


def _made(root: Path) -> list[str]:
    return [package.name for package in read_record(root / "foundation").packages]


@pytest.mark.parametrize(
    ("needed", "made"),
    [
        ("base", ["base", "exported"]),
        ("absent", []),
        # its wheel requires dep, whose row depends on a package of Debian's
        ("demo", ["base", "demo", "dep", "libgcc", "libstdcxx"]),
    ],
)
def test_only_what_is_needed_is_made_with_what_it_leads_to(
    registries: Registries, tmp_path: Path, progress: NotedProgress, needed: str, made: list[str]
) -> None:
    _offer_needed(registries)
    _build(registries, tmp_path, progress, rows=NEEDED_ROWS, needed=frozenset({needed}))
    assert _made(tmp_path) == made
    again = _build(
        registries,
        tmp_path,
        progress,
        rows=NEEDED_ROWS,
        needed=frozenset({needed}),
        sources=registries.unreachable(),
    )
    assert (again.made, again.removed) == ((), ())


def test_what_is_needed_later_is_added_and_what_was_made_stays(
    registries: Registries, tmp_path: Path, progress: NotedProgress
) -> None:
    _offer_needed(registries)
    first = _build(registries, tmp_path, progress, rows=NEEDED_ROWS, needed=frozenset({"demo"}))
    registries.add_wheel("dep", {"dep.py": "y = 2\n"}, version="9.0")
    registries.add_wheel("other", {"other.py": ""}, requires=("dep>=1",), version="2.0")
    second = _build(registries, tmp_path, progress, rows=NEEDED_ROWS, needed=frozenset({"other"}))
    assert [name.rpartition("-")[0] for name in second.made] == ["noarch/other-2.0"]
    assert (second.kept, second.removed) == (first.made, ())
    whole = _build(registries, tmp_path, progress, rows=NEEDED_ROWS)
    assert _made(tmp_path) == sorted(line.partition(":")[0] for line in NEEDED_ROWS.split("\n") if line)
    assert whole.kept == tuple(sorted((*first.made, *second.made)))
    kept = _build(registries, tmp_path, progress, rows=NEEDED_ROWS, needed=frozenset({"base"}))
    assert (kept.made, kept.removed) == ((), ())


def test_a_wheel_that_does_not_go_with_those_that_were_made_is_refused(
    registries: Registries, tmp_path: Path, progress: NotedProgress
) -> None:
    _offer_needed(registries)
    _build(registries, tmp_path, progress, rows=NEEDED_ROWS, needed=frozenset({"demo"}))
    registries.add_wheel("dep", {"dep.py": "y = 2\n"}, version="9.0")
    registries.add_wheel("other", {"other.py": ""}, requires=("dep>=9",), version="2.0")
    with pytest.raises(
        FoundationError, match=r"other 2\.0 requires dep>=9, but the foundation has 1\.0 of it"
    ) as caught:
        _build(registries, tmp_path, progress, rows=NEEDED_ROWS, needed=frozenset({"other"}))
    assert "--update" in str(caught.value.hint)
    _build(registries, tmp_path, progress, rows=NEEDED_ROWS, needed=frozenset({"other"}), update=True)
    versions = {package.name: package.version for package in read_record(tmp_path / "foundation").packages}
    assert (versions["dep"], versions["other"]) == ("9.0", "2.0")


def test_a_lock_with_an_optional_package_gives_it_again(
    registries: Registries, tmp_path: Path, progress: NotedProgress
) -> None:
    registries.add_deb("native", {"usr/share/native/b.txt": "b"})
    registries.add_wheel("extra", {"extra.py": ""})
    made = _build(registries, tmp_path, progress, rows=OPTIONAL_ROWS, asked=frozenset({"extra"}))
    lock = (tmp_path / "foundation" / RECORD_NAME).rename(tmp_path / "lock.json")
    for name in made.made:
        (tmp_path / "foundation" / name).unlink()
    again = _build(registries, tmp_path, progress, rows=OPTIONAL_ROWS, locked=lock, sources=registries.unreachable())
    assert again.made == made.made


PYTHON_ROWS = """
demo: {wheels: [demo]}
native: {wheels: [native], repairs: [wheel_libraries]}
python: {debs: [python], repairs: [flatten], depends: [zzz]}
python_abi: {version: "3.11"}
zzz: {debs: [zzz], repairs: [flatten]}
"""


def test_the_foundations_python_compiles_what_is_for_it_alone(
    registries: Registries, tmp_path: Path, progress: NotedProgress
) -> None:
    """It is made before the others, and what it needs before it, whose files lie beside it when it runs."""
    starts_this_python = f'#!/bin/sh\n. "$LD_LIBRARY_PATH/setting" && exec {sys.executable} "$@"\n'
    registries.add_deb("python", {"usr/bin/python3.11": starts_this_python, "usr/lib/python3.11/os.py": "x = 1\n"})
    registries.add_deb("zzz", {"usr/lib/setting": "true\n"})
    registries.add_wheel("native", {"native.py": "y = 1\n"}, tag="cp311-cp311-linux_x86_64")
    _build(registries, tmp_path, progress, rows=PYTHON_ROWS)
    compiled = {
        package.name: _byte_code(tmp_path / "foundation" / str(package.key))
        for package in read_record(tmp_path / "foundation").packages
    }
    assert {name: files for name, files in compiled.items() if files} == {"native": ["native"], "python": ["os"]}


def _byte_code(package: Path) -> list[str]:
    paths = [row["_path"] for row in read_info_json(package, "paths.json")["paths"]]
    return [path.rpartition("/")[2].split(".")[0] for path in paths if path.endswith(".pyc")]


@pytest.mark.usefixtures("first")
def test_update_takes_what_is_offered_now(registries: Registries, tmp_path: Path, progress: NotedProgress) -> None:
    registries.add_deb("toy", {"usr/share/toy/a.txt": "two"}, version="2.0-1")
    updated = _build(registries, tmp_path, progress, update=True)
    assert [name.split("-h")[0] for name in updated.made] == ["linux-64/toy-2.0"]
    assert len(updated.kept) == 2


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(
    registries: Registries, tmp_path: Path, progress: NotedProgress
) -> None:
    result = _build(registries, tmp_path, progress, dry_run=True)
    assert len(result.made) == 3
    assert not (tmp_path / "foundation").exists()


@pytest.mark.usefixtures("first")
def test_a_lock_demands_the_recorded_files(registries: Registries, tmp_path: Path, progress: NotedProgress) -> None:
    lock = tmp_path / "lock.json"
    (tmp_path / "foundation" / RECORD_NAME).rename(lock)
    before = _files(tmp_path)
    registries.add_deb("toy", {"usr/share/toy/a.txt": "two"}, version="2.0-1")
    _build(registries, tmp_path, progress, locked=lock, sources=registries.unreachable())
    assert _files(tmp_path) == before


@pytest.mark.usefixtures("first")
def test_a_lock_that_cannot_be_met_names_what_is_gone(
    registries: Registries, tmp_path: Path, progress: NotedProgress
) -> None:
    lock = tmp_path / "lock.json"
    (tmp_path / "foundation" / RECORD_NAME).rename(lock)
    registries.add_deb("toy", {"usr/share/toy/a.txt": "two"}, version="2.0-1")
    fresh = replace(registries.sources, store=replace(registries.sources.store, folder=tmp_path / "other"))
    for name in _files(tmp_path):
        next((tmp_path / "foundation").glob(f"*/{name}")).unlink()
    with pytest.raises(FoundationError, match=r"1 recorded files are neither .* deb toy 1\.0-1"):
        _build(registries, tmp_path, progress, locked=lock, sources=fresh)


@pytest.mark.usefixtures("first")
def test_a_lock_that_lacks_what_the_table_needs_names_the_row(
    registries: Registries, tmp_path: Path, progress: NotedProgress
) -> None:
    lock = tmp_path / "lock.json"
    (tmp_path / "foundation" / RECORD_NAME).rename(lock)
    with pytest.raises(FoundationError, match=r"the lock has no entry for: deb more of more \(table\.yaml:8\)"):
        _build(registries, tmp_path, progress, rows=ROWS + "more: {debs: [more]}\n", locked=lock)


@pytest.mark.usefixtures("first")
def test_a_recorded_version_that_is_gone_is_replaced_with_a_note(
    registries: Registries, tmp_path: Path, progress: NotedProgress
) -> None:
    registries.add_deb("toy", {"usr/share/toy/a.txt": "two"}, version="2.0-1")
    fresh = replace(registries.sources, store=replace(registries.sources.store, folder=tmp_path / "other"))
    rows = ROWS.replace("depends: [demo]", "depends: [dep]")
    result = _build(registries, tmp_path, progress, rows=rows, sources=fresh)
    assert [name.split("-h")[0] for name in result.made] == ["linux-64/toy-2.0"]
    assert any("using the versions that are available now" in note for note in progress.notes)


def test_a_row_takes_the_version_that_it_names(registries: Registries, tmp_path: Path, progress: NotedProgress) -> None:
    write_deb(registries.debs, "toy", {"usr/share/toy/a.txt": "later"}, version="2.0-1")
    write_apt_repository(registries.debs)
    assert _build(registries, tmp_path, progress).made[0].startswith("linux-64/toy-2.0-")
    named = ROWS.replace("[toy]", "[toy=1.0-1]")
    assert _build(registries, tmp_path, progress, rows=named, update=True).made[0].startswith("linux-64/toy-1.0-")
    gone = ROWS.replace("[toy]", "[toy=1.5-1]")
    with pytest.raises(FoundationError, match=r"has no package toy=1\.5-1, wanted by toy "):
        _build(registries, tmp_path, progress, rows=gone, update=True)


def test_a_deb_that_no_list_offers_names_the_row(
    registries: Registries, tmp_path: Path, progress: NotedProgress
) -> None:
    with pytest.raises(FoundationError, match=r"has no package absent, wanted by x \(table\.yaml:8\)"):
        _build(registries, tmp_path, progress, rows=ROWS + "x: {debs: [absent]}\n")


def test_without_a_route_the_error_says_what_is_missing(
    registries: Registries, tmp_path: Path, progress: NotedProgress
) -> None:
    with pytest.raises(NetworkError, match=r"missing: the versions of 1 Debian packages \(toy\)") as caught:
        _build(registries, tmp_path, progress, sources=registries.unreachable())
    assert "--foundation conda-forge" in str(caught.value.hint)


@pytest.mark.usefixtures("with_processes")
@pytest.mark.parametrize("kind", ["deb", "wheel"])
def test_a_download_cut_short_is_an_error_and_leaves_no_bad_file(
    registries: Registries, tmp_path: Path, progress: NotedProgress, kind: str
) -> None:
    path = next(registries.debs.glob("*.deb")) if kind == "deb" else next(registries.wheels.glob("demo-*.whl"))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises((IntegrityError, NetworkError), match="toy" if kind == "deb" else "demo"):
        _build(registries, tmp_path, progress)
    stored = [path for path in (tmp_path / "store").glob("*/*") if len(path.parent.name) == 64]
    assert all(sha256_of_file(path) == path.parent.name for path in stored)
    assert not (tmp_path / "foundation" / RECORD_NAME).exists()


def test_a_file_that_broke_in_the_store_is_fetched_again(
    registries: Registries, tmp_path: Path, progress: NotedProgress, first: FoundationResult
) -> None:
    for taken in read_record(tmp_path / "foundation").artifacts().values():
        registries.sources.store.path_of(taken).write_bytes(b"broken")
    for name in _files(tmp_path):
        next((tmp_path / "foundation").glob(f"*/{name}")).unlink()
    again = _build(registries, tmp_path, progress)
    assert again.made == first.made


def test_packages_of_a_run_that_did_not_end_are_used(
    registries: Registries, tmp_path: Path, progress: NotedProgress, first: FoundationResult
) -> None:
    packages = read_record(tmp_path / "foundation").packages
    (tmp_path / "foundation" / RECORD_NAME).unlink()
    next((tmp_path / "foundation" / "linux-64").glob("*.conda")).unlink()
    (tmp_path / "foundation" / ".tmp-left").mkdir()
    again = _build(registries, tmp_path, progress)
    assert again.made == first.made[:1]
    assert read_record(tmp_path / "foundation").packages == packages
    assert not (tmp_path / "foundation" / ".tmp-left").exists()


def test_a_repair_step_that_does_not_fit_names_package_step_and_line(
    registries: Registries, tmp_path: Path, progress: NotedProgress
) -> None:
    rows = ROWS.replace("repairs: [flatten]", "repairs: [flatten, prepare_python]")
    with pytest.raises(FoundationError, match=r"package toy \(table\.yaml:6\): repair step prepare_python: "):
        _build(registries, tmp_path, progress, rows=rows)


@pytest.mark.usefixtures("first")
def test_a_foundation_of_other_code_or_another_table_is_outdated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "foundation"
    assert not is_outdated(make_table(tmp_path, ROWS), folder, "linux-64")
    assert not is_outdated(make_table(tmp_path, ROWS), tmp_path / "none", "linux-64")
    assert is_outdated(make_table(tmp_path, ROWS.replace("[flatten]", "[]")), folder, "linux-64")
    monkeypatch.setattr(build, "engine_digest", lambda: "other")
    assert is_outdated(make_table(tmp_path, ROWS), folder, "linux-64")


def test_a_part_of_a_foundation_is_not_outdated_for_what_it_lacks(
    registries: Registries, tmp_path: Path, progress: NotedProgress
) -> None:
    _build(registries, tmp_path, progress, needed=frozenset({"demo"}))
    assert read_record(tmp_path / "foundation").needed is not None
    assert not is_outdated(make_table(tmp_path, ROWS), tmp_path / "foundation", "linux-64")


def test_a_second_writer_is_refused(registries: Registries, tmp_path: Path, progress: NotedProgress) -> None:
    with (
        exclusive_lock(tmp_path / "foundation" / ".lock", resource="the foundation"),
        pytest.raises(ChannelError, match="is in use by"),
    ):
        _build(registries, tmp_path, progress)


def test_an_unknown_subdir_is_refused(registries: Registries, tmp_path: Path, progress: NotedProgress) -> None:
    with pytest.raises(FoundationError, match="no registry foundation for win-64; supported: linux-64, linux-aarch64"):
        build_foundation(
            make_table(tmp_path, ROWS),
            FoundationRequest(jobs=1),
            destination=tmp_path / "foundation",
            downloads=tmp_path / "store",
            subdir="win-64",
            progress=progress,
            sources=registries.sources,
        )


@pytest.mark.usefixtures("first")
def test_a_lock_that_holds_more_than_the_table_needs_makes_only_what_is_needed(
    registries: Registries, tmp_path: Path, progress: NotedProgress
) -> None:
    lock = tmp_path / "lock.json"
    (tmp_path / "foundation" / RECORD_NAME).rename(lock)
    rows = "dep: {wheels: [dep]}"
    result = _build(registries, tmp_path, progress, rows=rows, locked=lock, sources=registries.unreachable())
    assert [package.name for package in read_record(tmp_path / "foundation").packages] == ["dep"]
    assert [name.split("-h")[0] for name in result.removed] == ["linux-64/toy-1.0", "noarch/demo-1.0"]


def test_a_pytorch_for_the_cpu_is_not_replaced_by_itself(
    registries: Registries, tmp_path: Path, progress: NotedProgress
) -> None:
    registries.add_wheel("torch", {"torch.py": ""}, version="2.13.0+cpu")
    rows = f'{ROWS}pytorch: {{wheels: ["torch==2.13.0"]}}\n'
    made = _build(registries, tmp_path, progress, rows=rows)
    with pytest.raises(UsageError, match=r"has PyTorch 2\.13\.0\+cpu for the CPU") as caught:
        _build(registries, tmp_path, progress, rows=rows, cuda=True)
    assert "--update" in str(caught.value.hint)
    assert _build(registries, tmp_path, progress, rows=rows).kept == made.made


@needs_apt
def test_debians_own_pytorch_is_for_the_cpu(registries: Registries, tmp_path: Path, progress: NotedProgress) -> None:
    registries.add_deb("python3-torch", {"usr/share/torch": ""}, version="2.6.0+dfsg-7")
    rows = f'{ROWS}pytorch: {{debs: [python3-torch], version: "2.6.0"}}\n'
    _build(registries, tmp_path, progress, rows=rows)
    record = read_record(tmp_path / "foundation")
    assert record.pytorch is not None
    assert (record.pytorch_source, record.pytorch.kind) == ("debian", "deb")
    with pytest.raises(UsageError, match=r"has PyTorch 2\.6\.0\+dfsg-7 for the CPU"):
        _build(registries, tmp_path, progress, rows=rows, cuda=True)
