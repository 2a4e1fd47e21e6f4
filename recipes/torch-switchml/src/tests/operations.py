# SPDX-License-Identifier: BSD-3-Clause
"""Checks of allreduces: those that are delegated, and those that are left to gloo."""

import torch
import torch.distributed as dist
from checks import assert_sum, carries, check, inputs, rank, size

import torch_switchml


def transpose_on(ranks: set[int], tensor: torch.Tensor) -> torch.Tensor:
    """The same values everywhere; on these ranks laid out in memory the other way."""
    return tensor.t().contiguous().t() if rank() in ranks else tensor.clone()


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
def tensors_whose_memory_is_let_go() -> None:
    """A job under way keeps it although its tensor gets other memory meanwhile; others get none of its numbers."""
    for dtype in (torch.float32, torch.bfloat16):
        for _ in range(5):
            tensor = torch.ones(1_000_000, dtype=dtype)
            work = dist.all_reduce(tensor, async_op=True)
            tensor.data = torch.zeros(3, dtype=dtype)
            other = torch.full((1_000_000,), 5, dtype=dtype)
            work.wait()
            assert other.eq(5).all()
            assert tensor.eq(0).all()


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
def profiler_sees_one_event_a_call() -> None:
    """Named as gloo's is, so that tools find it, and for people with who carried it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        dist.all_reduce(torch.ones(10))
        dist.all_reduce(torch.ones(10, dtype=torch.float64))
    events = [event for event in profile.events() if event.name.startswith("gloo:all_reduce")]
    assert sorted(event.name for event in events) == ["gloo:all_reduce", "gloo:all_reduce (switchml)"]
    assert all(event.is_async and event.input_shapes == [[10]] for event in events)


@check
def profiler_may_stop_as_soon_as_a_future_is_complete() -> None:
    """Some rounds, for the work may still be ending on a thread of its own."""
    for _ in range(50):
        with torch.autograd.profiler.profile() as profile:
            dist.all_reduce(torch.ones(10), async_op=True).get_future().wait()
        assert [event.name for event in profile.function_events].count("gloo:all_reduce (switchml)") == 1


@check
def dtypes_of_16_bits() -> None:
    """Summed in 32 bits and rounded once: nearer to the exact sum than gloo, which rounds each addition."""
    for dtype in (torch.float16, torch.bfloat16):
        parts = inputs(1003, dtype)
        tensor = parts[rank()].clone()
        copied = torch_switchml.stats()["copied_jobs"]
        with carries(float32=1):
            dist.all_reduce(tensor)
        assert tensor.dtype == dtype
        exact = torch.stack([part.double() for part in parts]).sum(dim=0)
        assert torch.allclose(tensor.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-6)
        assert torch_switchml.stats()["copied_jobs"] == copied + 1


@check
def average() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        tensor = torch.full((4,), float(rank()), dtype=dtype)
        with carries(float32=1):
            dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
        assert torch.allclose(tensor.float(), torch.full((4,), (size() - 1) / 2))


@check
def multiplied_before() -> None:
    for factor in (0.5, torch.tensor([0.5])):
        tensor = torch.full((4,), float(rank()))
        with carries(float32=1):
            dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(factor))
        assert torch.allclose(tensor, torch.full((4,), sum(range(size())) / 2))


@check
def coalesced_list() -> None:
    tensors = [torch.ones(4), torch.ones(6, 2).t(), torch.ones(0)]
    with carries(float32=1):
        dist.all_reduce_coalesced(tensors)
    assert all(tensor.eq(size()).all() for tensor in tensors)


@check
def coalesced_list_of_different_magnitudes() -> None:
    """Each tensor is as exact as if it were reduced alone: none shares a packet's exponent with another."""
    values = (1e8, 1e-3, float("inf"), 1.0)
    tensors = [torch.full((5,), value) for value in values]
    with carries(float32=1):
        dist.all_reduce_coalesced(tensors)
    for tensor, value in zip(tensors, values, strict=True):
        assert value == float("inf") or torch.allclose(tensor, torch.full((5,), size() * value))


@check
def coalescing_manager() -> None:
    tensors = [torch.ones(4, dtype=torch.int32), torch.ones(6, dtype=torch.int32)]
    with carries(int32=1), dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert all(tensor.eq(size()).all() for tensor in tensors)


# --- left to gloo ---------------------------------------------------------------------------


@check
def other_dtypes() -> None:
    for dtype in (torch.float64, torch.int64, torch.uint8):
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
def sparse() -> None:
    tensor = torch.sparse_coo_tensor(torch.tensor([[rank()]]), torch.tensor([1.0]), (size(),))
    with carries(sparse=1):
        dist.all_reduce(tensor)
    assert tensor.to_dense().eq(1).all()


@check
def coalesced_list_of_float64() -> None:
    tensors = [torch.ones(4, dtype=torch.float64), torch.ones(6, dtype=torch.float64)]
    with carries(dtype=1):
        dist.all_reduce_coalesced(tensors)
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
