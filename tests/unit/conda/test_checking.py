# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from channel_tools.conda.checking import Member, check_metadata, path_rows, read_info
from channel_tools.conda.contents import InfoFiles, PackageProblem
from channel_tools.system.errors import IntegrityError

PACKAGE = Path("toy-1.0-0.conda")
INDEX = b'{"name": "toy", "version": "1.0", "build": "0", "build_number": 0, "subdir": "noarch", "depends": []}'


def members(**files: bytes) -> Iterator[Member]:
    for name, content in files.items():
        header = tarfile.TarInfo(name.replace("__", "/").replace("_json", ".json"))
        header.size = len(content)
        yield header, io.BytesIO(content)


def refuse(problem: PackageProblem) -> None:
    raise AssertionError(problem)


def test_metadata_are_the_plain_files_below_info() -> None:
    with InfoFiles(all_files=True) as info:
        read_info(members(info__index_json=INDEX), PACKAGE, info, refuse)
        assert dict(info) == {"index.json": INDEX}
        check_metadata(info, PACKAGE)
    with InfoFiles(all_files=True) as info, pytest.raises(IntegrityError, match="not a plain file below info/"):
        read_info(members(share__toy=b""), PACKAGE, info, refuse)


@pytest.mark.parametrize("index", [b"[]", b"{", INDEX.replace(b'"1.0"', b"1")], ids=["list", "cut", "number"])
def test_metadata_that_no_index_can_contain_are_refused(index: bytes) -> None:
    with InfoFiles(all_files=False) as info:
        read_info(members(info__index_json=index), PACKAGE, info, refuse)
        with pytest.raises(IntegrityError, match=r"toy-1\.0-0\.conda"):
            check_metadata(info, PACKAGE)


def test_an_older_package_may_have_a_list_of_its_files_instead_of_rows() -> None:
    files = {"files": b"share/toy.txt\n"}
    assert [*path_rows(files, Path("toy-1.0-0.tar.bz2"))] == ["share/toy.txt"]
    with pytest.raises(IntegrityError, match=r"paths\.json"):
        path_rows(files, PACKAGE)
