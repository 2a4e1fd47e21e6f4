# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from tests.unit.environments.toychannel import PREFIX_PLACEHOLDER, ToyChannel

if TYPE_CHECKING:
    from pathlib import Path


INCOMPRESSIBLE = hashlib.shake_256(b"library").digest(200_000)


def make_channel(root: Path) -> ToyChannel:
    """`tool` (with a script that knows its prefix) needs `library`, of which there are two versions."""
    toy = ToyChannel(root=root)
    script = f"#!/bin/sh\necho {PREFIX_PLACEHOLDER}/share\n".encode()
    toy.add("tool", depends=["library >=1"], files={"bin/tool": script}, index=False)
    toy.add("library", version="1.0", files={"lib/library": b"one"}, index=False)
    toy.add("library", version="2.0", files={"lib/library": INCOMPRESSIBLE}, index=False)
    toy.index()
    return toy


@pytest.fixture
def channel(tmp_path: Path) -> ToyChannel:
    """See make_channel."""
    return make_channel(tmp_path / "channel")
