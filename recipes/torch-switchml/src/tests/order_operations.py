# SPDX-License-Identifier: BSD-3-Clause
"""Checks of calls over the same memory that nobody waits for in between: each takes what the one before it left.

NCCL's calls keep that order by their stream, the MPI backend's by its queue. Gloo itself does not.
"""

import threading
from collections.abc import Callable, Sequence

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
    for dtype, expected in ((torch.int32, {"int32": CALLS}), (torch.bfloat16, {"float32": CALLS})):
        tensor = torch.ones(NUMEL, dtype=dtype)
        with carries(**expected):
            wait_for([dist.all_reduce(tensor, async_op=True) for _ in range(CALLS)])
        assert tensor.eq(size() ** CALLS).all()


@check
def sums_of_averages() -> None:
    tensor = torch.full((NUMEL,), float(rank()))
    operations = [dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.AVG, dist.ReduceOp.SUM]
    with carries(float32=4):
        wait_for([dist.all_reduce(tensor, op=op, async_op=True) for op in operations])
    assert torch.allclose(tensor, torch.full((NUMEL,), sum(range(size())) * float(size())))


@check
def sums_of_products() -> None:
    tensor = torch.ones(NUMEL)
    with carries(float32=CALLS):
        wait_for([dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(0.75), async_op=True) for _ in range(CALLS)])
    assert torch.allclose(tensor, torch.full((NUMEL,), (0.75 * size()) ** CALLS))


@check
def sums_of_parts_that_overlap() -> None:
    """Each a view with an offset of its own, through a copy or not."""
    whole = torch.ones(2 * NUMEL, dtype=torch.int32)
    views = [whole[: NUMEL + 1], whole[NUMEL:], whole[::2], whole.view(2, -1).t(), whole[1:NUMEL]]
    expected = whole.clone()
    for index in (slice(NUMEL + 1), slice(NUMEL, None), slice(None, None, 2), slice(None), slice(1, NUMEL)):
        expected[index] *= size()
    with carries(int32=len(views)):
        wait_for([dist.all_reduce(view, async_op=True) for view in views])
    assert torch.equal(whole, expected)


@check
def sums_of_coalesced_ones() -> None:
    tensors = [torch.ones(NUMEL), torch.ones(7)]
    with carries(float32=3):
        works = [
            dist.all_reduce_coalesced(tensors, async_op=True),
            dist.all_reduce(tensors[1], async_op=True),
            dist.all_reduce_coalesced(tensors, async_op=True),
        ]
        wait_for(works)
    assert tensors[0].eq(size() ** 2).all()
    assert tensors[1].eq(size() ** 3).all()


@check
def sums_of_functional_ones() -> None:
    """As compiled code calls them, in place and waited for at the end."""
    tensor = torch.ones(NUMEL, dtype=torch.float16)
    group = dist.group.WORLD.group_name
    with carries(float32=2):
        for _ in range(2):
            torch.ops._c10d_functional.all_reduce_(tensor, "sum", group)
        torch.ops._c10d_functional.wait_tensor(tensor)
    assert tensor.eq(size() ** 2).all()


@check
def sums_on_one_rank_only() -> None:
    """Where the other ranks' tensors are apart, so that they wait for nothing."""
    shared = torch.ones(NUMEL, dtype=torch.bfloat16)
    tensors = [shared if rank() == 0 else torch.ones(NUMEL, dtype=torch.bfloat16) for _ in range(CALLS)]
    others = [torch.ones(10) for _ in tensors]
    with carries(float32=2 * CALLS):
        works = []
        for tensor, other in zip(tensors, others, strict=True):
            works += [dist.all_reduce(tensor, async_op=True), dist.all_reduce(other, async_op=True)]
        wait_for(works)
    sums = [1 + call * (size() - 1) for call in range(1, CALLS + 1)]
    for tensor, expected in zip(tensors, sums, strict=True):
        assert tensor.eq(sums[-1] if rank() == 0 else expected).all()
    assert all(other.eq(size()).all() for other in others)


@check
def sums_before_what_gloo_does() -> None:
    """An operation that is gloo's, a broadcast and a gather take the sums."""
    tensor = torch.full((NUMEL,), rank() + 1, dtype=torch.int32)
    total = sum(range(1, size() + 1))
    with carries(int32=2, reduce_op=1):
        gathered = [torch.zeros_like(tensor) for _ in range(size())]
        works = [
            dist.all_reduce(tensor, async_op=True),
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX, async_op=True),
            dist.all_reduce(tensor, async_op=True),
            dist.all_gather(gathered, tensor, async_op=True),
        ]
        wait_for(works)
    assert tensor.eq(total * size()).all()
    assert all(part.eq(total * size()).all() for part in gathered)


@check
def sums_after_what_gloo_does() -> None:
    """Of what a broadcast brings, of a maximum, of what was scattered, while gathers read."""
    parts = [torch.full((NUMEL,), 5, dtype=torch.int32) for _ in range(size())]
    kinds: list[Callable[[torch.Tensor], dist.Work]] = [
        lambda tensor: dist.broadcast(tensor, 0, async_op=True),
        lambda tensor: dist.all_reduce(tensor, op=dist.ReduceOp.MAX, async_op=True),
        lambda tensor: dist.scatter(tensor, parts if rank() == 0 else None, src=0, async_op=True),
    ]
    for begin in kinds:
        tensor = torch.full((NUMEL,), 5 if rank() == 0 else 0, dtype=torch.int32)
        wait_for([begin(tensor), dist.all_reduce(tensor, async_op=True)])
        assert tensor.eq(5 * size()).all()
    tensor = torch.ones(NUMEL, dtype=torch.int32)
    gathered = [torch.zeros_like(tensor) for _ in range(size())]
    wait_for([dist.all_gather(gathered, tensor, async_op=True), dist.all_reduce(tensor, async_op=True)])
    assert tensor.eq(size()).all()
    assert all(part.eq(1).all() for part in gathered)


@check
def sums_from_several_threads() -> None:
    """One after the other, each begun by a thread of its own."""
    tensor = torch.ones(NUMEL, dtype=torch.bfloat16)
    works: list[dist.Work] = []
    for _ in range(CALLS):
        thread = threading.Thread(target=lambda: works.append(dist.all_reduce(tensor, async_op=True)))
        thread.start()
        thread.join()
    wait_for(works)
    assert tensor.eq(size() ** CALLS).all()


@check
def the_last_alone_is_waited_for() -> None:
    """Works that are dropped go on."""
    tensor = torch.ones(NUMEL, dtype=torch.bfloat16)
    for _ in range(CALLS - 1):
        dist.all_reduce(tensor, async_op=True)
    dist.all_reduce(tensor)
    assert tensor.eq(size() ** CALLS).all()


@check
def calls_return_before_others_come() -> None:
    """Also one that has to wait: here the other ranks call only when the first has called them all."""
    tensors = [torch.ones(1000, dtype=torch.bfloat16) for _ in range(2)]
    if rank() > 0:
        dist.recv(torch.empty(1), src=0)
    works = [dist.all_reduce(tensors[index], async_op=True) for index in (0, 0, 1)]
    if rank() == 0:
        for other in range(1, size()):
            dist.send(torch.empty(1), dst=other)
    wait_for(works)
    assert tensors[0].eq(size() ** 2).all()
    assert tensors[1].eq(size()).all()
