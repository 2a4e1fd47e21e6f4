# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
from typing import TYPE_CHECKING

from channel_tools.serve.uploads.locks import is_locked, try_lock
from channel_tools.system.beneath import Beneath

if TYPE_CHECKING:
    from pathlib import Path


def test_a_lock_is_held_until_the_last_who_has_it_lets_go(tmp_path: Path) -> None:
    files = Beneath(root=tmp_path)
    assert not is_locked(files, "lock")
    with try_lock(files, "lock") as lock:
        assert lock is not None
        assert is_locked(files, "lock")
        with try_lock(files, "lock") as second:
            assert second is None
        inherited = os.dup(lock)  # as by a fork
    assert is_locked(files, "lock")
    os.close(inherited)
    assert not is_locked(files, "lock")
