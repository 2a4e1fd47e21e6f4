# SPDX-License-Identifier: BSD-3-Clause
"""The page says what the channel holds, leads nowhere that is not there, and takes nothing of a package for markup."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from channel_tools.channel import Foundation, add_set, channel_writer, create_channel, verify_channel
from channel_tools.channel.listing import with_yanked
from channel_tools.channel.maintenance import relist
from channel_tools.channel.model import Channel
from channel_tools.channel.results import BuildRecord
from channel_tools.page.model import ShownStack, TreeRecords
from channel_tools.page.write import add_page, follow_page, remember_records
from channel_tools.system.errors import ChannelError
from tests.support.packages import make_conda, own
from tests.unit.page.sites import pages, publish, run_of, toys, write_page

HOSTILE = "</title></style><script>alert(1)</script><img src=x onerror='alert(2)'>\"&amp;\u202e\x1b[31m"


def test_a_visitor_finds_what_it_is_whether_it_fits_and_how_to_install_it(channel: Channel) -> None:
    stack = ShownStack(name="toys", description="Toys for all", install=("toy * py11*", "libtoy"))
    missing = ShownStack(name="rdma", description="Not built here", install=("toy * rdma*",))
    write_page(channel, title="Our toys", address="https://channel.example/ours", stacks=(stack, missing))
    words = pages(channel)["index.html"].words
    for said in (
        "Our toys",
        "linux-64 (4)",
        "2.28 or later",
        "3.11, 3.12",
        "2.5, 2.6",
        "BSD-3-Clause",
        "A library of toys",
    ):
        assert said in words
    assert ("a", "href", "page/stack/toys.html") in pages(channel)["index.html"].attributes
    assert "rdma" not in words
    words = pages(channel)["page/stack/toys.html"].words
    command = "create -n toys --override-channels -c https://channel.example/ours 'toy * py11*' libtoy"
    assert f"conda {command}" in words
    assert f"mamba {command}" in words
    assert "pixi init -c https://channel.example/ours toys && cd toys && pixi add 'toy * py11*' libtoy" in words
    assert "conda list -n toys --explicit > toys.txt && conda create -n toys-again --file toys.txt" in words
    for said in (
        "Toys for all",
        "linux-64",
        "2.28 or later",
        "Does it fit",
        "Can I trust it?",
        "These builds have no attestations",
    ):
        assert said in words


def test_variants_are_a_table_of_python_by_pytorch(channel: Channel) -> None:
    with channel_writer(channel) as writer:
        relist(writer, lambda loaded: with_yanked(loaded.listing, ["linux-64/toy-1.0-py12_pt6.conda"], "wrong results"))
    write_page(channel)
    words = " ".join(pages(channel)["page/name/toy.html"].words.split())
    assert "Variants of 1.0: python by pytorch python pytorch 2.5 pytorch 2.6" in words
    assert "3.11 py11_pt5: built py11_pt6: built 3.12 not built py12_pt6: yanked: wrong results, built" in words


def test_runs_and_builds_are_remembered_until_something_newer_is_said(channel: Channel) -> None:
    stack = ShownStack(name="toys", description="Toys", install=("toy",), validated=True, runs=(run_of(20),))
    write_page(channel, stacks=(stack,))
    with channel_writer(channel) as writer:
        remember_records(
            writer,
            TreeRecords(stacks=(dataclasses.replace(stack, runs=(run_of(21),)),), builds={}),
        )
        follow_page(writer)
    words = pages(channel)["page/stack/toys.html"].words
    words = words.partition("newest first")[2]
    assert words.index("21 November 2026") < words.index("20 November 2026")


def test_an_index_that_another_indexer_has_written_over_the_page_is_replaced(channel: Channel) -> None:
    write_page(channel)
    (channel.path / "index.html").write_text("<title>an indexer's list of files</title>")
    assert write_page(channel).written == 1
    assert "A conda channel" in pages(channel)["index.html"].words


def test_every_link_leads_to_something_and_nothing_is_loaded_from_elsewhere(channel: Channel) -> None:
    runs = tuple(run_of(day, "libtoy-1.0-0") for day in (20, 21))
    stack = ShownStack(name="toys", description="Toys", install=("libtoy",), validated=True, runs=runs)
    build = BuildRecord(file_name="libtoy-1.0-0.conda", finished="2026-11-20T09:00:00+00:00", seconds=3.2)
    known = {build.file_name: build}
    write_page(channel, stacks=(stack,), builds=known)
    for path, page in pages(channel).items():
        place = channel.path / path
        assert next(value for tag, name, value in page.attributes if (tag, name) == ("a", "href")) == "#content"
        assert {value for _tag, name, value in page.attributes if name == "tabindex"} <= {"0", "-1"}
        ids = {value for _tag, name, value in page.attributes if name == "id"}
        for tag, name, value in page.attributes:
            assert not name.startswith("on")
            assert name not in {"style", "srcset", "action"}
            if name == "aria-labelledby":
                assert set(value.split()) <= ids
            if name not in {"href", "src"}:
                continue
            parts = urlsplit(value)
            if parts.scheme:
                assert (tag, parts.scheme) == ("a", "https")
            elif parts.path:
                assert (place.parent / unquote(parts.path)).is_file(), (path, value)
            else:
                assert parts.fragment in ids
    policies = {
        value for page in pages(channel).values() for tag, name, value in page.attributes if "default-src" in value
    }
    assert policies == {"default-src 'none'; style-src 'self'; script-src 'self'; base-uri 'none'; form-action 'none'"}


def test_nothing_of_a_package_becomes_markup(channel: Channel, tmp_path: Path) -> None:
    texts = dict.fromkeys(("summary", "description", "home", "dev_url", "doc_url", "source_url"), HOSTILE)
    recipe = {"finalized_sources": {"url": HOSTILE, "sha256": HOSTILE, "patches": [HOSTILE]}}
    build = make_conda(
        tmp_path / "made",
        "bad",
        about=own("d9") | texts,
        variant={"key": HOSTILE},
        info={"info/recipe/rendered_recipe.yaml": json.dumps(recipe).encode()},
        index={"license": "BSD </script>"},
        files={f"share/{HOSTILE[:-6].replace('/', '')}": b"x"},
    )
    publish(channel, build)
    write_page(channel, title=HOSTILE, stacks=(ShownStack(name=HOSTILE, description=HOSTILE, install=("bad",)),))
    for page in pages(channel).values():
        assert page.tags["script"] == 1
        assert page.tags["img"] == 0
        assert "\x1b" not in page.words
        assert "\u202e" not in page.words
    assert "alert(1)" in pages(channel)["page/name/bad.html"].words
    names = (channel.path / "page" / "names.js").read_text()
    assert json.loads(names.removeprefix("const packageNames = ").removesuffix(";\n"))[0][0] == "bad"


def test_only_what_changed_is_written(channel: Channel, tmp_path: Path) -> None:
    first = write_page(channel)
    assert first.written == first.files
    assert write_page(channel).written == 0
    report = publish(channel, make_conda(tmp_path / "made", "other", index={"depends": ["libtoy"]}, about=own("d5")))
    # its own two pages, that of what it needs, the list, the names for the search, the index
    assert report is not None
    assert (report.written, report.removed) == (6, 0)
    (channel.path / "page" / "page.css").unlink()
    assert write_page(channel).written == 1


def test_builds_that_others_replaced_are_listed_apart(channel: Channel) -> None:
    with channel_writer(channel) as writer:
        hidden = {"linux-64/toy-1.0-py11_pt5.conda": "superseded by linux-64/toy-1.0-py11_pt6.conda"}
        relist(writer, lambda loaded: dataclasses.replace(loaded.listing, hidden=hidden))
    write_page(channel)
    words = pages(channel)["page/name/toy.html"].words
    offered, earlier = words.split("1 earlier build of 1.0, for lock files")
    assert "py11_pt5" not in offered
    assert "superseded by linux-64/toy-1.0-py11_pt6.conda" in earlier


def test_pages_of_deleted_packages_go(channel: Channel) -> None:
    write_page(channel)
    (channel.path / "linux-64" / "toy-1.0-py11_pt5.conda").unlink()
    report = publish(channel)
    assert report is not None
    assert report.removed == 1
    assert not (channel.path / "page/build/linux-64/toy-1.0-py11_pt5.html").exists()


def test_a_channel_without_a_page_gets_none(channel: Channel, tmp_path: Path) -> None:
    assert publish(channel, make_conda(tmp_path / "made", "other")) is None
    assert not (channel.path / "index.html").exists()


def test_a_page_of_somebody_else_stays(channel: Channel) -> None:
    (channel.path / "index.html").write_text("mine")
    with pytest.raises(ChannelError, match="was not written by channel_tools channel page"):
        write_page(channel)
    assert (channel.path / "index.html").read_text() == "mine"


def test_a_channel_with_a_page_is_verified_as_without(channel: Channel) -> None:
    before = verify_channel(channel)
    assert {finding.kind for finding in before} == {"uninstallable"}  # a toy needs what is elsewhere
    write_page(channel)
    assert verify_channel(channel) == before


def test_commands_name_the_channels_that_packages_were_built_with(tmp_path: Path) -> None:
    foundation = Foundation(kind="registry", further=("https://lab.example/lab", "https://other.example/more"))
    channel = create_channel(tmp_path / "channel", foundation)
    publish(channel, *toys(tmp_path / "made"))
    stack = ShownStack(name="toys", description="Toys for all", install=("toy * py11*", "libtoy"))
    write_page(channel, address="https://channel.example/ours", stacks=(stack,))
    words = pages(channel)["page/stack/toys.html"].words
    assert "-c https://channel.example/ours -c https://lab.example/lab -c https://other.example/more" in words


def test_a_build_whose_time_is_in_seconds_is_the_newest_it_is(channel: Channel, tmp_path: Path) -> None:
    times = {"h1_0": 1761000001000, "h2_0": 1761000063, "h3_0": 1760000000000}
    packages = [
        make_conda(tmp_path / "times", "timed", build=build, index={"timestamp": time}) for build, time in times.items()
    ]
    with channel_writer(channel) as writer:
        add_set(writer, packages)
        add_page(writer)
    page = (channel.path / "page" / "name" / "timed.html").read_text()
    assert "1970" not in page
    assert page.index("h2_0") < page.index("h1_0") < page.index("h3_0")
