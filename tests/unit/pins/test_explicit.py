# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import rattler
import yaml
from hypothesis import given

from channel_tools.pins import Lock, LockedPackage
from channel_tools.pins.explicit import parse_explicit, render_environment, render_explicit
from channel_tools.pins.lock import repodata_record
from tests.unit.pins.locks import locks

NOWHERE = Path("lock")


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
