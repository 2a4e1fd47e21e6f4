# SPDX-License-Identifier: BSD-3-Clause
"""Two ranks sum over MPI, on the CPU; a CUDA tensor is refused with the reason where the MPI takes none."""

import torch
import torch.distributed as dist


def main() -> None:
    """Run under mpiexec."""
    dist.init_process_group("mpi")
    rank, size = dist.get_rank(), dist.get_world_size()
    assert size == 2, size
    tensor = torch.full((1000,), float(rank + 1))
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((1000,), 3.0)), tensor
    if torch.cuda.is_available():
        try:
            dist.all_reduce(torch.ones(4, device="cuda"))
        except RuntimeError as err:
            assert "CUDA-aware MPI support: " in str(err), err  # noqa: PT017 - no pytest here
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
