# SPDX-License-Identifier: BSD-3-Clause
"""recipes/nccl-ofi/activation: what it sets on a machine with a Slingshot NIC, by the shells that source it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.nccl_ofi import NET, installed_activation, variables_set
from tests.support.programs import program

LIFECYCLE = Path(__file__).parents[3] / "recipes" / "nccl-ofi" / "tests" / "activation.sh"
ALWAYS = {
    "NCCL_CROSS_NIC": "1",
    "NCCL_SOCKET_IFNAME": "hsn",
    "FI_CXI_DEFAULT_CQ_SIZE": "131072",
    "FI_CXI_DISABLE_HOST_REGISTER": "1",
    "FI_MR_CACHE_MONITOR": "userfaultfd",
}
SHELLS = ("bash", "sh", "zsh")


def shell_command(name: str) -> list[str]:
    """``sh`` is the machine's own, on Debian dash; zsh without the user's settings."""
    return [program("zsh"), "-f"] if name == "zsh" else [f"/bin/{name}"]


@pytest.mark.parametrize("shell", SHELLS)
def test_activating_and_deactivating_leaves_what_was_there(tmp_path: Path, shell: str) -> None:
    prefix = installed_activation(tmp_path)
    (tmp_path / "none").mkdir()
    done = subprocess.run(
        [*shell_command(shell), "-eu", str(LIFECYCLE)],
        env={"CONDA_PREFIX": str(prefix), "WORK": str(tmp_path), "NET_NAME": NET, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("job", "is_of_several_nodes"),
    [
        pytest.param({}, False, id="no job"),
        pytest.param({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1"}, False, id="slurm, 1"),
        pytest.param({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}, True, id="slurm, 2"),
        pytest.param({"SLURM_JOB_ID": "7", "SLURM_NNODES": "16"}, True, id="slurm, old name"),
        pytest.param({"SLURM_JOB_ID": "7"}, False, id="slurm, no number"),
        pytest.param({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "two"}, False, id="slurm, not a number"),
        pytest.param({"SLURM_JOB_NUM_NODES": "2"}, False, id="slurm, option of a submitted job"),
        pytest.param(
            {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "8", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "1"},
            False,
            id="slurm, step on 1 of 8",
        ),
        pytest.param(
            {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "8", "SLURM_STEP_ID": "3", "SLURM_STEP_NUM_NODES": "8"},
            True,
            id="slurm, step on 8 of 8",
        ),
        pytest.param(
            {
                "SLURM_JOB_ID": "7",
                "SLURM_JOB_NUM_NODES": "8",
                "SLURM_STEP_ID": "4294967290",
                "SLURM_STEP_NUM_NODES": "1",
            },
            True,
            id="slurm, interactive shell",
        ),
        pytest.param({"PBS_NODEFILE": "nid1\nnid1\nnid1\n"}, False, id="pbs, 1"),
        pytest.param({"PBS_NODEFILE": "nid1\nnid1\nnid2\nnid2\n"}, True, id="pbs, 2"),
        pytest.param({"PBS_NODEFILE": "nid1\nnid2"}, True, id="pbs, no newline at the end"),
        pytest.param({"PBS_NODEFILE": ""}, False, id="pbs, empty"),
        pytest.param({"LSB_MCPU_HOSTS": "nid1 64 "}, False, id="lsf, 1"),
        pytest.param({"LSB_MCPU_HOSTS": "nid1 64 nid2 64 "}, True, id="lsf, 2"),
        pytest.param({"FLUX_JOB_NNODES": "1"}, False, id="flux, 1"),
        pytest.param({"FLUX_JOB_NNODES": "2"}, True, id="flux, 2"),
        pytest.param(
            {"FLUX_JOB_NNODES": "1", "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "8"}, False, id="flux, 1 of slurm's 8"
        ),
    ],
)
def test_the_plugin_is_named_where_the_job_has_several_nodes(
    tmp_path: Path, shell: str, job: dict[str, str], *, is_of_several_nodes: bool
) -> None:
    if (content := job.get("PBS_NODEFILE")) is not None:
        (tmp_path / "nodes").write_text(content)
        job = {**job, "PBS_NODEFILE": str(tmp_path / "nodes")}
    found = variables_set(installed_activation(tmp_path), shell_command(shell), job)
    assert found == (ALWAYS | {"NCCL_NET": NET} if is_of_several_nodes else ALWAYS)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_node_file_of_another_host_is_no_error(tmp_path: Path, shell: str) -> None:
    found = variables_set(installed_activation(tmp_path), shell_command(shell), {"PBS_NODEFILE": str(tmp_path / "no")})
    assert found == ALWAYS


@pytest.mark.parametrize("shell", SHELLS)
def test_what_the_user_has_set_wins(tmp_path: Path, shell: str) -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}
    own = {"NCCL_NET": "", "NCCL_SOCKET_IFNAME": "eth0", "NCCL_NET_GDR_LEVEL": "SYS"}
    found = variables_set(installed_activation(tmp_path), shell_command(shell), {**job, **own})
    assert found == {**ALWAYS, **own}
