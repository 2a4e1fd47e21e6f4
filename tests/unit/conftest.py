# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_flushing() -> Iterator[None]:
    """Write nothing through to the disk: that protects from a power cut only, and takes 10,000 waits for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        patch.setattr(os, "sync", lambda: None)
        yield
