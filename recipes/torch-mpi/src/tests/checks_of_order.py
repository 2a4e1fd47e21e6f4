# SPDX-License-Identifier: BSD-3-Clause
"""Checks of calls over the same memory that nobody waits for in between: each takes what the one before it left.

PyTorch's own MPI backend keeps that order by a queue, NCCL by a stream.
"""

import threading
from collections.abc import Sequence

import torch
import torch.distributed as dist
from checks import carries, check, rank, size

NUMEL = 300_000  # long enough to be under way when the next call comes
CALLS = 4


def wait_for(works: Sequence[dist.Work]) -> None:
    for work in works:
        work.wait()


@check
def sums_of_sums() -> None:
    for dtype in (torch.int32, torch.bfloat16):
        tensor = torch.ones(NUMEL, dtype=dtype)
        with carries("all_reduce", CALLS):
            wait_for([dist.all_reduce(tensor, async_op=True) for _ in range(CALLS)])
        assert tensor.eq(size() ** CALLS).all(), dtype


@check
def sums_of_averages_and_products() -> None:
    tensor = torch.full((NUMEL,), float(rank()))
    operations = [dist.ReduceOp.AVG, dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist._make_nccl_premul_sum(0.5)]
    wait_for([dist.all_reduce(tensor, op=op, async_op=True) for op in operations])
    assert torch.allclose(tensor, torch.full((NUMEL,), sum(range(size())) * size() / 2))


@check
def sums_of_parts_that_overlap() -> None:
    """Each a view with an offset of its own, through a copy or not."""
    whole = torch.ones(2 * NUMEL, dtype=torch.int32)
    views = [whole[: NUMEL + 1], whole[NUMEL:], whole[::2], whole.view(2, -1).t(), whole[1:NUMEL]]
    expected = whole.clone()
    for index in (slice(NUMEL + 1), slice(NUMEL, None), slice(None, None, 2), slice(None), slice(1, NUMEL)):
        expected[index] *= size()
    wait_for([dist.all_reduce(view, async_op=True) for view in views])
    assert torch.equal(whole, expected)


@check
def sums_of_coalesced_and_functional_ones() -> None:
    tensors = [torch.ones(NUMEL), torch.ones(7)]
    works = [
        dist.all_reduce_coalesced(tensors, async_op=True),
        dist.all_reduce(tensors[1], async_op=True),
        dist.all_reduce_coalesced(tensors, async_op=True),
    ]
    group = dist.group.WORLD.group_name
    torch.ops._c10d_functional.all_reduce_(tensors[0], "sum", group)
    torch.ops._c10d_functional.wait_tensor(tensors[0])
    wait_for(works)
    assert tensors[0].eq(size() ** 3).all()
    assert tensors[1].eq(size() ** 3).all()


@check
def each_kind_takes_what_the_one_before_left() -> None:
    """A sum, its broadcast and gather, its reduction to one rank, what that scatters, and the exchange of it."""
    total = sum(range(1, size() + 1))
    tensor = torch.full((NUMEL,), rank() + 1, dtype=torch.int32)
    gathered = torch.zeros(size() * NUMEL, dtype=torch.int32)
    parts = list(gathered.split(NUMEL))
    reduced, scattered, exchanged = (torch.zeros_like(each) for each in (tensor, tensor, gathered))
    works = [
        dist.all_reduce(tensor, async_op=True),
        dist.all_gather(parts, tensor, async_op=True),
        dist.reduce_scatter_tensor(reduced, gathered, async_op=True),
        dist.broadcast(reduced, 0, async_op=True),
        dist.reduce(reduced, 0, async_op=True),
        dist.scatter(scattered, [reduced] * size() if rank() == 0 else None, src=0, async_op=True),
        dist.all_gather_into_tensor(gathered, scattered, async_op=True),
        dist.all_to_all_single(exchanged, gathered, async_op=True),
        dist.all_to_all(parts, list(exchanged.split(NUMEL)), async_op=True),
        dist.gather(scattered, list(exchanged.split(NUMEL)) if rank() == 0 else None, 0, async_op=True),
        dist.broadcast(exchanged, 0, async_op=True),
    ]
    wait_for(works)
    assert tensor.eq(total).all()
    assert scattered.eq(total * size() ** 2).all()
    assert gathered.eq(total * size() ** 2).all()
    assert exchanged.eq(total * size() ** 2).all()


@check
def sums_in_a_callback() -> None:
    """The first's callback runs when its sum is there, whether the second waits for it or not."""
    tensor = torch.ones(NUMEL, dtype=torch.bfloat16)
    seen = threading.Event()
    future = dist.all_reduce(tensor, async_op=True).get_future()
    future.add_done_callback(lambda _: seen.set())
    dist.all_reduce(tensor)
    assert seen.wait(60)
    assert tensor.eq(size() ** 2).all()


@check
def the_last_alone_is_waited_for() -> None:
    """Works that are dropped go on."""
    tensor = torch.ones(NUMEL, dtype=torch.bfloat16)
    for _ in range(CALLS - 1):
        dist.all_reduce(tensor, async_op=True)
    dist.all_reduce(tensor)
    assert tensor.eq(size() ** CALLS).all()


@check
def tensors_that_are_apart_do_not_wait() -> None:
    """The other ranks call only when the first has called for both."""
    tensors = [torch.ones(1000) for _ in range(2)]
    if rank() > 0:
        dist.recv(torch.empty(1), src=0)
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    if rank() == 0:
        for other in range(1, size()):
            dist.send(torch.empty(1), dst=other)
    wait_for(works)
    assert all(tensor.eq(size()).all() for tensor in tensors)
