# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from channel_tools.doctor import library_probe


def test_a_library_is_loaded_or_says_why_not() -> None:
    """In a process of its own, as doctor runs it: what it loads stays loaded."""
    script = str(Path(str(library_probe.__file__)))
    command = [sys.executable, "-I", script, "libc.so.6", "libnone-at-all.so.1"]
    found, missing = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert (found["name"], found["error"]) == ("libc.so.6", "")
    assert Path(found["file"]).name.startswith("libc")
    assert missing["file"] == ""
    assert "libnone-at-all.so.1" in missing["error"]
