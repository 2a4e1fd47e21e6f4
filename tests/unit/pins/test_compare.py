# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from dataclasses import replace

from channel_tools.pins import Lock, LockedPackage
from channel_tools.pins.compare import PinChange, compare_locks
from tests.unit.pins.toylock import TOY_LOCK, toy_package

DATA, APP = TOY_LOCK.platforms[0].packages


def with_packages(*packages: LockedPackage) -> Lock:
    return replace(TOY_LOCK, platforms=(replace(TOY_LOCK.platforms[0], packages=packages),))


def change(name: str, before: str | None, after: str | None) -> PinChange:
    kind = "added" if before is None else "removed" if after is None else "changed"
    return PinChange(platform="linux-64", name=name, kind=kind, before=before, after=after)  # type: ignore[arg-type]


def test_every_difference_is_said_once() -> None:
    before = with_packages(DATA, APP, toy_package("gone", "1", "0"))
    newer = toy_package("app", "1.0", "udp_h2", sha256="77" * 32)
    after = with_packages(toy_package("new", "2", "0"), newer, DATA)
    assert compare_locks(before, after) == (
        change("app", "1.0 udp_h1", "1.0 udp_h2"),
        change("gone", "1 0", None),
        change("new", None, "2 0"),
    )


def test_other_bytes_are_a_change() -> None:
    assert compare_locks(with_packages(DATA), with_packages(replace(DATA, sha256="77" * 32))) == (
        change("data", "1.10 pyhd8_0", "1.10 pyhd8_0"),
    )


def test_another_address_is_none() -> None:
    moved = replace(DATA, url=DATA.url.replace("ours", "theirs"), channel="https://channel.example/theirs")
    assert compare_locks(with_packages(DATA), with_packages(moved)) == ()


def test_a_platform_that_is_left_out_takes_its_packages_along() -> None:
    other = replace(TOY_LOCK, platforms=(replace(TOY_LOCK.platforms[0], platform="linux-aarch64", packages=(DATA,)),))
    assert [(one.platform, one.name, one.kind) for one in compare_locks(TOY_LOCK, other)] == [
        ("linux-64", "app", "removed"),
        ("linux-64", "data", "removed"),
        ("linux-aarch64", "data", "added"),
    ]
