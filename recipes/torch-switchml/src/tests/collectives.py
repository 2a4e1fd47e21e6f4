# SPDX-License-Identifier: BSD-3-Clause
"""Checks of everything else that a group does, and of what is built on groups."""

import json
import warnings
from typing import Any

import torch
import torch.distributed as dist
from checks import carries, check, rank, size
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import torch_switchml


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
def collectives_of_sharded_models_are_counted() -> None:
    before = torch_switchml.stats()["gloo_collectives"]
    dist.all_gather([torch.empty(4) for _ in range(size())], torch.ones(4))
    dist.all_gather_into_tensor(torch.empty(4 * size()), torch.ones(4))
    dist.reduce_scatter_tensor(torch.empty(1), torch.ones(size()))
    after = torch_switchml.stats()["gloo_collectives"]
    assert {name: after[name] - before[name] for name in after} == {"all_gather": 2, "reduce_scatter": 1}


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch is about to give it up
        assert barrier.result() == []
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
    with carries(float32=1):
        results = functional.all_reduce_coalesced([torch.ones(3), torch.ones(4)], "avg", dist.group.WORLD)
        assert all(result.eq(1).all() for result in results)


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
def group_finds_its_gloo() -> None:
    """By its type it is gloo's own object, which PyTorch casts it to; the collectives reach the delegating one."""
    from torch._C._distributed_c10d import ProcessGroupGloo

    group = dist.group.WORLD
    assert isinstance(group._get_backend(torch.device("cpu")).wrapped, ProcessGroupGloo)
    assert group._has_hooks() is False
    assert group.name() == "gloo"
    assert group._get_backend(torch.device("cpu")).name() == "gloo"


@check
def report_is_plain_json() -> None:
    before = torch_switchml.stats()
    dist.all_reduce(torch.ones(1000))
    report = torch_switchml.stats()
    assert json.loads(json.dumps(report)) == report
    assert report["active"]
    assert report["rank"] == rank()
    assert report["world_size"] == size()
    if report["host"]["workers"] == 0 or rank() != report["host"]["ranks"][0]:
        assert report["transport"] is None  # nobody, or another rank of the host, is on the wire
        return
    assert report["transport"]["jobs_completed"] == sum(row["jobs"] for row in report["delegated"].values())
    reduced = report["transport"]["elements_reduced"]
    assert reduced - before["transport"]["elements_reduced"] == 1000
    # it counts what lies between coalesced tensors too
    assert reduced >= sum(row["elements"] for row in report["delegated"].values())
