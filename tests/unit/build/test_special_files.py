# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
from typing import TYPE_CHECKING

from channel_tools.build.special_files import special_file

if TYPE_CHECKING:
    from pathlib import Path


def test_files_that_a_package_cannot_have_are_named(tmp_path: Path) -> None:
    share = tmp_path / "bld/rattler-build_toy/host_env_placehold/share"
    share.mkdir(parents=True)
    (share / "größe").write_text("x")
    assert special_file(tmp_path) == ""
    name = os.fsencode(share) + b"/z\xff"
    with open(name, "w"):  # noqa: PTH123 - bytes
        assert special_file(tmp_path).startswith(r"share/z\xff has a name that is not UTF-8")
    os.mkfifo(share / "pipe")
    assert special_file(tmp_path).startswith("share/pipe is a named pipe")
