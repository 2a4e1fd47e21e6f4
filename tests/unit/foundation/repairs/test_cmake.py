# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.foundation.repairs.cmake import GRPC_EXPECTED, write_grpc_cmake
from channel_tools.system.errors import FoundationError
from tests.support.trees import make_tree
from tests.unit.foundation.repairs.trees import context

if TYPE_CHECKING:
    from pathlib import Path


def test_grpcs_package_has_upstreams_targets(tmp_path: Path) -> None:
    make_tree(tmp_path, dict.fromkeys(GRPC_EXPECTED, ""))
    write_grpc_cmake(tmp_path, context("libgrpc"))
    folder = tmp_path / "lib/cmake/grpc"
    assert 'set(PACKAGE_VERSION "1.2.3")' in (folder / "gRPCConfigVersion.cmake").read_text()
    text = (folder / "gRPCConfig.cmake").read_text()
    assert "add_executable(gRPC::grpc_cpp_plugin IMPORTED)" in text
    assert str(tmp_path) not in text


def test_a_missing_library_is_named(tmp_path: Path) -> None:
    make_tree(tmp_path, dict.fromkeys(set(GRPC_EXPECTED) - {"lib/libgrpc++.so"}, ""))
    with pytest.raises(FoundationError, match=r"gRPC lacks lib/libgrpc\+\+\.so"):
        write_grpc_cmake(tmp_path, context("libgrpc"))
