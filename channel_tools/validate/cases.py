# SPDX-License-Identifier: BSD-3-Clause
"""The allreduces that validations are made of, whatever carries them."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from typing import Literal

Data = Literal["positive", "normal", "spread", "nonfinite", "range", "full", "small", "ddp"]
Measure = Literal["exact", "element", "unit", "tensor"]

BASELINE = "gloo"
FLOAT_ERROR_ALLOWED = 1e-6
SIZES = (0, 1, 3, 255, 257, 1_000_003, 16 << 20)
DTYPE_BYTES = {"float32": 4, "int32": 4, "float64": 8, "int64": 8, "bfloat16": 2, "float16": 2}
DDP_LAYERS = (64, 128, 10)
DDP_STEPS = 2
# the model and the steps of torch-ccl's demo/demo.py
DEMO_LAYERS = (4, 5)
DEMO_STEPS = 3
SEED = 20_181
_SPEEDS = ((16 << 10, 5, 30), (1 << 20, 3, 15), (16 << 20, 1, 5))
_FEW_CALLS = (1, 5)
_MEASURES: dict[Data, Measure] = {
    "positive": "element",
    "normal": "unit",
    "spread": "unit",
    "nonfinite": "unit",
    "ddp": "tensor",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """``calls`` allreduces of ``numel`` elements; ``reason`` is the plugin's word for why gloo carries it.

    ``layers`` are the widths of the linear layers that DistributedDataParallel trains, of data ``ddp`` alone.
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
        """What errors are relative to."""
        return _MEASURES.get(self.data, "exact")


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """A size whose bandwidth is measured, through the stack's transport and through gloo in turn."""

    dtype: str
    numel: int
    warmups: int
    repetitions: int

    @property
    def calls(self) -> int:
        """Calls per path."""
        return self.warmups + self.repetitions

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensor."""
        return self.numel * DTYPE_BYTES[self.dtype]


def standard_speeds(dtypes: tuple[str, ...], *, max_numel: int = max(SIZES)) -> tuple[Speed, ...]:
    """The sizes that are measured, for each type; one of ``max_numel`` where that is below all of them."""
    sizes = [size for size in _SPEEDS if size[0] <= max_numel] or [(max_numel, *_FEW_CALLS)]
    return tuple(
        Speed(dtype=dtype, numel=numel, warmups=warmups, repetitions=repetitions)
        for dtype in dtypes
        for numel, warmups, repetitions in sizes
    )


def ddp_case() -> Case:
    """DistributedDataParallel's gradients: as many elements as the small model has parameters."""
    return _training("DistributedDataParallel", DDP_LAYERS, steps=DDP_STEPS)


def demo_case() -> Case:
    """What oneCCL's guide trains with PyTorch: Linear(4, 5), mean squared error, stochastic gradient descent."""
    return _training("DistributedDataParallel of oneCCL's demo", DEMO_LAYERS, steps=DEMO_STEPS)


def _training(name: str, layers: tuple[int, ...], *, steps: int) -> Case:
    gradients = sum((inputs + 1) * outputs for inputs, outputs in itertools.pairwise(layers))
    return Case(name=name, dtype="float32", data="ddp", numel=gradients, calls=steps, layers=layers)


def cases_document(
    cases: tuple[Case, ...], speeds: tuple[Speed, ...], *, unit: int, group_timeout_s: float
) -> dict[str, object]:
    """What every worker script reads of a plan; ``unit`` is the number of neighbours that share a scale."""
    documents = [asdict(case) for case in cases]
    for document in documents:
        del document["reason"]
    return {
        "seed": SEED,
        "unit": unit,
        "group_timeout_s": group_timeout_s,
        "cases": documents,
        "speeds": [asdict(speed) for speed in speeds],
    }
