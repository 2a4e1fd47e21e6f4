# SPDX-License-Identifier: BSD-3-Clause
"""The patched PyTorch as its users have it: installed from a channel alone, its MPI backend used.

Its build takes hours, so nothing here builds it: `make pytorch` does, and names its channel in the variable below.

CHANNEL_TOOLS_TEST_PYTORCH_CHANNEL  the folder of a channel with pytorch-cray-mpich=*=patched_cpu* in it
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from channel_tools.environments import activated_environment
from channel_tools.system.errors import SolveError
from channel_tools.system.processes import CommandResult, run_command
from channel_tools.system.settings import Settings
from tests.integration.conftest import ROOT
from tests.support.command_line import run_tool
from tests.support.cray import make_cray
from tests.support.stacks import install, install_pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

VARIABLE = "CHANNEL_TOOLS_TEST_PYTORCH_CHANNEL"
SPECS = ["pytorch-cray-mpich=*=patched_cpu*", "mpich", "pip", "numpy"]
RECIPE_TESTS = ROOT / "recipes" / "pytorch-cray-mpich-patched" / "tests"
PYTORCH_TESTS = ROOT / "recipes" / "torch-mpi" / "src" / "tests" / "pytorch_tests.py"
LIMIT_S = 900.0
_SUM = """
import torch, torch.distributed as dist
dist.init_process_group("mpi")
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
assert type(backend).__name__ == "ProcessGroupMPI", type(backend)
for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64):
    tensor = torch.arange(1000).remainder(7).to(dtype) + dist.get_rank()
    dist.all_reduce(tensor)
    size = dist.get_world_size()
    expected = torch.arange(1000).remainder(7).to(dtype) * size + size * (size - 1) // 2
    assert torch.equal(tensor, expected), dtype
if dist.get_rank() == 0:
    places = {line.split()[-1] for line in open("/proc/self/maps") if "libmpi.so" in line}
    print(dist.get_world_size(), *sorted(places))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def channel() -> Path:
    named = os.environ.get(VARIABLE)
    if named is None:
        pytest.skip(f"{VARIABLE} names no channel: `make pytorch` builds PyTorch, for hours, and runs this file")
    return Path(named).resolve()


@pytest.fixture(scope="module")
def prefix(own_settings: Settings, channel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(own_settings, channel, tmp_path_factory.mktemp("pytorch") / "env", SPECS)


def ranks(
    prefix: Path,
    count: int,
    *words: str | Path,
    environ: dict[str, str] | None = None,
    launcher: Path | None = None,
    settings: dict[str, str] | None = None,
    check: bool = True,
) -> CommandResult:
    """So many processes of Python in the activated environment, by its own launcher of MPI or another's."""
    activated = activated_environment(prefix, environ=environ or os.environ)
    variables = {**activated, "OMP_NUM_THREADS": "1", **(settings or {})}
    command = [launcher or prefix / "bin" / "mpiexec", "-n", str(count), prefix / "bin" / "python", *words]
    return run_command(command, env=variables, timeout_s=LIMIT_S, check=check)


@pytest.fixture
def summing(tmp_path: Path) -> Path:
    """A script whose ranks sum over MPI; the first prints how many there are, and MPI's library."""
    script = tmp_path / "sum.py"
    script.write_text(_SUM)
    return script


def test_the_package_says_what_was_asked_of_its_build(prefix: Path) -> None:
    (record,) = (prefix / "conda-meta").glob("pytorch-cray-mpich-*.json")
    version = json.loads(record.read_text())["version"]
    variables = activated_environment(prefix, environ=os.environ) | {
        "EXPECTED_VERSION": version,
        "EXPECTED_CUDA": "None",
    }
    run_command([prefix / "bin" / "python", RECIPE_TESTS / "built.py"], env=variables, timeout_s=LIMIT_S)


def test_it_and_a_stock_pytorch_exclude_each_other(own_settings: Settings, channel: Path, tmp_path: Path) -> None:
    """Both have the folder torch; a solver that is asked for one alone replaces the other, and leaves nothing of it."""
    with pytest.raises(SolveError) as caught:
        install(own_settings, channel, tmp_path / "env", [SPECS[0], "pytorch"])
    assert "pytorch <0.0a0" in str(caught.value)
    assert not (tmp_path / "env").exists()


def test_torchruns_ranks_sum_over_gloo(prefix: Path, tmp_path: Path) -> None:
    script = tmp_path / "sum.py"
    over_gloo = _SUM.replace('"mpi"', '"gloo"').replace("ProcessGroupMPI", "ProcessGroupGloo")
    script.write_text(over_gloo.replace("torch.int16, ", ""))  # gloo has no sums of it
    variables = {**activated_environment(prefix, environ=os.environ), "OMP_NUM_THREADS": "1"}
    command: list[str | Path] = [prefix / "bin" / "torchrun", "--standalone", "--nproc-per-node", "2", script]
    assert run_command(command, env=variables, timeout_s=LIMIT_S).stdout.split()[0] == "2"


@pytest.mark.parametrize("count", [2, 4])
def test_ranks_sum_over_the_channels_mpich(prefix: Path, summing: Path, count: int) -> None:
    library = (prefix / "lib" / "libmpi.so.12").resolve()
    assert ranks(prefix, count, summing).stdout == f"{count} {library}\n"


def test_ranks_sum_over_the_sites_cray_mpich(
    own_settings: Settings, channel: Path, prefix: Path, summing: Path, tmp_path: Path
) -> None:
    """The site's library and mpiexec are those of the other environment; the channel has a stand-in for MPICH alone."""
    external = install(own_settings, channel, tmp_path / "env", [*SPECS[:1], "mpich=*=external_cray*", "numpy"])
    folder = make_cray(tmp_path / "site", "8.1.27", mpich=prefix)
    site = {**os.environ, "CHANNEL_CRAY_PE_ROOT": str(tmp_path / "site")}
    done = ranks(external, 2, summing, environ=site, launcher=prefix / "bin" / "mpiexec")
    assert done.stdout == f"2 {(folder / 'libmpi.so.12').resolve()}\n"


def outcomes_of(
    prefix: Path, folder: Path, backend: str, wrapper: str, count: int, *, check: bool
) -> list[dict[str, Any]]:
    """What each rank says of its training; ``check``: also that all of them ended well."""
    ranks(prefix, count, Path(__file__).with_name("training_rank.py"), backend, wrapper, folder, check=check)
    said = [json.loads((folder / f"{backend}-rank-{rank}.json").read_text()) for rank in range(count)]
    assert [(one["rank"], one["size"]) for one in said] == [(rank, count) for rank in range(count)]
    return said


def trained(prefix: Path, folder: Path, backend: str, wrapper: str, count: int) -> list[dict[str, Any]]:
    return outcomes_of(prefix, folder, backend, wrapper, count, check=True)


def refused(prefix: Path, folder: Path, backend: str, wrapper: str) -> list[str]:
    """The error of each of two ranks; after one in a backward pass PyTorch may abort at the interpreter's end."""
    return [str(one["error"]) for one in outcomes_of(prefix, folder, backend, wrapper, 2, check=False)]


@pytest.mark.parametrize("count", [2, 4])
def test_a_hundred_steps_of_ddp_are_those_over_gloo(prefix: Path, tmp_path: Path, count: int) -> None:
    over_mpi = trained(prefix, tmp_path, "mpi", "ddp", count)
    over_gloo = trained(prefix, tmp_path, "gloo", "ddp", count)
    assert over_gloo[0]["parameters"] == pytest.approx(over_mpi[0]["parameters"], rel=1e-5, abs=1e-6)
    for said in (over_mpi, over_gloo):  # each rank has the same, to the bit
        assert all(one["parameters"] == said[0]["parameters"] for one in said)


def test_sharded_models_want_what_pytorchs_mpi_backend_does_not_have(prefix: Path, tmp_path: Path) -> None:
    """Upstream's ProcessGroupMPI has neither reduce_scatter nor _allgather_base; the plugin torch-mpi has both."""
    over_gloo = trained(prefix, tmp_path, "gloo", "fsdp", 2)
    assert len(over_gloo[0]["parameters"]) == 16 * 64 + 64 + 64 * 4 + 4
    for error in refused(prefix, tmp_path, "mpi", "fsdp"):
        assert "does not support" in error or "no support for" in error


@pytest.mark.parametrize(
    ("backend", "error", "line"),
    [
        # in foreach_all_gather: torch.cpu.Stream has wait_stream alone, later versions more
        ("gloo", "'Stream' object has no attribute 'record_event'", "all_gather_stream.record_event()"),
        ("mpi", "no support for _allgather_base in MPI process group", "dist.all_gather_into_tensor("),
    ],
    ids=["gloo", "mpi"],
)
def test_fsdp2_of_this_pytorch_wants_a_gpu(prefix: Path, tmp_path: Path, backend: str, error: str, line: str) -> None:
    """2.6.0's fully_shard stops in the first forward pass, at the first thing that a CPU or MPI does not have there."""
    assert refused(prefix, tmp_path, backend, "fsdp2") == [error, error]
    (collectives,) = prefix.glob("lib/python*/site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py")
    assert line in collectives.read_text()


def test_pytorchs_own_tests_of_groups_pass(prefix: Path, tmp_path: Path) -> None:
    install_pytest(prefix)
    words = ("all_reduce", "broadcast", "gather", "scatter", "test_reduce_", "all_to_all", "barrier", "send", "recv")
    ranks(prefix, 3, PYTORCH_TESTS, *words, settings={"TEMP_DIR": str(tmp_path)})
    for rank in range(3):
        outcomes = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        assert {name: said for name, said in outcomes.items() if said.startswith("failed")} == {}
        assert list(outcomes.values()).count("passed") >= 70, outcomes


def test_it_runs_from_a_long_prefix_and_a_channel_that_was_moved(
    own_settings: Settings, channel: Path, summing: Path, tmp_path: Path
) -> None:
    moved = shutil.copytree(channel, tmp_path / "moved", symlinks=True)
    folder = tmp_path / "p"
    prefix = folder.with_name("p" * (200 - len(str(folder)) + 1))
    assert len(str(prefix)) == 200
    install(own_settings, moved, prefix, SPECS)
    shutil.rmtree(moved)
    library = (prefix / "lib" / "libmpi.so.12").resolve()
    assert ranks(prefix, 2, summing).stdout == f"2 {library}\n"


def test_it_goes_through_a_bundle(own_settings: Settings, channel: Path, summing: Path, tmp_path: Path) -> None:
    bundle, site, keys = tmp_path / "bundle", tmp_path / "site", tmp_path / "keys"

    def tool(*words: str | Path) -> str:
        done = run_tool(*words, cwd=tmp_path, environ=os.environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    fingerprint = json.loads(tool("mirror", "keys", "create", "--keys", keys, "--json"))["fingerprint"]
    tool("mirror", "create", *SPECS, "--channel", channel, "--keys", keys, "--without-tool", "--to", bundle)
    tool("mirror", "import", bundle, "--to", site, "--root-sha256", fingerprint)
    (imported,) = (index.parent.parent for index in site.rglob("linux-64/repodata.json"))
    prefix = install(own_settings, imported, tmp_path / "env", SPECS)
    library = (prefix / "lib" / "libmpi.so.12").resolve()
    assert ranks(prefix, 2, summing).stdout == f"2 {library}\n"
