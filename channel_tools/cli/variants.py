# SPDX-License-Identifier: BSD-3-Clause
"""Variants in few words: the toolchain, the same for all, is shown only where it tells two variants apart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Named = tuple[str, Mapping[str, object]]
_TOOLCHAIN = re.compile(r"\w+_compiler(_version)?|\w+_stdlib(_version)?|\w+_platform|channel_targets")


def variant_texts(packages: Sequence[Named]) -> list[str]:
    """For each (package name, variant) its ``key=value`` words, in the order of the keys."""
    values: dict[tuple[str, str], set[object]] = {}
    for name, variant in packages:
        for key, value in variant.items():
            values.setdefault((name, key), set()).add(value)
    return [
        " ".join(
            f"{key}={value}"
            for key, value in sorted(variant.items())
            if len(values[name, key]) > 1 or not _TOOLCHAIN.fullmatch(key)
        )
        for name, variant in packages
    ]
