# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest
import yaml

from channel_tools.conda.compiled_in import host_packages, packages_with_texts, read_rendered, what_can_be_compiled_in


def test_the_host_environment_is_that_of_the_record_by_name() -> None:
    rows = [{"name": "zlib", "version": "1.3", "fn": "zlib.conda"}, {"name": "grpc", "license": None}, "no row"]
    record = yaml.safe_dump({"finalized_dependencies": {"host": {"resolved": rows}}}).encode()
    grpc, zlib = host_packages(read_rendered(record))
    assert (grpc.name, grpc.license) == ("grpc", "")
    assert (zlib.name, zlib.version, zlib.file_name) == ("zlib", "1.3", "zlib.conda")


@pytest.mark.parametrize("record", [None, b"", b"[1]", b"finalized_dependencies: 1", b"a: ["])
def test_no_record_is_no_host_environment(record: bytes | None) -> None:
    assert host_packages(read_rendered(record)) == ()
    assert bool(read_rendered(record).fault) is (record == b"a: [")


def test_licence_texts_name_the_packages() -> None:
    texts = ["licenses/compiled-in/grpc/LICENSE", "licenses/compiled-in/grpc/NOTICE", "licenses/other/x"]
    assert packages_with_texts(texts) == {"grpc"}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["lib/libx.a"], "lib/libx.a"),
        (["lib/liby.a", "lib/libx.a", "include/x.h"], "lib/libx.a and 1 more archives"),
        (["x/sysroot/usr/lib/libc.a", "lib/gcc/12/libgcc.a"], ""),
        (["include/x/y.hpp", "share/x.h"], "headers, such as include/x/y.hpp"),
        (["include/x.h", "lib/libx.so.1"], ""),
        (["bin/x"], ""),
    ],
)
def test_archives_and_headers_without_a_library_can_be_compiled_in(files: list[str], said: str) -> None:
    assert what_can_be_compiled_in(files) == said
