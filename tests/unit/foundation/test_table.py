# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import pytest

from channel_tools.conda.package import RunExports
from channel_tools.conda.platforms import SUPPORTED_PLATFORMS, PlatformName
from channel_tools.foundation.model import DATA_FOLDER, Entry, PytorchSource, names_in, table_summary
from channel_tools.foundation.summaries import summary_of
from channel_tools.foundation.table import load_table
from channel_tools.requests.names import BASES, BaseName
from channel_tools.system.errors import ConfigError
from channel_tools.system.yamlfile import read_yaml
from tests.unit.foundation.archives import HEADER, make_table, write_table

if TYPE_CHECKING:
    from pathlib import Path


def test_a_row_becomes_an_entry(tmp_path: Path) -> None:
    table = make_table(
        tmp_path,
        """
zlib:
  debs: [zlib1g-dev]
  depends: ["libzlib {version}"]
  run_exports: {weak: ["libzlib {pin:x}"]}
  drop: [share/doc]
libzlib: {debs: [zlib1g]}
""",
    )
    assert [entry.name for entry in table.entries] == ["libzlib", "zlib"]
    zlib = table.entry("zlib")
    assert zlib is not None
    assert (zlib.debs, zlib.depends, zlib.drop) == (("zlib1g-dev",), ("libzlib {version}",), ("share/doc",))
    assert zlib.run_exports == RunExports(weak=("libzlib {pin:x}",))
    assert zlib.line == 6


def test_the_tables_own_files_are_right() -> None:
    table = load_table(subdir="linux-64")
    names = {entry.name for entry in table.entries}
    assert {"python", "pytorch", "libtorch", "numpy", "pip", "cmake", "libgrpc", "gxx_linux-64", "mpich"} <= names
    assert table.suite == "bookworm"
    assert table_summary("debian-12", "linux-64").optional == table.optional_names != frozenset()


SOURCES: tuple[PytorchSource, ...] = ("wheel", "debian")
ONLY_X86 = {"libpsm-infinipath", "libpsm2"}


@pytest.mark.parametrize("subdir", SUPPORTED_PLATFORMS)
@pytest.mark.parametrize("base", get_args(BaseName))
def test_a_base_has_all_packages_and_its_own_glibc(base: BaseName, subdir: PlatformName) -> None:
    table, summary = load_table(base=base, subdir=subdir), table_summary(base, subdir)
    of_first = {entry.name.replace("linux-64", subdir) for entry in load_table(subdir="linux-64").entries}
    assert of_first - {entry.name for entry in table.entries} <= {"libre2-9", "python", *ONLY_X86}
    assert table.limited_to({"pytorch"}).lacks_python == (base == "debian-11")
    compilers = table.limited_to({f"gcc_{subdir}", "openssl"})
    assert f"gcc_impl_{subdir}" in {entry.name for entry in compilers.wanted}
    assert not compilers.lacks_python
    assert (set(summary.rows), summary.optional) == ({entry.name for entry in table.entries}, table.optional_names)
    assert (table.glibc, table.python) == (BASES[base].glibc, summary.default.python)
    texts = [
        text for entry in table.entries for text in (*entry.debs, *entry.depends, *entry.skip, entry.version or "")
    ]
    assert [text for text in texts if re.search(r"\{(?!version|pin|build)", text)] == []
    other = {"linux-64": "aarch64|arm64", "linux-aarch64": "x86[-_]64|amd64|linux-64|psm|quadmath"}[subdir]
    assert [text for text in (*texts, *summary.rows) if re.search(other, text)] == []
    assert all(map(summary_of, (name for name in summary.rows if name.endswith(subdir))))


def test_a_row_says_what_differs_by_base_and_platform(tmp_path: Path) -> None:
    header = HEADER + 'versions: {n: "1"}\nby_base: {debian-13: {suite: trixie, versions: {n: "2-{machine}"}}}\n'
    rows = """
a: {debs: ["a{n}"], depends: ["b {pin:b_{subdir}:x}"], by_base: {debian-13: {drop: [x]}}}
"b_{subdir}": {debs: [b], by_platform: {linux-aarch64: {drop: [y]}}, by_base: {debian-13: {drop: [x], skip: [z]}}}
c: {debs: [c], bases: [debian-12]}
d: {debs: [d], bases: [debian-13], platforms: [linux-64]}
"""
    path = write_table(tmp_path, rows, header=header)
    first, later = load_table([path], subdir="linux-64"), load_table([path], base="debian-13", subdir="linux-aarch64")
    assert (first.suite, later.suite) == ("bookworm", "trixie")
    assert [[entry.name for entry in table.entries] for table in (first, later)] == [
        ["a", "b_linux-64", "c"],
        ["a", "b_linux-aarch64"],
    ]
    assert [(entry.debs, entry.depends, entry.drop) for entry in (first.entries[0], later.entries[0])] == [
        (("a1",), ("b {pin:b_linux-64:x}",), ()),
        (("a2-aarch64",), ("b {pin:b_linux-aarch64:x}",), ("x",)),
    ]
    assert [(entry.drop, entry.skip) for entry in (first.entries[1], later.entries[1])] == [((), ()), (("y",), ("z",))]
    rows = 'a: {debs: [a1], depends: ["b {pin:b_linux-64:x}"]}\nb_linux-64: {debs: [b]}\nc: {debs: [c]}'
    same = write_table(tmp_path, rows, name="same.yaml")
    assert load_table([same], subdir="linux-64").digest == first.digest


def test_debians_own_pytorch_stands_in_for_the_wheel(tmp_path: Path) -> None:
    header = f"{HEADER}combinations: {{pytorch: ['2.12.0'], packages: [pytorch]}}\n"
    rows = """
pytorch:
  wheels: ["torch==2.13.0"]
  drop: [x]
  by_base: {debian-13: {drop: [y]}}
  by_platform: {linux-64: {skip: [z]}}
  debian_pytorch: {debian-13: {wheels: [], debs: [python3-torch], version: "2.6.0", skip: []}}
"""
    path = write_table(tmp_path, rows, header=header)
    wheel, own = (load_table([path], subdir="linux-64", base="debian-13", pytorch=source) for source in SOURCES)
    assert [(row.debs, row.wheels, row.drop, row.skip) for table in (wheel, own) for row in table.entries] == [
        ((), ("torch==2.13.0",), ("y",), ("z",)),
        (("python3-torch",), (), ("y",), ()),
    ]
    assert [len(table.combinations) for table in (wheel, own)] == [1, 0]
    other = load_table([path], subdir="linux-64", pytorch="debian")
    assert [row.wheels for row in other.entries] == [("torch==2.13.0",)]


@pytest.mark.parametrize("subdir", SUPPORTED_PLATFORMS)
def test_debians_own_pytorch_is_whole(subdir: PlatformName) -> None:
    summary = table_summary("debian-13", subdir, "debian")
    table = load_table(subdir=subdir, base="debian-13", pytorch="debian")
    rows = {entry.name: entry for entry in table.entries}
    assert {rows[name].version for name in ("libtorch", "pytorch")} == {summary.default.pytorch}
    assert summary.debian_pytorch == summary.default.pytorch == table_summary("debian-13", subdir).debian_pytorch
    assert summary.combinations == table.combinations == ()
    assert set(names_in((*rows["pytorch"].depends, *rows["libtorch"].depends))) <= rows.keys()
    variants: Any = read_yaml(DATA_FOLDER.parents[2] / "variants" / "foundation-registry-debian-13.yaml").value
    assert summary.debian_pytorch is not None
    assert summary.debian_pytorch.rpartition(".")[0] in variants["pytorch"]
    assert table_summary("debian-12", subdir).debian_pytorch is None


def test_rows_may_stand_in_several_files(tmp_path: Path) -> None:
    first = write_table(tmp_path, "a: {debs: [a]}", name="1.yaml")
    second = write_table(tmp_path, "b: {debs: [b]}", name="2.yaml", header="")
    assert [entry.name for entry in load_table([first, second], subdir="linux-64").entries] == ["a", "b"]


def test_the_digest_does_not_depend_on_where_a_row_stands(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    one = make_table(tmp_path, "a: {debs: [a]}\nb: {debs: [b]}")
    other = make_table(tmp_path / "x", "b: {debs: [b]}\n\na:\n  debs: [a]")
    changed = make_table(tmp_path / "x", "a: {debs: [a]}\nb: {debs: [c]}")
    assert one.digest == other.digest
    assert one.digest != changed.digest


@pytest.mark.parametrize(
    ("rows", "line", "expected"),
    [
        ("a: {debs: [a], dept: [b]}", 6, r"unknown key packages\.a\.dept"),
        ("a:\n  debs: [a]\n  drop: share/doc", 8, r"packages\.a\.drop: Input should be a valid list"),
        ("a:\n  debs: [a]\n  repairs: [no_such_step]", 8, "there is no repair step 'no_such_step'"),
        ("a: {debs: [a]}\na: {debs: [b]}", 7, "duplicate key 'a', first in line 6"),
        ("a: {debs: [a], wheels: [b]}", 6, "give debs or wheels, not both"),
        ("a: {depends: [b]}", 6, "needs a version"),
        ("A: {debs: [a]}", 6, "'A' is not a valid conda package name"),
        ("a:\n  debs: [a]\n  build: fixed_0", 8, "lacks {hash}"),
        ("a: {wheels: [a, b], optional: true}", 6, "an optional row can have at most one wheel"),
    ],
    ids=["unknown-key", "no-list", "unknown-step", "twice", "both", "empty", "name", "build", "optional"],
)
def test_a_wrong_row_is_named_with_file_and_line(tmp_path: Path, rows: str, line: int, expected: str) -> None:
    path = write_table(tmp_path, rows)
    with pytest.raises(ConfigError, match=expected) as caught:
        load_table([path], subdir="linux-64")
    assert str(caught.value).startswith(f"{path}:{line}: ")


def test_an_unknown_step_is_answered_with_the_nearest(tmp_path: Path) -> None:
    path = write_table(tmp_path, "a: {debs: [a], repairs: [nativ]}")
    with pytest.raises(ConfigError) as caught:
        load_table([path], subdir="linux-64")
    assert caught.value.hint == "did you mean native?"


def test_a_package_in_two_files_is_named_with_both(tmp_path: Path) -> None:
    first = write_table(tmp_path, "a: {debs: [a]}", name="1.yaml")
    second = write_table(tmp_path, "a: {debs: [b]}", name="2.yaml", header="")
    with pytest.raises(ConfigError, match=rf"2\.yaml:2: package 'a' already has a row, in {first}:6"):
        load_table([first, second], subdir="linux-64")


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (["", ""], "0 of these table files have the key 'suite'"),
        ([HEADER, HEADER], "2 of these table files have the key 'suite'"),
        ([HEADER, 'python: "3.12"\n'], "python must be in the same file as 'suite'"),
        (["suite: bookworm\n", ""], "the header lacks python, glibc, conda_names"),
        (['suite: bookworm\npython: "three"\n', ""], "python: String should match pattern"),
    ],
    ids=["none", "two", "elsewhere", "incomplete", "pattern"],
)
def test_a_wrong_header_is_an_error(tmp_path: Path, headers: list[str], expected: str) -> None:
    paths = [
        write_table(tmp_path, f"p{number}: {{debs: [a]}}", name=f"{number}.yaml", header=header)
        for number, header in enumerate(headers)
    ]
    with pytest.raises(ConfigError, match=expected):
        load_table(paths, subdir="linux-64")


def test_a_file_that_is_no_mapping_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("- a\n")
    with pytest.raises(ConfigError, match=r"x\.yaml:1: a table file must be a mapping"):
        load_table([path], subdir="linux-64")


# the rows of data/native.yaml as they stand: what can be said about them without any package
TABLE = load_table(subdir="linux-64")
NATIVE = [entry for entry in TABLE.entries if entry.path == DATA_FOLDER / "native.yaml"]
BY_NAME = {entry.name: entry for entry in TABLE.entries}


def row(name: str) -> Entry:
    return BY_NAME[name]


@pytest.mark.parametrize("entry", NATIVE, ids=lambda entry: entry.name)
def test_requirements_name_rows_of_the_table(entry: Entry) -> None:
    exported = (*entry.run_exports.weak, *entry.run_exports.strong)
    for spec in (*entry.depends, *entry.constrains, *exported):
        name = spec.split()[0]
        assert name in BY_NAME or name == "__glibc", f"{entry.name}: {spec}"
        for other in re.findall(r"\{(?:version|build|pin):([a-z][\w.-]+)", spec):
            assert other in BY_NAME or re.fullmatch(r"x(\.x)*", other), f"{entry.name}: {spec}"


@pytest.mark.parametrize("entry", NATIVE, ids=lambda entry: entry.name)
def test_rows_with_files_are_repaired(entry: Entry) -> None:
    assert entry.repairs or not entry.debs


def test_no_deb_is_in_two_packages_but_what_the_sanitizers_take_from_gccs() -> None:
    """The rows of gcc skip just what the sanitizers' keeps."""
    counts = Counter(deb for entry in TABLE.entries for deb in entry.debs)
    assert {deb for deb, count in counts.items() if count > 1} == {"gcc-12", "libgcc-12-dev"}
    skipped = {*row("gcc_impl_linux-64").skip, *row("libgcc-devel_linux-64").skip}
    assert set(row("libsanitizer").keep) <= skipped


def test_what_is_built_with_the_compiler_asks_for_its_runtime_and_its_glibc() -> None:
    assert row("gcc_linux-64").run_exports.strong == ("libgcc >=12",)
    assert row("gxx_linux-64").run_exports.strong == ("libgcc >=12", "libstdcxx >=12")
    assert row("sysroot_linux-64").run_exports.strong == ("__glibc >={version},<3.0.a0",)


@pytest.mark.parametrize(
    ("seen_by_recipes", "exported"),
    [
        ("zlib", "libzlib"),
        ("expat", "libexpat"),
        ("re2", "libre2-9"),
        ("liblzma-devel", "liblzma"),
        ("libboost-devel", "libboost"),
        ("libfabric-devel", "libfabric1"),
        ("libgrpc", "libgrpc"),
        ("mpich", "mpich"),
        ("rdma-core", "rdma-core"),
    ],
)
def test_development_packages_export_what_runs(seen_by_recipes: str, exported: str) -> None:
    assert exported in {spec.split()[0] for spec in row(seen_by_recipes).run_exports.weak}


def test_the_table_can_be_limited_to_what_recipes_name() -> None:
    table = load_table(subdir="linux-64")
    compiled = {entry.name for entry in table.limited_to({"gcc_linux-64", "sysroot_linux-64", "own-package"}).wanted}
    assert {"gcc_impl_linux-64", "binutils_impl_linux-64", "libgcc"} <= compiled
    assert not compiled & {"python", "pytorch", "mpich", "libgrpc", "cmake"}
    with_python = {entry.name for entry in table.limited_to({"pytorch"}).asking(()).wanted}
    assert {"python", "python_abi", "pip", "libtorch", "numpy", "openssl"} <= with_python
    assert "python" not in {entry.name for entry in table.limited_to({"cmake"}).asking(()).wanted}
    (combination, *_rest) = table.combinations
    both = replace(table, asked_combinations=(combination,)).limited_to(())
    assert table.combined <= {entry.name for entry in both.wanted}
