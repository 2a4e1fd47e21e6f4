# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from channel_tools.channel import Foundation, create_channel, open_channel
from channel_tools.requests.foundation import FoundationRequest
from channel_tools.requests.plan import PlanRequest
from channel_tools.system.errors import FoundationError, UsageError
from channel_tools.system.progress import SilentProgress
from channel_tools.workflow.bases import default_base, listed_base, own_base, require_runs
from channel_tools.workflow.foundation import make_registry_foundation
from channel_tools.workflow.plan import choose_foundation
from tests.unit.workflow.test_plan import settings_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("glibc", "base"),
    [((2, 36), "debian-12"), ((2, 40), "debian-12"), ((2, 41), "debian-13"), ((3, 0), "debian-13")],
)
def test_a_new_channel_has_the_newest_base_that_the_machine_runs(
    tmp_path: Path, glibc: tuple[int, int], base: str
) -> None:
    assert default_base(glibc) == own_base(settings_of(tmp_path), glibc=glibc) == base


@pytest.mark.parametrize("glibc", [(2, 31), (2, 35)])
def test_an_older_machine_has_the_newest_base_that_it_runs(tmp_path: Path, glibc: tuple[int, int]) -> None:
    assert default_base(glibc) == own_base(settings_of(tmp_path), glibc=glibc) == "debian-11"
    assert "support" in Foundation().on("debian-11").base_in_words
    assert Foundation().base_in_words == "debian-12"


@pytest.mark.parametrize(("glibc", "shown"), [((2, 28), "glibc 2.28"), (None, "no glibc")])
def test_a_machine_older_than_every_base_is_an_error(tmp_path: Path, glibc: tuple[int, int] | None, shown: str) -> None:
    with pytest.raises(FoundationError, match=f"this machine has {shown}, and the oldest base, debian-11,") as caught:
        default_base(glibc)
    assert "--foundation conda-forge" in str(caught.value.hint)
    assert listed_base(settings_of(tmp_path)) == "debian-12"


def test_a_base_newer_than_the_machine_is_an_error() -> None:
    with pytest.raises(
        FoundationError, match=r"base debian-13 needs glibc 2\.41, and this machine has glibc 2\.36"
    ) as caught:
        require_runs("debian-13", glibc=(2, 36))
    assert "--base debian-12" in str(caught.value.hint)
    require_runs("debian-12", glibc=(2, 41))


@pytest.mark.parametrize("place", ["channel", "foundation"])
def test_what_is_there_keeps_its_base(tmp_path: Path, place: str) -> None:
    settings = settings_of(tmp_path)
    create_channel(getattr(settings, place), Foundation().on("debian-13"))
    assert own_base(settings, glibc=(2, 36)) == "debian-13"


def test_a_channel_that_records_no_base_is_debian_12s(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    create_channel(settings.channel, Foundation())
    assert own_base(settings, glibc=(2, 41)) == "debian-12"
    assert open_channel(settings.channel, foundation=Foundation().on("debian-12")).foundation.release == "debian-12"


def test_a_channel_of_another_base_is_an_error_before_any_download(tmp_path: Path) -> None:
    settings = dataclasses.replace(settings_of(tmp_path), cache=tmp_path / "cache")
    create_channel(settings.channel, Foundation().on("debian-13"))
    create_channel(settings.foundation, Foundation().on("debian-13"))
    with pytest.raises(FoundationError, match="foundation registry of debian-13, not registry;") as caught:
        choose_foundation(settings, PlanRequest(base="debian-12"))
    assert "--base debian-13" in str(caught.value.hint)
    assert choose_foundation(settings, PlanRequest(foundation="registry")).release == "debian-13"
    request = FoundationRequest(base="debian-12", dry_run=True)
    with pytest.raises(FoundationError, match="foundation registry of debian-13, not registry;"):
        make_registry_foundation(settings, request, progress=SilentProgress())
    assert not settings.downloads.exists()


def test_a_base_is_the_registry_foundations_alone() -> None:
    with pytest.raises(UsageError, match="--base debian-13 with --foundation conda-forge"):
        Foundation.named("conda-forge", None, "debian-13")
    assert Foundation.named(None, None, "debian-13") == Foundation().on("debian-13") != Foundation()
    assert Foundation(kind="conda-forge").runs_on(["linux-64"]) is None
    assert Foundation().runs_on(["noarch", "linux-aarch64", "linux-64"]) == "glibc 2.36 or later, x86-64 and aarch64"
