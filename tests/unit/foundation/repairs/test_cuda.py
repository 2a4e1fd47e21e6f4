# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.errors import FoundationError
from channel_tools.foundation.repairs.cuda import place_cuda, place_nccl
from tests.unit.foundation.repairs.trees import context, make_tree, tree_state

if TYPE_CHECKING:
    from pathlib import Path

SITE = "lib/python3.11/site-packages"


def test_the_runtime_lies_where_conda_forges_does(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        f"{SITE}/nvidia/cu13/include/cuda.h": "header",
        f"{SITE}/nvidia/cu13/lib/libcudart.so.13": "shared",
        f"{SITE}/nvidia/cu13/lib/libcudart_static.a": "static",
        f"{SITE}/nvidia_cuda_runtime-13.0.dist-info/METADATA": "metadata",
    }
    root = make_tree(tmp_path / "env", files)
    place_cuda(root, context("cuda-cudart"))
    assert tree_state(root) == {
        "lib/libcudart.so": "-> ../targets/x86_64-linux/lib/libcudart.so",
        "lib/libcudart.so.13": "-> ../targets/x86_64-linux/lib/libcudart.so.13",
        "targets/x86_64-linux/include/cuda.h": "header",
        "targets/x86_64-linux/lib/libcudart.so": "-> libcudart.so.13",
        "targets/x86_64-linux/lib/libcudart.so.13": "shared",
        "targets/x86_64-linux/lib/libcudart_static.a": "static",
    }


def test_nccl_lies_in_the_prefix(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        f"{SITE}/nvidia/nccl/include/nccl.h": "header",
        f"{SITE}/nvidia/nccl/lib/libnccl.so.2": "shared",
    }
    root = make_tree(tmp_path / "env", files)
    place_nccl(root, context("nccl"))
    assert tree_state(root) == {
        "include/nccl.h": "header",
        "lib/libnccl.so": "-> libnccl.so.2",
        "lib/libnccl.so.2": "shared",
    }


def test_another_layout_is_an_error(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "env", {f"{SITE}/nvidia/other/lib/libx.so.1": "shared"})
    with pytest.raises(FoundationError, match=r"expected one folder nvidia/cu\[0-9\]\*, found 0"):
        place_cuda(root, context("cuda-cudart"))
