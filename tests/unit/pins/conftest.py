# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.environments.toychannel import ToyChannel


@pytest.fixture
def channel(tmp_path: Path) -> ToyChannel:
    """`app` needs `library` (two versions), which needs the noarch `data`; `app` wants a glibc."""
    toy = ToyChannel(root=tmp_path / "channel")
    toy.add("app", build="udp_h1", depends=["library >=1", "data", "__glibc >=2.17"], index=False)
    toy.add("library", version="1.0", depends=["data"], index=False)
    toy.add("library", version="2.0", depends=["data"], index=False)
    toy.add("data", subdir="noarch", index=False)
    toy.index()
    return toy
