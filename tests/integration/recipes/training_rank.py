# SPDX-License-Identifier: BSD-3-Clause
"""One rank that trains: `mpiexec -n N python training_rank.py BACKEND ddp|fsdp|fsdp2 FOLDER`, where PyTorch is.

A hundred steps of a small model on values that only rank and step decide. Writes FOLDER/BACKEND-rank-N.json: the
parameters after the last step, or the first line of the error that ended the training. FOLDER is also where gloo's
ranks meet; who they are they know from MPICH's launcher, as MPI's ranks do.
"""

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

STEPS = 100


def join(backend: str, folder: Path) -> None:
    if backend == "mpi":
        dist.init_process_group("mpi")
    else:
        rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
        dist.init_process_group(backend, init_method=(folder / "meeting").as_uri(), rank=rank, world_size=size)


def train(wrapper: str) -> list[float]:
    """The parameters of the whole model after the last step."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4))
    if wrapper == "ddp":
        trained: torch.nn.Module = DistributedDataParallel(model)
    elif wrapper == "fsdp":
        trained = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    else:
        trained = fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    for step in range(STEPS):
        values = torch.Generator().manual_seed(1000 * dist.get_rank() + step)
        optimizer.zero_grad()
        trained(torch.randn(8, 16, generator=values)).square().mean().backward()
        optimizer.step()
    if wrapper == "fsdp":
        with FullyShardedDataParallel.summon_full_params(trained):
            return numbers_of(trained.parameters())
    return numbers_of(getattr(own, "full_tensor", lambda own=own: own)() for own in model.parameters())


def numbers_of(parameters: Iterable[torch.Tensor]) -> list[float]:
    return [float(value) for parameter in parameters for value in parameter.detach().flatten()]


def main() -> None:
    backend, wrapper, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    join(backend, folder)
    outcome: dict[str, object] = {"rank": dist.get_rank(), "size": dist.get_world_size()}
    try:
        outcome["parameters"] = train(wrapper)
    except (RuntimeError, AttributeError) as err:
        outcome["error"] = str(err).splitlines()[0]
    (folder / f"{backend}-rank-{dist.get_rank()}.json").write_text(json.dumps(outcome))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
