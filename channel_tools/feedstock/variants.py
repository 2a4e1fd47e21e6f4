# SPDX-License-Identifier: BSD-3-Clause
"""``recipe/conda_build_config.yaml``: the variants of a feedstock beside conda-forge's own pins.

conda-smithy lays a feedstock's file over conda-forge's pinning file, so what conda-forge decides for all its packages
(compilers, the oldest glibc, python, gRPC ...) stays out: repeated here it would stop following the migrations. What
varies is written out combination by combination in one zip_keys group unless it is the full product.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from channel_tools.matrix.model import RenderedPackage, VariantScalar

_ENGINE_DECIDES = frozenset({"target_platform", "build_platform", "host_platform"})
COMPILER_KEYS = frozenset(
    f"{language}_{part}"
    for language in ("c", "cxx", "fortran", "cuda")
    for part in ("compiler", "compiler_version", "stdlib", "stdlib_version")
)
"""Keys that ``compiler()`` and ``stdlib()`` read, all of them conda-forge's to pin."""


def feedstock_variants(
    rendered: Iterable[RenderedPackage], *, pinned_elsewhere: frozenset[str]
) -> tuple[dict[str, tuple[VariantScalar, ...]], tuple[str, ...]]:
    """The keys with their values, and the keys that move together (none when every combination is there).

    ``pinned_elsewhere`` are left out, but for those whose value decides which values of another key exist: left out,
    they would give combinations that the stacks do not have.
    """
    combinations = _distinct([_used(package) for package in rendered])
    keys = sorted({key for variant in combinations for key in variant})
    own = [key for key in keys if key not in pinned_elsewhere]
    kept = [key for key in keys if key in own or _decides(key, own, combinations)]
    rows = _distinct([{key: variant[key] for key in kept if key in variant} for variant in combinations])
    if not kept:
        return {}, ()
    values = {key: _ordered(row[key] for row in rows if key in row) for key in kept}
    varying = tuple(key for key in kept if len(values[key]) > 1)
    if len(rows) == math.prod(len(values[key]) for key in kept):
        return values, ()
    zipped = {key: tuple(row.get(key, values[key][0]) for row in rows) for key in varying}
    return {**values, **zipped}, varying


def _used(package: RenderedPackage) -> dict[str, VariantScalar]:
    return {key: value for key, value in package.variant.items() if key not in _ENGINE_DECIDES}


def _decides(key: str, own: Sequence[str], combinations: Sequence[Mapping[str, VariantScalar]]) -> bool:
    """Whether some value of ``key`` goes with fewer of the own keys' values than there are."""
    seen: dict[VariantScalar, set[tuple[object, ...]]] = {}
    for variant in combinations:
        if key in variant:
            seen.setdefault(variant[key], set()).add(tuple(variant.get(name) for name in own))
    return bool(own) and len({frozenset(rows) for rows in seen.values()}) > 1


def _distinct(variants: Sequence[Mapping[str, VariantScalar]]) -> list[Mapping[str, VariantScalar]]:
    return list({tuple(sorted(variant.items())): variant for variant in variants}.values())


def _ordered(values: Iterable[VariantScalar]) -> tuple[VariantScalar, ...]:
    return tuple(dict.fromkeys(values))
