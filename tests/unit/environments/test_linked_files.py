# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
from typing import TYPE_CHECKING

from channel_tools.environments.linked_files import remove_unrecorded

if TYPE_CHECKING:
    from pathlib import Path


def write(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_files_of_packages_without_a_record_go_and_all_others_stay(tmp_path: Path) -> None:
    prefix, cache, outside = tmp_path / "env", tmp_path / "pkgs", tmp_path / "outside"
    rows = ["bin/tool", "site-packages/tool/a.py", "python-scripts/script", "share/none", "../outside/own", "data/own"]
    listed = {"paths": [{"_path": row, "path_type": "hardlink"} for row in rows], "paths_version": 1}
    (cache / "tool-1.0-0" / "info").mkdir(parents=True)
    (cache / "tool-1.0-0" / "info" / "paths.json").write_text(json.dumps(listed))
    modules = prefix / "lib" / "python3.12" / "site-packages"
    kept = [prefix / "bin" / "own", modules / "own.py", outside / "own"]
    gone = [
        prefix / "bin" / "tool",
        prefix / "bin" / "script",
        modules / "tool" / "a.py",
        modules / "tool" / "__pycache__" / "a.cpython-312.pyc",
    ]
    write(*kept, *gone)
    (prefix / "data").symlink_to(outside)
    remove_unrecorded(prefix, ["tool-1.0-0", "purged-1.0-0", "library-2.0", ""], cache)
    assert [path for path in kept if not path.exists()] == []
    assert [path for path in gone if path.exists()] == []
    assert not (modules / "tool").exists()
    assert (prefix / "data").is_symlink()
