# SPDX-License-Identifier: BSD-3-Clause
"""Each rule of `foundation verify` on small packages, most of them spoiled on purpose."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from channel_tools.audit.foundation import (
    FoundationPackage,
    judge_foundation,
    read_foundation_package,
    verify_foundation,
)
from channel_tools.audit.model import Finding, Rule
from channel_tools.conda.archive import read_index_json
from channel_tools.system.errors import FoundationError
from channel_tools.system.progress import SilentProgress
from tests.support.packages import rewrite, toy_package
from tests.unit.foundation.elf_files import shared_library

if TYPE_CHECKING:
    from collections.abc import Sequence

LIBA = shared_library(soname="liba.so.1", needed=["libc.so.6"], rpath="$ORIGIN")
PROGRAM = shared_library(needed=["liba.so.1", "libc.so.6"], rpath="$ORIGIN/../lib")


@pytest.fixture
def channel(tmp_path: Path) -> Path:
    return tmp_path / "channel"


def findings(channel: Path, *, build_paths: Sequence[str] = ()) -> list[Finding]:
    """As verify_foundation, in this process."""
    return judge_foundation([read_foundation_package(path, build_paths) for path in channel.glob("*/*.conda")])


def broken(channel: Path, *, build_paths: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Rule and file of every finding."""
    return [(finding.rule.value, finding.file) for finding in findings(channel, build_paths=build_paths)]


def test_a_sound_channel_has_no_finding(channel: Path) -> None:
    toy_package(channel, "liba", {"lib/liba.so.1.0": LIBA, "lib/liba.so.1": "-> liba.so.1.0"})
    toy_package(channel, "tool", {"bin/tool": PROGRAM, "lib/liba.so": "-> liba.so.1"}, depends=("liba 1.0", "__unix"))
    assert verify_foundation(channel, progress=SilentProgress(), jobs=2) == []


def test_an_empty_folder_is_no_proof(tmp_path: Path) -> None:
    with pytest.raises(FoundationError, match="no package in any subdir"):
        verify_foundation(tmp_path, progress=SilentProgress())


@pytest.mark.usefixtures("in_this_process")
def test_damage_is_a_finding_beside_the_others(channel: Path) -> None:
    cut = toy_package(channel, "liba", {"lib/liba.so.1": LIBA * 50})
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    toy_package(channel, "other", {"bin/other": "#!/usr/bin/perl\n"})
    found = verify_foundation(channel, progress=SilentProgress(), jobs=1)
    assert [(finding.package, finding.rule) for finding in found] == [
        ("liba-1.0-h0123456_0.conda", Rule.PACKAGE),
        ("other-1.0-h0123456_0.conda", Rule.LEFTOVER),
    ]


@pytest.mark.parametrize("position", [0.2, 0.5, 0.8])
def test_a_flipped_byte_never_crashes(channel: Path, position: float) -> None:
    package = toy_package(channel, "liba", {f"lib/{number}": bytes([number]) * 5000 for number in range(40)})
    content = bytearray(package.read_bytes())
    content[int(len(content) * position)] ^= 0xFF
    package.write_bytes(bytes(content))
    found = findings(channel)
    assert {finding.rule for finding in found} <= {Rule.PACKAGE, Rule.METADATA}
    assert found


def test_file_name_and_index_must_agree(channel: Path) -> None:
    package = toy_package(channel, "liba", {"lib/x": "x"})
    package.rename(package.with_name("liba-2.0-h0123456_0.conda"))
    assert broken(channel) == [("metadata", "info/index.json")]


def test_the_subdir_must_agree(channel: Path) -> None:
    package = toy_package(channel, "liba", {"lib/x": "x"})
    rewrite(package, info={"index.json": {**read_index_json(package), "subdir": "noarch"}})
    assert broken(channel) == [("metadata", "info/index.json")]


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"lib/x": b"y"}, "has the sha256"),
        ({"lib/x": b"longer"}, "has 6 bytes, paths.json says 1"),
        ({"lib/more": b"y"}, "is in the package but not listed"),
    ],
    ids=["content", "size", "extra"],
)
def test_paths_json_must_describe_the_content(channel: Path, payload: dict[str, bytes | str], message: str) -> None:
    rewrite(toy_package(channel, "liba", {"lib/x": "x"}), payload=payload)
    found = findings(channel)
    assert [finding.rule for finding in found] == [Rule.METADATA]
    assert message in found[0].found


def test_what_paths_json_lists_must_be_there(channel: Path) -> None:
    rows = [{"_path": "lib/gone", "path_type": "hardlink", "sha256": "0", "size_in_bytes": 0}]
    rewrite(toy_package(channel, "liba", {}), info={"paths.json": {"paths": rows, "paths_version": 1}})
    assert broken(channel) == [("metadata", "lib/gone")]


@pytest.mark.parametrize("row", [{"sha256": "0" * 64}, {"size_in_bytes": 1}], ids=["no-size", "no-hash"])
def test_paths_json_must_state_size_and_hash(channel: Path, row: dict[str, object]) -> None:
    rows = [{"_path": "lib/x", "path_type": "hardlink"} | row]
    rewrite(toy_package(channel, "liba", {"lib/x": b"x"}), info={"paths.json": {"paths": rows, "paths_version": 1}})
    assert "has no size or no sha256 in paths.json" in [finding.found for finding in findings(channel)]


@pytest.mark.parametrize("depends", ["libb", "liba >=2", "liba 1.0 other_0"])
def test_requirements_must_be_met_by_the_channel(channel: Path, depends: str) -> None:
    toy_package(channel, "liba", {"lib/x": "x"})
    toy_package(channel, "tool", {"bin/x": "x"}, depends=(depends,))
    assert broken(channel) == [("depends", "info/index.json")]


def test_a_requirement_that_no_client_can_read_makes_the_package_unreadable(channel: Path) -> None:
    toy_package(channel, "tool", {"bin/x": "x"}, depends=("liba >=",))
    assert broken(channel) == [("package", "")]


def test_a_library_must_come_from_the_closure(channel: Path) -> None:
    toy_package(channel, "liba", {"lib/liba.so.1": LIBA})
    toy_package(channel, "middle", {"share/x": "x"}, depends=("liba",))
    toy_package(channel, "direct", {"bin/direct": PROGRAM}, depends=("middle",))
    toy_package(channel, "alone", {"bin/alone": PROGRAM})
    found = findings(channel)
    assert [(finding.package, finding.file, finding.rule) for finding in found] == [
        ("alone-1.0-h0123456_0.conda", "bin/alone", Rule.NEEDED)
    ]


@pytest.mark.parametrize(
    ("rpath", "expected"),
    [
        (None, [("needed", "bin/tool")]),
        ("$ORIGIN", [("needed", "bin/tool")]),
        ("/usr/lib", [("needed", "bin/tool"), ("rpath", "bin/tool")]),
        ("$ORIGIN/../lib:/opt/lib", [("rpath", "bin/tool")]),
        ("$ORIGIN/../../lib:$ORIGIN/../lib", [("rpath", "bin/tool")]),
    ],
    ids=["none", "wrong folder", "absolute", "one absolute", "outside"],
)
def test_the_rpath_must_lead_to_the_library(channel: Path, rpath: str | None, expected: list[tuple[str, str]]) -> None:
    tool = shared_library(needed=["liba.so.1"], rpath=rpath)
    toy_package(channel, "tool", {"bin/tool": tool, "lib/liba.so.1": LIBA})
    assert broken(channel) == expected


@pytest.mark.parametrize(
    ("symbol", "found"),
    [
        ("GLIBCXX_3.4.28", []),
        ("GLIBCXX_3.4.29", ["libstdcxx"]),
        ("CXXABI_1.3.12", []),
        ("CXXABI_1.3.13", ["libstdcxx"]),
    ],
)
def test_the_compilers_libraries_of_the_base_have_what_is_needed_of_them(
    channel: Path, symbol: str, found: list[str]
) -> None:
    toy_package(channel, "libstdcxx", {"share/x": "x"}, version="10.2.1")
    toy_package(channel, "middle", {"share/middle": "x"}, depends=("libstdcxx >=10",))
    program = shared_library(needed=["libc.so.6"], versions=[symbol])
    toy_package(channel, "tool", {"bin/tool": program}, depends=("middle",))
    assert broken(channel) == [(rule, "bin/tool") for rule in found]


def test_glibcs_and_the_drivers_libraries_are_the_hosts(channel: Path) -> None:
    tool = shared_library(needed=["libm.so.6", "ld-linux-x86-64.so.2", "libcuda.so.1"])
    toy_package(channel, "tool", {"bin/tool": tool})
    assert broken(channel) == []
    toy_package(channel, "tool2", {"bin/tool2": shared_library(needed=["libcrypt.so.1", "libnsl.so.1"])})
    assert broken(channel) == [("needed", "bin/tool2")] * 2


def test_a_damaged_elf_file_is_a_finding(channel: Path) -> None:
    toy_package(channel, "liba", {"lib/liba.so.1": LIBA[:100]})
    assert broken(channel) == [("elf", "lib/liba.so.1")]


@pytest.mark.parametrize(
    ("depends", "expected"),
    [
        ((), [("glibc", "")]),
        (("__glibc >=2.28,<3.0.a0",), [("glibc", "")]),
        (("__glibc >=2.34,<3.0.a0",), []),
        (("base",), []),
    ],
    ids=["none", "older", "enough", "through a dependency"],
)
def test_the_glibc_must_be_asked_for(channel: Path, depends: tuple[str, ...], expected: list[tuple[str, str]]) -> None:
    toy_package(channel, "base", {"share/x": "x"}, depends=("__glibc >=2.36,<3.0.a0",))
    library = shared_library(needed=["libc.so.6"], versions=["GLIBC_2.17", "GLIBC_2.34"])
    toy_package(channel, "liba", {"lib/liba.so.1": library}, depends=depends)
    assert broken(channel) == expected


def test_links_must_lead_somewhere(channel: Path) -> None:
    toy_package(channel, "base", {"lib/base/x": "x"})
    links: dict[str, str | bytes] = {
        "lib/folder": "-> base",
        "lib/through": "-> folder/x",
        "lib/dangling": "-> base/y",
        "lib/loop": "-> base/x",
    }
    rewrite(toy_package(channel, "links", links, depends=("base",)), payload={"lib/loop": "-> loop"})
    assert broken(channel) == [("link", "lib/dangling"), ("link", "lib/loop")]


def test_absolute_links_are_found(channel: Path) -> None:
    rewrite(toy_package(channel, "liba", {"lib/x": "-> y", "lib/y": "y"}), payload={"lib/x": "-> /usr/lib/x"})
    assert broken(channel) == [("link", "lib/x")]


def test_a_path_has_one_owner(channel: Path) -> None:
    toy_package(channel, "liba", {"lib/x": "x"})
    toy_package(channel, "liba", {"lib/x": "x"}, version="2.0")
    toy_package(channel, "other", {"lib/x": "x"})
    assert {(finding.package, finding.rule) for finding in findings(channel)} == {
        ("other-1.0-h0123456_0.conda", Rule.OWNER)
    }


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ("mpich <0a0", []),
        ("mpich >=5", []),
        ("mpich >=1", [("owner", "bin/mpicc")]),
        ("other <0a0", [("owner", "bin/mpicc")]),
    ],
)
@pytest.mark.parametrize("constrained", ["openmpi", "mpich"])
def test_packages_that_exclude_each_other_may_have_the_same_files(
    channel: Path, constrained: str, constraint: str, expected: list[tuple[str, str]]
) -> None:
    other = "mpich" if constrained == "openmpi" else "openmpi"
    toy_package(channel, other, {"bin/mpicc": "x"})
    toy_package(channel, constrained, {"bin/mpicc": "y"}, constrains=(constraint.replace("mpich", other),))
    assert broken(channel) == expected


def test_owners_are_compared_where_files_are_installed(channel: Path) -> None:
    toy_package(channel, "python", {"lib/python3.11/site-packages/a.py": "", "bin/say": "x"}, version="3.11.2")
    toy_package(
        channel,
        "say",
        {"site-packages/a.py": ""},
        noarch_python=True,
        entry_points=("say = a:main",),
        depends=("python",),
    )
    assert broken(channel) == [("owner", "bin/say"), ("owner", "lib/python3.11/site-packages/a.py")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lib/pkgconfig/a.pc", "prefix=/usr/lib/x\n"),
        ("lib/pkgconfig/a.pc", "Libs: -L/build/a/lib\n"),
        ("lib/cmake/a/aConfig.cmake", 'set(A "/usr/share/a")\n'),
        ("bin/a", "#!/usr/bin/perl\n"),
        ("bin/a", "#!/bin/sh\nexec /usr/lib/a/tool\n"),
        ("etc/conda/activate.d/a.sh", 'export A="/home/someone/a"\n'),
    ],
)
def test_leftovers_of_the_host_are_found(channel: Path, name: str, text: str) -> None:
    toy_package(channel, "liba", {name: text})
    assert broken(channel) == [("leftover", name)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lib/pkgconfig/a.pc", "# from /usr/share\nprefix=${pcfiledir}/../..\nlibdir=${prefix}/usr/lib\n"),
        ("lib/pkgconfig/a.pc", "URL: https://example.org/usr/a\n"),
        ("lib/cmake/a/FindA.cmake", 'find_path(A PATHS "/usr/local/a")\n'),
        ("bin/a", "#!/usr/bin/env python3\n"),
        ("bin/a", "#!/bin/sh\n# reads /usr/share\necho a\n"),
        ("etc/conda/activate.d/a.sh", 'A="-ffile-prefix-map=$B=/usr/local/src/conda/a"\n'),
        ("share/doc.txt", "see /usr/share/doc\n"),
    ],
)
def test_what_is_no_leftover(channel: Path, name: str, text: str) -> None:
    toy_package(channel, "liba", {name: text})
    assert broken(channel) == []


def test_no_file_names_a_folder_of_the_machine(channel: Path) -> None:
    spread = b"x" * ((1 << 20) - 5) + b"/home/build/area" + b"y"
    toy_package(channel, "liba", {"lib/binary": spread, "lib/sound": b"/home/builder"})
    assert broken(channel, build_paths=["/home/build/area"]) == [("leftover", "lib/binary")]


def test_findings_say_where_and_what(channel: Path) -> None:
    toy_package(channel, "tool", {"bin/tool": PROGRAM})
    message = "needs liba.so.1, which neither the package nor its dependencies have"
    assert [str(finding) for finding in findings(channel)] == [
        f"tool-1.0-h0123456_0.conda: bin/tool: needed: {message}"
    ]


def test_scans_travel_between_processes(channel: Path) -> None:
    package = toy_package(channel, "liba", {"lib/liba.so.1": LIBA, "lib/l": "-> liba.so.1"})
    read = pickle.loads(pickle.dumps(read_foundation_package(package, ())))  # noqa: S301 - our own bytes
    assert isinstance(read, FoundationPackage)
    assert read.facts.files.keys() == {"lib/liba.so.1", "lib/l"}
    elf = {path: file.elf for path, file in read.facts.files.items() if file.elf is not None}
    assert [(path, one.needed, one.folders) for path, one in elf.items()] == [
        ("lib/liba.so.1", ("libc.so.6",), ("lib",))
    ]
