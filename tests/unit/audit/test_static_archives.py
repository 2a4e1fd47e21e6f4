# SPDX-License-Identifier: BSD-3-Clause
"""Static archives: their format, and the rules on what their object files hold."""

from __future__ import annotations

import io
import platform
import subprocess
from pathlib import Path

import pytest

from channel_tools.audit.instructions import read_archive
from channel_tools.audit.model import Rule
from channel_tools.audit.run import channel_packages
from channel_tools.system.archives import ar_members
from channel_tools.system.errors import IntegrityError, VerificationError
from tests.support.packages import make_conda, new_channel
from tests.support.programs import program
from tests.unit.audit.packages import Toy, archive
from tests.unit.audit.spoiled import library
from tests.unit.audit.test_instructions import DISPATCHED, SUMS, assembled
from tests.unit.audit.test_run import audited, enter, findings

LONG_NAME = "a_name_that_no_header_holds.o"
needs_compiler = pytest.mark.skipif(platform.machine() != "x86_64", reason="gcc makes code of another processor here")


def members(content: bytes) -> dict[str, bytes]:
    return {one.name: content[one.offset : one.offset + one.size_bytes] for one in ar_members(io.BytesIO(content))}


def test_members_have_their_names_and_contents() -> None:
    written = {"toy.o": b"odd", LONG_NAME: b"even", "other_long_name_.o": b"", "x.o": b"x"}
    assert members(archive(written)) == written


def test_names_in_the_style_of_bsd_are_read() -> None:
    name = LONG_NAME.encode() + b"\0\0\0"
    header = f"#1/{len(name)}".ljust(16) + "0".ljust(32) + str(len(name) + 4).ljust(10) + "`\n"
    assert members(b"!<arch>\n" + header.encode() + name + b"code") == {LONG_NAME: b"code"}


def test_what_ar_writes_is_read(tmp_path: Path) -> None:
    written = {"toy.o": b"odd", LONG_NAME: library()}
    for name, content in written.items():
        (tmp_path / name).write_bytes(content)
    subprocess.run([program("ar"), "rcs", "libtoy.a", *written], cwd=tmp_path, check=True)
    assert members((tmp_path / "libtoy.a").read_bytes()) == written
    subprocess.run([program("ar"), "rcT", "thin.a", *written], cwd=tmp_path, check=True)
    facts = read_archive(io.BytesIO((tmp_path / "thin.a").read_bytes()), level=1, reads_code=True)
    assert facts.damage == "it is a thin archive, which does not contain its files"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(archive({"toy.o": b"content"})[:-4], "the member at offset 0x48 is cut short", id="content"),
        pytest.param(archive({"toy.o": b""})[:-4], "expected the header of a member at offset 0x48", id="header"),
        pytest.param(b"!<arch>\n" + b"x" * 60, "expected the header of a member at offset 0x8", id="no header"),
        pytest.param(archive({"toy.o": b"1234"}).replace(b"4         `", b"four      `"), "has b'four'", id="size"),
    ],
)
def test_damage_is_named(content: bytes, message: str) -> None:
    with pytest.raises(IntegrityError, match=message):
        members(content)


def test_a_damaged_object_file_is_a_finding(tmp_path: Path) -> None:
    package = Toy(files={"lib/libtoy.a": archive({"whole.o": library(), "toy.o": b"\x7fELF\2\1"})}).write(tmp_path)
    (finding,) = findings(package)
    assert (finding.rule, finding.file) == (Rule.ELF, "lib/libtoy.a")
    assert finding.found.startswith("cannot be read: toy.o: ")


def test_an_object_file_for_another_machine_is_a_finding(tmp_path: Path) -> None:
    other = bytearray(library())
    other[18:20] = (183).to_bytes(2, "little")
    content = archive({"toy.o": library(), "arm.o": bytes(other), "notes.txt": b"no object file"})
    (finding,) = findings(Toy(files={"lib/libtoy.a": content}).write(tmp_path))
    assert (finding.rule, finding.file) == (Rule.ELF, "lib/libtoy.a(arm.o)")
    assert finding.found == "is made for AARCH64; the subdir is linux-64"


@needs_compiler
def test_code_of_the_baseline_has_nothing_beyond_it(tmp_path: Path) -> None:
    content = archive({"sums.o": assembled(tmp_path, SUMS), LONG_NAME: assembled(tmp_path, SUMS, "-march=nocona")})
    assert findings(Toy(files={"lib/libtoy.a": content}).write(tmp_path)) == []


@needs_compiler
def test_the_rule_refuses_what_the_package_does_not_require(tmp_path: Path) -> None:
    plain, fast = assembled(tmp_path, SUMS), assembled(tmp_path, SUMS, "-mpopcnt")
    content = archive({"plain.o": plain, LONG_NAME: fast})
    package = Toy(files={"lib/libtoy.a": content}).write(tmp_path)
    (finding,) = findings(package)
    assert (finding.rule, finding.file) == (Rule.INSTRUCTIONS, f"lib/libtoy.a({LONG_NAME})")
    assert finding.found == "uses POPCNT; the first of POPCNT in bits"
    offset = int(finding.where.removeprefix("offset "), 16)
    assert content[offset : offset + 4] == b"\xf3\x48\x0f\xb8"
    channel = new_channel(tmp_path)
    with pytest.raises(VerificationError, match="uses POPCNT"):
        enter(channel, package)
    assert (
        findings(Toy(files={"lib/libtoy.a": content}, depends=("_x86_64-microarch-level >=2",)).write(tmp_path)) == []
    )


@needs_compiler
@pytest.mark.parametrize(
    ("glob", "excused"),
    [("lib/libtoy.a", 2), ("lib/libtoy.a(fast*.o)", 1), ("lib/*.a(other.o)", 1), ("lib/libtoy.so", 0)],
    ids=["archive", "members", "member", "another file"],
)
def test_a_choice_at_run_time_is_declared_by_archive_or_member(tmp_path: Path, glob: str, excused: int) -> None:
    chosen = assembled(tmp_path, DISPATCHED)
    extra = {"audit": {"runtime_dispatch": [{"files": [glob], "reason": "choose() asks the processor"}]}}
    files = {"lib/libtoy.a": archive({"fast_1.o": chosen, "other.o": chosen})}
    audit = audited(Toy(files=files, extra=extra).write(tmp_path))
    assert (len(audit.excused), len(audit.findings)) == (excused, 2 - excused)


@needs_compiler
def test_an_object_file_alone_is_judged_alike(tmp_path: Path) -> None:
    (finding,) = findings(Toy(files={"lib/start.o": assembled(tmp_path, SUMS, "-mpopcnt")}).write(tmp_path))
    assert (finding.rule, finding.file) == (Rule.INSTRUCTIONS, "lib/start.o")


@needs_compiler
def test_what_a_sysroot_has_is_not_judged(tmp_path: Path) -> None:
    content = assembled(tmp_path, SUMS, "-mpopcnt")
    files = {"x/sysroot/lib/libc.a": archive({"memcpy.o": content}), "x/sysroot/lib/crt1.o": content}
    assert findings(Toy(files=files).write(tmp_path)) == []


def test_a_folder_with_the_name_of_a_package_is_none(tmp_path: Path) -> None:
    package = make_conda(tmp_path, "toy")
    (package.parent / ".conda").mkdir()
    (package.parent / "x-1-0.conda").mkdir()
    assert channel_packages(tmp_path) == [package]
