# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest
import yaml

from channel_tools.audit.model import DeclaredException, Finding, Rule
from channel_tools.audit.policy import declared_by, foundation_table, split_declared
from channel_tools.conda.compiled_in import RenderedRecipe, read_rendered

NO_RECIPE = read_rendered(None)


def recipe(**linking: object) -> RenderedRecipe:
    return read_rendered(yaml.safe_dump({"recipe": {"build": {"dynamic_linking": linking}}}).encode())


def declared(**audit: object) -> tuple[tuple[DeclaredException, ...], tuple[str, ...]]:
    found = declared_by({"extra": {"audit": audit}}, NO_RECIPE)
    return found.exceptions, found.faults


def finding(rule: Rule, file: str, subject: str = "") -> Finding:
    return Finding(package="toy.conda", file=file, rule=rule, subject=subject, found="f", expected="e", fix="m")


def test_nothing_is_declared_by_default() -> None:
    found = declared_by({}, NO_RECIPE)
    assert (found.exceptions, found.missing_dso, found.rpaths, found.faults) == ((), (), (), ())


def test_an_exception_covers_its_rule_in_its_files_only() -> None:
    rows = [{"rule": "link", "files": ["lib/libxrt*"], "reason": "XRT   is the\nsite's"}]
    found = declared_by({"extra": {"audit": {"allow": rows}}}, NO_RECIPE)
    findings = [
        finding(Rule.LINK, "lib/libxrt.so"),
        finding(Rule.LINK, "lib/other.so"),
        finding(Rule.NEEDED, "lib/libxrt.so"),
    ]
    left, excused = split_declared(findings, found)
    assert left == tuple(findings[1:])
    assert [(row.finding, row.reason) for row in excused] == [(findings[0], "XRT is the site's")]


def test_paths_are_excused_by_name() -> None:
    rows = [{"rule": "site-path", "files": ["lib/libxrt*"], "paths": ["/opt/xilinx/*"], "reason": "where XRT is"}]
    found = declared_by({"extra": {"audit": {"allow": rows}}}, NO_RECIPE)
    excused = finding(Rule.SITE_PATH, "lib/libxrt.so", "/opt/xilinx/xrt")
    others = [
        finding(Rule.SITE_PATH, "lib/libxrt.so", "/opt/other"),
        finding(Rule.SITE_PATH, "lib/other.so", "/opt/xilinx/xrt"),
        finding(Rule.HOST_PATH, "lib/libxrt.so", "/opt/xilinx/xrt"),
    ]
    left, declared_ones = split_declared([excused, *others], found)
    assert left == tuple(others)
    assert [row.finding for row in declared_ones] == [excused]


def test_the_recipes_own_lists_cover_libraries_and_rpaths() -> None:
    found = declared_by(
        {}, recipe(missing_dso_allowlist=["lib/libmpi_gtl*", "libxrt_core.so.2"], rpath_allowlist=["/opt/cray/*"])
    )
    covered = [
        finding(Rule.NEEDED, "lib/x", "libxrt_core.so.2"),
        finding(Rule.NEEDED, "lib/x", "libmpi_gtl_cuda.so"),
        finding(Rule.RPATH, "lib/x", "/opt/cray/pe/lib64"),
    ]
    others = [finding(Rule.NEEDED, "lib/x", "libxrt_core.so.3"), finding(Rule.RPATH, "lib/x", "/usr/lib")]
    left, excused = split_declared([*covered, *others], found)
    assert left == tuple(others)
    assert {row.reason for row in excused} == {
        "listed in the recipe's build.dynamic_linking.missing_dso_allowlist",
        "listed in the recipe's build.dynamic_linking.rpath_allowlist",
    }


@pytest.mark.parametrize(
    ("audit", "fault"),
    [
        ({"off": True}, "expected a mapping with allow or runtime_dispatch"),
        ({"allow": ["link"]}, "contains 'link'; expected a mapping"),
        ({"allow": [{"rule": "links", "files": ["x"], "reason": "r"}]}, "names the rule links; expected one of"),
        ({"allow": [{"rule": "mode", "files": ["x"], "reason": "r"}]}, "names the rule mode"),
        ({"allow": [{"rule": "link", "files": ["x"], "reason": "  "}]}, "gives no reason"),
        ({"allow": [{"rule": "link", "reason": "r"}]}, "names no files"),
        ({"allow": [{"rule": "link", "files": ["lib/x", "**/*"], "reason": "r"}]}, "matches every file by **/*"),
        ({"allow": [{"rule": "link", "files": ["x"], "reason": "r", "until": 1}]}, "has keys other than"),
        ({"allow": [{"rule": "site-path", "files": ["x"], "reason": "r"}]}, "names no paths"),
        (
            {"allow": [{"rule": "host-path", "files": ["x"], "paths": ["/*"], "reason": "r"}]},
            "matches every path by /*",
        ),
        ({"allow": [{"rule": "link", "files": ["x"], "paths": ["/x"], "reason": "r"}]}, "has keys other than"),
        ({"runtime_dispatch": [{"files": ["*"], "reason": "r"}]}, "matches every file by *"),
        ({"runtime_dispatch": [{"files": ["lib/x"]}]}, "gives no reason"),
    ],
)
def test_what_is_not_understood_or_not_narrow_is_a_fault(audit: dict[str, object], fault: str) -> None:
    exceptions, faults = declared(**audit)
    assert exceptions == ()
    assert len(faults) == 1
    assert fault in faults[0]


@pytest.mark.parametrize("key", ["missing_dso_allowlist", "rpath_allowlist"])
def test_a_list_that_means_everything_is_a_fault(key: str) -> None:
    found = declared_by({}, recipe(**{key: ["*", "lib/libcuda*"]}))
    assert found.faults == (f"build.dynamic_linking.{key} matches everything by *",)
    assert "*" not in (*found.missing_dso, *found.rpaths)


@pytest.mark.parametrize("name", sorted(foundation_table()))
def test_what_is_said_of_the_foundation_is_well_formed(name: str) -> None:
    found = declared_by({"extra": {"channel_tools": {"taken": []}}}, NO_RECIPE, name=name)
    assert found.faults == ()
    assert found.exceptions


def test_what_is_said_of_the_foundation_does_not_hold_for_a_recipe_of_that_name() -> None:
    assert declared_by({"extra": {"channel_tools": {"digest": "x"}}}, NO_RECIPE, name="openssl").exceptions == ()
