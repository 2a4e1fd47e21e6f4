# SPDX-License-Identifier: BSD-3-Clause
"""Checks of each collective: types, operations, shapes, errors."""

import operator
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any

import torch
import torch.distributed as dist
from checks import FLOATS, INTEGERS, calls, carries, check, error_of, everybodys, mine, rank, size
from torch.distributed import _functional_collectives as functional
from torch.utils._python_dispatch import TorchDispatchMode


@check
def allreduces_of_every_type() -> None:
    for dtype in (*INTEGERS, *FLOATS, torch.complex64, torch.complex128):
        for numel in (0, 1, 7, 40_001):
            tensor = mine(numel, dtype)
            with carries("all_reduce"):
                dist.all_reduce(tensor)
            assert torch.equal(tensor, torch.stack(everybodys(numel, dtype)).sum(0).to(dtype)), (dtype, numel)


@check
def operations_of_numbers() -> None:
    for dtype in (torch.int32, torch.uint8, *FLOATS):
        parts = torch.stack(everybodys(9, dtype)).remainder(2) + 1  # whose products are exact in every type
        results = {
            dist.ReduceOp.PRODUCT: parts.double().prod(0).to(dtype),
            dist.ReduceOp.MIN: parts.amin(0),
            dist.ReduceOp.MAX: parts.amax(0),
        }
        for op, expected in results.items():
            tensor = parts[rank()].clone()
            dist.all_reduce(tensor, op=op)
            assert torch.equal(tensor, expected), (dtype, op)


WITHOUT_SIGN = (torch.uint16, torch.uint32, torch.uint64)  # beside uint8


@check
def integers_wrap_around_and_compare_as_pytorchs_do() -> None:
    """Every pair of values at the ends of the type, in both orders of two ranks; in numbers that Python adds up."""
    operations: list[tuple[dist.ReduceOp, Callable[[int, int], int]]] = [
        (dist.ReduceOp.SUM, operator.add),
        (dist.ReduceOp.PRODUCT, operator.mul),
        (dist.ReduceOp.MAX, max),
        (dist.ReduceOp.MIN, min),
        (dist.ReduceOp.BAND, operator.and_),
        (dist.ReduceOp.BOR, operator.or_),
        (dist.ReduceOp.BXOR, operator.xor),
    ]
    for dtype in (*INTEGERS, *WITHOUT_SIGN):
        least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        values = [0, 1, 3, most, most - 1, most // 2 + 1, least, least // 2 + 1, most // 2]
        pairs = [(first, second) for first in range(len(values)) for second in range(len(values))]
        columns = [[values[(first * one + second) % len(values)] for first, second in pairs] for one in range(size())]
        for op, function in operations:
            exact = [reduce(function, row) for row in zip(*columns, strict=True)]
            expected = [(number - least) % (most - least + 1) + least for number in exact]
            tensor = torch.tensor(columns[rank()], dtype=dtype)
            dist.all_reduce(tensor, op=op)
            assert tensor.tolist() == expected, (dtype, op)
            own = torch.tensor(columns[rank()] * size(), dtype=dtype)
            part = torch.zeros(len(pairs), dtype=dtype)
            dist.reduce_scatter_tensor(part, own, op=op)
            assert part.tolist() == expected, (dtype, op)
            dist.reduce(own, dst=0, op=op)
            assert own.tolist() == (expected if rank() == 0 else columns[rank()]) * size(), (dtype, op)


@check
def operations_of_bits() -> None:
    values = [torch.tensor([5 + one, 3 * one, -one]) for one in range(size())]
    for op, function in (
        (dist.ReduceOp.BAND, torch.bitwise_and),
        (dist.ReduceOp.BOR, torch.bitwise_or),
        (dist.ReduceOp.BXOR, torch.bitwise_xor),
    ):
        expected = values[0]
        for value in values[1:]:
            expected = function(expected, value)
        tensor = values[rank()].clone()
        dist.all_reduce(tensor, op=op)
        assert torch.equal(tensor, expected), op


@check
def truth_values() -> None:
    """A sum of them is whether one is true, as of numbers that are converted back."""
    columns = [[True, one == 0, one == size() - 1, False] * size() for one in range(size())]
    for op, function in (
        (dist.ReduceOp.SUM, operator.or_),
        (dist.ReduceOp.PRODUCT, operator.and_),
        (dist.ReduceOp.MAX, operator.or_),
        (dist.ReduceOp.MIN, operator.and_),
        (dist.ReduceOp.BAND, operator.and_),
        (dist.ReduceOp.BOR, operator.or_),
        (dist.ReduceOp.BXOR, operator.xor),
    ):
        expected = [reduce(function, row) for row in zip(*columns, strict=True)]
        tensor = torch.tensor(columns[rank()])
        dist.all_reduce(tensor, op=op)
        assert tensor.tolist() == expected, op
        part = torch.zeros(4, dtype=torch.bool)
        dist.reduce_scatter_tensor(part, torch.tensor(columns[rank()]), op=op)
        assert part.tolist() == expected[:4], op
    for op in (dist.ReduceOp.AVG, dist._make_nccl_premul_sum(0.5)):
        assert "MPI cannot reduce Bool tensors" in error_of(partial(dist.all_reduce, torch.tensor([True]), op=op))


@check
def averages_and_factors() -> None:
    mean = sum(range(size())) / size()
    for dtype in (torch.float32, torch.bfloat16):
        tensor = torch.full((5,), float(rank()), dtype=dtype)
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
        assert torch.equal(tensor, torch.full((5,), mean, dtype=dtype))
    for factor in (0.5, torch.tensor(0.5), torch.tensor([0.5])):
        for shape in ((), (5,), (2, 3)):
            tensor = torch.full(shape, float(rank()))
            dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(factor))
            assert tensor.shape == shape
            assert tensor.eq(0.5 * sum(range(size()))).all()


@check
def means_of_large_numbers() -> None:
    """PyTorch divides before it adds: no sum becomes infinite whose mean is none. What is only read stays as it was."""
    for dtype in FLOATS:
        most = torch.finfo(dtype).max / 4 * 3  # of which two are infinite
        for op in (dist.ReduceOp.AVG, dist._make_nccl_premul_sum(1 / size())):
            own = torch.full((size(),), most, dtype=dtype)
            tensor, part = own.clone(), torch.zeros(1, dtype=dtype)
            dist.all_reduce(tensor, op=op)
            dist.reduce_scatter_tensor(part, own, op=op)
            read = own.clone()
            dist.reduce(own, dst=0, op=op)
            for found in (tensor, part, read, own):
                wrong = found.double() / most - 1
                assert wrong.abs().le(4 * torch.finfo(dtype).eps).all(), (dtype, found)
        infinite = torch.tensor([float("inf"), float("inf") if rank() else -float("inf"), 1.0], dtype=dtype)
        dist.all_reduce(infinite, op=dist.ReduceOp.AVG)
        assert infinite[:2].isinf().tolist() == [True, False], infinite
        assert infinite[1].isnan(), infinite


@check
def products_of_complex_numbers() -> None:
    """As torch.prod has them, also of infinities, in which C's rules find other parts."""
    parts = [0.0, -1.5, 2.0, float("inf"), float("nan")]
    numbers = [complex(real, imaginary) for real in parts for imaginary in parts]
    pairs = [(first, second) for first in numbers for second in numbers]
    for dtype in (torch.complex64, torch.complex128):
        columns = [torch.tensor([pair[one] if one < 2 else 1 for pair in pairs], dtype=dtype) for one in range(size())]
        expected = torch.view_as_real(reduce(torch.mul, columns))
        tensor = columns[rank()].clone()
        dist.reduce(tensor, dst=0, op=dist.ReduceOp.PRODUCT)
        if rank() == 0:
            found = torch.view_as_real(tensor)
            wrong = ~((found == expected) | (found.isnan() & expected.isnan()))
            assert not wrong.any(), (dtype, [pairs[int(at)] for at in wrong.any(1).nonzero().flatten()[:5]])


@check
def tensors_of_inference_mode() -> None:
    """Whichever thread ends the call, which the mode does not reach."""
    with torch.inference_mode():
        mean, strided = torch.full((5,), float(rank())), torch.ones(5, 2)[:, 0]
        parts = [torch.empty(3) for _ in range(size())]
        works = [
            dist.all_reduce(mean, op=dist.ReduceOp.AVG, async_op=True),
            dist.all_reduce(strided, async_op=True),
            dist.all_gather(parts, torch.full((3,), float(rank())), async_op=True),
        ]
    while not all(work.is_completed() for work in works):
        time.sleep(0.001)
    for work in works:
        work.wait()
    assert mean.eq(sum(range(size())) / size()).all()
    assert strided.eq(size()).all()
    assert all(part.eq(one).all() for one, part in enumerate(parts))


@check
def coalesced_tensors_that_share_memory() -> None:
    """Each gets the sum of what was there, as of those that are apart: MPI itself takes no two over one memory."""
    for first, second in (
        (slice(None), slice(None)),
        (slice(60_000), slice(40_000, None)),
        (slice(0, None, 2), slice(None)),
    ):
        tensor = torch.ones(100_000, dtype=torch.int32)
        dist.all_reduce_coalesced([tensor[first], tensor[second]])
        assert tensor.eq(size()).all()


@check
def coalesced_pairs_that_share_memory() -> None:
    """As if all inputs had been read before any output is written."""
    first, second, third = (torch.ones(size() * 30_000) for _ in range(3))
    with dist._coalescing_manager():
        dist.all_gather_into_tensor(first, torch.zeros(30_000))
        dist.all_gather_into_tensor(second, first[:30_000])
    assert first.eq(0).all()
    assert second.eq(1).all()
    with dist._coalescing_manager():
        dist.reduce_scatter_tensor(second[:30_000], third)
        dist.reduce_scatter_tensor(first[:30_000], second)
    assert second[:30_000].eq(size()).all()
    assert first[:30_000].eq(size()).all()


@check
def tensors_whose_memory_is_let_go() -> None:
    """A call under way keeps it although its tensor gets other memory meanwhile; others get none of its numbers."""
    for _ in range(5):
        tensor = torch.ones(1_000_000)
        work = dist.all_reduce(tensor, async_op=True)
        tensor.data = torch.zeros(3)
        other = torch.full((1_000_000,), 5.0)
        work.wait()
        assert other.eq(5).all()


@check
def lists_of_several_types() -> None:
    """PyTorch's own functions refuse them; who calls the backend itself must not get other numbers."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    mixed = [torch.ones(4, dtype=torch.float64 if one == size() - 1 else torch.float32) for one in range(size())]
    doubles = [part.double() for part in mixed]
    outputs = [torch.zeros(4) for _ in range(size())]
    for action in (
        lambda: backend.reduce_scatter([outputs[0]], [mixed]),
        lambda: backend.reduce_scatter([outputs[0]], [doubles]),
        lambda: backend.alltoall(outputs, mixed),
    ):
        assert "tensors of one type, got" in error_of(action)


@check
def nan_is_not_lost() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        tensor = torch.tensor([float("nan") if rank() == 0 else 1.0, float("inf"), 1.0], dtype=dtype)
        dist.all_reduce(tensor)
        assert tensor.isnan().tolist() == [True, False, False]
        assert tensor.isinf().tolist() == [False, True, False]


BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(BITS[tensor.element_size()])


def hard_parts(numel: int, dtype: torch.dtype, op: dist.ReduceOp) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Each rank's values of which maximum or minimum is not the same in every order, and what they come to.

    In turn, each rank has the one NaN, beside numbers and beside infinities, and the one zero of its sign.
    """
    place = torch.arange(numel)
    kind, chosen = place % 6, place // 6 % size()
    nan, inf, zero = torch.tensor(float("nan")), torch.tensor(float("inf")), torch.tensor(0.0)
    parts = []
    for one in range(size()):
        is_mine = chosen == one
        part = torch.where(is_mine, nan, torch.tensor(float(one)))
        part = torch.where(kind == 1, nan, part)
        part = torch.where(kind == 2, torch.where(is_mine, nan, torch.where(chosen % 2 == 0, inf, -inf)), part)
        part = torch.where(kind == 3, torch.where(is_mine, -zero, zero), part)
        part = torch.where(kind == 4, torch.where(is_mine, zero, -zero), part)
        part = torch.where(kind == 5, torch.where(is_mine, -inf, place.float() - 2.0 * one), part)
        parts.append(part.to(dtype))
    both = torch.stack(parts)
    result = both.amax(0) if op == dist.ReduceOp.MAX else both.amin(0)
    negative = both.signbit().all(0) if op == dist.ReduceOp.MAX else both.signbit().any(0)
    return parts, torch.where(result == 0, torch.where(negative, -zero, zero).to(dtype), result)


def is_extreme(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """NaN where it is expected, and else the same bits."""
    is_nan = expected.isnan()
    return bool(torch.equal(found.isnan(), is_nan) and torch.equal(bits(found)[~is_nan], bits(expected)[~is_nan]))


def of_all_ranks(tensor: torch.Tensor) -> bool:
    """Whether all ranks have the same bits."""
    everybody = [torch.empty_like(bits(tensor)) for _ in range(size())]
    dist.all_gather(everybody, bits(tensor))
    return all(torch.equal(other, bits(tensor)) for other in everybody)


EXTREMES = [(dtype, op) for dtype in FLOATS for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN)]


@check
def extremes_with_nan_and_zeros_of_both_signs_are_the_same_on_all_ranks() -> None:
    for dtype, op in EXTREMES:
        for numel in (0, 1, 7, 36, 40_001):
            parts, expected = hard_parts(numel, dtype, op)
            tensor = parts[rank()].clone()
            dist.all_reduce(tensor, op=op)
            assert is_extreme(tensor, expected), (dtype, op, numel)
            assert of_all_ranks(tensor), (dtype, op, numel)
            strided = torch.zeros(numel, 2, dtype=dtype)
            strided[:, 1] = parts[rank()]
            dist.all_reduce(strided[:, 1], op=op, async_op=True).wait()
            assert is_extreme(strided[:, 1].contiguous(), expected), (dtype, op, numel)
            assert not strided[:, 0].any()


@check
def extremes_that_one_rank_gets_have_the_nan_of_any() -> None:
    for dtype, op in EXTREMES:
        parts, expected = hard_parts(601, dtype, op)
        for root in range(size()):
            tensor = parts[rank()].clone()
            dist.reduce(tensor, dst=root, op=op)
            assert is_extreme(tensor, expected if rank() == root else parts[rank()]), (dtype, op, root)


@check
def extremes_that_are_scattered_have_the_nan_of_any() -> None:
    for dtype, op in EXTREMES:
        parts, expected = hard_parts(600 * size(), dtype, op)
        own = expected.chunk(size())[rank()]
        out = torch.empty(600, dtype=dtype)
        dist.reduce_scatter_tensor(out, parts[rank()].clone(), op=op)
        assert is_extreme(out, own), (dtype, op)
        whole = parts[rank()].clone()
        within = whole.chunk(size())[rank()]
        dist.reduce_scatter_tensor(within, whole, op=op)
        assert is_extreme(within, own), (dtype, op)
        dist.reduce_scatter(out.zero_(), list(parts[rank()].clone().chunk(size())), op=op)
        assert is_extreme(out, own), (dtype, op)
        rows = list(range(1, size() + 1))  # of rank N so many
        uneven, expected = hard_parts(sum(rows), dtype, op)
        out = torch.empty(rank() + 1, dtype=dtype)
        dist.reduce_scatter(out, list(uneven[rank()].split(rows)), op=op)
        assert is_extreme(out, expected.split(rows)[rank()]), (dtype, op)


@check
def extremes_of_coalesced_and_functional_forms_have_the_nan_of_any() -> None:
    group = dist.group.WORLD
    for dtype, op in EXTREMES:
        word = "max" if op == dist.ReduceOp.MAX else "min"
        both = [hard_parts(numel, dtype, op) for numel in (13 * size(), 240 * size())]
        given = [parts[rank()] for parts, _ in both]
        tensors = [tensor.clone() for tensor in given]
        dist.all_reduce_coalesced(tensors, op=op)
        found = [tensors, functional.all_reduce_coalesced(given, word, group)]
        found.append([functional.all_reduce(tensor, word, group) for tensor in given])
        managed = [tensor.clone() for tensor in given]
        with dist._coalescing_manager(async_ops=True) as manager:
            for tensor in managed:
                dist.all_reduce(tensor, op=op)
        manager.wait()
        found.append(managed)
        for results in found:
            for result, (_, expected) in zip(results, both, strict=True):
                assert is_extreme(result.clone(), expected), (dtype, op)
                assert of_all_ranks(result.clone()), (dtype, op)
        scattered = functional.reduce_scatter_tensor_coalesced(given, word, [0, 0], group)
        for result, (_, expected) in zip(scattered, both, strict=True):
            assert is_extreme(result.clone(), expected.chunk(size())[rank()]), (dtype, op)


@check
def extremes_of_complex_numbers_are_refused() -> None:
    for dtype in (torch.complex64, torch.complex128):
        for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN):
            assert "complex" in error_of(partial(dist.all_reduce, torch.zeros(3, dtype=dtype), op=op)).lower()


@check
def what_mpi_cannot_reduce() -> None:
    for dtype, op, named in (
        (torch.float32, dist.ReduceOp.BOR, "BOR"),
        (torch.int32, dist.ReduceOp.AVG, "AVG"),
        (torch.float8_e5m2, dist.ReduceOp.SUM, "SUM"),
    ):
        assert f"with {named}" in error_of(partial(dist.all_reduce, torch.zeros(3, dtype=dtype), op=op))


@check
def tensors_that_are_not_contiguous() -> None:
    whole = torch.zeros(6, 4)
    whole.t()[1].copy_(mine(6))
    dist.all_reduce(whole.t()[1])
    assert torch.equal(whole[:, 1], torch.stack(everybodys(6)).sum(0))
    assert whole[:, 0].eq(0).all()


@check
def several_in_flight() -> None:
    tensors = [mine(1000 * (one + 1)) for one in range(8)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work, tensor in reversed(list(zip(works, tensors, strict=True))):
        work.wait()
        assert torch.equal(tensor, torch.stack(everybodys(tensor.numel())).sum(0))
        assert work.is_completed()
        assert work.is_success()


@check
def barrier_stands_for_what_came_before() -> None:
    works = [dist.all_reduce(mine(100_000), async_op=True) for _ in range(4)]
    dist.barrier()
    assert all(work.is_completed() for work in works)


@check
def moves_of_every_type() -> None:
    for dtype in (*INTEGERS, *FLOATS, torch.bool, torch.complex128, torch.float8_e5m2):
        tensor = mine(7, torch.float32).to(dtype)
        root = torch.arange(7).remainder(5).float().add(size() - 1).to(dtype)
        with carries("broadcast"):
            dist.broadcast(tensor, src=size() - 1)
        assert torch.equal(tensor.view(torch.uint8), root.view(torch.uint8)), dtype


@check
def reduce_to_one() -> None:
    tensor = mine(5)
    dist.reduce(tensor, dst=1)
    assert torch.equal(tensor, torch.stack(everybodys(5)).sum(0) if rank() == 1 else mine(5))


@check
def gathers() -> None:
    parts = [torch.empty(7) for _ in range(size())]
    with carries("all_gather", 3):
        dist.all_gather(parts, mine())
        flat = torch.empty(7 * size())
        dist.all_gather_into_tensor(flat, mine())
        uneven = [torch.empty(one + 1) for one in range(size())]
        dist.all_gather(uneven, mine(rank() + 1))
    assert all(torch.equal(found, right) for found, right in zip(parts, everybodys(), strict=True))
    assert torch.equal(flat, torch.cat(everybodys()))
    assert all(torch.equal(found, everybodys(one + 1)[one]) for one, found in enumerate(uneven))
    collected = [torch.empty(7) for _ in range(size())] if rank() == 0 else None
    dist.gather(mine(), collected, dst=0)
    assert collected is None or all(torch.equal(*pair) for pair in zip(collected, everybodys(), strict=True))


@check
def gathering_into_what_holds_the_part() -> None:
    flat = torch.zeros(4 * size())
    part = flat[4 * rank() : 4 * rank() + 4]
    part.fill_(rank())
    dist.all_gather_into_tensor(flat, part)
    assert torch.equal(flat, torch.arange(size()).float().repeat_interleave(4))
    whole = torch.arange(3 * size()).float()
    dist.reduce_scatter_tensor(whole[3 * rank() : 3 * rank() + 3], whole)
    assert torch.equal(whole[3 * rank() : 3 * rank() + 3], size() * torch.arange(3 * rank(), 3 * rank() + 3).float())


@check
def scatters() -> None:
    part = torch.empty(2)
    dist.scatter(part, [torch.full((2,), float(one)) for one in range(size())] if rank() == 0 else None, src=0)
    assert part.eq(rank()).all()
    with carries("reduce_scatter", 3):
        for dtype in (torch.float32, torch.bfloat16):
            out = torch.empty(2, dtype=dtype)
            dist.reduce_scatter_tensor(out, torch.arange(2 * size()).to(dtype))
            assert torch.equal(out, (size() * torch.arange(2 * rank(), 2 * rank() + 2)).to(dtype))
        uneven = torch.empty(rank() + 1)
        dist.reduce_scatter(uneven, [torch.full((one + 1,), float(one)) for one in range(size())])
        assert uneven.eq(size() * rank()).all()


@check
def exchanges() -> None:
    out = torch.empty(size())
    dist.all_to_all_single(out, torch.full((size(),), float(rank())))
    assert torch.equal(out, torch.arange(size()).float())
    rows = [one + 1 for one in range(size())]  # each rank gives rank N so many rows
    given = torch.arange(sum(rows)).float().add(100 * rank()).unsqueeze(1).repeat(1, 2)
    taken = torch.empty((rank() + 1) * size(), 2)
    dist.all_to_all_single(taken, given, [rank() + 1] * size(), rows)
    start = sum(rows[: rank()])
    expected = torch.cat([torch.arange(start, start + rank() + 1).float() + 100 * one for one in range(size())])
    assert torch.equal(taken, expected.unsqueeze(1).repeat(1, 2))
    lists = [torch.empty(one + rank()) for one in range(size())]
    dist.all_to_all(lists, [torch.full((rank() + one,), float(rank())) for one in range(size())])
    assert all(part.eq(one).all() for one, part in enumerate(lists))


@check
def exchanges_of_one_size_alone_need_no_split_sizes() -> None:
    """Nothing is written beyond a tensor that is too short for what comes."""
    memory = torch.zeros(5 * size())
    said = error_of(lambda: dist.all_to_all_single(memory[: size()], torch.ones(5 * size())))
    assert f"all_to_all_single of {5 * size()} elements into {size()}" in said
    assert memory.eq(0).all()


@check
def messages() -> None:
    following, before = (rank() + 1) % size(), (rank() - 1) % size()
    received = torch.empty(7)
    ops = [dist.P2POp(dist.isend, mine(), following), dist.P2POp(dist.irecv, received, before)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert torch.equal(received, everybodys()[before])
    if rank() == 0:
        senders = set()
        for _ in range(size() - 1):
            senders.add(dist.recv(received, tag=4))
            assert torch.equal(received, everybodys()[max(senders)]) or len(senders) > 1
        assert senders == set(range(1, size()))
    else:
        dist.send(mine(), dst=0, tag=4)


@check
def a_message_of_another_size() -> None:
    if rank() == 0:
        dist.send(torch.ones(3), dst=1)
    elif rank() == 1:
        assert "got 3 elements from rank 0" in error_of(lambda: dist.recv(torch.empty(5), src=0))
    if rank() == 0:
        dist.send(torch.ones(3), dst=1)
    elif rank() == 1:
        assert "truncated" in error_of(lambda: dist.recv(torch.empty(2), src=0))


@check
def objects() -> None:
    everything: list[Any] = [None] * size()
    dist.all_gather_object(everything, {"rank": rank()})
    assert everything == [{"rank": one} for one in range(size())]
    shared = [f"from {rank()}"]
    dist.broadcast_object_list(shared, src=1)
    assert shared == ["from 1"]
    out: list[Any] = [None]
    dist.scatter_object_list(out, [f"for {one}" for one in range(size())] if rank() == 0 else None, src=0)
    assert out == [f"for {rank()}"]


@check
def coalesced_and_functional_forms() -> None:
    group = dist.group.WORLD
    results = functional.all_reduce_coalesced([mine(3), mine(4)], "sum", group)
    assert [one.tolist() for one in results] == [torch.stack(everybodys(n)).sum(0).tolist() for n in (3, 4)]
    parts = functional.all_gather_into_tensor_coalesced([mine(2), mine(3)], group)
    assert torch.equal(parts[1], torch.cat(everybodys(3)))
    scattered = functional.reduce_scatter_tensor_coalesced(
        [torch.ones(size()), torch.ones(2 * size())], "sum", [0, 0], group
    )
    assert [one.tolist() for one in scattered] == [[size()], [size()] * 2]
    assert torch.equal(functional.all_gather_tensor(mine(2), 0, group), torch.cat(everybodys(2)))
    tensors = [mine(3), mine(4)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    assert torch.equal(tensors[1], torch.stack(everybodys(4)).sum(0))


@contextmanager
def few_elements_a_call(*, use_large_calls: bool) -> Iterator[None]:
    """MPI's int calls take two elements at most: what is above 2^31-1 otherwise, and fits into no machine's memory."""
    from torch_mpi import _C

    _C.limit_calls(2, use_large_calls)
    try:
        yield
    finally:
        _C.limit_calls(2**31 - 1, use_large_calls=True)


@check
def more_elements_than_an_int_counts() -> None:
    """By the calls that MPI 4 has for them."""
    import torch_mpi

    if torch_mpi.stats()["library"]["standard"] < 400:
        return
    with few_elements_a_call(use_large_calls=True):
        allreduces_of_every_type()
        extremes_that_one_rank_gets_have_the_nan_of_any()
        extremes_that_are_scattered_have_the_nan_of_any()
        reduce_to_one()
        gathers()
        scatters()
        exchanges()
        messages()
        moves_of_every_type()


@check
def more_elements_than_an_int_counts_without_mpi_4() -> None:
    """In several calls, or refused, on all ranks alike."""
    with few_elements_a_call(use_large_calls=False):
        for numel in (3, 4, 7):
            for dtype in (torch.int8, torch.bfloat16, torch.float64):
                tensor = mine(numel, dtype)
                dist.all_reduce(tensor)
                assert torch.equal(tensor, torch.stack(everybodys(numel, dtype)).sum(0).to(dtype)), (dtype, numel)
        reduce_to_one()
        moves_of_every_type()
        refused = error_of(lambda: dist.all_gather_into_tensor(torch.empty(7 * size()), mine()))
        assert "7 elements in one call: this MPI library takes 2 at most, for it has no MPI_Iallgather_c" in refused


@check
def what_is_begun_in_part_fails_the_group() -> None:
    """MPI goes on with the first tensor, of which the group's ranks might not all be at the same call."""
    group = dist.new_group()
    tensors = [mine(2), mine(7)]
    with few_elements_a_call(use_large_calls=False):
        refused = error_of(lambda: functional.all_gather_into_tensor_coalesced(tensors, group))
    assert "7 elements in one call" in refused
    assert "was begun in part: " in error_of(lambda: dist.all_reduce(mine(), group=group))


@check
def modes_of_the_waiting_thread_see_nothing_of_mpis_sums() -> None:
    seen: list[str] = []

    class Note(TorchDispatchMode):  # type: ignore[misc]  # torch is not there to check
        def __torch_dispatch__(
            self, function: Callable[..., object], types: object, args: tuple[object, ...], kwargs: object
        ) -> object:
            seen.append(str(function))
            return function(*args)

    tensor = torch.ones(3, dtype=torch.bfloat16)
    with Note():
        dist.all_reduce(tensor)
    assert seen == ["c10d.allreduce_.default"]
    assert tensor.eq(size()).all()


@check
def the_profiler_sees_each_call() -> None:
    before = calls("all_reduce")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        dist.all_reduce(mine())
        dist.all_reduce(mine(), async_op=True).wait()
    seen = {event.key: event.count for event in profiler.key_averages()}
    assert seen["mpi:all_reduce"] == calls("all_reduce") - before == 2


@check
def coalesced_calls_are_one_event_and_one_call() -> None:
    """With tensors of different sizes among them, and strided ones."""
    group = dist.group.WORLD
    strided = torch.zeros(4, 2 * size()).t()[::2]
    lists = [[torch.empty(3), torch.empty(4), torch.empty(size(), 4)] for _ in range(size())]
    forms: dict[str, Callable[[], object]] = {
        "all_reduce_coalesced": lambda: dist.all_reduce_coalesced([mine(3), mine(4)]),
        "all_gather_coalesced": lambda: dist.all_gather_coalesced(lists, [mine(3), mine(4), strided + rank()]),
        "reduce_scatter_coalesced": lambda: [
            part.tolist()  # which waits
            for part in functional.reduce_scatter_tensor_coalesced([mine(size()), mine(size())], "sum", [0, 0], group)
        ],
    }
    for name, call in forms.items():
        before = calls(name)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            call()
        seen = {event.key: event.count for event in profiler.key_averages() if event.key.startswith("mpi:")}
        assert seen == {f"mpi:{name}": 1}, seen
        assert calls(name) - before == 1
    for number, (short, longer, table) in enumerate(lists):
        assert torch.equal(short, everybodys(3)[number])
        assert torch.equal(longer, everybodys(4)[number])
        assert table.eq(number).all()
    too_few = [[torch.empty(3)] for _ in range(size())]
    refused = error_of(lambda: dist.all_gather_coalesced(too_few, [mine(3), mine(4)]))
    assert "as many outputs of each rank as inputs, got 1 and 2" in refused


@check
def the_profiler_tells_messages_and_their_shapes() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        if rank() == 0:
            for sender in range(1, size()):
                dist.recv(torch.empty(7), src=sender, tag=5)
                dist.recv(torch.empty(7), tag=6)
        else:
            dist.send(mine(), dst=0, tag=5)
            dist.send(mine(), dst=0, tag=6)
    seen = sorted((event.name, event.input_shapes) for event in profiler.events() if event.name.startswith("mpi:"))
    of_receiver = [("mpi:recv", [[7]])] * (size() - 1) + [("mpi:recvAnySource", [[7]])] * (size() - 1)
    assert seen == (of_receiver if rank() == 0 else [("mpi:send", [[7]])] * 2)


@check
def the_profiler_may_stop_as_soon_as_a_future_is_complete() -> None:
    """Some rounds, for the work may still be ending on a thread of its own."""
    for _ in range(100):
        with torch.autograd.profiler.profile() as profiler:
            dist.all_reduce(mine(), async_op=True).get_future().wait()
        assert [event.name for event in profiler.function_events].count("mpi:all_reduce") == 1
