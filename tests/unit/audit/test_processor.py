# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest
from iced_x86 import Code

from channel_tools.audit.instructions import codes_beyond, level_name, required_level


@pytest.mark.parametrize(
    ("specs", "level"),
    [
        ((), 1),
        (("libgcc >=12", "__glibc >=2.17"), 1),
        (("_x86_64-microarch-level >=3",), 3),
        (("_x86_64-microarch-level=2",), 2),
        (("x86_64-microarch-level 4.*",), 4),
        (("__archspec 1 x86_64_v2",), 2),
        (("__archspec=1=x86_64_v3", "_x86_64-microarch-level >=2"), 3),
        (("__archspec * aarch64",), 1),
    ],
)
def test_levels_are_read_from_requirements(specs: tuple[str, ...], level: int) -> None:
    assert required_level(specs) == level


def test_names_are_those_of_archspec() -> None:
    assert [level_name(level) for level in (1, 2, 4)] == ["x86_64", "x86_64_v2", "x86_64_v4"]


@pytest.mark.parametrize(
    ("code", "levels"),
    [
        (Code.MOVDDUP_XMM_XMMM64, []),  # SSE3, which channels' compilers take for granted
        (Code.CMPXCHG16B_M128, []),
        (Code.TZCNT_R32_RM32, []),  # runs as BSF where it is not known
        (Code.RDRAND_R64, []),  # asked for by name
        (Code.POPCNT_R64_RM64, [1]),
        (Code.VEX_VADDPS_YMM_YMM_YMMM256, [1, 2]),
        (Code.ANDN_R32_R32_RM32 if hasattr(Code, "ANDN_R32_R32_RM32") else Code.VEX_ANDN_R32_R32_RM32, [1, 2]),
        (Code.EVEX_VADDPS_ZMM_K1Z_ZMM_ZMMM512B32_ER, [1, 2, 3]),
        (Code.AESENC_XMM_XMMM128, [1, 2, 3, 4]),
    ],
)
def test_instructions_are_beyond_the_levels_that_lack_them(code: int, levels: list[int]) -> None:
    assert [level for level in (1, 2, 3, 4) if code in codes_beyond(level)] == levels
