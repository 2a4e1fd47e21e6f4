# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.foundation.registries import NotedProgress, Registries, make_registries

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def registries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registries:
    return make_registries(tmp_path, monkeypatch)


@pytest.fixture
def progress() -> NotedProgress:
    return NotedProgress()
