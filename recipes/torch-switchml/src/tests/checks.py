# SPDX-License-Identifier: BSD-3-Clause
"""What the checks of single operations have in common; all ranks of one launch run them in the order of CHECKS.

Every check says how many jobs it expects to be delegated, and how many
allreduces to fall back and why: a right result alone proves nothing.
"""

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
    """Exact for integers; floats as near to the sum in float64 as the wire's 32 bits allow."""
    if not result.dtype.is_floating_point:
        assert torch.equal(result, torch.stack(parts).sum(dim=0).to(result.dtype))
        return
    exact = torch.stack([part.double() for part in parts]).sum(dim=0)
    scale = max(part.abs().max().item() for part in parts) if exact.numel() else 0.0
    assert (result.double() - exact).abs().le(1e-6 * scale * size()).all()
