# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from channel_tools.doctor.libraries import find_mpi
from channel_tools.doctor.model import Subject

if TYPE_CHECKING:
    from pathlib import Path


def test_a_build_for_the_standard_abi_is_asked_for_that_library(tmp_path: Path) -> None:
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    installed = {"torch-mpi": "1.0.0 mpi_abi_py311_h0_0", "mpich-abi": "5.0.2 h0_0"}
    subject = Subject(
        stack="mpi-abi", backend="mpi", settings={}, prefix=tmp_path / "env", variables={}, installed=installed
    )
    (missing,) = find_mpi(subject)
    assert (missing.subject, missing.level) == ("MPI library", "fault")
    assert missing.found.startswith("libmpi_abi.so.1: cannot open")
