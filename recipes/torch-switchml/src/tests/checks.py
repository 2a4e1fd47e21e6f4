# SPDX-License-Identifier: BSD-3-Clause
"""What the checks of single operations have in common; all ranks of one launch run them in the order of CHECKS.

Every check says how many jobs it expects to be delegated, and how many
allreduces to fall back and why: a right result alone proves nothing.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

import torch_switchml

CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


@contextmanager
def carries(*, float32: int = 0, int32: int = 0, **fallbacks: int) -> Iterator[None]:
    """Exactly these jobs are delegated, and these allreduces left to gloo, in the block."""
    before = torch_switchml.stats()
    yield
    after = torch_switchml.stats()
    delegated = {
        dtype: after["delegated"][dtype]["jobs"] - before["delegated"][dtype]["jobs"] for dtype in after["delegated"]
    }
    fell_back = {reason: after["fallbacks"][reason] - before["fallbacks"][reason] for reason in after["fallbacks"]}
    assert delegated == {"float32": float32, "int32": int32}, delegated
    assert fell_back == dict.fromkeys(fell_back, 0) | fallbacks, fell_back
    assert after["failed_jobs"] == before["failed_jobs"]


def rank() -> int:
    return int(dist.get_rank())


def size() -> int:
    return int(dist.get_world_size())


def inputs(numel: int, dtype: torch.dtype, *, seed: int = 0) -> list[torch.Tensor]:
    """All ranks' tensors, which every rank can make for itself."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return [torch.randn(numel, generator=generator, dtype=torch.float64).to(dtype) for _ in range(size())]
    return [torch.randint(-(2**20), 2**20, (numel,), generator=generator, dtype=dtype) for _ in range(size())]


def assert_sum(result: torch.Tensor, parts: list[torch.Tensor]) -> None:
    """Exact for integers; floats within the bound that the recipe's README states."""
    if not result.dtype.is_floating_point:
        assert torch.equal(result, torch.stack(parts).sum(dim=0).to(result.dtype))
        return
    addends = torch.stack([part.double() for part in parts])
    error = (result.double() - addends.sum(dim=0)).abs()
    assert error.le(bound(result.double(), addends.abs().sum(dim=0))).all()


def bound(result: torch.Tensor, magnitudes: torch.Tensor) -> torch.Tensor:
    """By element; with the exponent of the largest sum of magnitudes, which no host's sum of any packet exceeds."""
    workers = torch_switchml.stats()["host"]["workers"]
    ranks = size() - max(workers, 1) + 1  # at most so many on one host
    exponent = max(math.frexp(magnitudes.max().item())[1], -126) if magnitudes.numel() else 0
    units = workers * 2.0 ** (exponent + math.ceil(math.log2(workers)) - 32) if workers else 0.0
    return (ranks - 1) / (2**24 - ranks + 1) * magnitudes + units + 2.0**-24 * result.abs()
