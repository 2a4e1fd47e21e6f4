# SPDX-License-Identifier: BSD-3-Clause
"""The gate in front of the foundation's packages: what is new is audited before any of it is linked in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from channel_tools.channel import Channel
from channel_tools.system.errors import UsageError, VerificationError
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import Settings, Tree
from channel_tools.workflow.audit import admit_foundation, run_audit
from tests.support.packages import new_channel
from tests.unit.audit.conftest import in_this_process
from tests.unit.audit.packages import Toy
from tests.unit.audit.spoiled import library

__all__ = ["in_this_process"]

LOWER = Toy(name="lower", files={"lib/liblower.so.1": library(rpath="$ORIGIN")})
UPPER = Toy(
    name="upper", files={"lib/libupper.so.1": library(needed=["liblower.so.1"], rpath="$ORIGIN")}, depends=("lower",)
)
SPOILED = Toy(name="spoiled", files={"lib/libtoy.so.1": library(rpath="/opt/site/lib")})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tree=Tree(root=tmp_path / "tree"), output=tmp_path / "out", cache=tmp_path / "cache")


def admit(settings: Settings, channel: Channel, *files: Path) -> None:
    admit_foundation(settings, channel, files, jobs=1, progress=SilentProgress())


@pytest.mark.usefixtures("in_this_process")
def test_a_sound_foundation_passes(tmp_path: Path, settings: Settings) -> None:
    made = tmp_path / "foundation"
    admit(settings, new_channel(tmp_path), LOWER.write(made), UPPER.write(made))


def test_one_spoiled_package_keeps_all_of_it_out(tmp_path: Path, settings: Settings) -> None:
    made = tmp_path / "foundation"
    with pytest.raises(VerificationError, match=r"spoiled-1\.0-.*has the rpath /opt/site/lib") as caught:
        admit(settings, new_channel(tmp_path), LOWER.write(made), SPOILED.write(made))
    assert "the audit of the foundation has 1 finding" in caught.value.message
    assert "lower" not in caught.value.message


@pytest.mark.usefixtures("in_this_process")
def test_what_the_channel_has_is_not_read_again(tmp_path: Path, settings: Settings) -> None:
    channel, made = new_channel(tmp_path), tmp_path / "foundation"
    before = SPOILED.write(made)
    shutil.copy(before, channel.path / "linux-64")
    lower = LOWER.write(made)
    shutil.copy(lower, channel.path / "linux-64")
    admit(settings, channel, before, lower, UPPER.write(made))


def test_a_channel_that_is_not_read_is_an_error(tmp_path: Path) -> None:
    package, prefix = LOWER.write(tmp_path), tmp_path / "env"
    (prefix / "conda-meta").mkdir(parents=True)
    for target in (package, tmp_path):
        with pytest.raises(UsageError, match="nowhere: no such folder; expected a channel's folder"):
            run_audit(None, target, [tmp_path / "nowhere"], jobs=1, progress=SilentProgress())
    with pytest.raises(UsageError, match=f"{prefix}: is an environment, .* found --channel {tmp_path} as well"):
        run_audit(None, prefix, [tmp_path], jobs=1, progress=SilentProgress())
