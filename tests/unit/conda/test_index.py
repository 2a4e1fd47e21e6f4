# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
from pathlib import Path

import pytest

from channel_tools.conda.clients import make_http_client
from channel_tools.conda.index import read_index
from channel_tools.system.errors import ChannelError, IntegrityError

RECORD = {"name": "toy", "version": "1.0", "build": "0", "build_number": 0, "depends": [], "subdir": "noarch"}


def channel(folder: Path, **more: object) -> str:
    (folder / "noarch").mkdir(parents=True)
    index = {"packages.conda": {"toy-1.0-0.conda": RECORD, "other-1.0-0.conda": {**RECORD, "name": "other"}}, **more}
    (folder / "noarch" / "repodata.json").write_text(json.dumps(index))
    return folder.as_uri()


def test_a_channel_lists_the_named_files_or_all(tmp_path: Path) -> None:
    address, client = channel(tmp_path), make_http_client({})
    one = read_index(address, "noarch", {"toy-1.0-0.conda", "absent-1.0-0.conda"}, client)
    assert set(one.records) == {"toy-1.0-0.conda"}
    assert one.folder == f"{address}/noarch/"
    assert set(read_index(address, "noarch", None, client).records) == {"toy-1.0-0.conda", "other-1.0-0.conda"}
    assert read_index(address, "noarch", set(), client).records == {}


def test_packages_are_where_the_index_says(tmp_path: Path) -> None:
    address = channel(tmp_path, info={"base_url": "https://packages.example/toys"}, repodata_version=2)
    assert read_index(address, "noarch", None, make_http_client({})).folder == "https://packages.example/toys/"


def test_a_folder_without_an_index_is_no_channel(tmp_path: Path) -> None:
    (tmp_path / "noarch").mkdir()
    with pytest.raises(ChannelError, match="not a channel: it has no repodata"):
        read_index(tmp_path.as_uri(), "noarch", None, make_http_client({}))


def test_a_damaged_index_is_an_error(tmp_path: Path) -> None:
    address = channel(tmp_path)
    (tmp_path / "noarch" / "repodata.json").write_text("{")
    with pytest.raises(IntegrityError, match="its repodata cannot be read"):
        read_index(address, "noarch", None, make_http_client({}))
