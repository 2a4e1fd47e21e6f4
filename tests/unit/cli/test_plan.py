# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from channel_tools.cli.plan import variant_texts


def test_the_toolchain_is_shown_only_where_it_differs() -> None:
    same = {"c_compiler": "gcc", "c_stdlib_version": "2.36", "target_platform": "linux-64"}
    packages = [
        ("lib", {**same, "transport": "udp", "cxx_compiler_version": "12"}),
        ("lib", {**same, "transport": "udp", "cxx_compiler_version": "13"}),
        ("other", {**same, "python": "3.11"}),
    ]
    assert variant_texts(packages) == [
        "cxx_compiler_version=12 transport=udp",
        "cxx_compiler_version=13 transport=udp",
        "python=3.11",
    ]
