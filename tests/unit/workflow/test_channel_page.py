# SPDX-License-Identifier: BSD-3-Clause
"""What a tree knows of a channel's packages comes onto the channel's page, and nothing of the machines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from channel_tools.channel.model import Channel
from channel_tools.channel.results import BuildRecord, record_build
from channel_tools.page.model import PageChoices
from channel_tools.publish.folder import FolderTarget
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.settings import Settings, make_settings
from channel_tools.workflow.channel_page import remember_for_page, write_channel_page
from tests.support.packages import make_conda, new_channel, own
from tests.unit.matrix.toytree import write_tree
from tests.unit.page.sites import publish

STACKS = """\
default_stack: udp
stacks:
  udp:
    description: over UDP
    packages: [libtoy]
    install: [libtoy]
    validate: {method: switchml, needs: [gpu, switch]}
"""
REPORT = Path(__file__).parents[1] / "validate" / "golden" / "report.json"
BUILT = BuildRecord(file_name="libtoy-1.0-0.conda", finished="2026-11-20T09:30:00+00:00", seconds=34.0)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    tree = write_tree(tmp_path / "tree")
    tree.stacks_file.write_text(STACKS)
    made = make_settings(root=tree.root, output=tmp_path / "output", environ={}, cwd=tmp_path)
    (made.channel / ".channel_tools").mkdir(parents=True)
    record_build(made.channel, BUILT)
    (made.reports / "history" / "udp").mkdir(parents=True)
    (made.reports / "udp.json").write_bytes(REPORT.read_bytes())
    earlier = json.loads(REPORT.read_bytes()) | {"started": "2026-01-01T00:00:00+00:00"}
    (made.reports / "history" / "udp" / "one.json").write_text(json.dumps(earlier))
    return made


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    channel = new_channel(tmp_path)
    publish(channel, make_conda(tmp_path / "made", "libtoy", about=own("d1")))
    return channel


def write(channel: Channel, settings: Settings | None) -> None:
    write_channel_page(str(channel.path), settings, environ={})


def test_reports_and_builds_of_the_tree_are_shown_without_the_machines_name(
    channel: Channel, settings: Settings
) -> None:
    write(channel, settings)
    stack = (channel.path / "page/stack/udp.html").read_text()
    assert "2026-01-02 03:04 UTC" in stack
    assert "2026-01-01 00:00 UTC" in stack
    assert "Validation needs</dt><dd>gpu, switch" in stack
    assert "in 34 s" in (channel.path / "page/build/linux-64/libtoy-1.0-0.html").read_text()
    texts = [path.read_bytes() for path in channel.path.rglob("*") if path.suffix in {".html", ".json"}]
    assert b"node7" in REPORT.read_bytes()
    assert not any(b"node7" in text for text in texts)


def test_what_is_published_brings_what_the_tree_knows_of_it(channel: Channel, settings: Settings) -> None:
    target = FolderTarget(root=channel.path)
    remember_for_page(target, "main", settings, {BUILT.file_name})
    assert not (channel.path / ".channel_tools/page.json").exists()  # it has no page
    write(channel, None)
    remember_for_page(target, "main", settings, {BUILT.file_name})
    publish(channel)
    assert "in 34 s" in (channel.path / "page/build/linux-64/libtoy-1.0-0.html").read_text()
    assert (channel.path / "page/stack/udp.html").is_file()


def test_a_report_that_is_none_is_named(channel: Channel, settings: Settings) -> None:
    (settings.reports / "other.json").write_text('{"schema_version": 1, "stack": "udp"}')
    with pytest.raises(ConfigError, match=r"other\.json: not a report of a validation: .*Field required"):
        write(channel, settings)
    assert not (channel.path / "index.html").exists()


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (PageChoices(contact="the team"), "--contact the team: neither an e-mail nor a web address"),
        (PageChoices(contact="javascript:alert(1)"), "neither an e-mail nor a web address"),
        (PageChoices(address="https://user:secret@conda.our.site"), "has credentials"),
    ],
    ids=["contact", "script", "address"],
)
def test_what_a_page_cannot_show_is_refused_before_anything_is_written(
    channel: Channel, chosen: PageChoices, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        write_channel_page(str(channel.path), None, choices=chosen, environ={})
    assert not (channel.path / "index.html").exists()


def test_none_takes_away_what_was_given(channel: Channel) -> None:
    given = PageChoices(sentence="For us", contact="a@b.example")
    write_channel_page(str(channel.path), None, choices=given, environ={})
    assert re.search("For us.*a@b", (channel.path / "index.html").read_text(), re.DOTALL)
    gone = PageChoices(sentence="none", contact="none")
    write_channel_page(str(channel.path), None, choices=gone, environ={})
    assert not re.search("For us|a@b", (channel.path / "index.html").read_text())
