# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from channel_tools.requests.bump import BumpRequest
from channel_tools.system.errors import UsageError


def test_hashes_of_a_new_version_are_whole() -> None:
    assert BumpRequest(package="toy", version="2", sha256="a" * 64, commit="b" * 40).sha256 == "a" * 64
    with pytest.raises(UsageError, match="--sha256 must be 64 hexadecimal digits in lower case, got 'A"):
        BumpRequest(package="toy", version="2", sha256="A" * 64)
    with pytest.raises(UsageError, match="--commit must be 40 hexadecimal digits in lower case, got 'v2'"):
        BumpRequest(package="toy", version="2", commit="v2")
