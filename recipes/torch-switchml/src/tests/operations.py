# SPDX-License-Identifier: BSD-3-Clause
"""Checks of single operations, each run by all ranks of one launch in the order of CHECKS.

Every check says how many jobs it expects to be delegated, and how many
allreduces to fall back and why: a right result alone proves nothing.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

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


def transpose_on(ranks: set[int], tensor: torch.Tensor) -> torch.Tensor:
    """The same values everywhere; on these ranks laid out in memory the other way."""
    return tensor.t().contiguous().t() if rank() in ranks else tensor.clone()


# --- delegated ------------------------------------------------------------------------------


@check
def sizes_of_float32() -> None:
    for numel in (1, 3, 255, 256, 257, 100_003):
        parts = inputs(numel, torch.float32, seed=numel)
        tensor = parts[rank()].clone()
        with carries(float32=1):
            dist.all_reduce(tensor)
        assert_sum(tensor, parts)


@check
def sizes_of_int32() -> None:
    for numel in (1, 3, 255, 256, 257, 100_003):
        parts = inputs(numel, torch.int32, seed=numel)
        tensor = parts[rank()].clone()
        with carries(int32=1):
            dist.all_reduce(tensor)
        assert_sum(tensor, parts)


@check
def no_elements() -> None:
    for dtype, expected in ((torch.float32, {"float32": 1}), (torch.int32, {"int32": 1})):
        tensor = torch.empty(0, dtype=dtype)
        with carries(**expected):
            dist.all_reduce(tensor)
        assert tensor.numel() == 0


@check
def no_dimensions() -> None:
    tensor = torch.tensor(float(rank() + 1))
    with carries(float32=1):
        dist.all_reduce(tensor)
    assert tensor.item() == sum(range(1, size() + 1))


@check
def several_dimensions() -> None:
    tensor = torch.full((3, 4, 5), rank() + 1, dtype=torch.int32)
    with carries(int32=1):
        dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((3, 4, 5), sum(range(1, size() + 1)), dtype=torch.int32))


@check
def part_of_a_larger_tensor() -> None:
    whole = torch.ones(100, dtype=torch.int32)
    with carries(int32=1):
        dist.all_reduce(whole[10:20])
    assert whole[10:20].eq(size()).all()
    assert whole[:10].eq(1).all()
    assert whole[20:].eq(1).all()


@check
def strided_on_every_rank() -> None:
    whole = torch.ones(100, dtype=torch.int32)
    copied = torch_switchml.stats()["copied_jobs"]
    with carries(int32=1):
        dist.all_reduce(whole[::2])
    assert whole[::2].eq(size()).all()
    assert whole[1::2].eq(1).all()
    assert torch_switchml.stats()["copied_jobs"] == copied + 1


@check
def strided_on_one_rank_only() -> None:
    values = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    tensor = transpose_on({0}, values)
    assert tensor.is_contiguous() == (rank() != 0)
    with carries(float32=1):
        dist.all_reduce(tensor)
    assert torch.allclose(tensor, values * size(), rtol=1e-6)


@check
def strided_and_asynchronous() -> None:
    whole = torch.ones(100)
    with carries(float32=1):
        work = dist.all_reduce(whole[::2], async_op=True)
        assert work.wait()
    assert torch.allclose(whole[::2], torch.full((50,), float(size())))


@check
def leaf_with_gradient() -> None:
    for tensor in (torch.ones(8, requires_grad=True), torch.ones(4, 4, requires_grad=True)):
        view = tensor.detach() if tensor.dim() == 1 else tensor.detach().t()
        with carries(float32=1):
            dist.all_reduce(view)
        assert torch.allclose(tensor, torch.full_like(tensor, size()))


@check
def inference_tensor() -> None:
    with torch.inference_mode():
        whole = torch.ones(10)
    with carries(float32=1):
        dist.all_reduce(whole[::2])
    assert torch.allclose(whole[::2], torch.full((5,), float(size())))


@check
def complex_as_pairs() -> None:
    tensor = torch.full((5,), complex(rank(), 1))
    with carries(float32=1):
        dist.all_reduce(tensor)
    assert torch.allclose(tensor, torch.full((5,), complex(sum(range(size())), size())))


@check
def many_in_flight_in_order() -> None:
    tensors = [torch.full((1000 + index,), index, dtype=torch.int32) for index in range(50)]
    with carries(int32=50):
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in reversed(works):
            work.wait()
    for index, tensor in enumerate(tensors):
        assert tensor.eq(index * size()).all()


@check
def mixed_with_fallbacks_in_flight() -> None:
    kinds = [torch.float32, torch.float64, torch.int32, torch.int64]
    tensors = [torch.full((500,), 2, dtype=kinds[index % 4]) for index in range(40)]
    with carries(float32=10, int32=10, dtype=20):
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()
    assert all(tensor.eq(2 * size()).all() for tensor in tensors)


@check
def work_object() -> None:
    tensor = torch.ones(10)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert work.is_completed()
    assert work.is_success()
    assert work.exception() is None
    assert work.result()[0].data_ptr() == tensor.data_ptr()


@check
def futures() -> None:
    tensor = torch.ones(10)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    assert torch.allclose(future.wait()[0], torch.full((10,), float(size())))
    assert torch.allclose(doubled.wait(), torch.full((10,), 2.0 * size()))


@check
def allreduce_inside_a_callback() -> None:
    """As gradient compression hooks do: several callbacks each wait for one more allreduce."""

    def again(done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        tensor = done.value()[0]
        return dist.all_reduce(tensor, async_op=True).get_future().wait()[0]

    future = dist.all_reduce(torch.ones(10), async_op=True).get_future().then(again)
    assert torch.allclose(future.wait(), torch.full((10,), float(size() ** 2)))


@check
def sequence_numbers() -> None:
    group = dist.group.WORLD
    before = group._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    delegated = group._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1, dtype=torch.float64))
    assert delegated == before + 1
    assert group._get_sequence_number_for_group() == delegated + 1


@check
def profiler_names_the_transport() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(10))
        dist.all_reduce(torch.ones(10, dtype=torch.float64))
    names = {event.key for event in profile.key_averages()}
    assert {"switchml:all_reduce", "gloo:all_reduce"} <= names


# --- left to gloo ---------------------------------------------------------------------------


@check
def other_dtypes() -> None:
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
        tensor = torch.ones(10, dtype=dtype)
        with carries(dtype=1):
            dist.all_reduce(tensor)
        assert tensor.eq(size()).all()


@check
def other_operations() -> None:
    tensor = torch.full((4,), float(rank() + 1))
    for operation, expected in (
        (dist.ReduceOp.MAX, float(size())),
        (dist.ReduceOp.MIN, 1.0),
        (dist.ReduceOp.PRODUCT, float(torch.arange(1, size() + 1).prod())),
    ):
        result = tensor.clone()
        with carries(reduce_op=1):
            dist.all_reduce(result, op=operation)
        assert result.eq(expected).all()


@check
def average() -> None:
    """Newer PyTorch averages over gloo, older ones refuse: either way it is gloo's answer."""
    tensor = torch.full((4,), float(rank()))
    with carries(reduce_op=1):
        try:
            dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
        except RuntimeError as err:
            assert "AVG" in str(err)  # noqa: PT017 - which of the two happens is the version's choice
            return
    assert torch.allclose(tensor, torch.full((4,), (size() - 1) / 2))


@check
def sparse() -> None:
    tensor = torch.sparse_coo_tensor(torch.tensor([[rank()]]), torch.tensor([1.0]), (size(),))
    with carries(sparse=1):
        dist.all_reduce(tensor)
    assert tensor.to_dense().eq(1).all()


@check
def coalesced_list() -> None:
    tensors = [torch.ones(4), torch.ones(6)]
    with carries(several_tensors=1):
        dist.all_reduce_coalesced(tensors)
    assert all(tensor.eq(size()).all() for tensor in tensors)


@check
def coalescing_manager() -> None:
    tensors = [torch.ones(4), torch.ones(6)]
    with carries(several_tensors=1), dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert all(tensor.eq(size()).all() for tensor in tensors)


@check
def other_groups() -> None:
    everyone = dist.new_group(list(range(size())))
    alone = dist.new_group([0])
    with carries(group=1):
        tensor = torch.ones(10)
        dist.all_reduce(tensor, group=everyone)
    assert tensor.eq(size()).all()
    if rank() == 0:
        with carries(group=1):
            dist.all_reduce(torch.ones(10), group=alone)
    dist.destroy_process_group(everyone)
    with carries(float32=1):
        dist.all_reduce(torch.ones(10))


# --- everything else a group does -----------------------------------------------------------


@check
def other_collectives() -> None:
    mine = torch.full((4,), float(rank()))
    broadcast = mine.clone()
    dist.broadcast(broadcast, src=1)
    assert broadcast.eq(1).all()
    gathered = [torch.empty(4) for _ in range(size())]
    dist.all_gather(gathered, mine)
    assert all(tensor.eq(index).all() for index, tensor in enumerate(gathered))
    flat = torch.empty(4 * size())
    dist.all_gather_into_tensor(flat, mine)
    assert torch.equal(flat, torch.cat(gathered))
    reduced = mine.clone()
    dist.reduce(reduced, dst=0)
    assert rank() != 0 or reduced.eq(sum(range(size()))).all()
    part = torch.empty(1)
    dist.reduce_scatter_tensor(part, torch.arange(size(), dtype=torch.float32))
    assert part.item() == rank() * size()


@check
def gather_scatter_all_to_all() -> None:
    mine = torch.full((4,), float(rank()))
    collected = [torch.empty(4) for _ in range(size())] if rank() == 0 else None
    dist.gather(mine, collected, dst=0)
    assert collected is None or all(tensor.eq(index).all() for index, tensor in enumerate(collected))
    portion = torch.empty(2)
    dist.scatter(portion, [torch.full((2,), float(index)) for index in range(size())] if rank() == 0 else None, src=0)
    assert portion.eq(rank()).all()
    exchanged = torch.empty(size())
    dist.all_to_all_single(exchanged, torch.full((size(),), float(rank())))
    assert torch.equal(exchanged, torch.arange(size(), dtype=torch.float32))


@check
def point_to_point() -> None:
    tensor = torch.full((4,), float(rank()))
    if rank() == 0:
        dist.send(tensor, dst=1)
        dist.recv(tensor, src=1)
        assert tensor.eq(1).all()
    elif rank() == 1:
        other = torch.empty(4)
        dist.recv(other)
        dist.send(tensor, dst=0)
        assert other.eq(0).all()


@check
def object_collectives() -> None:
    objects: list[Any] = [None] * size()
    dist.all_gather_object(objects, {"rank": rank()})
    assert objects == [{"rank": index} for index in range(size())]
    shared = [f"from {rank()}"]
    dist.broadcast_object_list(shared, src=0)
    assert shared == ["from 0"]


@check
def barriers() -> None:
    dist.barrier()
    dist.monitored_barrier()
    dist.barrier(async_op=True).wait()


@check
def barrier_stands_for_allreduces_before_it() -> None:
    tensors = [torch.ones(20_000, dtype=torch.int32) for _ in range(10)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    barrier = dist.barrier(async_op=True)
    barrier.wait()
    assert all(tensor.eq(size()).all() for tensor in tensors)
    assert barrier.is_completed()
    for work in works:
        work.wait()


@check
def barrier_future() -> None:
    works = [dist.all_reduce(torch.ones(20_000), async_op=True) for _ in range(10)]
    dist.barrier(async_op=True).get_future().wait()
    for work in works:
        work.wait()


@check
def barrier_inside_a_callback() -> None:
    def meet(done: torch.futures.Future[list[torch.Tensor]]) -> list[torch.Tensor]:
        dist.barrier()
        return list(done.value())

    future = dist.all_reduce(torch.ones(10), async_op=True).get_future().then(meet)
    assert future.wait()[0].eq(size()).all()


@check
def functional_collectives() -> None:
    from torch.distributed import _functional_collectives as functional

    with carries(float32=1):
        result = functional.all_reduce(torch.ones(10), "sum", dist.group.WORLD)
        assert result.eq(size()).all()


@check
def device_mesh() -> None:
    mesh = init_device_mesh("cpu", (size(),))
    tensor = torch.ones(10)
    dist.all_reduce(tensor, group=mesh.get_group())
    assert tensor.eq(size()).all()


@check
def data_parallel_training() -> None:
    """Three steps over SwitchML end where three steps over gloo do, within the wire's precision."""
    over_gloo = dist.new_group(list(range(size())))
    with carries(group=3):
        expected = train(over_gloo)
    jobs = torch_switchml.stats()["delegated"]["float32"]["jobs"]
    result = train(None)
    assert torch_switchml.stats()["delegated"]["float32"]["jobs"] >= jobs + 3
    difference = max((left - right).abs().max().item() for left, right in zip(result, expected, strict=True))
    assert difference < 1e-6, difference
    dist.destroy_process_group(over_gloo)


def train(group: dist.ProcessGroup | None) -> list[torch.Tensor]:
    """The parameters after three steps; each rank learns from data of its own."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 5))
    parallel = DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank())
    for _ in range(3):
        batch = torch.randn(16, 20, generator=generator)
        optimizer.zero_grad()
        parallel(batch).square().mean().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


@check
def gradient_compression_hook() -> None:
    """PowerSGD waits for allreduces inside the callbacks of others."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    torch.manual_seed(7)
    model = torch.nn.Linear(64, 64)
    parallel = DistributedDataParallel(model)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    generator = torch.Generator().manual_seed(rank())
    for _ in range(4):
        parallel(torch.randn(8, 64, generator=generator)).square().mean().backward()
    gradients = [torch.empty_like(model.weight.grad) for _ in range(size())]
    dist.all_gather(gradients, model.weight.grad)
    assert all(torch.allclose(gradients[0], other) for other in gradients)


@check
def report_is_plain_json() -> None:
    report = torch_switchml.stats()
    assert json.loads(json.dumps(report)) == report
    assert report["active"]
    assert report["rank"] == rank()
    assert report["world_size"] == size()
    assert report["transport"]["jobs_completed"] == sum(row["jobs"] for row in report["delegated"].values())
    assert report["transport"]["elements_reduced"] == sum(row["elements"] for row in report["delegated"].values())
