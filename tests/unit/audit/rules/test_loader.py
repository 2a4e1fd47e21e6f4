# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from channel_tools.audit.rules.loader import is_enough, needed_releases


@pytest.mark.parametrize(
    ("symbols", "wanted"),
    [
        (["GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.4"], {"glibc": ("GLIBC_2.34", (2, 34))}),
        (["GLIBCXX_3.4", "CXXABI_1.3"], {"libstdcxx": ("GLIBCXX_3.4", (4, 8))}),
        (["GLIBCXX_3.4.29", "CXXABI_1.3.14"], {"libstdcxx": ("CXXABI_1.3.14", (13, 1))}),
        (["GLIBCXX_3.4.99"], {"libstdcxx": ("GLIBCXX_3.4.99", (9999,))}),
        (["GCC_3.0", "GCC_12.0.0"], {"libgcc": ("GCC_12.0.0", (12, 0, 0))}),
        (["OPENSSL_3.0.0", "LIBFOO_1"], {}),
    ],
)
def test_symbol_versions_ask_for_releases(symbols: list[str], wanted: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    found = needed_releases(symbols)
    assert {library: (one.symbol, one.release) for library, one in found.items()} == wanted


@pytest.mark.parametrize(
    ("have", "wanted", "enough"),
    [
        ((12,), (12, 1), True),
        ((12, 2, 0), (12, 1), True),
        ((13,), (13, 2), True),
        ((11, 4), (12, 1), False),
        ((4, 8, 3), (4, 8), True),
        ((15, 1), (9999,), False),
    ],
)
def test_a_series_stands_for_its_releases(have: tuple[int, ...], wanted: tuple[int, ...], *, enough: bool) -> None:
    assert is_enough(have, wanted) is enough
