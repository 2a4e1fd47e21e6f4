# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from channel_tools.errors import ConfigError, UsageError
from channel_tools.foundation.acquire import optional_requirements, wheel_requirements
from channel_tools.foundation.model import FileKind, TakenFile
from channel_tools.foundation.plan import PackagePlan, plan_packages
from tests.unit.foundation.tables import make_table

if TYPE_CHECKING:
    from pathlib import Path

COMPILED = "cp311-cp311-manylinux_2_28_x86_64"


def _taken(
    kind: FileKind, name: str, version: str, *, tag: str = "py3-none-any", requires: tuple[str, ...] = ()
) -> TakenFile:
    return TakenFile(
        kind=kind,
        name=name,
        version=version,
        file_name=f"{name}-{version}-{tag}.whl" if kind == "wheel" else f"{name}_{version}_amd64.deb",
        sha256=sha256(f"{name} {version}".encode()).hexdigest(),
        size_bytes=1,
        requires=requires,
    )


def _plan(tmp_path: Path, rows: str, *taken: TakenFile, code: str = "code") -> dict[str, PackagePlan]:
    table = make_table(tmp_path, rows)
    files: dict[tuple[str, str], TakenFile] = {(file.kind, file.name): file for file in taken}
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
    assert wheel_requirements(make_table(tmp_path, rows)) == ("demo",)


def test_an_optional_row_is_made_with_what_it_depends_on_when_it_is_asked_for(tmp_path: Path) -> None:
    rows = """
always: {version: '1'}
tool: {version: '2', optional: true, depends: ['part {version:part}', always]}
part: {wheels: [part], optional: true}
other: {debs: [other], optional: true}
"""
    table = make_table(tmp_path, rows)
    part = _taken("wheel", "part", "3.0")
    assert (wheel_requirements(table), optional_requirements(table)) == ((), ())
    asking = table.asking({"tool"})
    assert asking.asked == {"tool", "part"}
    assert (wheel_requirements(asking), optional_requirements(asking)) == ((), ("part",))
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
    with pytest.raises(UsageError, match="no package 'plugni'") as caught:
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
        ("a: {version: '1', depends: ['b {version:b}']}", "names 'b', which has no row"),
        ("a: {version: '1', depends: ['{what}']}", "means nothing"),
        ("a: {version: '1', build: 'a-{hash}'}", "is no build string"),
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
