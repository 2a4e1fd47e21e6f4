# SPDX-License-Identifier: BSD-3-Clause
""" """

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from channel_tools.foundation.model import FileKind, LockedArtifact
from channel_tools.foundation.plan import (
    PackagePlan,
    TemplateError,
    conda_version,
    expand,
    flavour,
    pin_range,
    plan_packages,
)
from channel_tools.system.errors import ConfigError, UsageError
from tests.unit.foundation.archives import make_table

if TYPE_CHECKING:
    from pathlib import Path

COMPILED = "cp311-cp311-manylinux_2_28_x86_64"


def _taken(
    kind: FileKind, name: str, version: str, *, tag: str = "py3-none-any", requires: tuple[str, ...] = ()
) -> LockedArtifact:
    return LockedArtifact(
        kind=kind,
        name=name,
        version=version,
        file_name=f"{name}-{version}-{tag}.whl" if kind == "wheel" else f"{name}_{version}_amd64.deb",
        sha256=sha256(f"{name} {version}".encode()).hexdigest(),
        size_bytes=1,
        requires=requires,
    )


def _plan(tmp_path: Path, rows: str, *taken: LockedArtifact, code: str = "code") -> dict[str, PackagePlan]:
    table = make_table(tmp_path, rows)
    files: dict[tuple[str, str], LockedArtifact] = {(file.kind, file.name): file for file in taken}
    plans = plan_packages(table, files, subdir="linux-64", code_of=lambda _: code)
    return {plan.entry.name: plan for plan in plans}


def test_versions_and_templates_are_those_of_the_taken_files(tmp_path: Path) -> None:
    plans = _plan(
        tmp_path,
        """
zlib:
  debs: [zlib1g-dev]
  depends: ["libzlib {version} {build:libzlib}"]
  run_exports: {weak: ["libzlib {pin:libzlib:x}"]}
libzlib: {debs: [zlib1g]}
""",
        _taken("deb", "zlib1g-dev", "1:1.2.13.dfsg-1"),
        _taken("deb", "zlib1g", "1:1.2.13.dfsg-1"),
    )
    assert plans["zlib"].version == "1.2.13"
    assert plans["zlib"].depends == (f"libzlib 1.2.13 {plans['libzlib'].build}",)
    assert plans["zlib"].run_exports.weak == ("libzlib >=1.2.13,<2.0a0",)
    assert plans["zlib"].file_name == f"zlib-1.2.13-h{plans['zlib'].digest[:7]}_0.conda"


def test_each_thing_that_decides_the_content_changes_the_name(tmp_path: Path) -> None:
    old, new = _taken("deb", "d", "1.0-1"), _taken("deb", "d", "1.0-2")
    names = {
        _plan(tmp_path, "a: {debs: [d]}", old)["a"].file_name,
        _plan(tmp_path, "a: {debs: [d]}", new)["a"].file_name,
        _plan(tmp_path, "a: {debs: [d], drop: [x]}", old)["a"].file_name,
        _plan(tmp_path, "a: {debs: [d]}", old, code="other")["a"].file_name,
    }
    assert len(names) == 4
    assert _plan(tmp_path, "\na: {debs: [d]}", old)["a"].file_name in names


def test_an_optional_row_counts_only_when_its_wheel_was_taken(tmp_path: Path) -> None:
    rows = "demo: {wheels: [demo]}\nplugin: {wheels: [plugin], optional: true, depends: [demo], drop: [x]}"
    demo, plugin = _taken("wheel", "demo", "1.0"), _taken("wheel", "plugin", "2.0")
    assert set(_plan(tmp_path, rows, demo)) == {"demo"}
    plans = _plan(tmp_path, rows, demo, plugin)
    assert plans["plugin"].version == "2.0"
    assert plans["plugin"].entry.drop == ("x",)


def test_an_optional_row_is_made_with_what_it_depends_on_when_it_is_asked_for(tmp_path: Path) -> None:
    rows = """
always: {version: '1'}
tool: {version: '2', optional: true, depends: ['part {version:part}', always]}
part: {wheels: [part], optional: true}
other: {debs: [other], optional: true}
"""
    table = make_table(tmp_path, rows)
    part = _taken("wheel", "part", "3.0")
    asking = table.asking({"tool"})
    assert asking.asked == {"tool", "part"}
    plans = plan_packages(asking, {("wheel", "part"): part}, subdir="linux-64", code_of=lambda _entry: "")
    assert [plan.entry.name for plan in plans] == ["always", "part", "tool"]
    assert plans[2].depends == ("always", "part 3.0")


def test_being_asked_for_changes_no_name(tmp_path: Path) -> None:
    rows = "demo: {wheels: [demo]}\nplugin: {wheels: [plugin], optional: true}"
    taken = {("wheel", name): _taken("wheel", name, "1.0") for name in ("demo", "plugin")}
    table = make_table(tmp_path, rows)
    names = [
        [plan.file_name for plan in plan_packages(asked, taken, subdir="linux-64", code_of=lambda _entry: "")]
        for asked in (table, table.asking({"plugin"}))
    ]
    assert names[0] == names[1]
    assert table.digest != table.asking({"plugin"}).digest


def test_of_rows_that_split_a_wheel_its_requirement_means_the_first(tmp_path: Path) -> None:
    rows = """
torch: {wheels: [torch]}
cudart: {wheels: [runtime], optional: true, depends: [cuda]}
cudart-dev: {wheels: [runtime], optional: true, depends: [cudart, headers]}
cuda: {version: '13', optional: true}
headers: {wheels: [headers], optional: true}
"""
    torch = _taken("wheel", "torch", "2", tag=COMPILED, requires=("runtime==13.0",))
    runtime = _taken("wheel", "runtime", "13.0", tag="py3-none-manylinux_2_27_x86_64")
    plans = _plan(tmp_path, rows, torch, runtime)
    assert sorted(plans) == ["cuda", "cudart", "torch"]
    assert plans["torch"].depends == ("cudart ==13.0",)


def test_what_a_row_that_is_always_made_depends_on_is_made(tmp_path: Path) -> None:
    table = make_table(tmp_path, "a: {version: '1', depends: [b]}\nb: {version: '1', optional: true}")
    assert table.asking(()).asked == {"b"}


def test_asking_for_what_has_no_row_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no package or combination 'plugni'") as caught:
        make_table(tmp_path, "plugin: {wheels: [plugin], optional: true}").asking({"plugni"})
    assert caught.value.hint == "did you mean plugin?"


def test_a_wheels_requirements_become_dependencies_under_condas_names(tmp_path: Path) -> None:
    plans = _plan(
        tmp_path,
        "demo: {wheels: [Demo]}",
        _taken("wheel", "demo", "1.0", tag=COMPILED, requires=("typing-extensions>=4", "lib<2,>=1")),
        _taken("wheel", "typing-extensions", "4.16"),
        _taken("wheel", "lib", "1.5"),
    )
    assert sorted(plans) == ["demo", "lib", "typing_extensions"]
    assert plans["demo"].python_depends == (
        "lib <2,>=1",
        "python >=3.11,<3.12.0a0",
        "python_abi 3.11.* *_cp311",
        "typing_extensions >=4",
    )
    assert plans["demo"].build.startswith("py311h")
    assert (plans["lib"].subdir, plans["lib"].is_noarch_python) == ("noarch", True)


def test_a_wheel_of_libraries_binds_a_package_without_modules_too(tmp_path: Path) -> None:
    plans = _plan(
        tmp_path,
        'libt: {wheels: [t], build: "{flavour}_h{hash}_0"}',
        _taken("wheel", "t", "2.0+cu130", tag=COMPILED, requires=("nvidia-x==13.0", "pure")),
        _taken("wheel", "nvidia-x", "13.0", tag="py3-none-manylinux_2_27_x86_64"),
        _taken("wheel", "pure", "1"),
    )
    assert plans["libt"].depends == ("nvidia-x ==13.0",)
    assert plans["libt"].build.startswith("cuda130_h")


def test_two_rows_may_split_one_wheel(tmp_path: Path) -> None:
    plans = _plan(
        tmp_path,
        """
libt: {wheels: [t]}
pyt: {wheels: [t], depends: ["libt {version} {build:libt}"], build: "{py}_h{hash}_0"}
""",
        _taken("wheel", "t", "2.0", tag=COMPILED),
    )
    assert plans["pyt"].depends == (f"libt 2.0 {plans['libt'].build}",)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("a: {version: '1', depends: [b]}", "depends on 'b', but no row makes b"),
        ("a: {version: '1', depends: ['b {version:b}']}", "refers to 'b', which has no row"),
        ("a: {version: '1', depends: ['{what}']}", "is unknown"),
        ("a: {version: '1', build: 'a-{hash}'}", "is not a valid build string"),
        (
            "a: {version: '1', depends: ['b {build:b}']}\nb: {version: '1', depends: ['a {build:a}']}",
            "circle: a -> b -> a",
        ),
    ],
    ids=["no-row", "template-no-row", "template", "build", "circle"],
)
def test_what_cannot_be_planned_is_named_with_its_line(tmp_path: Path, rows: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        _plan(tmp_path, rows)
    assert caught.value.line in {6, 7}


def test_virtual_packages_need_no_row(tmp_path: Path) -> None:
    assert _plan(tmp_path, "a: {version: '1', depends: ['__glibc >=2.36']}")["a"].depends == ("__glibc >=2.36",)


def _taken_version(kind: FileKind, version: str) -> LockedArtifact:
    return LockedArtifact(kind=kind, name="x", version=version, file_name="x", sha256="0" * 64, size_bytes=1)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1:1.2.13.dfsg-1", "1.2.13"),
        ("3.11.2-6+deb12u9", "3.11.2"),
        ("20220623.1-1", "20220623.1"),
        ("1.74.0+ds1-21", "1.74.0"),
        ("2022.06.01+dfsg-1", "2022.06.01"),
        ("4:12.2.0-3", "12.2.0"),
        ("0.6.0-2.1+b1", "0.6.0"),
        ("6.4-4", "6.4"),
        ("1.2~rc1-1", "1.2"),
        ("44.0", "44.0"),
        ("4.3.0+really4.2.1-1", "4.2.1"),
        ("20.11.7+really20.11.4-2+deb11u1", "20.11.4"),
        ("1.10.1~rc1+really.1.10.0-1", "1.10.0"),
    ],
)
def test_a_debian_version_becomes_upstreams(version: str, expected: str) -> None:
    assert conda_version(_taken_version("deb", version)) == expected


@pytest.mark.parametrize(
    ("version", "requires", "conda", "kind"),
    [
        ("2.13.0+cpu", (), "2.13.0", "cpu"),
        ("2.13.0+cu130", (), "2.13.0", "cuda130"),
        ("2.13.0", ("filelock", "nvidia-cuda-runtime==13.0.96.*"), "2.13.0", "cuda130"),
        ("2.6.0", ("nvidia-cuda-runtime-cu12==12.4.127",), "2.6.0", "cuda124"),
        ("2.13.0", ("filelock",), "2.13.0", "cpu"),
    ],
)
def test_a_wheels_flavour_is_told_apart_from_its_version(
    version: str, requires: tuple[str, ...], conda: str, kind: str
) -> None:
    taken = replace(_taken_version("wheel", version), requires=requires)
    assert conda_version(taken) == conda
    assert flavour(taken) == kind


@pytest.mark.parametrize(
    ("version", "segments", "expected"),
    [
        ("1.51.1", "x.x", ">=1.51.1,<1.52.0a0"),
        ("1.51.1", "x", ">=1.51.1,<2.0a0"),
        ("1.51.1", "x.x.x", ">=1.51.1,<1.51.2.0a0"),
        ("44", "x.x", ">=44,<45.0a0"),
    ],
)
def test_pins_hold_segments_as_conda_builds_pins_do(version: str, segments: str, expected: str) -> None:
    assert pin_range(version, segments) == expected


@pytest.mark.parametrize(("version", "segments"), [("1.x2", "x.x"), ("1.2", "x.y"), ("1.2", "")])
def test_what_cannot_be_pinned_is_an_error(version: str, segments: str) -> None:
    with pytest.raises(TemplateError):
        pin_range(version, segments)


def _expand(text: str) -> str:
    versions = {None: "1.2.3", "other": "4.5"}
    return expand(text, version_of=lambda name: versions[name], build_of=lambda name: f"h_{name}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x {version}", "x 1.2.3"),
        ("x {version:other} {build:other}", "x 4.5 h_other"),
        ("x {pin:x.x}", "x >=1.2.3,<1.3.0a0"),
        ("x {pin:other:x}", "x >=4.5,<5.0a0"),
        ("plain", "plain"),
    ],
)
def test_templates_expand(text: str, expected: str) -> None:
    assert _expand(text) == expected


@pytest.mark.parametrize("text", ["{}", "{vers}", "{pin}", "{version:a:b}"])
def test_an_unknown_template_is_an_error(text: str) -> None:
    with pytest.raises(TemplateError, match="is unknown"):
        _expand(text)


def test_the_python_that_compiles_a_package_is_in_its_name(tmp_path: Path) -> None:
    rows = "python: {debs: [p]}\nnumpy: {wheels: [numpy]}\ndemo: {wheels: [demo]}\nzlib: {debs: [z]}"
    others = (_taken("wheel", "numpy", "2.0", tag=COMPILED), _taken("wheel", "demo", "1.0"), _taken("deb", "z", "1-1"))
    old = _plan(tmp_path, rows, _taken("deb", "p", "3.11.2-1"), *others)
    new = _plan(tmp_path, rows, _taken("deb", "p", "3.11.2-2"), *others)
    assert {name for name, plan in old.items() if plan.holds_bytecode} == {"python", "numpy"}
    assert {name for name in old if old[name].build != new[name].build} == {"python", "numpy"}
    without = _plan(tmp_path, rows.partition("\n")[2], *others)
    assert not any(plan.holds_bytecode for plan in without.values())
