# SPDX-License-Identifier: BSD-3-Clause
"""What PyTorch trains with on top of groups: each feature gives numbers that do not depend on what carries them."""

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from checks import rank, size
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook
from torch.distributed.algorithms.model_averaging import averagers, hierarchical_model_averager
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

FEATURES: dict[str, Callable[[], torch.Tensor]] = {}
NUM_INPUTS = 16
CLASSES = 5


def feature(function: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    FEATURES[function.__name__] = function
    return function


def run_features() -> dict[str, list[float]]:
    """By name, in a default group that exists."""
    warnings.simplefilter("ignore")  # what PyTorch says of itself
    values = {}
    for name, function in FEATURES.items():
        values[name] = function().detach().double().reshape(-1).tolist()
        dist.barrier()
    return values


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(NUM_INPUTS, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, CLASSES))


def loss_of(model: nn.Module, step: int) -> torch.Tensor:
    """Each rank learns from data of its own."""
    generator = torch.Generator().manual_seed(100 * step + rank())
    batch = torch.randn(8, NUM_INPUTS, generator=generator)
    return nn.functional.cross_entropy(model(batch), torch.randint(0, CLASSES, (8,), generator=generator))


def train(model: nn.Module, optimizer: torch.optim.Optimizer | None = None, *, steps: int = 4) -> torch.Tensor:
    """The parameters after so many steps."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    return parameters_of(model)


def parameters_of(model: nn.Module) -> torch.Tensor:
    whole = (one.full_tensor() if isinstance(one, DTensor) else one for one in model.parameters())
    return torch.cat([one.detach().reshape(-1) for one in whole])


def parallel(**options: object) -> DistributedDataParallel:
    return DistributedDataParallel(make_model(), **options)


def train_with_hook(state: object, hook: Callable[..., Any]) -> torch.Tensor:
    model = parallel()
    model.register_comm_hook(state, hook)
    return train(model)


def mesh_of(*sizes: int) -> DeviceMesh:
    return init_device_mesh("cpu", sizes)


@feature
def static_graph() -> torch.Tensor:
    return train(parallel(static_graph=True, gradient_as_bucket_view=True))


@feature
def small_buckets() -> torch.Tensor:
    return train(parallel(bucket_cap_mb=0.001, find_unused_parameters=True))


@feature
def accumulated_gradients() -> torch.Tensor:
    model = parallel()
    with model.no_sync():
        loss_of(model, 0).backward()
    return train(model)


@feature
def uneven_inputs() -> torch.Tensor:
    """The ranks that have no more join the others' allreduces."""
    model = parallel()
    with model.join():
        return train(model, steps=2 + rank())


@feature
def hook_of_averages() -> torch.Tensor:
    return train_with_hook(dist.group.WORLD, default_hooks.allreduce_hook)


@feature
def hook_of_float16() -> torch.Tensor:
    return train_with_hook(dist.group.WORLD, default_hooks.fp16_compress_hook)


@feature
def local_sgd() -> torch.Tensor:
    alone, _ = dist.new_subgroups(1)
    model = parallel()
    state = post_localSGD_hook.PostLocalSGDState(None, alone, start_localSGD_iter=2)
    model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    averager = averagers.PeriodicModelAverager(period=2, warmup_steps=2)
    return train(model, PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), averager))


@feature
def averaged_models() -> torch.Tensor:
    model = make_model()
    averager = hierarchical_model_averager.HierarchicalModelAverager(
        period_group_size_dict=OrderedDict([(2, size())]), warmup_steps=0
    )
    for step in range(4):
        train(model, steps=1 + step)
        averager.average_parameters(model.parameters())
    return parameters_of(model)


@feature
def sharded_optimizer() -> torch.Tensor:
    model = parallel()
    return train(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3))


@feature
def clipped_gradients() -> torch.Tensor:
    model = parallel()
    loss_of(model, 0).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    return torch.cat([norm.reshape(1), *(one.grad.reshape(-1) for one in model.parameters())])


@feature
def fully_sharded() -> torch.Tensor:
    model = make_model()
    fully_shard(model, mesh=mesh_of(size()))
    return train(model)


@feature
def replicated_shards() -> torch.Tensor:
    model = make_model()
    fully_shard(model, mesh=init_device_mesh("cpu", (size(), 1), mesh_dim_names=("replicas", "shards")))
    return train(model)


@feature
def fully_sharded_by_wrapper() -> torch.Tensor:
    model = FullyShardedDataParallel(make_model(), device_id=torch.device("cpu"))
    train(model)
    with FullyShardedDataParallel.summon_full_params(model):
        return parameters_of(model)


@feature
def tensor_parallel() -> torch.Tensor:
    model = parallelize_module(make_model(), mesh_of(size()), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    model(torch.linspace(-1, 1, 8 * NUM_INPUTS).reshape(8, NUM_INPUTS)).square().sum().backward()
    gradients = (one.grad for one in model.parameters())
    return torch.cat([(one.full_tensor() if isinstance(one, DTensor) else one).reshape(-1) for one in gradients])


@feature
def distributed_tensors() -> torch.Tensor:
    mesh = mesh_of(size())
    torch.manual_seed(1)
    left = distribute_tensor(torch.randn(6, 4 * size()), mesh, [Shard(1)])
    right = distribute_tensor(torch.randn(4 * size(), 3), mesh, [Shard(0)])
    product = (left @ right).redistribute(mesh, [Replicate()]).to_local()
    average = DTensor.from_local(torch.full((4,), rank() + 1.0), mesh, [Partial("avg")]).full_tensor()
    return torch.cat([product.reshape(-1), average])


@feature
def compiled() -> torch.Tensor:
    model = parallel()
    graph = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(graph, step).backward()
        optimizer.step()
    return parameters_of(model)


@feature
def compiled_collective() -> torch.Tensor:
    from torch.distributed import _functional_collectives as functional

    def twice_and_one(tensor: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(tensor * 2, "sum", dist.group.WORLD) + 1

    compiled_one = torch.compile(twice_and_one, backend="aot_eager", fullgraph=True)
    return compiled_one(torch.arange(100.0) * (rank() + 1))


@feature
def differentiated_collective() -> torch.Tensor:
    from torch.distributed.nn import functional

    tensor = torch.full((50,), rank() + 1.0, requires_grad=True)
    functional.all_reduce(tensor * 2).square().sum().backward()
    return tensor.grad
