# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.errors import FoundationError
from channel_tools.foundation.repairs.protobuf import write_protobuf_cmake
from tests.unit.foundation.repairs.trees import context, make_tree


def test_the_cmake_package_names_the_version_and_no_place(tmp_path: Path) -> None:
    make_tree(tmp_path, dict.fromkeys(("lib/libprotobuf.so", "lib/libprotobuf-lite.so", "lib/libprotoc.so"), ""))
    make_tree(tmp_path, {"bin/protoc": ""})
    write_protobuf_cmake(tmp_path, context("libprotobuf"))
    folder = tmp_path / "lib/cmake/protobuf"
    assert 'set(Protobuf_VERSION "1.2.3")' in (folder / "protobuf-config.cmake").read_text()
    assert 'set(PACKAGE_VERSION "1.2.3")' in (folder / "protobuf-config-version.cmake").read_text()
    assert str(tmp_path) not in (folder / "protobuf-config.cmake").read_text()


def test_missing_parts_are_named(tmp_path: Path) -> None:
    make_tree(tmp_path, {"bin/protoc": ""})
    with pytest.raises(
        FoundationError, match=r"lacks lib/libprotobuf\.so, lib/libprotobuf-lite\.so, lib/libprotoc\.so"
    ):
        write_protobuf_cmake(tmp_path, context("libprotobuf"))
