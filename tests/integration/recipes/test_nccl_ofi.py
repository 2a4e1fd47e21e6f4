# SPDX-License-Identifier: BSD-3-Clause
"""NCCL's plugin from upstream's sources: built, installed from the channel alone, beside the channel's NCCL."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from channel_tools.matrix import find_stack, load_tree
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import Settings
from channel_tools.validate import ValidationReport, validate_stack
from channel_tools.validate.nccl.method import NcclMethod
from tests.integration.conftest import build_into_output
from tests.support.fabric_profile import NET, activation_line, installed_activation, read_variables
from tests.support.slurm import running_slurm
from tests.support.stacks import build_from_upstream, validation_request

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STACK = "nccl-ofi"
GPUS = len(list(Path("/dev").glob("nvidia[0-9]*")))


@pytest.fixture(scope="module")
def channel(own_settings: Settings) -> Path:
    build_from_upstream(own_settings, STACK, STACK)
    made = build_into_output("foundation", "build", "--with", "nccl")
    assert made.returncode == 0, made.stderr
    # the next build puts what the foundation has got into the channel
    return build_from_upstream(own_settings, STACK, STACK)


def validated(settings: Settings, work: Path, ranks: int) -> ValidationReport:
    """The stack's validation as ``channel_tools validate`` does it."""
    stack = find_stack(load_tree(settings.tree), STACK)
    options: dict[str, object] = {name: value for name, value in stack.validation.items() if name != "method"}
    request = validation_request(
        settings, work / "env", work, stack=STACK, specs=stack.install, options=options, method="nccl", ranks=ranks
    )
    return validate_stack(request, environ=os.environ, progress=SilentProgress())


@pytest.mark.usefixtures("channel")
def test_nccl_takes_the_plugin_without_a_gpu(
    own_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("channel_tools.validate.nccl.method.METHOD", NcclMethod(root=tmp_path))
    report = validated(own_settings, tmp_path, 2)
    assert report.failed_checks == ()
    (shared,) = [check for check in report.result.checks if check.name == "NCCL and the plugin share a net ABI"]
    assert shared.found == "v12"
    assert report.result.cases == ()


@pytest.mark.skipif(GPUS < 2, reason=f"the allreduces need two NVIDIA GPUs, and this machine has {GPUS}")
@pytest.mark.usefixtures("channel")
def test_the_plugin_carries_every_connection(own_settings: Settings, tmp_path: Path) -> None:
    report = validated(own_settings, tmp_path, 2)
    assert report.failed_checks == ()


def test_a_real_slurms_jobs_and_steps_name_the_plugin_where_they_have_several_nodes(tmp_path: Path) -> None:
    line = activation_line(installed_activation(tmp_path))
    script, activate = tmp_path / "job", tmp_path / "activate"
    activate.write_text(f"{line}\n")
    with running_slurm() as slurm:

        def named(nodes: int) -> dict[str, str | None]:
            """NCCL_NET by where in a job the environment is activated: its script, a step on all nodes, one on one."""
            folder = tmp_path / f"{nodes} nodes"
            folder.mkdir()
            step = f"{slurm.bin}/srun --nodes=1 --ntasks=1 --overlap sh {activate}"
            script.write_text(f"#!/bin/sh\ncd '{folder}' && {step} > one && . {activate} > batch\n")
            slurm.run("sbatch", "--wait", f"--nodes={nodes}", "--time=5", f"--output={tmp_path}/log", str(script))
            every = slurm.run("srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--time=5", "sh", str(activate))
            printed = {"batch": (folder / "batch").read_text(), "step": every, "one": (folder / "one").read_text()}
            found = {where: read_variables(text) for where, text in printed.items()}
            assert {variables["NCCL_SOCKET_IFNAME"] for variables in found.values()} == {"hsn"}
            return {where: variables.get("NCCL_NET") for where, variables in found.items()}

        assert named(2) == {"batch": NET, "step": NET, "one": None}
        assert named(1) == {"batch": None, "step": None, "one": None}
