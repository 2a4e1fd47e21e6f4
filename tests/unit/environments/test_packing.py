# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.environments.packing import SUFFIXES, check_archive
from channel_tools.system.errors import UsageError


def test_an_archive_has_a_format_a_folder_and_a_new_name(tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        check_archive(tmp_path / f"env{suffix}", replace=False)
    with pytest.raises(UsageError, match="not the name of an archive"):
        check_archive(tmp_path / "env.rar", replace=False)
    with pytest.raises(UsageError, match=f"there is no folder {tmp_path / 'none'}"):
        check_archive(tmp_path / "none" / "env.tar", replace=False)
    (tmp_path / "env.tar").write_bytes(b"kept")
    with pytest.raises(UsageError, match="exists; nothing was written"):
        check_archive(tmp_path / "env.tar", replace=False)
    check_archive(tmp_path / "env.tar", replace=True)
    assert (tmp_path / "env.tar").read_bytes() == b"kept"
