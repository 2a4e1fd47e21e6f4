# SPDX-License-Identifier: BSD-3-Clause
"""Checks of allreduces of a device's tensors.

What makes the addends and what reads the sums is enqueued on the caller's stream and not waited for, so that an
allreduce that does not synchronise with that stream gives wrong numbers on the slow device.
"""

import time

import devices
import torch
import torch.distributed as dist
from checks import assert_sum, carries, check, inputs, rank, size
from torch.nn.parallel import DistributedDataParallel

import torch_switchml

KEPT: list[torch.Tensor] = []  # what copies under way read


def enqueue(values: torch.Tensor) -> torch.Tensor:
    """A tensor of the device that gets these values once the current stream comes to it."""
    tensor = torch.empty_like(values, device=devices.load())
    KEPT.append(values.pin_memory())
    tensor.copy_(KEPT[-1], non_blocking=True)
    return tensor


@check
def sizes_around_a_chunk() -> None:
    chunk = devices.CHUNK_NUMEL
    for dtype, expected in ((torch.float32, {"float32": 1}), (torch.int32, {"int32": 1})):
        for numel in (0, 1, 257, chunk - 1, chunk, chunk + 1):
            parts = inputs(numel, dtype, seed=numel)
            tensor = enqueue(parts[rank()])
            with carries(**expected):
                dist.all_reduce(tensor)
                result = tensor.cpu()
            assert_sum(result, parts)


@check
def more_chunks_than_are_pinned() -> None:
    parts = inputs(9 * devices.CHUNK_NUMEL + 5, torch.int32)
    tensor = parts[rank()].to(devices.load())
    KEPT.clear()
    devices.most_pinned_bytes()  # so far
    with carries(int32=1):
        dist.all_reduce(tensor)
    assert_sum(tensor.cpu(), parts)
    assert 0 < devices.most_pinned_bytes() <= 4 * 4 * devices.CHUNK_NUMEL


@check
def asynchronous_to_the_caller() -> None:
    """Nothing is waited for until wait(), which has the current stream wait; what reads the sum is enqueued behind."""
    tensors = [enqueue(torch.full((1000 + index,), index, dtype=torch.int32)) for index in range(10)]
    with carries(int32=10):
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in works:
            work.wait()
    read = [torch.empty_like(tensor) for tensor in tensors]
    for copy, tensor in zip(read, tensors, strict=True):
        copy.copy_(tensor, non_blocking=True)
    for index, copy in enumerate(read):
        assert copy.cpu().eq(index * size()).all()


@check
def tensors_freed_while_under_way() -> None:
    """Their memory is not the allocator's to give away before the copies have been."""
    source = enqueue(torch.ones(200_000))
    views = []
    for _ in range(4):
        tensor = source.clone()
        future = dist.all_reduce(tensor, async_op=True).get_future()
        views.append(future.then(lambda done: done.value()[0] * 2))
        del tensor, future
        enqueue(torch.zeros(200_000))
    for view in views:
        assert view.wait().cpu().eq(2 * size()).all()


@check
def memory_freed_while_copied_back() -> None:
    """The allocator must not give it to others although the allreduce is over for the host."""
    for _ in range(5):
        tensor = torch.ones(200_000, device=devices.load())
        work = dist.all_reduce(tensor, async_op=True)
        while not work.is_completed():
            time.sleep(0.0001)
        del tensor, work
        others = [enqueue(torch.full((200_000,), 5.0)) for _ in range(3)]
        time.sleep(0.02)  # for what should not come any more
        assert all(other.cpu().eq(5).all() for other in others)


@check
def future_and_callback() -> None:
    """A callback's stream waits for the sum, and whoever waits for the callback's future for what it enqueued."""
    future = dist.all_reduce(enqueue(torch.ones(5000)), async_op=True).get_future()
    squared = future.then(lambda done: enqueue(torch.ones(5000)).copy_(done.value()[0], non_blocking=True))
    assert torch.equal(future.wait()[0].cpu(), torch.full((5000,), float(size())))
    assert torch.equal(squared.wait().cpu(), torch.full((5000,), float(size())))


@check
def another_stream_than_the_default_one() -> None:
    side = torch.Stream(devices.load())
    with side:
        tensor = enqueue(torch.ones(5000))
        dist.all_reduce(tensor)
        copy = torch.empty_like(tensor)
        copy.copy_(tensor, non_blocking=True)
    side.synchronize()
    assert copy.cpu().eq(size()).all()


@check
def order_among_cpu_and_device() -> None:
    """Each rank's jobs come in the order of its calls, whichever way they take."""
    works, tensors = [], []
    with carries(int32=20):
        for index in range(20):
            values = torch.full((300,), index, dtype=torch.int32)
            tensors.append(values if index % 2 else enqueue(values))
            works.append(dist.all_reduce(tensors[-1], async_op=True))
            if rank() == 0:  # a rank that waits must not come to another order than one that does not
                works[-1].wait()
        for work in works:
            work.wait()
    for index, tensor in enumerate(tensors):
        assert tensor.cpu().eq(index * size()).all()


@check
def sums_of_sums() -> None:
    """Calls over one tensor that nobody waits for in between are made one after the other, as NCCL's."""
    for dtype, numel, op in (
        (torch.int32, 2 * devices.CHUNK_NUMEL + 3, dist.ReduceOp.SUM),
        (torch.bfloat16, 100_000, dist.ReduceOp.SUM),
        (torch.float32, 100_000, dist.ReduceOp.AVG),
    ):
        tensor = enqueue(torch.full((numel,), rank() + 1, dtype=dtype))
        works = [dist.all_reduce(tensor, op=op, async_op=True), *(dist.all_reduce(tensor, async_op=True) for _ in "23")]
        for work in works:
            work.wait()
        first = sum(range(1, size() + 1)) / (1 if op == dist.ReduceOp.SUM else size())
        assert torch.allclose(tensor.cpu().double(), torch.full((numel,), first * size() ** 2).double())


@check
def sums_of_parts_that_overlap() -> None:
    """Also coalesced ones; what shares no memory goes on between them."""
    whole = enqueue(torch.ones(60_000, dtype=torch.int32))
    other = enqueue(torch.ones(60_000, dtype=torch.int32))
    works = [
        dist.all_reduce_coalesced([whole[::2], other[:10]], async_op=True),
        dist.all_reduce(whole[:40_000], async_op=True),
        dist.all_reduce(other, async_op=True),
        dist.all_reduce(whole[20_000:], async_op=True),
    ]
    for work in works:
        work.wait()
    expected = torch.full((60_000,), size(), dtype=torch.int32)
    expected[20_000:40_000] *= size()
    expected[::2] *= size()
    assert torch.equal(whole.cpu(), expected)
    assert other.cpu()[:10].eq(size() ** 2).all()
    assert other.cpu()[10:].eq(size()).all()


@check
def sums_after_one_that_is_complete_and_not_waited_for() -> None:
    """Its host's part is over while the sum is still on its way to the device."""
    for dtype in (torch.float32, torch.bfloat16):
        tensor = enqueue(torch.ones(100_000, dtype=dtype))
        first = dist.all_reduce(tensor, async_op=True)
        while not first.is_completed():
            time.sleep(0.0001)
        dist.all_reduce(tensor, async_op=True).wait()
        assert tensor.cpu().eq(size() ** 2).all()


@check
def calls_return_before_others_come() -> None:
    """Whether they are over one tensor or not: here the other ranks call only when the first has called them all."""
    tensors = [enqueue(torch.ones(1000)) for _ in range(2)]
    if rank() > 0:
        dist.recv(torch.empty(1), src=0)
    works = [dist.all_reduce(tensors[index], async_op=True) for index in (0, 0, 1)]
    if rank() == 0:
        for other in range(1, size()):
            dist.send(torch.empty(1), dst=other)
    for work in works:
        work.wait()
    assert tensors[0].cpu().eq(size() ** 2).all()
    assert tensors[1].cpu().eq(size()).all()


@check
def through_a_copy() -> None:
    """Not contiguous, of 16 bits, several, averaged, multiplied before."""
    before = torch_switchml.stats()
    strided = enqueue(torch.ones(1000))[::2]
    dist.all_reduce(strided)
    assert strided.cpu().eq(size()).all()
    half = enqueue(torch.ones(100, dtype=torch.bfloat16))
    dist.all_reduce(half)
    assert half.cpu().eq(size()).all()
    several = [enqueue(torch.ones(4)), enqueue(torch.ones(6, 2)).t()]
    dist.all_reduce_coalesced(several)
    assert all(tensor.cpu().eq(size()).all() for tensor in several)
    mean = enqueue(torch.full((10,), float(rank())))
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    assert torch.allclose(mean.cpu(), torch.full((10,), (size() - 1) / 2))
    weighted = enqueue(torch.full((10,), float(rank())))
    dist.all_reduce(weighted, op=dist._make_nccl_premul_sum(0.5))
    assert torch.allclose(weighted.cpu(), torch.full((10,), sum(range(size())) / 2))
    after = torch_switchml.stats()
    assert after["device_jobs"] - before["device_jobs"] == 5
    assert after["copied_jobs"] - before["copied_jobs"] == 4


@check
def barrier_stands_for_device_tensors() -> None:
    tensor = enqueue(torch.ones(20_000))
    work = dist.all_reduce(tensor, async_op=True)
    dist.barrier()
    assert work.is_completed()
    work.wait()
    assert tensor.cpu().eq(size()).all()


@check
def data_parallel_training() -> None:
    """Three steps on the device end where three on the CPU do."""
    expected = train(torch.device("cpu"))
    jobs = torch_switchml.stats()["device_jobs"]
    result = train(devices.load())
    assert torch_switchml.stats()["device_jobs"] >= jobs + 3
    for left, right in zip(result, expected, strict=True):
        assert torch.allclose(left, right, rtol=0, atol=1e-5)


def train(device: torch.device) -> list[torch.Tensor]:
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 5)).to(device)
    # without what gloo would broadcast, which knows no slow device
    parallel = DistributedDataParallel(model, init_sync=False, find_unused_parameters=True)
    generator = torch.Generator().manual_seed(rank())
    for _ in range(3):
        parallel.zero_grad()
        parallel(torch.randn(16, 20, generator=generator).to(device)).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=0.05)
    return [parameter.detach().cpu() for parameter in model.parameters()]
