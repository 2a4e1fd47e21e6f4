# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import rattler
import yaml
from hypothesis import given

from channel_tools.pins import Lock
from channel_tools.pins.conda_lock import CondaLockFile, PackageEntry, parse_conda_lock, render_conda_lock
from tests.unit.pins.locks import locks

NOWHERE = Path("lock")


@given(locks())
def test_conda_lock_holds_everything(lock: Lock) -> None:
    text = render_conda_lock(lock)
    assert parse_conda_lock(text, NOWHERE) == lock
    assert parse_conda_lock(text.replace("\n", "\r\n"), NOWHERE) == lock


@given(locks())
def test_conda_lock_follows_its_cep(lock: Lock) -> None:
    content = yaml.safe_load(render_conda_lock(lock))
    model = CondaLockFile.model_validate(content)
    assert set(model.metadata.content_hash) == set(model.metadata.platforms)
    entries = [PackageEntry.model_validate(one) for one in model.package]
    keys = [(one.name, one.manager, one.platform, one.category) for one in entries]
    assert len(keys) == len(set(keys))
    for entry in entries:
        for name, rest in entry.dependencies.items():
            rattler.MatchSpec(f"{name} {rest}", strict=False)
