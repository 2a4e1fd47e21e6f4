# SPDX-License-Identifier: BSD-3-Clause
"""Whether the processes that a launcher started are those that MPI knows; pure, from the environment's variables.

A process that the MPI's own launcher did not start is a world of its own to MPI. Training would then run as many times
as there are processes, each alone, so that is an error.
"""

from collections.abc import Mapping

from torch_mpi.errors import LaunchError

# How launchers say how many processes they started.
_SIZES = {
    "OMPI_COMM_WORLD_SIZE": "Open MPI's mpiexec",
    "PMI_SIZE": "an mpiexec of MPICH or its relatives",
    "MV2_COMM_WORLD_SIZE": "MVAPICH's mpiexec",
    "PALS_SIZE": "Cray PALS",
    "FLUX_JOB_SIZE": "Flux",
    "SLURM_STEP_NUM_TASKS": "srun",
}
# How they say which of them a process is; Open MPI's first, which sets PMIx's as well.
_RANKS = (
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMIX_RANK",
    "MV2_COMM_WORLD_RANK",
    "PALS_RANKID",
    "FLUX_TASK_RANK",
    "SLURM_PROCID",
)
# What they leave besides in the environment of a process.
_TRACES = (
    "PMI_RANK",
    "PMI_FD",
    "PMI_PORT",
    "PMIX_RANK",
    "PMIX_NAMESPACE",
    "SLURM_STEP_ID",
    "ALPS_APP_PE",
    "PALS_RANKID",
)


def check_launch(environ: Mapping[str, str], *, size: int, library: str) -> None:
    """Raise LaunchError unless MPI's world of ``size`` is what was started; ``library`` is MPI's name for itself."""
    if size == 1:
        _check_single(environ, library)
    wanted = _number(environ, "WORLD_SIZE")
    if wanted is not None and wanted != size:
        raise LaunchError(
            f"WORLD_SIZE is {wanted}, and MPI ({library}) has {size} ranks: MPI gives ranks their numbers; start the "
            f"script with mpiexec -n {wanted}, or unset WORLD_SIZE"
        )


def is_one_of_several(environ: Mapping[str, str]) -> bool:
    """Whether a launcher started this process and others."""
    return any((_number(environ, variable) or 0) > 1 for variable in _SIZES)


def launched_rank(environ: Mapping[str, str]) -> str:
    """The number that the launcher gave this process; "?" where it says none."""
    return next((environ[variable] for variable in _RANKS if environ.get(variable)), "?")


def check_rank(pytorch_rank: int | None, mpi_rank: int) -> None:
    """Raise LaunchError where PyTorch has given this process another rank than MPI, whose ``mpi_rank`` counts here.

    ``pytorch_rank`` is None where PyTorch leaves it to MPI, as it does in a default group that is MPI's.
    """
    if pytorch_rank is not None and pytorch_rank != mpi_rank:
        raise LaunchError(
            f"this process is rank {pytorch_rank} for PyTorch and rank {mpi_rank} for MPI, so that a group over "
            "MPI would take the values of other ranks: give init_process_group the ranks that MPI has "
            f"(RANK={mpi_rank} here)"
        )


def _check_single(environ: Mapping[str, str], library: str) -> None:
    for variable, launcher in _SIZES.items():
        started = _number(environ, variable)
        if started is not None and started > 1:
            raise LaunchError(
                f"{launcher} started {started} processes ({variable}), but MPI ({library}) knows of this one alone: "
                "the launcher belongs to another MPI; start the script with the mpiexec of this environment, or srun "
                "with the --mpi that fits"
            )
    if "TORCHELASTIC_RUN_ID" in environ:
        raise LaunchError(
            "torchrun started this process, and the backend mpi needs MPI's own launcher: mpiexec -n N python script.py"
        )
    if not any(variable in environ for variable in (*_SIZES, *_TRACES)):
        raise LaunchError(
            "no MPI launcher started this process: run mpiexec -n N python script.py (-n 1 for a single rank)"
        )


def _number(environ: Mapping[str, str], variable: str) -> int | None:
    text = environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() else None
