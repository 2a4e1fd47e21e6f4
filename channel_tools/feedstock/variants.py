# SPDX-License-Identifier: BSD-3-Clause
"""``recipe/conda_build_config.yaml``: the variants of a feedstock beside conda-forge's own pins.

conda-smithy lays a feedstock's file over conda-forge's pinning file, so what conda-forge decides for all its packages
(compilers, the oldest glibc, python, gRPC ...) stays out where the stacks agree with it: repeated here it would stop
following the migrations. Such keys are never zipped with ours, since conda-forge zips them among themselves and a key
can be in one group only. What varies of our own is written out combination by combination in one group, unless it is
the full product.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from channel_tools.errors import UsageError

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

_CUDA_GROUP = ("c_compiler_version", "cxx_compiler_version", "c_stdlib_version", "cuda_compiler_version")


def feedstock_variants(
    rendered: Sequence[RenderedPackage], *, pinned: frozenset[str], base: Mapping[str, Sequence[VariantScalar]]
) -> tuple[dict[str, tuple[VariantScalar, ...]], tuple[str, ...]]:
    """The keys with their values, and the keys that move together (none when every combination is there).

    ``pinned`` are the keys that conda-forge decides, ``base`` the values it gives them. Raises UsageError when stacks
    want different values of such a key and none of them conda-forge's.
    """
    rows = _distinct(
        [
            {key: value for key, value in package.variant.items() if key not in pinned | _ENGINE_DECIDES}
            for package in rendered
        ]
    )
    keys = sorted({key for row in rows for key in row})
    values = {key: _ordered(row[key] for row in rows if key in row) for key in keys}
    varying = tuple(key for key in keys if len(values[key]) > 1)
    if len(rows) != math.prod(len(values[key]) for key in keys):
        values |= {key: tuple(row.get(key, values[key][0]) for row in rows) for key in varying}
    else:
        varying = ()
    overrides = _overrides(rendered, pinned, base)
    if "cuda_compiler_version" in overrides:
        overrides |= _cuda_group(rendered, base)
    return values | _with_companions(overrides), varying


def _overrides(
    rendered: Sequence[RenderedPackage], pinned: frozenset[str], base: Mapping[str, Sequence[VariantScalar]]
) -> dict[str, tuple[VariantScalar, ...]]:
    """The keys of conda-forge for which every stack has other values than conda-forge."""
    overrides = {}
    for key in sorted(pinned & {key for package in rendered for key in package.variant}):
        by_stack: dict[str, dict[VariantScalar, None]] = {}
        for package in rendered:
            if key in package.variant:
                by_stack.setdefault(package.stack, {})[package.variant[key]] = None
        wanted = {tuple(values) for values in by_stack.values()}
        if tuple(base.get(key, ())) in wanted:
            continue
        if len(wanted) > 1:
            raise _disagreement(key, {stack: tuple(values) for stack, values in by_stack.items()})
        overrides[key] = wanted.pop()
    return overrides


def _disagreement(key: str, by_stack: Mapping[str, Sequence[VariantScalar]]) -> UsageError:
    found = "; ".join(f"{stack}: {', '.join(map(str, values))}" for stack, values in by_stack.items())
    message = f"the stacks build it with different values of {key} ({found}), and one feedstock has one list"
    return UsageError(message, hint=f"give --variant with one of {', '.join(by_stack)}")


def _cuda_group(
    rendered: Sequence[RenderedPackage], base: Mapping[str, Sequence[VariantScalar]]
) -> dict[str, tuple[VariantScalar, ...]]:
    """What moves with CUDA's compiler, with an entry for each combination.

    conda-forge's pins zip these keys for recipes that use CUDA, and conda-smithy takes an override of one only with
    all of them.
    """
    rows = _distinct(
        [
            {key: package.variant.get(key, next(iter(base.get(key, ("",))))) for key in _CUDA_GROUP}
            for package in rendered
            if "cuda_compiler_version" in package.variant
        ]
    )
    return {key: tuple(row[key] for row in rows) for key in _CUDA_GROUP}


def _with_companions(overrides: dict[str, tuple[VariantScalar, ...]]) -> dict[str, tuple[VariantScalar, ...]]:
    """Add what conda-forge's pins zip with a key: the lists of a group are equally long."""
    if "c_compiler_version" in overrides:
        overrides["fortran_compiler_version"] = overrides["c_compiler_version"]
    if "python" in overrides:
        overrides["is_python_min"] = tuple("false" for _python in overrides["python"])
    return overrides


def _distinct(variants: Sequence[Mapping[str, VariantScalar]]) -> list[Mapping[str, VariantScalar]]:
    return list({tuple(sorted(variant.items())): variant for variant in variants}.values())


def _ordered(values: Iterable[VariantScalar]) -> tuple[VariantScalar, ...]:
    return tuple(dict.fromkeys(values))
