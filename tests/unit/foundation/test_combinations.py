# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from channel_tools.conda.archive import read_index_json
from channel_tools.conda.metadata import PackageMetadata
from channel_tools.conda.package import sidecar_of, write_sidecar
from channel_tools.foundation import worker
from channel_tools.foundation.build import FoundationResult, build_foundation, check_versions, is_outdated
from channel_tools.foundation.record import read_record
from channel_tools.requests.foundation import FoundationRequest
from channel_tools.system.errors import FoundationError
from tests.support.packages import toy_package, write_files
from tests.support.processes import run_here
from tests.unit.foundation.archives import HEADER, make_table
from tests.unit.foundation.registries import NotedProgress, Registries, needs_apt

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.record import RecordedPackage

COMBINATIONS = 'combinations: {python: ["3.13"], pytorch: [], packages: [python_abi, pytorch]}\n'
ROWS = """
python: {debs: [python3.11]}
python_abi: {version: "3.11", build: "{hash}_cp311", constrains: [python 3.11.* *_cpython]}
pytorch: {wheels: ["torch==2.13.0"]}
"""
ASKED = frozenset({"python3.13-pytorch2.13"})

pytestmark = needs_apt


@pytest.fixture
def registries(registries: Registries, monkeypatch: pytest.MonkeyPatch) -> Registries:
    """Offers what ROWS need."""
    monkeypatch.setattr(worker, "run_in_processes", run_here)
    monkeypatch.setattr(worker, "compile_modules", lambda *_, **__: None)  # the toy Python cannot run
    registries.add_deb("python3.11", {"usr/share/python/a.txt": "one"})
    registries.add_wheel("torch", {"torch.py": "x = 1\n"}, version="2.13.0+cpu")
    return registries.without_pip()


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python that a recipe built, in the channel that it was built for."""
    return toy_package(tmp_path / "channel", "python", {"bin/python3.13": "3.13"}, version="3.13.5")


def _build(
    registries: Registries,
    root: Path,
    progress: NotedProgress,
    pythons: dict[str, Path],
    *,
    rows: str = ROWS,
    dry_run: bool = False,
) -> FoundationResult:
    return build_foundation(
        make_table(root, rows, header=HEADER + COMBINATIONS),
        FoundationRequest(jobs=1, asked=ASKED, pythons=pythons, dry_run=dry_run),
        destination=root / "foundation",
        downloads=root / "store",
        subdir="linux-64",
        progress=progress,
        sources=registries.sources,
    )


def _packages(root: Path, name: str) -> list[RecordedPackage]:
    return [package for package in read_record(root / "foundation").packages if package.name == name]


def test_a_combination_takes_the_python_that_a_recipe_built_as_it_is(
    registries: Registries, tmp_path: Path, progress: NotedProgress, python: Path
) -> None:
    write_sidecar(python, b"[]")
    _build(registries, tmp_path, progress, {"3.13": python})
    own, given = sorted(_packages(tmp_path, "python"), key=lambda package: package.is_given)
    assert (own.is_given, own.version, own.combination) == (False, "1.0", None)
    assert (given.is_given, given.file_name) == (True, python.name)
    assert given.combination == "python3.13-pytorch2.13"
    place = given.key.path_in(tmp_path / "foundation")
    assert place.samefile(python)
    assert sidecar_of(place).read_bytes() == b"[]"


def test_a_combination_adds_only_what_is_for_its_python(
    registries: Registries, tmp_path: Path, progress: NotedProgress, python: Path
) -> None:
    _build(registries, tmp_path, progress, {"3.13": python})
    old, new = sorted(_packages(tmp_path, "python_abi"), key=lambda package: package.version)
    assert (old.version, new.version) == ("3.11", "3.13")
    assert new.build.endswith("_cp313")
    index = read_index_json(new.key.path_in(tmp_path / "foundation"))
    assert index["constrains"] == ["python 3.13.* *_cp313"]
    (pytorch,) = _packages(tmp_path, "pytorch")  # pure, so one serves both
    assert pytorch.combination is None


def test_a_later_run_keeps_the_python_it_was_given_and_makes_nothing(
    registries: Registries, tmp_path: Path, progress: NotedProgress, python: Path
) -> None:
    _build(registries, tmp_path, progress, {"3.13": python})
    first = read_record(tmp_path / "foundation")
    for pythons in ({}, {"3.13": python}):
        assert _build(registries, tmp_path, progress, pythons).made == ()
        assert read_record(tmp_path / "foundation") == first
    table = make_table(tmp_path, ROWS, header=HEADER + COMBINATIONS)
    assert not is_outdated(table, tmp_path / "foundation", "linux-64")
    changed = ROWS.replace("python: {debs: [python3.11]}", "python: {debs: [python3.11], run_exports: {weak: [a]}}")
    later = _build(registries, tmp_path, progress, {}, rows=changed)
    assert f"linux-64/{python.name}" in later.kept


def test_a_newer_python_takes_the_place_of_the_one_before(
    registries: Registries, tmp_path: Path, progress: NotedProgress, python: Path
) -> None:
    _build(registries, tmp_path, progress, {"3.13": python})
    newer = toy_package(tmp_path / "channel", "python", {"bin/python3.13": "new"}, version="3.13.6")
    result = _build(registries, tmp_path, progress, {"3.13": newer})
    assert result.removed == (f"linux-64/{python.name}",)
    assert [package.file_name for package in _packages(tmp_path, "python") if package.is_given] == [newer.name]


def test_a_combination_without_its_python_says_what_builds_it(
    registries: Registries, tmp_path: Path, progress: NotedProgress
) -> None:
    with pytest.raises(FoundationError, match=r"needs Python 3\.13, which a recipe builds") as caught:
        _build(registries, tmp_path, progress, {})
    assert caught.value.hint == "run channel_tools build --variant python --python 3.13, then foundation build again"


@pytest.mark.parametrize(
    ("torch", "deb", "absent"),
    [
        ("2.13.0+cpu", "python3.11", None),
        ("2.13.0+cu130", "python3.11", "no PyTorch for the CPU"),
        ("2.13.0+cpu", "gone", "has no package gone"),
    ],
)
def test_versions_that_nobody_offers_are_an_error_before_a_python_is_built(
    registries: Registries, tmp_path: Path, progress: NotedProgress, torch: str, deb: str, absent: str | None
) -> None:
    registries.add_wheel("torch", {"torch.py": "x = 1\n"}, version=torch)
    rows = ROWS.replace("python: {debs: [python3.11]}", f"x: {{debs: [{deb}]}}")
    with pytest.raises(FoundationError, match=absent) if absent else contextlib.nullcontext():
        check_versions(
            make_table(tmp_path, rows, header=HEADER),
            FoundationRequest(),
            destination=tmp_path / "foundation",
            downloads=tmp_path / "store",
            subdir="linux-64",
            progress=progress,
            sources=registries.sources,
        )
    assert not (tmp_path / "foundation").exists()


def test_a_python_of_another_minor_version_is_refused(
    registries: Registries, tmp_path: Path, progress: NotedProgress
) -> None:
    other = toy_package(tmp_path / "channel", "python", {"bin/python3.12": ""}, version="3.12.9")
    with pytest.raises(FoundationError, match=r"is Python 3\.12\.9, but PyTorch 2\.13\.0 on Python 3\.13 needs 3\.13"):
        _build(registries, tmp_path, progress, {"3.13": other})


def test_a_dry_run_links_no_python(
    registries: Registries, tmp_path: Path, progress: NotedProgress, python: Path
) -> None:
    result = _build(registries, tmp_path, progress, {"3.13": python}, dry_run=True)
    assert any(name.startswith("noarch/pytorch-") for name in result.made)
    assert not (tmp_path / "foundation").exists()


def test_a_combination_brings_the_rows_of_debian_that_its_wheels_alone_need(
    registries: Registries, tmp_path: Path, progress: NotedProgress
) -> None:
    for name in ("rdma", "verbs"):
        registries.add_deb(name, {f"usr/share/{name}/a.txt": name})
    rows = (
        ROWS
        + """
cufile: {wheels: [cufile], optional: true, depends: [rdma]}
rdma: {debs: [rdma], depends: [verbs]}
verbs: {debs: [verbs]}
"""
    )
    header = HEADER + 'combinations: {python: [], pytorch: ["2.12.0"], packages: [python_abi, pytorch]}\n'

    def make(**options: Any) -> FoundationResult:  # noqa: ANN401 - FoundationRequest's own
        return build_foundation(
            make_table(tmp_path, rows, header=header),
            FoundationRequest(jobs=1, needed=frozenset({"pytorch"}), **options),
            destination=tmp_path / "foundation",
            downloads=tmp_path / "store",
            subdir="linux-64",
            progress=progress,
            sources=registries.sources,
        )

    make()
    assert not [name for name in ("cufile", "rdma", "verbs") if _packages(tmp_path, name)]
    registries.add_wheel("torch", {"torch.py": "x = 1\n"}, version="2.12.0+cpu", requires=("cufile",))
    registries.add_wheel("cufile", {"cufile.py": ""})
    asked = frozenset({"python3.11-pytorch2.12"})
    made = [name.rpartition("/")[2].rsplit("-", 2)[0] for name in make(asked=asked).made]
    assert sorted(made) == ["cufile", "pytorch", "rdma", "verbs"]
    assert make(asked=asked).made == ()


def test_a_table_without_a_row_for_its_python_takes_the_one_that_a_recipe_built(
    registries: Registries, tmp_path: Path, progress: NotedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ROWS.replace("python: {debs: [python3.11]}", "").replace("}\n", "}\nfast: {wheels: [fast]}\n", 1)
    registries.add_wheel("fast", {"fast.py": "x = 1\n"}, tag="cp311-cp311-manylinux_2_17_x86_64")
    with pytest.raises(
        FoundationError, match=r"the foundation of Debian \w+ needs Python 3\.11, which a recipe builds"
    ):
        build_own(registries, tmp_path, progress, rows, {})
    compiled: list[bool] = []
    program = "bin/python3.11"
    monkeypatch.setattr(
        worker, "compile_modules", lambda _tree, compiler, **_: compiled.append((compiler / program).is_file())
    )
    index = {"name": "python", "version": "3.11.2", "subdir": "linux-64", "depends": ()}
    built = [
        write_files(tmp_path / "channel" / "linux-64", PackageMetadata(build=text, **index), {program: text})  # type: ignore[arg-type]
        for text in ("a_0", "b_0")
    ]
    names = []
    for python in built:
        build_own(registries, tmp_path, progress, rows, {"3.11": python})
        (given,) = _packages(tmp_path, "python")
        assert (given.is_given, given.file_name, given.combination) == (True, python.name, None)
        names.append(_packages(tmp_path, "fast")[0].file_name)
    assert compiled == [True, True]
    assert names[0] != names[1]  # byte code is of one Python
    assert build_own(registries, tmp_path, progress, rows, {}).made == ()


def build_own(
    registries: Registries, root: Path, progress: NotedProgress, rows: str, pythons: dict[str, Path]
) -> FoundationResult:
    return build_foundation(
        make_table(root, rows, header=HEADER),
        FoundationRequest(jobs=1, pythons=pythons),
        destination=root / "foundation",
        downloads=root / "store",
        subdir="linux-64",
        progress=progress,
        sources=registries.sources,
    )
