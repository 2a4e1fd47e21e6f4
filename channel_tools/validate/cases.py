# SPDX-License-Identifier: BSD-3-Clause
"""The allreduces that validations run, independent of what carries them."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

Data = Literal["positive", "normal", "spread", "nonfinite", "range", "full", "small", "ddp"]
Measure = Literal["exact", "element", "unit", "tensor"]
Feature = Literal["empty", "second_group", "spread", "strided", "wrap"]
"""Features that a row of the table needs besides type, operation and size, and that a stack may not offer."""

BASELINE = "gloo"
FLOAT_ERROR_ALLOWED = 1e-6
SIZES = (0, 1, 3, 255, 257, 1_000_003, 16 << 20)
DTYPE_BYTES = {"float32": 4, "int32": 4, "float64": 8, "int64": 8, "bfloat16": 2, "float16": 2}
OPS = ("SUM", "MAX", "MIN")
SMALLEST_NUMEL = 2_000
"""The elements of cases whose data shows a special property."""
DDP_LAYERS = (64, 128, 10)
DDP_STEPS = 2
# the model and the steps of torch-ccl's demo/demo.py
DEMO_LAYERS = (4, 5)
DEMO_STEPS = 3
SEED = 20_181
_SPEEDS = ((16 << 10, 5, 30), (1 << 20, 3, 15), (16 << 20, 1, 5))
_FEW_CALLS = (1, 5)
_GRID_NUMEL = 1_003
_SIZED: tuple[tuple[str, Data], ...] = (("float32", "positive"), ("int32", "range"))
_WIDE = frozenset({"int32", "int64", "float64"})
_MEASURES: dict[Data, Measure] = {
    "positive": "element",
    "normal": "unit",
    "spread": "unit",
    "nonfinite": "unit",
    "ddp": "tensor",
}
_FEATURES: dict[Data, Feature] = {"spread": "spread", "full": "wrap"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """``calls`` allreduces of ``numel`` elements; ``reason`` is the plugin's reason why gloo carries them.

    ``layers`` are the widths of the linear layers that DistributedDataParallel trains, only for data ``ddp``.
    """

    name: str
    dtype: str
    data: Data
    numel: int
    op: str = "SUM"
    calls: int = 1
    group: Literal["default", "second"] = "default"
    is_async: bool = False
    is_strided: bool = False
    layers: tuple[int, ...] = ()
    reason: str = ""

    @property
    def is_delegated(self) -> bool:
        """Whether the stack's transport has to carry it."""
        return not self.reason

    @property
    def measure(self) -> Measure:
        """The reference of relative errors."""
        return _MEASURES.get(self.data, "exact")

    @property
    def feature(self) -> Feature | None:
        """The feature it needs that a stack may not offer; None if every stack must offer it."""
        if not self.numel:
            return "empty"
        if self.is_strided:
            return "strided"
        if self.group == "second":
            return "second_group"
        return _FEATURES.get(self.data)


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """A size whose bandwidth is measured, through the stack's transport and through gloo in turn."""

    dtype: str
    numel: int
    warmups: int
    repetitions: int

    @property
    def calls(self) -> int:
        """The number of calls per path."""
        return self.warmups + self.repetitions

    @property
    def size_bytes(self) -> int:
        """The size of the tensor in bytes."""
        return self.numel * DTYPE_BYTES[self.dtype]


def standard_speeds(dtypes: tuple[str, ...], *, max_numel: int = max(SIZES)) -> tuple[Speed, ...]:
    """The measured sizes for each type; one of ``max_numel`` if that is below all of them."""
    sizes = [size for size in _SPEEDS if size[0] <= max_numel] or [(max_numel, *_FEW_CALLS)]
    return tuple(
        Speed(dtype=dtype, numel=numel, warmups=warmups, repetitions=repetitions)
        for dtype in dtypes
        for numel, warmups, repetitions in sizes
    )


def standard_cases(*, max_numel: int = max(SIZES)) -> tuple[Case, ...]:
    """The table for every stack: all sizes, every type with every operation, and training.

    The sizes are fixed; all other cases have at most ``max_numel`` elements.
    """
    # training is not last: it waits for futures, which backends complete before they end their works' profiler entries,
    # and stopping the profiler in between corrupts memory; each later call waits for its work
    return (*_sized_cases(), *_grid(), ddp_case(), demo_case(), *_special_cases(max_numel))


def _sized_cases() -> Iterator[Case]:
    for dtype, data in _SIZED:
        for numel in SIZES:
            yield sized_case(dtype, numel, data)


def sized_case(dtype: str, numel: int, data: Data | None = None) -> Case:
    """A sum of ``numel`` elements; ``data`` None means the default data of the type."""
    return Case(name=f"{dtype} SUM of {numel}", dtype=dtype, data=data or dict(_SIZED)[dtype], numel=numel)


def _grid() -> Iterator[Case]:
    """Whole numbers whose results are exact in their type, but not in a narrower one, if possible."""
    for dtype in DTYPE_BYTES:
        data: Data = "range" if dtype in _WIDE else "small"
        for op in OPS:
            yield Case(name=f"{dtype} {op}", dtype=dtype, data=data, numel=_GRID_NUMEL, op=op)


def _special_cases(max_numel: int) -> Iterator[Case]:
    large, middle, some = (min(numel, max_numel) for numel in (1_000_003, 70_001, 65_537))
    yield Case(name="float32 SUM, both signs", dtype="float32", data="normal", numel=large)
    yield Case(name="float32 SUM, magnitudes from 2^-20 to 2^20", dtype="float32", data="spread", numel=large)
    yield Case(name="float32 SUM with Inf and NaN", dtype="float32", data="nonfinite", numel=SMALLEST_NUMEL)
    yield Case(name="int32 SUM that wraps", dtype="int32", data="full", numel=some)
    for dtype, data in _SIZED:
        name = f"{dtype} SUM, four in flight"
        yield Case(name=name, dtype=dtype, data=data, numel=middle, calls=4, is_async=True)
    yield Case(name="float32 SUM, strided", dtype="float32", data="positive", numel=1_001, is_strided=True)
    for dtype, _data in _SIZED:
        yield Case(name=f"{dtype} SUM, second group", dtype=dtype, data="small", numel=_GRID_NUMEL, group="second")


def ddp_case() -> Case:
    """DistributedDataParallel's gradients: one element per parameter of the small model."""
    return _training("DistributedDataParallel", DDP_LAYERS, steps=DDP_STEPS)


def demo_case() -> Case:
    """The training in oneCCL's guide for PyTorch: Linear(4, 5), mean squared error, stochastic gradient descent."""
    return _training("DistributedDataParallel of oneCCL's demo", DEMO_LAYERS, steps=DEMO_STEPS)


def _training(name: str, layers: tuple[int, ...], *, steps: int) -> Case:
    gradients = sum((inputs + 1) * outputs for inputs, outputs in itertools.pairwise(layers))
    return Case(name=name, dtype="float32", data="ddp", numel=gradients, calls=steps, layers=layers)


def cases_document(
    cases: tuple[Case, ...], speeds: tuple[Speed, ...], *, unit: int, group_timeout_s: float, is_on_hosts: bool = False
) -> dict[str, object]:
    """The part of a plan for all worker scripts; ``unit`` is the number of consecutive elements that share a scale.

    ``is_on_hosts``: the ranks meet over a network, not on one host's loopback.
    """
    documents = [asdict(case) for case in cases]
    for document in documents:
        del document["reason"]
    return {
        "seed": SEED,
        "unit": unit,
        "group_timeout_s": group_timeout_s,
        "is_on_hosts": is_on_hosts,
        "cases": documents,
        "speeds": [asdict(speed) for speed in speeds],
    }
