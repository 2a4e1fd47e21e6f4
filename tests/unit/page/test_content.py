# SPDX-License-Identifier: BSD-3-Clause
"""The page says what the channel holds, leads nowhere that is not there, and takes nothing of a package for markup."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from channel_tools.channel import Foundation, channel_writer, create_channel, verify_channel
from channel_tools.channel.listing import with_foundation, with_yanked
from channel_tools.channel.maintenance import relist
from channel_tools.channel.model import Channel
from channel_tools.channel.results import BuildRecord
from channel_tools.conda.package import write_sidecar
from channel_tools.page.model import ShownStack, TreeRecords
from channel_tools.page.write import follow_change, paged_folder, remember_records
from channel_tools.provenance.statements import Built, Run, Subject, provenance_statement
from channel_tools.system.errors import ChannelError
from channel_tools.system.files import sha256_of_file
from tests.support.html_pages import Page, read_page
from tests.support.packages import make_conda, new_channel, own
from tests.unit.page.sites import publish, run_of, toys, write_page

HOSTILE = "</title></style><script>alert(1)</script><img src=x onerror='alert(2)'>\"&amp;\u202e\x1b[31m"
_ICONS = 2  # the mark of the channel, and that of the search


def read(path: Path) -> Page:
    return read_page(path.read_text(encoding="utf-8"))


def pages(channel: Channel) -> dict[str, Page]:
    found = [channel.path / "index.html", *sorted((channel.path / "page").rglob("*.html"))]
    return {path.relative_to(channel.path).as_posix(): read(path) for path in found}


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    channel = new_channel(tmp_path)
    publish(channel, *toys(tmp_path / "made"))
    return channel


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


def test_a_build_says_when_it_was_built_and_with_which_stack_it_was_validated(channel: Channel) -> None:
    built = BuildRecord(file_name="toy-1.0-py11_pt5.conda", finished="2026-11-20T09:30:00+00:00", seconds=125.4)
    runs = (run_of(20, "toy-1.0-py11_pt5"), run_of(21, "toy-1.0-py11_pt6", passed=False))
    stack = ShownStack(name="toys", description="Toys", install=("toy",), validated=True, runs=runs)
    write_page(channel, stacks=(stack,), builds={built.file_name: built})
    words = " ".join(pages(channel)["page/name/toy.html"].words.split())
    assert "py11_pt5: built and tested 20 November 2026 in 2 min 5 s, validated 20 November 2026 in stack toys" in words
    assert "py11_pt6: built 3.12 " in words
    words = " ".join(pages(channel)["page/build/linux-64/toy-1.0-py11_pt5.html"].words.split())
    assert "Built 20 November 2026, in 2 min 5 s" in words
    said = pages(channel)["page/build/linux-64/toy-1.0-py11_pt5.html"].attributes
    assert ("time", "title", "2026-11-20 09:30 UTC") in said
    assert "Validated 20 November 2026 in stack toys with 4 ranks" in words
    words = pages(channel)["page/build/linux-64/toy-1.0-py11_pt6.html"].words
    assert "when and how long it took was not recorded" in words
    assert "Validated" not in words


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


def test_bandwidth_over_time_is_drawn_for_runs_of_one_machine_only(channel: Channel) -> None:
    runs = [run_of(day, mb_s=1000.0 + day) for day in (20, 21, 22)]
    others = [run_of(23, mb_s=9.0, cores=64), run_of(24, mb_s=8.0, ranks=2)]
    stack = ShownStack(name="toys", description="Toys", install=("toy",), validated=True, runs=(*runs, *others))
    write_page(channel, stacks=(stack,))
    page = pages(channel)["page/stack/toys.html"]
    assert page.tags["svg"] == _ICONS + 3  # by size twice, and over time
    assert page.tags["style"] == 0  # the page allows none
    assert "2026-11-20 1020 beside 500, 2026-11-21 1021 beside 500, 2026-11-22 1022 beside 500." in page.words
    assert ".chart .beside" in (channel.path / "page" / "page.css").read_text()


def test_runs_and_builds_are_remembered_until_something_newer_is_said(channel: Channel) -> None:
    stack = ShownStack(name="toys", description="Toys", install=("toy",), validated=True, runs=(run_of(20),))
    write_page(channel, stacks=(stack,))
    with channel_writer(channel) as writer:
        remember_records(
            paged_folder(writer),
            TreeRecords(stacks=(dataclasses.replace(stack, runs=(run_of(21),)),), builds={}, logs={}),
        )
        follow_change(paged_folder(writer))
    words = pages(channel)["page/stack/toys.html"].words
    words = words.partition("newest first")[2]
    assert words.index("21 November 2026") < words.index("20 November 2026")


def test_logs_are_shown_only_where_that_was_asked_for_and_steer_nothing(channel: Channel, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(
        b"\x1b[31mred\x1b]0;title\x07\x1b[2J </pre><script>alert(1)</script>\xff \x00\xe2\x80\xae 10%\r20%\r\n"
    )
    logs = {"libtoy-1.0-0.conda": log}
    path, kept = "page/log/linux-64/libtoy-1.0-0.html", channel.path / ".channel_tools/logs/libtoy-1.0-0.log"
    write_page(channel, logs=logs)
    assert path not in pages(channel)
    assert not kept.exists()
    write_page(channel, logs=logs, with_logs=True)
    page = pages(channel)[path]
    assert "red </pre><script>alert(1)</script>\ufffd \ufffd\ufffd 10%\n20%\n" in page.words
    assert page.tags["script"] == 1
    log.write_bytes(b"a" * 1_000_000 + b"the end")
    assert write_page(channel, logs=logs).written == 1  # it stays asked for
    assert "the end" in pages(channel)[path].words
    assert "7 B before it are left out" in pages(channel)[path].words
    write_page(channel, logs=logs, with_logs=False)
    assert path not in pages(channel)
    assert not kept.exists()


def test_an_index_that_another_indexer_has_written_over_the_page_is_replaced(channel: Channel) -> None:
    write_page(channel)
    (channel.path / "index.html").write_text("<title>an indexer's list of files</title>")
    assert write_page(channel).written == 1
    assert "A conda channel" in pages(channel)["index.html"].words


def test_a_build_says_what_its_attestation_claims(channel: Channel, tmp_path: Path) -> None:
    def attested(name: str, subject: Subject | None) -> Path:
        path = make_conda(tmp_path / "made", name, about=own(name))
        subject = subject or Subject(file_name=path.name, sha256=sha256_of_file(path))
        built = Built(subject=subject, name=name, version="1.0", subdir="linux-64", recorded={}, variant={})
        run = Run(command=("build",), tools={}, finished=datetime(2026, 5, 1, 12, 0, tzinfo=UTC))
        payload = base64.b64encode(json.dumps(provenance_statement(built, run)).encode()).decode()
        envelope = {"payload": payload, "payloadType": "", "signatures": [{"sig": "", "keyid": "0a1b2c"}]}
        write_sidecar(path, json.dumps([{"verificationMaterial": {}, "dsseEnvelope": envelope}]).encode())
        return path

    others = attested("others", Subject(file_name="evil</p>.conda", sha256="0" * 64))
    older = attested("older", Subject(file_name="older-1.0-0.conda", sha256="0" * 64))
    garbage = attested("garbage", None)
    write_sidecar(garbage, b'[{"verificationMaterial": {}, "dsseEnvelope": {"payload": "%", "signatures": []}}]')
    publish(channel, attested("sound", None), others, older, garbage)
    write_page(channel)
    site = {path.rpartition("/")[2]: page.words for path, page in pages(channel).items()}
    assert "0a1b2c" in site["sound-1.0-0.html"]
    assert "states that the build ended on 1 May 2026, was started by build" in " ".join(
        site["sound-1.0-0.html"].split()
    )
    assert "does not check the signature" in site["sound-1.0-0.html"]
    for name, fault in (
        ("others", "it is for another package, evil</p>.conda"),
        ("older", "it is for different bytes under this name"),
        ("garbage", "its file has no readable attestations"),
    ):
        assert f"proves nothing: {fault}." in site[f"{name}-1.0-0.html"]
        assert "0a1b2c" not in site[f"{name}-1.0-0.html"]
    assert "It has no attestation" in site["libtoy-1.0-0.html"]
    assert "4 of its 8 own builds come with an attestation" in site["index.html"]


def test_dependencies_lead_both_ways(channel: Channel) -> None:
    write_page(channel)
    site = pages(channel)
    assert ("a", "href", "../../page/name/libtoy.html") in site["page/name/toy.html"].attributes
    assert ("a", "href", "../../page/name/toy.html") in site["page/name/libtoy.html"].attributes
    assert "elsewhere" in site["page/name/toy.html"].words


def test_a_build_shows_its_files_sources_and_the_reasons_of_its_patches(channel: Channel) -> None:
    write_page(channel)
    words = pages(channel)["page/build/linux-64/libtoy-1.0-0.html"].words
    for said in (
        "share/",
        "libtoy.txt",
        "https://upstream.example/a-1.tar.gz",
        "sha256 " + "9" * 64,
        "libtoy >=1.0,<2",
    ):
        assert said in words
    assert "0001-mend.patch" in words
    assert "Mend the build\nUpstream looks in /usr." in "\n".join(words.split("\n\n"))
    assert "a.c | 2" not in words
    assert "diff --git a/a.c b/a.c" in words


def test_every_link_leads_to_something_and_nothing_is_loaded_from_elsewhere(channel: Channel, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"built")
    runs = tuple(run_of(day, "libtoy-1.0-0") for day in (20, 21))
    stack = ShownStack(name="toys", description="Toys", install=("libtoy",), validated=True, runs=runs)
    build = BuildRecord(file_name="libtoy-1.0-0.conda", finished="2026-11-20T09:00:00+00:00", seconds=3.2)
    known = {build.file_name: build}
    write_page(channel, stacks=(stack,), builds=known, logs={build.file_name: tmp_path / "log"}, with_logs=True)
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
    assert policies == {
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"
    }


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
    # its own two pages, that of what it needs, the list, the names for the search, the feed, the index
    assert report is not None
    assert (report.written, report.removed) == (7, 0)
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
    write_page(channel)
    assert verify_channel(channel) == []


def test_a_damaged_package_costs_its_files_only(channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    path = channel.path / "linux-64" / "libtoy-1.0-0.conda"
    path.write_bytes(path.read_bytes()[:-100])
    write_page(channel)
    assert "is damaged" in pages(channel)["page/build/linux-64/libtoy-1.0-0.html"].words
    assert "libtoy-1.0-0.conda" in caplog.text


def test_commands_name_the_channels_that_packages_were_built_with(tmp_path: Path) -> None:
    foundation = Foundation(kind="registry", further=("https://lab.example/lab", "https://other.example/more"))
    channel = create_channel(tmp_path / "channel", foundation)
    publish(channel, *toys(tmp_path / "made"))
    stack = ShownStack(name="toys", description="Toys for all", install=("toy * py11*", "libtoy"))
    write_page(channel, address="https://channel.example/ours", stacks=(stack,))
    words = pages(channel)["page/stack/toys.html"].words
    assert "-c https://channel.example/ours -c https://lab.example/lab -c https://other.example/more" in words


def test_a_builds_page_says_what_changed_since_the_one_before_of_its_kind(tmp_path: Path) -> None:
    def made(version: str, build: str, variant: dict[str, str], *depends: str) -> Path:
        about = own(f"d{version}{build}")
        index: dict[str, object] = {"depends": list(depends)}
        return make_conda(
            tmp_path / "made", "toy", version=version, build=build, variant=variant, about=about, index=index
        )

    channel = new_channel(tmp_path)
    publish(
        channel,
        made("1.0", "udp_haaaaaaa_0", {"compiler": "12"}, "libgcc >=12", "glog"),
        made("1.0", "rdma_hbbbbbbb_0", {"compiler": "12"}, "rdma-core"),
        made("1.1", "udp_hccccccc_0", {"compiler": "13"}, "libgcc >=13", "zlib"),
        made("1.2", "udp_hddddddd_0", {"compiler": "13"}, "libgcc >=13", "zlib"),
    )
    write_page(channel)
    words = {name: " ".join(page.words.split()) for name, page in pages(channel).items() if "/build/" in name}
    first, other, second, third = (
        words[f"page/build/linux-64/toy-{stem}.html"]
        for stem in ("1.0-udp_haaaaaaa_0", "1.0-rdma_hbbbbbbb_0", "1.1-udp_hccccccc_0", "1.2-udp_hddddddd_0")
    )
    assert "What changed" not in first
    assert "What changed" not in other
    assert "Since 1.0, build udp_haaaaaaa_0, of" in second
    for said in (
        "needs glog glog nothing",
        "needs libgcc libgcc >=12 libgcc >=13",
        "needs zlib nothing zlib",
        "variant compiler 12 13",
    ):
        assert said in second
    assert "Since 1.1, build udp_hccccccc_0, of" in third
    assert "what it needs and its variant are the same." in third


def test_a_build_for_another_pytorch_or_python_is_not_the_one_before(tmp_path: Path) -> None:
    def made(build: str, number: int, **variant: str) -> Path:
        index: dict[str, object] = {"build_number": number}
        return make_conda(tmp_path / "made", "toy", build=build, index=index, variant=variant, about=own(f"d{build}"))

    channel = new_channel(tmp_path)
    publish(
        channel,
        made("py311haaaaaaa_0", 0, python="3.11.* *_cpython", pytorch="2.12.*"),
        made("py311hbbbbbbb_0", 0, python="3.11.* *_cpython", pytorch="2.13.*"),
        made("py311hccccccc_1", 1, python="3.11.* *_cpython", pytorch="2.13.*"),
        made("hddddddd_0_cpython", 0),
        made("heeeeeee_1_cpython", 1),  # as of the package python, whose build string does not end with the hash
    )
    write_page(channel)
    since = {
        name.removeprefix("page/build/linux-64/toy-1.0-"): re.findall(r"Since 1\.0, build (\w+),", page.words)
        for name, page in pages(channel).items()
        if "/build/" in name
    }
    assert since == {
        "py311haaaaaaa_0.html": [],
        "py311hbbbbbbb_0.html": [],
        "py311hccccccc_1.html": ["py311hbbbbbbb_0"],
        "hddddddd_0_cpython.html": [],
        "heeeeeee_1_cpython.html": ["hddddddd_0_cpython"],
    }
