# SPDX-License-Identifier: BSD-3-Clause
"""Levels of the x86-64 processor and the features that each adds, as the psABI names them.

Watched are the features that a compiler uses on its own when told of a processor. Those that code must ask for by name
(random numbers, transactions, cache control) are left to the code that asks; so is TZCNT, which compilers write for any
processor because old ones run it as BSF.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BASELINE = 1
_ADDED: Mapping[int, frozenset[str]] = {
    # channels' compilers are set to -march=nocona, whose two additions all but the first processors of 2003 have
    1: frozenset({"CMPXCHG16B", "SSE3"}),
    2: frozenset({"POPCNT", "SSSE3", "SSE4_1", "SSE4_2"}),
    3: frozenset({"AVX", "AVX2", "BMI1", "BMI2", "F16C", "FMA", "LZCNT", "MOVBE"}),
    4: frozenset({"AVX512F", "AVX512BW", "AVX512CD", "AVX512DQ", "AVX512VL"}),
}
_BEYOND = frozenset(
    {"ADX", "AES", "FMA4", "GFNI", "LWP", "PCLMULQDQ", "SHA", "SSE4A", "TBM", "VAES", "VPCLMULQDQ", "XOP"}
)
_BEYOND_FAMILIES = ("AVX512", "AVX_", "AMX_")
_HARMLESS_CODES = re.compile(r"TZCNT_R\d+_RM\d+")
_LEVEL_PACKAGES = frozenset({"_x86_64-microarch-level", "x86_64-microarch-level"})
_ARCHSPEC = "__archspec"
_NUMBER = re.compile(r"\d")
_LEVEL_NAME = re.compile(r"x86_64_v([2-4])")


def required_level(specs: Iterable[str]) -> int:
    """The level that requirements or constraints ask of the processor; 1 when they ask for none.

    ``_x86_64-microarch-level >=3`` and ``__archspec * x86_64_v3`` are understood.
    """
    return max((_level_of(spec) for spec in specs), default=BASELINE)


def _level_of(spec: str) -> int:
    name, _space, rest = spec.replace("=", " =", 1).partition(" ")
    if name in _LEVEL_PACKAGES and (number := _NUMBER.search(rest)):
        return int(number[0])
    if name == _ARCHSPEC and (level := _LEVEL_NAME.search(rest)):
        return int(level[1])
    return BASELINE


def level_name(level: int) -> str:
    """As archspec says it: ``x86_64`` for the baseline, ``x86_64_v3``."""
    return "x86_64" if level == BASELINE else f"x86_64_v{level}"


@functools.cache
def codes_beyond(level: int) -> Mapping[int, str]:
    """The decoder's numbers of all watched instructions that a processor of this level need not have; their feature."""
    from iced_x86 import Code, CpuidFeature, Instruction  # noqa: PLC0415 - only where machine code is read

    features = {number: name for name, number in vars(CpuidFeature).items() if isinstance(number, int)}
    included = frozenset[str]().union(*(names for added, names in _ADDED.items() if added <= level))
    instruction = Instruction()
    found: dict[int, str] = {}
    for name, code in vars(Code).items():
        if not isinstance(code, int) or _HARMLESS_CODES.fullmatch(name):
            continue
        instruction.code = code  # type: ignore[assignment]
        beyond = [
            feature
            for number in instruction.cpuid_features()
            if _is_watched(feature := features[number]) and feature not in included
        ]
        if beyond:
            found[code] = beyond[-1]
    return found


def _is_watched(feature: str) -> bool:
    return (
        feature in _BEYOND or feature.startswith(_BEYOND_FAMILIES) or any(feature in added for added in _ADDED.values())
    )
