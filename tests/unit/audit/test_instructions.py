# SPDX-License-Identifier: BSD-3-Clause
"""The instructions rule on objects that a real compiler made."""

from __future__ import annotations

import io
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from channel_tools.audit import instructions
from channel_tools.audit.instructions import code_ranges, instructions_beyond
from channel_tools.audit.model import Instruction, Rule
from tests.support.packages import new_channel
from tests.support.programs import program
from tests.unit.audit.packages import Toy
from tests.unit.audit.test_run import audited, enter, findings

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="gcc makes code of another processor here")

SUMS = """
void add(int *restrict to, const int *restrict from) { for (int i = 0; i < 1024; ++i) to[i] += from[i]; }
int bits(unsigned long value) { return __builtin_popcountl(value); }
"""
DISPATCHED = """
static int plain(int value) { return value + 1; }
__attribute__((target("avx2"))) void fast(int *restrict to, const int *restrict from) {
  for (int i = 0; i < 1024; ++i) to[i] += from[i];
}
int choose(int *to, const int *from) { if (__builtin_cpu_supports("avx2")) fast(to, from); return plain(1); }
"""
TABLE_IN_CODE = """
__asm__(".text\\n.globl table\\ntable:\\n.rept 64\\n.byte 0xc5, 0xfc, 0x58, 0xc1\\n.endr\\n");
int plain(int value) { return value * 3; }
"""


def compiled(folder: Path, source: str, *options: str) -> bytes:
    """A shared library of ``source``."""
    made = folder / "libtoy.so.1"
    command = [program("gcc"), "-shared", "-fPIC", "-O2", "-ftree-vectorize", "-nostdlib", "-x", "c", "-"]
    subprocess.run([*command, *options, "-Wl,-rpath,$ORIGIN", "-o", made], input=source.encode(), check=True)
    return made.read_bytes()


def assembled(folder: Path, source: str, *options: str) -> bytes:
    """An object file of ``source``."""
    made = folder / "toy.o"
    command = [program("gcc"), "-c", "-fPIC", "-O2", "-ftree-vectorize", "-x", "c", "-"]
    subprocess.run([*command, *options, "-o", made], input=source.encode(), check=True)
    return made.read_bytes()


def beyond(content: bytes, level: int = 1) -> list[str]:
    stream = io.BytesIO(content)
    return [one.feature for one in instructions_beyond(stream, ELFFile(stream), level=level)]


def test_code_of_the_baseline_has_nothing_beyond_it(tmp_path: Path) -> None:
    assert beyond(compiled(tmp_path, SUMS)) == []


@pytest.mark.parametrize(
    ("option", "level", "found"),
    [
        ("-march=nocona", 1, []),
        ("-mpopcnt", 1, ["POPCNT"]),
        ("-march=x86-64-v3", 1, ["AVX", "AVX2", "POPCNT"]),
        ("-march=x86-64-v3", 2, ["AVX", "AVX2"]),
        ("-march=x86-64-v3", 3, []),
    ],
    ids=["nocona", "popcnt", "v3 for v1", "v3 for v2", "v3 for v3"],
)
def test_what_is_beyond_depends_on_the_level(tmp_path: Path, option: str, level: int, found: list[str]) -> None:
    assert beyond(compiled(tmp_path, SUMS, option), level) == found


def test_the_function_and_the_place_in_the_file_are_named(tmp_path: Path) -> None:
    content = compiled(tmp_path, SUMS, "-mpopcnt")
    stream = io.BytesIO(content)
    (found,) = instructions_beyond(stream, ELFFile(stream), level=1)
    assert found == Instruction(feature="POPCNT", offset=found.offset, function="bits")
    assert content[found.offset : found.offset + 4] == b"\xf3\x48\x0f\xb8"


def test_stripped_code_is_judged_alike(tmp_path: Path) -> None:
    assert beyond(compiled(tmp_path, SUMS, "-mpopcnt", "-s")) == ["POPCNT"]


def test_code_without_an_unwind_table_is_judged_alike(tmp_path: Path) -> None:
    content = compiled(tmp_path, SUMS, "-mpopcnt", "-fno-asynchronous-unwind-tables")
    assert [one.size_bytes > 0 for one in code_ranges(ELFFile(io.BytesIO(content)))] == [True]
    assert beyond(content) == ["POPCNT"]


def test_numbers_beside_functions_are_no_code(tmp_path: Path) -> None:
    assert beyond(compiled(tmp_path, TABLE_IN_CODE)) == []


@pytest.mark.parametrize("options", [(), ("-ffunction-sections",)], ids=["one section", "a section each"])
def test_functions_of_object_files_are_told_apart(tmp_path: Path, options: tuple[str, ...]) -> None:
    content = assembled(tmp_path, SUMS, "-mpopcnt", *options)
    stream = io.BytesIO(content)
    (found,) = instructions_beyond(stream, ELFFile(stream), level=1)
    assert (found.feature, found.function) == ("POPCNT", "bits")
    assert content[found.offset : found.offset + 4] == b"\xf3\x48\x0f\xb8"


def test_numbers_beside_functions_of_object_files_are_no_code(tmp_path: Path) -> None:
    assert beyond(assembled(tmp_path, TABLE_IN_CODE)) == []


def test_object_code_without_symbols_is_judged_alike(tmp_path: Path) -> None:
    nameless = '__asm__(".text\\n.byte 0xc5, 0xfc, 0x58, 0xc1\\nret\\n");'
    assert beyond(assembled(tmp_path, nameless)) == ["AVX"]


def test_large_code_is_read_in_parts_by_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "_PART_BYTES", 1 << 20)
    functions = "".join(f"int f{i}(int v) {{ return v * {i} + (v ^ {i + 7}); }}\n" for i in range(200))
    filler = (
        '__asm__(".text\\n.type big,@function\\nbig:\\n.cfi_startproc\\n.fill 1200000,1,0x90\\nret\\n.cfi_endproc\\n");'
    )
    content = compiled(tmp_path, filler + functions + SUMS, "-mpopcnt")
    path = tmp_path / "libtoy.so.1"
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        parallel = instructions_beyond(stream, elf, level=1, path=path, processes=2)
    assert [one.feature for one in parallel] == beyond(content) == ["POPCNT"]


def toy(content: bytes, *, depends: tuple[str, ...] = (), extra: Mapping[str, object] | None = None) -> Toy:
    return Toy(files={"lib/libtoy.so.1": content}, depends=depends, extra=extra or {})


def test_the_rule_refuses_what_the_package_does_not_require(tmp_path: Path) -> None:
    content = compiled(tmp_path, SUMS, "-march=x86-64-v3")
    package = toy(content).write(tmp_path)
    (finding,) = findings(package)
    assert (finding.rule, finding.file) == (Rule.INSTRUCTIONS, "lib/libtoy.so.1")
    assert finding.where.startswith("offset 0x")
    assert "uses AVX, AVX2, POPCNT; the first of AVX in add" in finding.found
    channel = new_channel(tmp_path)
    with pytest.raises(Exception, match="uses AVX, AVX2, POPCNT") as caught:
        enter(channel, package)
    assert type(caught.value).__name__ == "VerificationError"
    assert list(channel.path.glob("*/*.conda")) == []


@pytest.mark.parametrize("spec", ["_x86_64-microarch-level >=3", "__archspec * x86_64_v3", "__archspec 1 x86_64_v4"])
def test_a_package_may_require_more(tmp_path: Path, spec: str) -> None:
    assert findings(toy(compiled(tmp_path, SUMS, "-march=x86-64-v3"), depends=(spec,)).write(tmp_path)) == []


def test_a_choice_at_run_time_is_declared_with_its_reason(tmp_path: Path) -> None:
    content = compiled(tmp_path, DISPATCHED, "-lgcc")
    assert [finding.rule for finding in findings(toy(content).write(tmp_path))] == [Rule.INSTRUCTIONS]
    declared = {
        "audit": {"runtime_dispatch": [{"files": ["lib/libtoy.so.*"], "reason": "choose() asks the processor"}]}
    }
    audit = audited(toy(content, extra=declared).write(tmp_path))
    assert audit.findings == ()
    assert [row.reason for row in audit.excused] == ["choose() asks the processor"]


def test_the_level_in_the_property_note_counts_on_its_own(tmp_path: Path) -> None:
    content = compiled(tmp_path, "int plain(int value) { return value; }", "-Wl,-z,x86-64-v3")
    (finding,) = findings(toy(content).write(tmp_path))
    assert finding.found == "its property note asks for x86_64_v3"
