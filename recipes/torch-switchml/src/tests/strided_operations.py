# SPDX-License-Identifier: BSD-3-Clause
"""Checks of tensors whose elements do not lie one after the other, in every call that is left to gloo.

Each result is compared with that of contiguous tensors of the same values, and what lies between the elements has to
stay as it was. The tensors are strided on all ranks, or on one: then the ranks have to agree on the order of elements.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from checks import carries, check, rank, size

FILLER = 99
REDUCED = (torch.float64, torch.int64, torch.uint8)
MOVED = (*REDUCED, torch.bfloat16)

Layout = Callable[[torch.Tensor], torch.Tensor]
Call = Callable[[Layout, torch.dtype], list[torch.Tensor]]
"""Makes its tensors with the layout, and gives those that the collective wrote on this rank."""


def contiguous(values: torch.Tensor) -> torch.Tensor:
    return values.clone()


def transposed(values: torch.Tensor) -> torch.Tensor:
    return values.t().contiguous().t()


def every_other(values: torch.Tensor) -> torch.Tensor:
    whole = torch.full((2 * values.shape[0], 3 * values.shape[1]), FILLER).to(values.dtype)
    return whole[::2, ::3].copy_(values)


def some_columns(values: torch.Tensor) -> torch.Tensor:
    whole = torch.full((values.shape[0], values.shape[1] + 4), FILLER).to(values.dtype)
    return whole[:, 1:-3].copy_(values)


def flipped_dimensions(values: torch.Tensor) -> torch.Tensor:
    """Of four, as a model's tensors of images are."""
    images = values.view(values.shape[0] // 6, 3, 2, values.shape[1])
    return images.contiguous(memory_format=torch.channels_last)


STRIDED = (transposed, every_other, some_columns, flipped_dimensions)


def values_of(number: int, dtype: torch.dtype, *, rows: int = 0) -> torch.Tensor:
    """What rank `number` brings: as many rows as can be split among all ranks and laid out in each way."""
    rows = rows or 6 * size()
    return ((torch.arange(rows * 4) * (number + 1)) % 11 % (2 if dtype is torch.bool else 11)).view(rows, 4).to(dtype)


def compare(call: Call, dtypes: tuple[torch.dtype, ...]) -> None:
    for dtype in dtypes:
        expected = call(contiguous, dtype)
        for layout in STRIDED:
            for ranks in ({0}, set(range(size()))):
                results = call(layout if rank() in ranks else contiguous, dtype)
                for result, value in zip(results, expected, strict=True):
                    assert torch.equal(result.reshape(value.shape), value), (dtype, layout.__name__, ranks)
                    assert_gaps_kept(result)


def assert_gaps_kept(tensor: torch.Tensor) -> None:
    whole = tensor._base
    if whole is None or whole.numel() == tensor.numel():
        return
    between = torch.ones(whole.shape, dtype=torch.bool)
    between.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset()).zero_()
    assert torch.equal(whole[between], torch.full((int(between.sum()),), FILLER).to(whole.dtype))


def empty(layout: Layout, dtype: torch.dtype, *, rows: int = 0) -> torch.Tensor:
    return layout(torch.zeros_like(values_of(0, dtype, rows=rows)))


@check
def strided_sums_and_maxima_of_gloo() -> None:
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):

        def call(layout: Layout, dtype: torch.dtype, op: dist.ReduceOp.RedOpType = op) -> list[torch.Tensor]:
            tensor = layout(values_of(rank(), dtype))
            dist.all_reduce(tensor, op=op)
            return [tensor]

        compare(call, REDUCED)
    compare(call, (torch.float32, torch.bfloat16))  # whose sums SwitchML carries


@check
def strided_coalesced_sums_of_gloo() -> None:
    def call(layout: Layout, dtype: torch.dtype) -> list[torch.Tensor]:
        tensors = [layout(values_of(rank() + step, dtype)) for step in range(2)]
        dist.all_reduce_coalesced(tensors)
        return tensors

    compare(call, REDUCED)


@check
def strided_broadcasts() -> None:
    def call(layout: Layout, dtype: torch.dtype) -> list[torch.Tensor]:
        tensor = layout(values_of(rank(), dtype))
        dist.broadcast(tensor, src=1)
        return [tensor]

    compare(call, (*MOVED, torch.float32, torch.bool, torch.complex64))


@check
def broadcast_of_one_element_many_times() -> None:
    """What is only read may have elements that share their memory."""
    tensor = torch.tensor([7.0]).expand(10) if rank() == 1 else torch.zeros(10)
    dist.broadcast(tensor, src=1)
    assert tensor.eq(7).all()


@check
def strided_reduces() -> None:
    """A rank that is not to have the result keeps its addend."""

    def call(layout: Layout, dtype: torch.dtype) -> list[torch.Tensor]:
        tensor = layout(values_of(rank(), dtype))
        dist.reduce(tensor, dst=1)
        return [tensor] if rank() == 1 else []

    compare(call, (*REDUCED, torch.float32))
    addend = transposed(values_of(rank(), torch.float64))
    dist.reduce(addend, dst=1)
    assert rank() == 1 or torch.equal(addend, values_of(rank(), torch.float64))


@check
def strided_scatters() -> None:
    def call(layout: Layout, dtype: torch.dtype) -> list[torch.Tensor]:
        tensor = empty(layout, dtype)
        parts = [layout(values_of(index, dtype)) for index in range(size())]
        dist.scatter(tensor, parts if rank() == 0 else None, src=0)
        return [tensor]

    compare(call, MOVED)


@check
def strided_gathers() -> None:
    def call(layout: Layout, dtype: torch.dtype) -> list[torch.Tensor]:
        tensors = [empty(layout, dtype) for _ in range(size())] if rank() == 0 else None
        dist.gather(layout(values_of(rank(), dtype)), tensors, dst=0)
        return tensors or []

    compare(call, MOVED)


@check
def strided_gathers_to_all() -> None:
    def of_lists(layout: Layout, dtype: torch.dtype) -> list[torch.Tensor]:
        tensors = [empty(layout, dtype) for _ in range(size())]
        dist.all_gather(tensors, layout(values_of(rank(), dtype)))
        return tensors

    def of_one(layout: Layout, dtype: torch.dtype) -> list[torch.Tensor]:
        whole = empty(layout, dtype, rows=6 * size() * size())
        dist.all_gather_into_tensor(whole, layout(values_of(rank(), dtype)))
        return [whole]

    def of_several(layout: Layout, dtype: torch.dtype) -> list[torch.Tensor]:
        lists = [[empty(layout, dtype) for _ in range(2)] for _ in range(size())]
        dist.all_gather_coalesced(lists, [layout(values_of(rank() + step, dtype)) for step in range(2)])
        return [tensor for tensors in lists for tensor in tensors]

    for call in (of_lists, of_one, of_several):
        compare(call, MOVED)


@check
def strided_reduces_and_scatters() -> None:
    def of_lists(layout: Layout, dtype: torch.dtype) -> list[torch.Tensor]:
        tensor = empty(layout, dtype)
        dist.reduce_scatter(tensor, [layout(values_of(rank() + index, dtype)) for index in range(size())])
        return [tensor]

    def of_one(layout: Layout, dtype: torch.dtype) -> list[torch.Tensor]:
        part = empty(layout, dtype)
        dist.reduce_scatter_tensor(part, layout(values_of(rank(), dtype, rows=6 * size() * size())))
        return [part]

    for call in (of_lists, of_one):
        compare(call, (*REDUCED, torch.float32))


@check
def strided_exchanges() -> None:
    def of_lists(layout: Layout, dtype: torch.dtype) -> list[torch.Tensor]:
        tensors = [empty(layout, dtype) for _ in range(size())]
        dist.all_to_all(tensors, [layout(values_of(rank() + index, dtype)) for index in range(size())])
        return tensors

    def of_one(layout: Layout, dtype: torch.dtype) -> list[torch.Tensor]:
        whole = empty(layout, dtype)
        dist.all_to_all_single(whole, layout(values_of(rank(), dtype)))
        return [whole]

    for call in (of_lists, of_one):
        compare(call, MOVED)


@check
def strided_and_asynchronous_calls_of_gloo() -> None:
    """What a work promises holds for the caller's own tensor, in whichever way its end is seen."""
    for wait in ("wait", "future", "then", "barrier", "completed"):
        tensor = transposed(values_of(rank(), torch.float64))
        work = dist.broadcast(tensor, src=1, async_op=True)
        if wait == "wait":
            work.wait()
            assert work.is_completed()
            assert work.is_success()
            assert work.result()[0].data_ptr() == tensor.data_ptr()
        elif wait == "future":
            assert work.get_future().wait()[0].data_ptr() == tensor.data_ptr()
        elif wait == "then":
            doubled = work.get_future().then(lambda done: done.value()[0] * 2).wait()
            assert torch.equal(doubled, values_of(1, torch.float64) * 2)
        elif wait == "barrier":
            dist.barrier()
        else:
            while not work.is_completed():
                pass
        assert torch.equal(tensor, values_of(1, torch.float64)), wait


@check
def strided_calls_in_their_order() -> None:
    """An allreduce of SwitchML's takes what gloo's broadcast before it brought, and the other way round."""
    for layout in (transposed, every_other):
        tensor = layout(values_of(rank(), torch.float32))
        with carries(float32=1):
            works = [
                dist.broadcast(tensor, src=1, async_op=True),
                dist.all_reduce(tensor, async_op=True),
                dist.broadcast(tensor, src=0, async_op=True),
            ]
            for work in works:
                work.wait()
        assert torch.equal(tensor, values_of(1, torch.float32) * size())
