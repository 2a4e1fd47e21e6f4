# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of a device that MPI does not take: through pinned memory with one notice, or refused."""

import json
import os

import pytest
from conftest import TESTS, Launcher

RANKS = 2


def test_tensors_of_a_device_go_through_pinned_memory_or_are_refused(launcher: Launcher) -> None:
    if "SLOW_DEVICE_LIBRARY" not in os.environ:
        pytest.skip("SLOW_DEVICE_LIBRARY names no device: compile torch-switchml's tests/device/slow_device.cpp")
    ended = launcher.mpiexec(TESTS / "device_scenario.py", ranks=RANKS)
    assert ended.code == 0, ended.said
    notice = "torch-mpi: tensors of slow:0 go through the host's memory: MPI can be asked about CUDA alone"
    assert ended.said.count("go through the host's memory") == ended.said.count(notice) == RANKS  # once a rank
    for rank in range(RANKS):
        seen = json.loads((launcher.folder / f"seen.{rank}.json").read_text())
        assert seen["AUTO"]["result"] == seen["HOST"]["result"] == [True] * 4
        assert seen["AUTO"]["staged"] == seen["HOST"]["staged"] == 9
        assert seen["AUTO"]["pinned"] >= 4 * 40_001
        assert "TORCH_MPI_GPU=require, and MPI does not take tensors of slow:0: MPI can be" in seen["REQUIRE"]["result"]
        assert seen["REQUIRE"]["staged"] == 0
