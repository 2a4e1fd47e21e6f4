# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest
import rattler

from channel_tools.pins.virtual import assumed_virtual_packages, to_generic
from channel_tools.system.errors import UsageError

HERE = str(rattler.Subdir.current())
ELSEWHERE = ("__glibc=2.28=0", "__linux=4.18=0", "__unix=0=0")


def test_this_machine_is_assumed_for_its_own_platform_without_its_processor_and_with_an_old_kernel() -> None:
    found = {str(package.into_generic()) for package in rattler.VirtualPackage.detect()}
    (assumed,) = assumed_virtual_packages([HERE]).values()
    assert {text for text in assumed if not text.startswith("__linux")} == {
        text for text in found if not text.startswith(("__archspec", "__linux"))
    }
    assert list(assumed) == sorted(assumed)
    if "linux" in HERE:
        assert "__linux=4.18=0" in assumed


def test_other_platforms_get_what_conda_forge_builds_for() -> None:
    assert assumed_virtual_packages(["osx-64"]) == {"osx-64": ELSEWHERE}


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("__cuda=12.9", ("__cuda=12.9=0", *ELSEWHERE)),
        ("__glibc=2.36=0", ("__glibc=2.36=0", *ELSEWHERE[1:])),
        ("__archspec=1=x86_64_v3", ("__archspec=1=x86_64_v3", *ELSEWHERE)),
        ("osx-64:__cuda=12", ("__cuda=12=0", *ELSEWHERE)),
        ("__linux=", (ELSEWHERE[0], ELSEWHERE[2])),
    ],
)
def test_overrides(override: str, expected: tuple[str, ...]) -> None:
    assert assumed_virtual_packages(["osx-64"], [override]) == {"osx-64": expected}


def test_what_an_earlier_lock_assumed_is_assumed_again() -> None:
    earlier = {"osx-64": ("__cuda=12.8=0", "__unix=0=0")}
    assumed = assumed_virtual_packages(["osx-64", "win-64"], ["__glibc=2.36"], earlier=earlier)
    assert assumed["osx-64"] == ("__cuda=12.8=0", "__glibc=2.36=0", "__unix=0=0")
    assert assumed["win-64"] == ("__glibc=2.36=0", *ELSEWHERE[1:])


def test_an_override_for_one_platform_leaves_the_others() -> None:
    assumed = assumed_virtual_packages(["osx-64", "win-64"], ["win-64:__cuda=12"])
    assert assumed == {"osx-64": ELSEWHERE, "win-64": ("__cuda=12=0", *ELSEWHERE)}


@pytest.mark.parametrize("text", ["cuda=12", "__cuda", "__cuda 12", "__cuda==12", "__cuda=12=0=1", "__CUDA=12", ""])
def test_what_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="is not a virtual package") as caught:
        assumed_virtual_packages(["osx-64"], [text])
    assert caught.value.hint is not None
    assert "__cuda=12.9" in caught.value.hint


def test_a_version_that_is_none() -> None:
    with pytest.raises(UsageError, match=r"'1\+\+2' is not a version"):
        to_generic(["__cuda=1++2=0"])


def test_a_platform_that_is_not_locked() -> None:
    with pytest.raises(UsageError, match="win-64 is not among the platforms"):
        assumed_virtual_packages(["osx-64"], ["win-64:__cuda=12"])
