# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import rattler
import yaml
from hypothesis import given

from channel_tools.pins import Lock, LockedPackage
from channel_tools.pins.conda_lock import parse_conda_lock, render_conda_lock
from channel_tools.pins.conda_lock_model import CondaLockFile, PackageEntry
from channel_tools.pins.explicit import parse_explicit, render_environment, render_explicit
from channel_tools.pins.lock import repodata_record
from channel_tools.pins.pixi import read_pixi_lock, render_pixi_lock, render_pixi_manifest
from tests.unit.pins.locks import locks

NOWHERE = Path("lock")


@given(locks())
def test_conda_lock_holds_everything(lock: Lock) -> None:
    text = render_conda_lock(lock)
    assert parse_conda_lock(text, NOWHERE) == lock
    assert parse_conda_lock(text.replace("\n", "\r\n"), NOWHERE) == lock


@given(lock=locks())
def test_pixi_lock_holds_everything_but_the_request(lock: Lock, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("pixi") / "pixi.lock"
    text = render_pixi_lock(lock)
    for content in (text, text.replace("\n", "\r\n")):
        path.write_text(content, newline="")
        assert read_pixi_lock(path) == replace(lock, stack="", specs=())


@given(locks())
def test_explicit_lists_hold_addresses_and_hashes_in_order(lock: Lock) -> None:
    for platform in lock.platforms:
        read = parse_explicit(render_explicit(lock, platform), NOWHERE)
        (only,) = read.platforms
        expected = tuple(bare(package) for package in platform.packages)
        assert only == replace(platform, packages=expected)


@given(locks())
def test_environment_files_pin_every_package(lock: Lock) -> None:
    for platform in lock.platforms:
        content = yaml.safe_load(render_environment(lock, platform))
        assert content["name"] == lock.stack
        assert content["channels"] == list(lock.channels)
        for spec, package in zip(content["dependencies"], platform.packages, strict=True):
            matchspec = rattler.MatchSpec(spec, strict=False)
            assert matchspec.matches(repodata_record(package))
            assert not matchspec.matches(repodata_record(replace(package, version=f"{package.version}.1")))
            assert not matchspec.matches(repodata_record(replace(package, build=f"{package.build}_1")))


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


def bare(package: LockedPackage) -> LockedPackage:
    return replace(
        package,
        build_number=0,
        md5=None,
        size_bytes=0,
        depends=(),
        constrains=(),
        noarch=None,
        python_site_packages_path=None,
        license=None,
        timestamp_ms=None,
    )
