# SPDX-License-Identifier: BSD-3-Clause
"""What is found while somebody writes to the channel; test_index.py has what is found in one that is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.channel import Channel, add_set, channel_writer, verify_channel
from channel_tools.channel import verify as verify_module
from channel_tools.conda.archive import PackageInfo, read_package
from channel_tools.conda.contents import JsonObject
from channel_tools.conda.repodata import SHARD_INDEX
from channel_tools.system.beneath import Beneath, Staged
from tests.support.packages import make_conda, new_channel


def put(channel: Channel, *files: Path) -> None:
    with channel_writer(channel) as writer:
        add_set(writer, files)


def publish_at_each_read(monkeypatch: pytest.MonkeyPatch, channel: Channel, new: list[Path]) -> None:
    """Let one of ``new`` enter the channel whenever verifying reads a package: after repodata.json, before the rest."""

    def read(path: Path, *, contents: bool, folder: Beneath, correction: JsonObject | None) -> PackageInfo:
        if new:
            put(channel, new.pop())
        return read_package(path, contents=contents, folder=folder, correction=correction)

    monkeypatch.setattr(verify_module, "read_package", read)


def test_a_package_that_enters_meanwhile_is_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = new_channel(tmp_path)
    put(channel, make_conda(tmp_path, "toy"))
    new = [make_conda(tmp_path, "other")]
    publish_at_each_read(monkeypatch, channel, new)
    assert verify_channel(channel) == []
    assert new == []


def test_true_findings_stay_beside_the_word_that_the_channel_keeps_changing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = new_channel(tmp_path)
    put(channel, make_conda(tmp_path, "toy"))
    bad = make_conda(channel.path, "bad")
    bad.write_bytes(bad.read_bytes()[:-100])
    publish_at_each_read(monkeypatch, channel, [make_conda(tmp_path, f"new-{number}") for number in range(9)])
    first, *others = verify_channel(channel)
    assert (first.path, first.kind) == (channel.path, "changing")
    assert "changed during all 3 verifications" in first.message
    assert (bad, "damaged") in {(finding.path, finding.kind) for finding in others}


def test_a_writer_between_two_indexes_is_waited_for_no_longer_than_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = new_channel(tmp_path)
    kinds = []
    put_next = Staged._put_next

    def verify_between(staged: Staged) -> None:
        put_next(staged)
        kinds.append([finding.kind for finding in verify_channel(channel, wait_s=0)])

    monkeypatch.setattr(Staged, "_put_next", verify_between)
    put(channel, make_conda(tmp_path, "toy"))
    assert {found[0] for found in kinds if found} == {"changing"}
    assert kinds[-1] == []
    assert verify_channel(channel) == []


def test_what_a_killed_writer_left_is_found_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = new_channel(tmp_path)
    put_next = Staged._put_next

    def killed(staged: Staged) -> None:
        name = staged._moves[0][2]
        put_next(staged)
        if name.endswith(SHARD_INDEX):
            raise KeyboardInterrupt

    monkeypatch.setattr(Staged, "_put_next", killed)
    with pytest.raises(KeyboardInterrupt):
        put(channel, make_conda(tmp_path, "toy"))
    assert {finding.kind for finding in verify_channel(channel)} == {"inconsistent", "unindexed"}
