# SPDX-License-Identifier: BSD-3-Clause
"""What retention keeps: every package that remains can be installed as before, whatever form its requirements have."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rattler import Channel, SparseRepoData, solve_with_sparse_repodata
from rattler.exceptions import SolverError

from channel_tools.channel.listing import Listing, Patch, Retired
from channel_tools.channel.maintenance import Retention, RetentionPlan, plan_retention
from channel_tools.channel.records import CachedPackage, recorded_package

NOW_S = 1.8e9
Rows = dict[str, dict[str, CachedPackage]]


def row(name: str, version: str, **fields: object) -> tuple[str, CachedPackage]:
    subdir = str(fields.get("subdir", "linux-64"))
    record: dict[str, Any] = {"name": name, "version": version, "build": "h1_0", "build_number": 0, "depends": []}
    record |= {"subdir": subdir, "sha256": "0" * 64, "indexed_timestamp": 1000}
    return f"{subdir}/{name}-{version}-h1_0.conda", recorded_package(record | fields)


def rows_of(*packages: tuple[str, CachedPackage]) -> Rows:
    rows: Rows = {}
    for key, package in packages:
        subdir, _slash, file_name = key.partition("/")
        rows.setdefault(subdir, {})[file_name] = package
    return rows


def retention(*packages: tuple[str, CachedPackage], listing: Listing | None = None, keep: int = 1) -> RetentionPlan:
    rule = Retention(keep=keep, grace_s=0)
    return plan_retention(listing or Listing(), rows_of(*packages), rule, now_s=NOW_S)


OLD, NEW = "linux-64/alib-1.0-h1_0.conda", "linux-64/alib-2.0-h1_0.conda"


@pytest.mark.parametrize(
    "requirement",
    [
        "alib <2",
        "alib<2",
        "alib=1.0",
        "alib=1.0=h1_0",
        "alib==1.0",
        "alib~=1.0",
        "ours::alib <2",
        "https://host/ours::alib<2",
        "ours/linux-64::alib <2",
        "alib[version='<2']",
        "alib [version='<2', build='h1_*']",
        "alib[version='<2',subdir=linux-64]",
        "alib[license=MIT]",
        "alib[track_features=old]",
        f"alib[sha256={'1' * 64}]",
        f"alib[md5={'1' * 32}]",
        "alib<2[when='python >=3']",
        "alib<2[extras=[gui]]",
        "ALIB <2",
        " alib  < 2 ",
        "alib !=2.0",
        "alib 1.0|0.5",
    ],
)
def test_what_a_kept_package_requires_stays_in_every_form_of_matchspec(requirement: str) -> None:
    of_old = {"license": "MIT", "track_features": "old", "sha256": "1" * 64, "md5": "1" * 32}
    libraries = row("alib", "1.0", **of_old), row("alib", "2.0", license="BSD", md5="2" * 32)
    plan = retention(*libraries, row("bapp", "1.0", depends=[requirement]))
    assert (plan.delete, plan.retire) == ((), ())
    assert plan.keep == {OLD: "linux-64/bapp-1.0-h1_0.conda may need it"}
    assert retention(*libraries, row("bapp", "1.0", depends=["alib >=2"])).delete == (OLD,)


@pytest.mark.parametrize("field", ["depends", "run_exports", "extra_depends"])
def test_every_kind_of_requirement_counts(field: str) -> None:
    value = ["alib<2"] if field == "depends" else {"weak": ["alib<2"]}
    plan = retention(row("alib", "1.0"), row("alib", "2.0"), row("bapp", "1.0", **{field: value}))
    assert plan.delete == ()


def test_what_run_exports_only_constrain_does_not_count_as_required() -> None:
    exports = {"weak_constrains": ["alib<2"], "strong": None}
    plan = retention(row("alib", "1.0"), row("alib", "2.0"), row("bapp", "1.0", run_exports=exports))
    assert plan.delete == (OLD,)


def test_the_last_version_that_a_kept_package_is_compatible_with_stays() -> None:
    libraries = [row("alib", version, depends=["base <2"]) for version in ("0.5", "1.0")] + [row("alib", "2.0")]
    bases = row("base", "1.0"), row("base", "2.0")
    plan = retention(*libraries, *bases, row("bapp", "1.0", constrains=["alib<2", "gone <0", "__cuda >=12"]))
    assert plan.delete == ()
    assert plan.keep[OLD] == "linux-64/bapp-1.0-h1_0.conda is only compatible with alib<2"
    assert plan.keep["linux-64/base-1.0-h1_0.conda"].endswith("may need it")
    assert retention(*libraries, row("bapp", "1.0", constrains=["alib >=1"])).delete != ()


@pytest.mark.parametrize("field", ["depends", "constrains"])
@pytest.mark.parametrize("value", [["alib >="], "alib"], ids=["a bad MatchSpec", "no list"])
def test_a_requirement_that_cannot_be_read_may_need_anything(field: str, value: object) -> None:
    plan = retention(row("alib", "1.0"), row("alib", "2.0"), row("bapp", "1.0", **{field: value}))
    assert plan.delete == ()
    assert plan.keep[OLD].startswith("linux-64/bapp-1.0-h1_0.conda may need it: ")
    assert "alib" in plan.keep[OLD]


def test_a_version_that_conda_cannot_order_may_satisfy_anything() -> None:
    key, package = row("alib", "1.0")
    unordered = key, package.patched({**package.record, "version": ""})
    assert retention(unordered, row("alib", "2.0"), row("bapp", "1.0", depends=["alib <2"])).delete == ()
    assert retention(unordered, row("alib", "2.0")).delete == (OLD,)


@pytest.mark.parametrize("missing", [{}, {"depends": None, "constrains": None, "run_exports": None}])
def test_fields_that_are_null_require_nothing(missing: Mapping[str, object]) -> None:
    app = row("bapp", "1.0", **missing)
    record = {key: value for key, value in app[1].record.items() if missing or key != "depends"}
    assert retention(row("alib", "1.0"), row("alib", "2.0"), (app[0], app[1].patched(record))).delete == (OLD,)


def test_a_noarch_package_needs_those_of_the_platforms() -> None:
    app = row("bapp", "1.0", subdir="noarch", depends=["alib<2"])
    assert retention(row("alib", "1.0"), row("alib", "2.0"), app).delete == ()


def test_what_was_yanked_lately_still_needs_its_dependencies_and_what_was_replaced_does_not() -> None:
    libraries = row("alib", "1.0"), row("alib", "2.0")
    app = row("bapp", "1.0", depends=["alib<2"], indexed_timestamp=int(NOW_S * 1000))
    key, rule = app[0], Retention(keep=1, grace_s=0, older_than_s=60)
    found = {
        name: plan_retention(listing, rows_of(*libraries, app), rule, now_s=NOW_S).delete
        for name, listing in {
            "yanked": Listing(yanked={key: "wrong sums"}),
            "removed": Listing(patches={"linux-64": Patch(remove=("bapp-1.0-h1_0.conda",))}),
            "replaced": Listing(hidden={key: "superseded by another"}),
            "retired": Listing(retired={key: Retired(sha256="0" * 64, since_s=NOW_S, deleted=True)}),
        }.items()
    }
    assert found == {"yanked": (), "removed": (), "replaced": (OLD,), "retired": (OLD,)}


def test_versions_that_are_equal_for_conda_are_one_version() -> None:
    assert retention(row("alib", "2.0"), row("alib", "2.0.0"), row("alib", "1.0")).delete == (OLD,)


NAMES = ("aa", "bb", "cc", "dd")


@st.composite
def channels(draw: st.DrawFn) -> list[tuple[str, CachedPackage]]:
    """A few versions of a few packages, in two subdirs, which require each other in many forms."""
    # without channels: of "ours::aa <2", rattler 0.28 finds candidates if "aa <2" stands elsewhere, and else none
    forms = st.sampled_from(["{n} {c}", "{n}{c}", "{u} {c}", "{n}[version='{c}']", "{n}[build=h1_*]"])
    conditions = st.sampled_from(["<2", ">=2", "<=1", "==2", "!=3", ">1,<3", ">3"])
    packages = []
    for name in NAMES:
        subdir = draw(st.sampled_from(["linux-64", "noarch"]))
        for version in sorted(draw(st.sets(st.sampled_from(["1", "2", "3"]), min_size=1))):
            lists = {}
            for field in ("depends", "constrains"):
                texts = []
                for other in sorted(draw(st.sets(st.sampled_from(NAMES), max_size=2)) - {name}):
                    text, condition = draw(forms), draw(conditions)
                    texts.append(text.format(n=other, u=other.upper(), c=condition))
                lists[field] = texts
            packages.append(row(name, version, subdir=subdir, **lists))
    return packages


def solvable(packages: Iterable[tuple[str, CachedPackage]], folder: Path) -> set[str]:
    """The packages that a solver can install by themselves."""
    rows = rows_of(*packages)
    sources = []
    for subdir, found in rows.items():
        path = folder / f"{subdir}.json"
        records = {name: package.record for name, package in found.items()}
        path.write_text(json.dumps({"info": {"subdir": subdir}, "packages": {}, "packages.conda": records}))
        sources.append(SparseRepoData(Channel("ours"), subdir, path))

    async def solves(record: Mapping[str, object]) -> bool:
        try:
            await solve_with_sparse_repodata([f"{record['name']} =={record['version']}"], sources)
        except SolverError:
            return False
        return True

    async def all_of() -> set[str]:
        return {
            f"{subdir}/{name}"
            for subdir, found in rows.items()
            for name, package in found.items()
            if await solves(package.record)
        }

    return asyncio.run(all_of())


@pytest.mark.slow
@given(channels(), st.integers(1, 2))
@settings(max_examples=40)
def test_what_remains_is_as_solvable_as_before(packages: list[tuple[str, CachedPackage]], keep: int) -> None:
    gone = set(retention(*packages, keep=keep).delete)
    left = [package for package in packages if package[0] not in gone]
    with tempfile.TemporaryDirectory() as folder:
        before, after = solvable(packages, Path(folder)), solvable(left, Path(folder))
    assert after == before - gone
    newest = {name: max(row.record["version"] for _key, row in packages if row.name == name) for name in NAMES}  # type: ignore[type-var]
    assert {(row.name, row.record["version"]) for _key, row in left} >= set(newest.items())
