# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.errors import ValidationError
from channel_tools.validate.needs import check_devices, check_site

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_is_asked_of_the_machine_without_needs(tmp_path: Path) -> None:
    check_devices("toy", (), root=tmp_path)
    check_site("toy", (), variables={})


def test_devices_that_are_there_are_enough(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    (tmp_path / "dev/kfd").touch()
    (tmp_path / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    check_devices("toy", ("gpu", "amdgpu", "rdma"), root=tmp_path)


def test_devices_that_are_absent_are_named_in_one_error(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    with pytest.raises(ValidationError, match=r"this machine lacks: an NVIDIA GPU.*; an AMD GPU.*; an RDMA device"):
        check_devices("toy", ("rdma", "amdgpu", "gpu"), root=tmp_path)


def test_what_a_site_brings_is_looked_for_in_the_activated_environment(tmp_path: Path) -> None:
    program = tmp_path / "srun"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    variables = {"PATH": str(tmp_path), "XILINX_XRT": "somewhere"}
    check_site("toy", ("library:libc.so.6", "program:srun", "variable:XILINX_XRT"), variables=variables)


@pytest.mark.parametrize(
    ("need", "message"),
    [
        ("library:libxrt_absent.so.2", r"the library libxrt_absent\.so\.2 \(libxrt_absent\.so\.2: cannot open"),
        ("program:no-such-launcher", r"the program no-such-launcher \(not on the PATH"),
        ("variable:XILINX_XRT", r"the variable XILINX_XRT \(not set"),
    ],
    ids=["library", "program", "variable"],
)
def test_what_a_site_does_not_bring_is_named(tmp_path: Path, need: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        check_site("toy", (need,), variables={"PATH": str(tmp_path)})
