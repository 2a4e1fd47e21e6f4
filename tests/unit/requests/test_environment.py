# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from channel_tools.pins.choice import LockChoice
from channel_tools.requests.environment import EnvironmentRequest, InstallRequest
from channel_tools.requests.trust import TrustRequest
from channel_tools.system.errors import UsageError


def asked(options: dict[str, Any]) -> EnvironmentRequest:
    return EnvironmentRequest(prefix=Path("env"), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"specs": ("numpy",), "install": InstallRequest(python="3.13")}, "MatchSpecs with --variant"),
        ({"specs": ("numpy",), "lock": Path("a.lock")}, "MatchSpecs with --variant"),
        ({"platform": "linux-64"}, "--platform without --lock"),
        ({"lock": Path("a.lock"), "install": InstallRequest(stack="udp")}, "--variant, --python or --pytorch with"),
        ({"trust": TrustRequest(trusted_keys=(Path("keys"),))}, "trust options without --require-attestation"),
        ({"categories": ("dev",)}, "--category or --environment without a lock"),
    ],
    ids=["specs and a variant", "specs and a lock", "platform", "lock and a variant", "trust", "category"],
)
def test_options_that_contradict_each_other_are_no_request(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        asked(options)


def test_a_lock_and_specs_need_no_stacks_and_the_options_choose_a_part_of_the_lock() -> None:
    assert asked({}).needs_stacks
    assert not asked({"specs": ("numpy",), "install": InstallRequest(channels=("lab",))}).needs_stacks
    locked = asked({"lock": Path("a.lock"), "platform": "linux-64", "categories": ("dev",), "environment": "gpu"})
    assert not locked.needs_stacks
    assert locked.choice == LockChoice(platforms=("linux-64",), categories=("dev",), environment="gpu")
