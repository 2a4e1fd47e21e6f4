# SPDX-License-Identifier: BSD-3-Clause
"""How ranks are started and end: each mistake is one clear error, and no rank waits for one that is gone."""

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from conftest import Launcher

from torch_mpi.errors import LaunchError, SettingsError
from torch_mpi.launch import check_launch, check_rank
from torch_mpi.settings import read_settings

SOON_S = 60.0
(LIBRARY,) = Path(sys.prefix, "lib").glob("libmpi.so.??")  # the soname: MPICH's ABI has 12, Open MPI's 40
BEGIN = "import os, signal, sys, torch, torch.distributed as dist\ndist.init_process_group('mpi')\n"


def test_no_launcher_is_one_error(launcher: Launcher) -> None:
    ended = launcher.alone(launcher.code(BEGIN))
    assert ended.code == 1
    assert ended.said.count("Error: ") == 1
    said = ended.said.rstrip().rpartition("\n")[2]
    assert "LaunchError: no MPI launcher started this process: run mpiexec -n N python script.py" in said


def test_a_rank_alone_ends_with_its_own_error_and_code(launcher: Launcher) -> None:
    """MPI_Abort would print a backtrace of the C library after it."""
    script = launcher.code(f"{BEGIN}dist.all_reduce(torch.ones(3))\nsys.exit('no data')\n")
    ended = launcher.mpiexec(script, ranks=1)
    assert ended.code == 1
    assert ended.said.startswith("no data\n")
    assert "MPI_Abort" not in ended.said


@pytest.mark.parametrize(
    ("environ", "size", "said"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "4"}, 1, "Open MPI's mpiexec started 4 processes (OMPI_COMM_WORLD_SIZE), but MPI"),
        ({"SLURM_STEP_NUM_TASKS": "8"}, 1, "srun started 8 processes (SLURM_STEP_NUM_TASKS), but MPI"),
        ({"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2"}, 1, "torchrun started this process"),
        ({"PMI_SIZE": "2", "WORLD_SIZE": "4"}, 2, "WORLD_SIZE is 4, and MPI (MPICH) has 2 ranks"),
        ({"PMI_SIZE": "1", "WORLD_SIZE": "2"}, 1, "WORLD_SIZE is 2, and MPI (MPICH) has 1 ranks"),
        ({}, 1, "no MPI launcher started this process"),
    ],
)
def test_a_world_that_is_not_the_launchers_is_an_error(environ: dict[str, str], size: int, said: str) -> None:
    with pytest.raises(LaunchError) as error:
        check_launch(environ, size=size, library="MPICH")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("environ", "size"),
    [
        ({"PMI_SIZE": "4", "WORLD_SIZE": "4"}, 4),
        ({"PMI_RANK": "0"}, 1),
        ({"SLURM_STEP_NUM_TASKS": "1"}, 1),
        ({"SLURM_STEP_NUM_TASKS": "2"}, 4),  # mpiexec in a step of two
        ({}, 2),
    ],
)
def test_a_world_that_the_launcher_made_is_none(environ: dict[str, str], size: int) -> None:
    check_launch(environ, size=size, library="MPICH")


def test_another_rank_than_mpis_is_an_error() -> None:
    with pytest.raises(LaunchError, match=r"rank 1 for PyTorch and rank 2 for MPI.*\(RANK=2 here\)"):
        check_rank(1, 2)
    check_rank(2, 2)
    check_rank(None, 2)  # where PyTorch leaves it to MPI


def test_settings_name_the_variable() -> None:
    assert read_settings({"TORCH_MPI_GPU": "Require"}).gpu == "require"
    assert read_settings({}).gpu == "auto"
    with pytest.raises(SettingsError, match="TORCH_MPI_GPU='yes': expected auto, require or host"):
        read_settings({"TORCH_MPI_GPU": "yes"})


def test_mpi_without_threads_is_one_error(launcher: Launcher) -> None:
    """As where other code has started MPI without them."""
    script = launcher.code(
        "import ctypes, sys, torch, torch.distributed as dist\n"
        f"mpi = ctypes.CDLL({str(LIBRARY)!r})\n"
        "given = ctypes.c_int()\n"
        "mpi.MPI_Init_thread(None, None, 1, ctypes.byref(given))\n"
        "assert given.value == 1\n"
        "try:\n    dist.init_process_group('mpi')\n"
        "except RuntimeError as err:\n    print(type(err).__name__, err)\n"
        "mpi.MPI_Finalize()\n"
    )
    ended = launcher.alone(script)
    assert ended.code == 0, ended.said
    assert "MPIError MPI (" in ended.said
    assert "gives MPI_THREAD_FUNNELED, and the backend mpi needs MPI_THREAD_SERIALIZED at least" in ended.said


def test_another_pytorch_than_that_of_the_build_is_one_error(launcher: Launcher) -> None:
    built_for = ".".join(metadata.version("torch").split(".")[:2])
    ended = launcher.alone(launcher.code(f"import torch\ntorch.__version__ = '2.99.1'\n{BEGIN}"))
    assert ended.code == 1
    assert f"MPIError: this build of torch-mpi is for PyTorch {built_for}, found PyTorch 2.99.1 in " in ended.said


def test_a_library_that_is_no_mpi_is_one_error(launcher: Launcher) -> None:
    """One that the loader takes for it: loaded before, with its soname, here put into a copy of another library."""
    library = launcher.folder / LIBRARY.name
    library.write_bytes(
        Path(sys.prefix, "lib", "libuuid.so.1").read_bytes().replace(b"libuuid.so.1", LIBRARY.name.encode())
    )
    ended = launcher.alone(launcher.code(f"import ctypes\nctypes.CDLL({str(library)!r})\n{BEGIN}"))
    assert ended.code == 1
    assert "MPIError: the backend mpi cannot be loaded: " in ended.said
    assert re.search("undefined symbol: (MPI_|ompi_)", ended.said)  # whichever comes first in the build's file


EXITED = "torch-mpi: rank 1 has ended with exit code "


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("raise ValueError('the user\\'s own mistake')", "ValueError: the user's own mistake"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal 9"),
        ("sys.exit(3)", f"{EXITED}3, "),
        ("sys.exit('no data')", "no data"),
        ("signal.signal(15, lambda *_: sys.exit(143)); os.kill(os.getpid(), 15)", f"{EXITED}143, "),
        ("import argparse; argparse.ArgumentParser().parse_args(['--wrong'])", "unrecognized arguments: --wrong"),
        (
            "import threading; one = threading.Thread(target=lambda: 1 / 0); one.start(); one.join(); sys.exit(1)",
            "ZeroDivisionError",
        ),
        ("sys.excepthook = lambda *_: print('own hook', flush=True); raise ValueError", "own hook"),
    ],
    ids=["raise", "killed", "exit", "exit with words", "SIGTERM", "argparse", "thread", "own hook"],
)
def test_a_rank_that_ends_too_soon_ends_all(launcher: Launcher, end: str, said: str) -> None:
    script = launcher.code(BEGIN + f"if dist.get_rank() == 1:\n    {end}\ndist.all_reduce(torch.ones(3))\n")
    ended = launcher.mpiexec(script, ranks=2)
    assert ended.code != 0
    assert said in ended.said
    assert ended.seconds < SOON_S


RANK = "import os\nrank = os.environ.get('PMI_RANK') or os.environ['OMPI_COMM_WORLD_RANK']\n"


def test_a_rank_that_cannot_begin_ends_all(launcher: Launcher) -> None:
    """The others are in MPI_Init, which waits for it without a limit."""
    script = launcher.code(f"{RANK}if rank == '1':\n    os.environ['TORCH_MPI_GPU'] = 'perhaps'\n{BEGIN}")
    ended = launcher.mpiexec(script, ranks=2)
    assert ended.code != 0
    assert ended.said.count("SettingsError: TORCH_MPI_GPU='perhaps'") == 1
    assert "torch-mpi: rank 1 has ended before it joined MPI, so all ranks are ended" in ended.said
    assert ended.seconds < SOON_S


def test_a_script_goes_on_without_an_mpi_that_cannot_begin(launcher: Launcher) -> None:
    script = launcher.code(
        "import os, torch, torch.distributed as dist\n"
        "os.environ['TORCH_MPI_GPU'] = 'perhaps'\n"
        "try:\n    dist.init_process_group('mpi')\nexcept RuntimeError:\n    print('without MPI')\n"
    )
    ended = launcher.mpiexec(script, ranks=2)
    assert ended.code == 0, ended.said
    assert ended.said.split("\n").count("without MPI") == 2


def test_a_rank_that_does_not_come_is_waited_for_as_long_as_the_group_says(launcher: Launcher) -> None:
    """It has ended by an exit code before it joined: MPICH's launcher lets that pass, Open MPI's may end the job."""
    script = launcher.code(
        f"{RANK}if rank == '1':\n    os._exit(0)\n"
        "import datetime, torch, torch.distributed as dist\n"
        "dist.init_process_group('mpi', timeout=datetime.timedelta(seconds=2))\n"
    )
    ended = launcher.mpiexec(script, ranks=2)
    assert ended.code != 0
    waited = "torch-mpi: rank 0: MPI has not started within 2 s, the group's time limit: a rank has ended"
    assert waited in ended.said or (LIBRARY.name == "libmpi.so.40" and "mpiexec" in ended.said), ended.said
    assert ended.seconds < SOON_S


def test_a_rank_that_exits_with_0_leaves_the_others_to_their_time_limit(launcher: Launcher) -> None:
    """MPI has no word for it: the launcher takes the rank for one that is done."""
    script = launcher.code(
        "import datetime, sys, torch, torch.distributed as dist\n"
        "dist.init_process_group('mpi', timeout=datetime.timedelta(seconds=2))\n"
        "if dist.get_rank() == 1:\n    sys.exit(0)\n"
        "dist.all_reduce(torch.ones(3))\n"
    )
    ended = launcher.mpiexec(script, ranks=2)
    assert ended.code != 0
    assert "DistBackendError" in ended.said
    assert ended.seconds < SOON_S


def test_ranks_may_meet_after_each_group_is_made(launcher: Launcher) -> None:
    """By PyTorch's variable for it, which has those of gloo beside MPI meet in the store of the default group."""
    script = launcher.code(
        "import os\nos.environ['TORCH_DIST_INIT_BARRIER'] = '1'\n"
        + BEGIN
        + "for made in (dist.new_group(), dist.new_group(backend='gloo'), dist.new_group([1], backend='cpu:gloo')):\n"
        "    if made is not dist.GroupMember.NON_GROUP_MEMBER:\n"
        "        tensor = torch.ones(3)\n        dist.all_reduce(tensor, group=made)\n"
        "        print('sum', int(tensor[0]), flush=True)\n"
        "dist.destroy_process_group()\n"
    )
    ended = launcher.mpiexec(script, ranks=2)
    assert ended.code == 0, ended.said
    assert sorted(re.findall(r"sum \d", ended.said)) == ["sum 1", *["sum 2"] * 4]


@pytest.mark.parametrize("end", ["raise ValueError", "sys.exit(1)"])
def test_what_was_printed_last_is_not_lost(launcher: Launcher, end: str) -> None:
    script = launcher.code(
        BEGIN
        + "if dist.get_rank() == 1:\n    print('word ' * 10_000 + 'last', flush=True)\n"
        + f"    {end}\ndist.all_reduce(torch.ones(3))\n"
    )
    ended = launcher.mpiexec(script, ranks=2)
    assert ended.code != 0
    assert ended.said.count("word ") == 10_000
    assert "last" in ended.said


def test_what_nobody_waited_for_is_done_at_exit(launcher: Launcher) -> None:
    """And what comes after that is an error."""
    script = launcher.code(
        "import atexit\n"
        "def end():\n"
        "    try:\n        dist.all_reduce(torch.ones(3))\n"
        "    except RuntimeError as err:\n        print(err)\n"
        "atexit.register(end)\n"
        + BEGIN
        + "work = dist.all_reduce(torch.ones(100_000), async_op=True)\n"
        + "work.get_future().then(lambda done: os.write(1, b'sum %d\\n' % done.value()[0][0]))\n"
    )
    ended = launcher.mpiexec(script, ranks=2)
    assert ended.code == 0, ended.said
    assert ended.said.count("sum 2\n") == 2
    assert ended.said.count("MPI has been ended in this process") == 2
