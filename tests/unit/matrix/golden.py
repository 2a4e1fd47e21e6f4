# SPDX-License-Identifier: BSD-3-Clause
"""Golden files: what a stage gave when it was last looked at.

Refresh them with ``REFRESH_GOLDEN=1 pytest tests/unit/matrix tests/unit/plan`` and read the difference first.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def assert_golden(path: Path, text: str) -> None:
    """``text`` must be the content of ``path``; with REFRESH_GOLDEN it becomes that."""
    if os.environ.get("REFRESH_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"{path} is missing: run with REFRESH_GOLDEN=1"
    assert text == path.read_text(encoding="utf-8")
