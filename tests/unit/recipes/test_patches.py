# SPDX-License-Identifier: BSD-3-Clause
"""What patches/README.md says of every patch of this tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from channel_tools.sources.patches import names_in

ROOT = Path(__file__).parents[3]
PATCHES = sorted((ROOT / "patches").rglob("*.patch"))
LONGEST_CONTEXT = 3

C10D = "torch/csrc/distributed/c10d"
PYTHON = {
    "torch/distributed/distributed_c10d.py",
    "torch/distributed/optim/__init__.py",
    "torch/distributed/rpc/__init__.py",
}
CHANGED = {
    "pytorch-cray-mpich/2.2.2": {
        f"{C10D}/ProcessGroupMPI.cpp",
        "caffe2/mpi/mpi_ops_gpu.cc",
        "aten/src/ATen/native/sparse/cuda/cuSPARSELtOps.cpp",
        *PYTHON,
    },
    "pytorch-cray-mpich/2.3.1": {f"{C10D}/ProcessGroupMPI.cpp", "caffe2/mpi/mpi_ops_gpu.cc", *PYTHON},
    "pytorch-cray-mpich/2.4.0": {f"{C10D}/ProcessGroupMPI.cpp", *PYTHON},
    "pytorch-cray-mpich/2.4.1": {f"{C10D}/ProcessGroupMPI.cpp", *PYTHON},
    "pytorch-cray-mpich/2.6.0": {
        f"{C10D}/ProcessGroupMPI.cpp",
        f"{C10D}/TCPStore.cpp",
        "torch/csrc/jit/serialization/mobile_bytecode_generated.h",
        *PYTHON,
    },
    "pytorch-switchml/1.7.1": {
        f"{C10D}/init.cpp",
        "torch/distributed/distributed_c10d.py",
        "torch/lib/c10d/CMakeLists.txt",
        "torch/lib/c10d/ProcessGroupGloo.cpp",
        "torch/lib/c10d/ProcessGroupGloo.hpp",
        "third_party/gloo/gloo/common/linux.cc",
        "third_party/gloo/gloo/transport/tcp/device.cc",
    },
}
"""The files of PyTorch that are changed, by version."""


def _id(path: Path) -> str:
    return str(path.relative_to(ROOT / "patches"))


def test_there_are_patches() -> None:
    assert PATCHES


@pytest.mark.parametrize("path", PATCHES, ids=_id)
def test_a_patch_says_its_reason_and_keeps_its_context_short(path: Path) -> None:
    assert re.fullmatch(r"[a-z0-9-]+/[0-9a-z.]+/\d{4}(-[a-z0-9]+)+\.patch", _id(path))
    header, _, rest = path.read_text(encoding="utf-8").partition("\ndiff --git ")
    assert rest, "not in git's format"
    subject = next(line for line in header.splitlines() if line.startswith("Subject: "))
    reason = header.split(subject, 1)[1].strip().removesuffix("---").strip()
    assert len(reason.split()) >= 8, "no reason in the header"
    contexts = re.findall(r"^@@ .*\n((?: .*\n)*)", rest, re.MULTILINE)
    assert contexts
    assert all(context.count("\n") <= LONGEST_CONTEXT for context in contexts)


@pytest.mark.parametrize("path", PATCHES, ids=_id)
def test_a_recipe_applies_each_patch_once(path: Path) -> None:
    expected = f"- ../../patches/{_id(path)}"
    named = [
        sum(line.strip() == expected for line in recipe.read_text(encoding="utf-8").splitlines())
        for recipe in (ROOT / "recipes").glob("*/recipe.yaml")
    ]
    assert max(named) == 1


@pytest.mark.parametrize("version", CHANGED)
def test_patches_of_pytorch_change_these_files_alone(version: str) -> None:
    found: set[str] = set()
    for path in (ROOT / "patches" / version).glob("*.patch"):
        found |= names_in(path)
    assert found == CHANGED[version]
