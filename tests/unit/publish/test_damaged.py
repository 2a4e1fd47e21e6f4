# SPDX-License-Identifier: BSD-3-Clause
"""Damage to each file and folder that a channel has, made from a channel's own layout: one kind of each sort.

Whatever is in their place: reading, publishing, yanking, indexing, the page and verification end at once with a result
or with one error that names it, and nothing outside the channel changes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from channel_tools.audit.dependencies import neighbours_in_files
from channel_tools.audit.run import channel_packages
from channel_tools.build.model import BuildUsage
from channel_tools.build.usage import read_usage, record_usage
from channel_tools.channel import channel_writer, index_channel, open_channel, verify_channel
from channel_tools.channel.results import BuildRecord, read_builds, record_build
from channel_tools.conda.package import write_sidecar
from channel_tools.page.write import add_page
from channel_tools.publish.folder import FolderTarget
from channel_tools.serve.addresses import parse_path
from channel_tools.serve.files import FileCache, open_unchanged
from channel_tools.system.progress import SilentProgress
from tests.support.damage import (
    EXTENTS,
    GROWTH_BYTES,
    SORTS,
    damage,
    faults_of,
    kinds_of,
    peak_memory_bytes,
    places_of,
    state_of,
    uses_of,
)
from tests.support.packages import make_conda
from tests.unit.publish.sets import make_set

_LABELS = ("main", "x")
USAGE = BuildUsage(seconds=1.0, cpu_s=1.0, memory_bytes=1, cores=1)
_CHANGES = 2
"""Of the seven that are tried, on each damage; all sorts together make it all seven on each place."""


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A channel with all that one can have: labels, attestations, hotfixes' files, a page, results of builds."""
    work = tmp_path_factory.mktemp("damage")
    target = FolderTarget(root=work / "channels" / "ours", wait_s=0)
    packages = [make_conda(work, "toy"), make_conda(work, "tool", subdir="noarch")]
    write_sidecar(packages[0], b"[{}]")
    for label in _LABELS:
        target.publish(target.plan(make_set(packages), label=label), progress=SilentProgress())
        with channel_writer(target.open_label(label)) as writer:
            add_page(writer)
    record_build(target.root, BuildRecord(file_name=packages[0].name, finished="2026-01-01T00:00:00Z", seconds=1.0))
    record_usage(open_channel(target.root), {"toy-1.0-0": USAGE})
    return target.root


def reads(channel: Path) -> Mapping[str, Callable[[], object]]:
    target = FolderTarget(root=channel, wait_s=0)
    return {
        "serve": lambda: _serve(channel),
        "labels": target.labels,
        "packages": lambda: [target.packages(label) for label in target.labels()],
        "verify": lambda: verify_channel(open_channel(channel), wait_s=0),
        "builds": lambda: read_builds(channel),
        "usage": lambda: read_usage(open_channel(channel)),
        "audit": lambda: _audit(channel),
    }


def changes(channel: Path, work: Path) -> Mapping[str, Callable[[], object]]:
    target = FolderTarget(root=channel, wait_s=0)
    new = work / "linux-64" / "new-1.0-0.conda"

    def publish(label: str) -> None:
        target.publish(target.plan(make_set([new]), label=label), progress=SilentProgress())

    def index() -> None:
        with channel_writer(open_channel(channel)) as writer:
            index_channel(writer)

    def page() -> None:
        with channel_writer(target.open_label("main")) as writer:
            add_page(writer)

    return {
        "index": index,
        "publish": lambda: publish("main"),
        "publish to a label": lambda: publish("x"),
        "yank": lambda: target.yank(("linux-64/toy-1.0-0.conda",), label="main", reason="broken"),
        "promote": lambda: target.promote(
            ("linux-64/toy-1.0-0.conda",), source="main", label="y", progress=SilentProgress()
        ),
        "page": page,
        "record a build": lambda: record_usage(open_channel(channel), {"toy-1.0-0": USAGE}),
    }


def _audit(channel: Path) -> None:
    """What an audit reads of each package that others may depend on."""
    for package in neighbours_in_files(channel_packages(channel), within=channel):
        package.listing()


def _serve(channel: Path) -> None:
    files = FileCache(channel.parent)
    for place in places_of(channel):
        if (wanted := parse_path(f"/ours/{place}")) is not None and (file := files.find(wanted)) is not None:
            os.close(open_unchanged(file))


@pytest.mark.parametrize("every", EXTENTS)
@pytest.mark.parametrize("sort", SORTS)
def test_every_use_of_a_damaged_channel_ends_with_a_result_or_one_error(
    channel: Path, tmp_path: Path, sort: str, *, every: bool
) -> None:
    make_conda(tmp_path, "new")
    victim, peak = tmp_path / "victim", peak_memory_bytes()
    shutil.copytree(channel, victim)
    before, failures = state_of(victim), []
    for number, place in enumerate(places_of(channel)):
        for kind in kinds_of(sort, number, every=every):
            if kind == "too large" and place.endswith(".conda"):
                continue  # a package may be as large as that
            damaged = tmp_path / "channels" / "ours"
            shutil.copytree(channel, damaged, symlinks=True)
            damage(damaged, place, kind, victim / place)
            changed = uses_of(changes(damaged, tmp_path), sort, number, each=_CHANGES, every=every)
            for name, use in {**reads(damaged), **changed}.items():
                failures += faults_of(use, f"{name}, {place}: {kind}")
            if state_of(victim) != before:
                failures.append(f"{place}: {kind}: the other channel was changed")
                shutil.rmtree(victim)
                shutil.copytree(channel, victim)
                before = state_of(victim)
            shutil.rmtree(damaged)
    assert failures == []
    assert peak_memory_bytes() - peak < GROWTH_BYTES


def test_changes_are_tried_in_turn_on_each_place_and_each_kind_of_damage(channel: Path, tmp_path: Path) -> None:
    names, places = changes(channel, tmp_path), range(len(places_of(channel)))
    tried = {
        (sort, number): uses_of(names, sort, number, each=_CHANGES, every=False) for sort in SORTS for number in places
    }
    for number in places:
        assert {name for sort in SORTS for name in tried[sort, number]} == set(names)
    for sort, kinds in SORTS.items():
        for kind in kinds:
            numbers = [number for number in places if kind in kinds_of(sort, number, every=False)]
            assert {name for number in numbers for name in tried[sort, number]} == set(names)
