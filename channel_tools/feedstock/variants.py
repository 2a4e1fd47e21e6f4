# SPDX-License-Identifier: BSD-3-Clause
"""What a feedstock's ``conda_build_config.yaml`` says, so that conda-smithy gives it the variants of the tree's stacks.

conda-smithy overlays a feedstock's conda_build_config.yaml on conda-forge's pinning file. Keys conda-forge sets for
all its packages (compilers, the oldest glibc, python, gRPC ...) are left out if the stacks agree with it: otherwise,
they would no longer follow migrations. Those of them that conda-forge zips with others (``ZIPPED_KEYS``) are never
zipped with ours, since a key can be in only one group: there, one list has to do for all stacks, and what that leaves
out is named. The combinations of all other keys are listed in one group, unless that is all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from channel_tools.matrix.model import RenderedPackage, VariantScalar

    Base = Mapping[str, Mapping[str, Sequence[VariantScalar]]]
    """conda-forge's values of the keys that it sets, by platform."""
    _ByStack = Mapping[str, Mapping[str, tuple[VariantScalar, ...]]]
    """The values of one key, by stack and platform."""

_ENGINE_DECIDES = frozenset({"target_platform", "build_platform", "host_platform"})
ZIPPED_KEYS = {"python"} | frozenset(
    f"{language}_{part}"
    for language in ("c", "cxx", "fortran", "cuda")
    for part in ("compiler", "compiler_version", "stdlib", "stdlib_version")
)
"""Keys that conda-forge sets for every package, and zips with one another."""
_CUDA_GROUP = ("c_compiler_version", "cxx_compiler_version", "c_stdlib_version", "cuda_compiler_version")


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedstockVariants:
    """What a feedstock's conda_build_config.yaml says: the keys, and which of them move together.

    ``left_out`` says, a sentence each, which variants of the tree's stacks the feedstock does not have.
    """

    keys: Mapping[str, tuple[VariantScalar, ...]]
    zipped: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def feedstock_variants(
    rendered: Sequence[RenderedPackage],
    *,
    pinned: Collection[str],
    base: Base,
    read: Mapping[str, VariantScalar] = MappingProxyType({}),
) -> FeedstockVariants:
    """The variants of a feedstock that conda-smithy makes from them over conda-forge's pinning.

    ``pinned`` are the keys that conda-forge sets, ``base`` its values. ``read`` are keys that the recipe's templates
    read without an effect on any variant; they need a value, too. Raises UsageError if stacks need different
    values of one of ZIPPED_KEYS and none of them is conda-forge's.
    """
    by_key = {
        key: _by_stack(rendered, key)
        for key in sorted(set(pinned) & {key for package in rendered for key in package.variant})
    }
    followed = {
        key
        for key, by_stack in by_key.items()
        if key in ZIPPED_KEYS or _agreeing(key, by_stack, base) == by_stack.keys()
    }
    rows = _without_parts(
        _distinct(
            [
                {key: value for key, value in package.variant.items() if key not in followed | _ENGINE_DECIDES}
                for package in rendered
            ]
        )
    )
    keys = sorted({key for row in rows for key in row})
    values = {key: tuple(dict.fromkeys(row[key] for row in rows if key in row)) for key in keys}
    varying = tuple(key for key in keys if len(values[key]) > 1)
    if len(rows) != math.prod(len(values[key]) for key in keys):
        values |= {key: tuple(row.get(key, values[key][0]) for row in rows) for key in varying}
    else:
        varying = ()
    values |= {key: (value,) for key, value in read.items()}
    overrides, left_out = _overrides({key: by_key[key] for key in by_key if key in ZIPPED_KEYS}, base)
    if "cuda_compiler_version" in overrides:
        overrides |= _cuda_group(rendered, base)
    # conda-forge's pins zip these with a key: the lists of a group have equal lengths
    if "c_compiler_version" in overrides:
        overrides["fortran_compiler_version"] = overrides["c_compiler_version"]
    if "python" in overrides:
        overrides["is_python_min"] = tuple("false" for _python in overrides["python"])
    return FeedstockVariants(keys=values | overrides, zipped=varying, left_out=left_out)


def _by_stack(rendered: Sequence[RenderedPackage], key: str) -> _ByStack:
    values_by_stack: dict[str, dict[str, dict[VariantScalar, None]]] = {}
    for package in rendered:
        if key in package.variant:
            values_by_stack.setdefault(package.stack, {}).setdefault(package.platform, {})[package.variant[key]] = None
    return {
        stack: {platform: tuple(values) for platform, values in by_platform.items()}
        for stack, by_platform in values_by_stack.items()
    }


def _agreeing(key: str, by_stack: _ByStack, base: Base) -> set[str]:
    """The stacks with conda-forge's values of a key on all of their platforms."""
    return {
        stack
        for stack, by_platform in by_stack.items()
        if all(tuple(base.get(platform, {}).get(key, ())) == values for platform, values in by_platform.items())
    }


def _overrides(
    by_key: Mapping[str, _ByStack], base: Base
) -> tuple[dict[str, tuple[VariantScalar, ...]], tuple[str, ...]]:
    """The keys for which no stack has conda-forge's values; else, what is left out of the stacks that have others."""
    overrides = {}
    left_out: dict[str, list[str]] = {}
    for key, by_stack in by_key.items():
        merged = {
            stack: tuple(dict.fromkeys(value for values in by_platform.values() for value in values))
            for stack, by_platform in by_stack.items()
        }
        agreeing = _agreeing(key, by_stack, base)
        if not agreeing and len(set(merged.values())) > 1:
            differences = "; ".join(f"{stack}: {_listed(values)}" for stack, values in merged.items())
            message = (
                f"the stacks build it with different values of {key} ({differences}), but a feedstock can have only "
                "one list"
            )
            raise UsageError(message, hint=f"give --variant with one of {', '.join(merged)}")
        if not agreeing:
            overrides[key] = next(iter(merged.values()))
        else:
            for stack in sorted(merged.keys() - agreeing):
                left_out.setdefault(stack, []).append(f"{key} {_listed(merged[stack])}")
    return overrides, tuple(
        f"the feedstock has conda-forge's compilers and Pythons, not those of the stack {stack}: {'; '.join(differing)}"
        for stack, differing in sorted(left_out.items())
    )


def _listed(values: Iterable[VariantScalar]) -> str:
    return ", ".join(map(str, values))


def _cuda_group(rendered: Sequence[RenderedPackage], base: Base) -> dict[str, tuple[VariantScalar, ...]]:
    """The keys that move with CUDA's compiler, with an entry for each combination.

    conda-forge's pins zip these keys for recipes that use CUDA, and conda-smithy accepts an override of one only with
    all of them.
    """
    rows = _distinct(
        [
            {
                key: package.variant.get(key, next(iter(base.get(package.platform, {}).get(key, ("",)))))
                for key in _CUDA_GROUP
            }
            for package in rendered
            if "cuda_compiler_version" in package.variant
        ]
    )
    return {key: tuple(row[key] for row in rows) for key in _CUDA_GROUP}


def _distinct(variants: Sequence[Mapping[str, VariantScalar]]) -> list[Mapping[str, VariantScalar]]:
    return list({tuple(sorted(variant.items())): variant for variant in variants}.values())


def _without_parts(rows: Sequence[Mapping[str, VariantScalar]]) -> list[Mapping[str, VariantScalar]]:
    """Without rows that are part of another: a variant that uses fewer keys comes out of that one's values."""
    return [row for row in rows if not any(row.items() < other.items() for other in rows)]
