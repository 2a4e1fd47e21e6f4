# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
from pathlib import Path

import pytest

from channel_tools.channel.former import read_former
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import IntegrityError

RECORD = {"name": "toy", "version": "1.0", "build": "0", "build_number": 0, "depends": [], "sha256": "0" * 64}


def former(folder: Path, **files: bytes) -> Beneath:
    for name, content in files.items():
        (folder / f"{name}.json").write_bytes(content)
    return Beneath(root=folder)


def test_an_index_has_its_records_what_it_removed_and_its_own_base_url(tmp_path: Path) -> None:
    index = {
        "info": {"subdir": "linux-64", "base_url": "../elsewhere"},
        "packages": {},
        "packages.conda": {"toy-1.0-0.conda": RECORD},
        "removed": ["old-1.0-0.conda"],
    }
    found = read_former(former(tmp_path, repodata=json.dumps(index).encode()))
    assert found is not None
    assert found.records == {"toy-1.0-0.conda": RECORD}
    assert (found.removed, found.base_url) == (("old-1.0-0.conda",), "../elsewhere")


def test_a_folder_without_an_index_has_none_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    assert read_former(former(tmp_path)) is None
    with pytest.raises(IntegrityError, match=r"repodata\.json: the index cannot be read"):
        read_former(former(tmp_path, repodata=b'{"packages": 3}'))
