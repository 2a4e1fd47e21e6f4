# SPDX-License-Identifier: BSD-3-Clause
"""One rank: collectives over the emulator, compared with what they have to give. Whole numbers, so exactly."""

import torch
import torch.distributed as dist
import torch_accl
from torch.nn.parallel import DistributedDataParallel


def part(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return ((torch.arange(count) % 13 + 1) * (rank + 1) - 7).reshape(shape).to(dtype)


def allreduces(rank: int, size: int) -> None:
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
        for shape in ((1,), (), (33,), (3, 5, 7), (700,)):
            tensor = part(rank, shape, dtype)
            dist.all_reduce(tensor)
            expected = sum(part(other, shape, dtype) for other in range(size))
            assert torch.equal(tensor, expected), (dtype, shape)
    tensor = part(rank, (2500,), torch.float32)  # three messages
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert torch.equal(tensor, sum(part(other, (2500,), torch.float32) for other in range(size)))


def others(rank: int, size: int) -> None:
    tensor = part(rank, (50,), torch.float32)
    dist.broadcast(tensor, 1)
    assert torch.equal(tensor, part(1, (50,), torch.float32))
    gathered = [torch.zeros(3, 4) for _ in range(size)]
    dist.all_gather(gathered, part(rank, (3, 4), torch.float32))
    assert all(torch.equal(one, part(other, (3, 4), torch.float32)) for other, one in enumerate(gathered))
    dist.barrier()


def refusals() -> None:
    for tensor, operation in (
        (torch.ones(4, dtype=torch.bfloat16), dist.ReduceOp.SUM),
        (torch.ones(4), dist.ReduceOp.MIN),
        (torch.ones(0), dist.ReduceOp.SUM),
    ):
        message = ""
        try:
            dist.all_reduce(tensor, operation)
        except RuntimeError as err:
            message = str(err)
        assert "ACCL" in message, (tensor.dtype, operation, message)


def training(rank: int) -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 4))
    model(torch.full((2, 8), float(rank + 1))).sum().backward()
    gradient = model.module.weight.grad
    assert gradient is not None
    assert torch.equal(gradient, torch.full((4, 8), 3.0)), gradient  # the mean of 2 and 4


def main() -> None:
    dist.init_process_group(torch_accl.BACKEND)
    rank, size = dist.get_rank(), dist.get_world_size()
    allreduces(rank, size)
    others(rank, size)
    refusals()
    training(rank)
    dist.destroy_process_group()
    print(f"rank {rank} of {size}: all right")


main()
