# SPDX-License-Identifier: BSD-3-Clause
"""One rank: what SwitchML carries and what it leaves to gloo, all with right sums."""

import os
import sys

import torch
import torch.distributed as dist

NUMEL = 100_000


def reduces(
    tensor: torch.Tensor, expected: torch.Tensor, op: object = dist.ReduceOp.SUM, group: object = dist.group.WORLD
) -> None:
    """What the ranks hold becomes what is expected."""
    dist.all_reduce(tensor, op=op, group=group)
    assert torch.allclose(tensor.cpu(), expected, rtol=1e-5), (tensor, expected)


def main() -> None:
    """Run with RANK and WORLD_SIZE in the environment; the argument is where the ranks meet."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    # a file's ranks are named in the call: PyTorch 1.7 takes those of the environment with env:// alone
    dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=size)
    total = size * (size + 1) // 2
    ones = torch.ones(NUMEL)
    # carried
    reduces(ones * (rank + 1), ones * total)
    reduces((ones * (rank + 1)).int(), (ones * total).int())
    if os.environ["EXPECTED_CUDA"] != "None" and torch.cuda.is_available():
        reduces((ones * (rank + 1)).cuda(), ones * total)
    # left to gloo
    reduces((ones * (rank + 1)).double(), ones.double() * total)
    reduces(ones * (rank + 1), ones * size, op=dist.ReduceOp.MAX)
    reduces(ones * (rank + 1), ones * total, group=dist.new_group(list(range(size))))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
