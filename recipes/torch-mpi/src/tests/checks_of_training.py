# SPDX-License-Identifier: BSD-3-Clause
"""Checks of what is built on groups: DistributedDataParallel, its hooks, sharded models."""

import torch
import torch.distributed as dist
from checks import calls, check, rank, size
from torch.nn.parallel import DistributedDataParallel


def gradients_of_all(model: torch.nn.Module) -> torch.Tensor:
    """The mean of all ranks' gradients, by one process."""
    total = torch.zeros(())
    for one in range(size()):
        model.zero_grad()
        model(inputs_of(one)).square().mean().backward()
        total = total + torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    model.zero_grad()
    return total / size()


def inputs_of(one: int) -> torch.Tensor:
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(one))


def make_model() -> torch.nn.Module:
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))


@check
def gradients_of_ddp() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    for hook, tolerance in ((None, 1e-6), (default_hooks.fp16_compress_hook, 1e-2)):
        model = make_model()
        expected = gradients_of_all(model)
        parallel = DistributedDataParallel(model)
        if hook is not None:
            parallel.register_comm_hook(None, hook)
        before = calls("all_reduce")
        for _ in range(2):
            parallel.zero_grad()
            parallel(inputs_of(rank())).square().mean().backward()
        found = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
        assert calls("all_reduce") > before


@check
def gradients_of_sharded_models() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = make_model()
    expected = gradients_of_all(model)
    fully_shard(model, mesh=init_device_mesh("cpu", (size(),)))
    before = calls("reduce_scatter")
    model(inputs_of(rank())).square().mean().backward()
    found = torch.cat([parameter.grad.full_tensor().flatten() for parameter in model.parameters()])
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    assert calls("reduce_scatter") > before
    dist.barrier()
