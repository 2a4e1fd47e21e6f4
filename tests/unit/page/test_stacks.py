# SPDX-License-Identifier: BSD-3-Clause
"""What the page says of stacks: which variants there are, and what was validated."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from channel_tools.channel import channel_writer
from channel_tools.channel.listing import with_foundation, with_yanked
from channel_tools.channel.maintenance import relist
from channel_tools.channel.model import Channel
from channel_tools.channel.results import BuildRecord
from channel_tools.page.model import ShownStack
from channel_tools.page.render import list_page
from tests.support.packages import make_conda, new_channel, own
from tests.unit.page.sites import pages, publish, run_of, write_page


def test_a_stack_is_a_matrix_of_what_was_built_validated_and_withdrawn(channel: Channel) -> None:
    with channel_writer(channel) as writer:
        relist(writer, lambda loaded: with_yanked(loaded.listing, ["linux-64/toy-1.0-py12_pt6.conda"], "wrong results"))
    names = ("toy-1.0-py11_pt5", "toy-1.0-py11_pt6")
    builds = {
        f"{name}.conda": BuildRecord(file_name=f"{name}.conda", finished="2026-11-19", seconds=60) for name in names
    }
    runs = (
        run_of(20, names[0]),
        run_of(21, "toy-1.0-other", pytorch="2.6.0"),
        run_of(22, names[0], passed=False, hosts=2),
    )
    write_page(
        channel,
        stacks=(ShownStack(name="toys", description="Toys", install=("toy",), validated=True, runs=runs),),
        builds=builds,
    )
    words = " ".join(pages(channel)["page/stack/toys.html"].words.split())
    assert "Python PyTorch 2.5 PyTorch 2.6 3.11 built and tested 19 November 2026, in 1 min 0 s" in words
    assert "validation failed 22 November 2026: 4 ranks on 2 hosts in 39 s" in words
    assert "validation passed 21 November 2026: 4 ranks in 39 s, with earlier builds 3.12 not built" in words
    assert "toy-1.0-py12_pt6 yanked: wrong results not validated" in words
    words = " ".join(pages(channel)["index.html"].words.split())
    assert "validation failed Toys" in words
    assert "Failed validation with 4 ranks on 22 November 2026" in words
    assert "Python 3.11 ×validation failed ○built" in words  # noqa: RUF001


def test_a_variant_of_which_a_package_was_not_built_is_not_offered(tmp_path: Path) -> None:
    def made(name: str, pytorch: str) -> Path:
        variant = {"python": "3.11.* *_cpython", "pytorch": pytorch}
        return make_conda(tmp_path / "made", name, build=f"pt{pytorch}", about=own(pytorch), variant=variant)

    channel = new_channel(tmp_path)
    publish(channel, made("toy", "2.5"), made("vision", "2.5"), made("toy", "2.6"))
    write_page(channel, stacks=(ShownStack(name="toys", description="Toys", install=("toy", "vision")),))
    index, stack = (pages(channel)[name].words for name in ("index.html", "page/stack/toys.html"))
    assert "PyTorch 2.5" in index
    assert "PyTorch 2.6" not in index
    assert "2.5, 2.6" not in stack
    assert stack.count("built, date not recorded") == stack.count("not built: vision") == 1


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ({"name": "toy", "version": "1.1", "build": "py11_pt5"}, ", with earlier builds"),
        ({"name": "libtoy", "build": "h1", "about": own("d9"), "variant": {"cc": "12"}}, ", with earlier builds"),
        ({"name": "libtoy", "version": "1.1"}, ""),
    ],
    ids=["a newer version", "a dependency built again", "a newer dependency beside it"],
)
def test_a_validation_is_of_earlier_builds_once_others_are_installed(
    tmp_path: Path, new: dict[str, Any], said: str
) -> None:
    channel = new_channel(tmp_path)
    lib = make_conda(tmp_path / "made", "libtoy", about=own("d1"), variant={"cc": "12"})
    made: dict[str, Any] = {"about": own("115"), "variant": {"python": "3.11.* *_cpython", "pytorch": "2.5"}}
    publish(channel, lib, make_conda(tmp_path / "made", "toy", build="py11_pt5", **made))
    run = run_of(20, "toy-1.0-py11_pt5", "libtoy-1.0-0", "python-3.11.2-0")
    write_page(channel, stacks=(ShownStack(name="toys", description="Toys", install=("toy",), runs=(run,)),))
    for place in ("index.html", "page/stack/toys.html"):
        assert "earlier builds" not in pages(channel)[place].words
    publish(channel, make_conda(tmp_path / "made", **((made if new["name"] == "toy" else {}) | new)))
    words = " ".join(pages(channel)["index.html"].words.split())
    assert f"Passed validation with 4 ranks on 20 November 2026{said} " in words
    words = " ".join(pages(channel)["page/stack/toys.html"].words.split())
    assert f"validation passed 20 November 2026: 4 ranks in 39 s{said} Builds" in words


@pytest.mark.parametrize("sha256", ["0" * 64, ""], ids=["other content", "not recorded"])
def test_a_validation_is_of_the_very_files_that_were_installed(sha256: str, channel: Channel) -> None:
    run = run_of(20, "toy-1.0-py11_pt5", sha256=(sha256,))
    stack = ShownStack(name="toys", description="Toys", install=("toy",), validated=True, runs=(run,))
    write_page(channel, address="https://conda.our.site/ours", stacks=(stack,))
    index = " ".join(pages(channel)["index.html"].words.split())
    assert "Passed validation with 4 ranks on 20 November 2026, with earlier builds" in index
    assert "validated Toys" not in index
    assert "● Python" not in index
    for name in ("page/name/toy.html", "page/build/linux-64/toy-1.0-py11_pt5.html", list_page(1)):
        assert "validated" not in pages(channel)[name].words.lower()
    assert not (channel.path / "page/stack/toys.txt").exists()


def test_a_newer_version_is_not_validated_because_an_earlier_one_was(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    publish(channel, make_conda(tmp_path / "made", "toy", about=own("d1")))
    stack = ShownStack(
        name="toys", description="Toys", install=("toy",), validated=True, runs=(run_of(20, "toy-1.0-0"),)
    )
    write_page(channel, stacks=(stack,))
    listed = list_page(1)
    assert "validated" in pages(channel)[listed].words
    publish(channel, make_conda(tmp_path / "made", "toy", version="1.1", about=own("d2")))
    assert "validated" not in pages(channel)[listed].words


def test_a_card_is_not_validated_and_faulty_at_once(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    made: dict[str, Any] = {"variant": {"python": "3.11.* *_cpython", "pytorch": "2.5"}}
    for build in ("h1", "h2"):
        publish(channel, make_conda(tmp_path / "made", "toy", build=build, about=own(build), **made))
    keys = {name: f"linux-64/toy-1.0-{name}.conda" for name in ("h1", "h2")}
    with channel_writer(channel) as writer:
        relist(writer, lambda loaded: with_yanked(loaded.listing, [keys["h1"]], "wrong results"))
    stack = ShownStack(
        name="toys", description="Toys", install=("toy",), validated=True, runs=(run_of(20, "toy-1.0-h2"),)
    )
    write_page(channel, stacks=(stack,))
    words = " ".join(pages(channel)["index.html"].words.split())
    assert "toys validated Toys ● Python 3.11, PyTorch 2.5: validated" in words
    with channel_writer(channel) as writer:
        relist(writer, lambda loaded: with_yanked(loaded.listing, [keys["h2"]], "wrong results"))
    write_page(channel, stacks=(stack,))
    words = " ".join(pages(channel)["index.html"].words.split())
    assert "validated Toys" not in words


def test_a_validation_with_the_foundations_build_is_of_the_present_ones_beside_a_stand_in_of_ours(
    tmp_path: Path,
) -> None:
    channel = new_channel(tmp_path)
    stand_in = make_conda(tmp_path / "made", "mpich", version="4.3.2", build="external_0", about=own("d1"))
    theirs = make_conda(tmp_path / "made", "mpich", version="4.0.2", about=own("d2"))
    publish(channel, stand_in, theirs)
    with channel_writer(channel) as writer:
        relist(writer, lambda loaded: with_foundation(loaded.listing, ["linux-64/mpich-4.0.2-0.conda"]))
    stack = ShownStack(name="mpi", description="MPI", install=("mpich",), runs=(run_of(20, "mpich-4.0.2-0"),))
    write_page(channel, stacks=(stack,))
    assert "20 November 2026" in pages(channel)["index.html"].words
    assert "earlier builds" not in pages(channel)["index.html"].words
    with channel_writer(channel) as writer:
        relist(writer, lambda loaded: dataclasses.replace(loaded.listing, foundation=()))
    write_page(channel, stacks=(stack,))
    assert "20 November 2026, with earlier builds" in pages(channel)["index.html"].words


def test_bandwidth_is_listed_by_size(channel: Channel) -> None:
    stack = ShownStack(name="toys", description="Toys", install=("toy",), validated=True, runs=(run_of(20),))
    write_page(channel, stacks=(stack,))
    page = pages(channel)["page/stack/toys.html"]
    for row in run_of(20).bandwidth:
        assert f"{row.transport_mb_s:.0f} {row.baseline_mb_s:.0f} {row.ratio:.2f}" in page.words
    assert page.tags["style"] == 0  # the page allows none
