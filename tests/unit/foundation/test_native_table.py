# SPDX-License-Identifier: BSD-3-Clause
"""The rows of data/native.yaml as they stand: what can be said about them without any package."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from channel_tools.foundation.model import Entry
from channel_tools.foundation.table import DATA_FOLDER, load_table

TABLE = load_table()
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
def test_rows_with_files_are_mended(entry: Entry) -> None:
    assert entry.repairs or not entry.debs


def test_no_deb_is_in_two_packages() -> None:
    counts = Counter(deb for entry in TABLE.entries for deb in entry.debs)
    assert [deb for deb, count in counts.items() if count > 1] == []


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
