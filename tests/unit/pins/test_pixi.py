# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest
from hypothesis import given

from channel_tools.pins import Lock
from channel_tools.pins.pixi import read_pixi_lock, render_pixi_lock, render_pixi_manifest
from tests.unit.pins.locks import locks


@given(lock=locks())
def test_pixi_lock_holds_everything_but_the_request(lock: Lock, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("pixi") / "pixi.lock"
    text = render_pixi_lock(lock)
    for content in (text, text.replace("\n", "\r\n")):
        path.write_text(content, newline="")
        assert read_pixi_lock(path) == replace(lock, stack="", specs=())


@given(locks())
def test_pixi_manifests_pin_every_package(lock: Lock) -> None:
    content = tomllib.loads(render_pixi_manifest(lock))
    assert content["workspace"] == {
        "name": lock.stack,
        "channels": list(lock.channels),
        "platforms": [one.platform for one in lock.platforms],
    }
    for platform in lock.platforms:
        assert content["target"][platform.platform]["dependencies"] == {
            one.name: {"version": f"=={one.version}", "build": one.build} for one in platform.packages
        }
