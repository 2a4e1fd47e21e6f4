# SPDX-License-Identifier: BSD-3-Clause
"""The lines that a channel's page gives for running a script: what each of the tree's stacks needs, and the proof."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from channel_tools.matrix.stacks import read_stacks
from channel_tools.system.yamlfile import YamlValue
from channel_tools.validate import runner

STACKS = read_stacks(Path(__file__).parents[3] / "variants" / "stacks.yaml").stacks


def how_to_run(validation: Mapping[str, YamlValue]) -> tuple[str, ...]:
    return runner.how_to_run("toy", validation)


def test_a_stack_of_switchml_needs_a_switch_a_variable_and_torchrun() -> None:
    switch, variable, launcher, proof = how_to_run(STACKS["udp"].validation)
    assert switch.startswith("switchml-switch --address HOST --controller-port 50099 &")
    assert variable.startswith("export SWITCHML_CONTROLLER=HOST:50099")
    assert launcher.startswith("torchrun --nproc-per-node 4 train.py")
    assert proof.endswith('import torch_switchml; print(torch_switchml.stats()["delegated"])')


def test_a_stack_of_mpi_needs_a_backend_and_mpiexec() -> None:
    backend, launcher, proof = how_to_run(STACKS["cray-mpich"].validation)
    assert backend.endswith('torch.distributed.init_process_group("mpi")')
    assert launcher == "mpiexec -n 4 python train.py"
    assert "torch_mpi" in proof


def test_variables_come_before_the_launcher() -> None:
    first, *rest = how_to_run(STACKS["openmpi"].validation)
    assert first.startswith("export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe ")
    assert any(line.startswith("mpiexec") for line in rest)


def test_no_variable_is_left_out_and_what_holds_for_one_host_is_said() -> None:
    variables: dict[str, YamlValue] = {f"NAME_{number}": number for number in range(20)}
    line, *_ = how_to_run({"method": "distributed", "backend": "toys", "environment": variables})
    assert all(f"{name}={value}" in line.split() for name, value in variables.items())
    assert line.endswith("# as it was validated, on one host")


def test_what_only_launch_can_start_and_what_carries_nothing_have_no_lines() -> None:
    assert how_to_run(STACKS["accl"].validation) == ()
    assert how_to_run(STACKS["python"].validation) == ()


def test_every_line_is_one_for_a_shell() -> None:
    for stack in STACKS.values():
        for line in how_to_run(stack.validation):
            subprocess.run(["bash", "-n", "-c", line], check=True)
