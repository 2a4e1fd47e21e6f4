# SPDX-License-Identifier: BSD-3-Clause
"""The page of a build: its history, validation, attestation, dependencies, files and sources."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from channel_tools.channel.model import Channel
from channel_tools.channel.results import BuildRecord
from channel_tools.conda.package import write_sidecar
from channel_tools.page.model import ShownStack
from channel_tools.provenance.statements import Built, Run, Subject, provenance_statement
from channel_tools.system.files import sha256_of_file
from tests.support.packages import make_conda, new_channel, own
from tests.unit.page.sites import pages, publish, run_of, write_page


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


@pytest.mark.parametrize("is_own", [True, False])
def test_the_date_of_a_packages_inputs_is_not_said_to_be_when_it_was_built(tmp_path: Path, *, is_own: bool) -> None:
    channel = new_channel(tmp_path)
    write_page(channel)
    stamp = int(datetime(2021, 3, 4, tzinfo=UTC).timestamp() * 1000)
    about = own("d1") if is_own else {}  # others' timestamps say when they built
    publish(channel, make_conda(tmp_path / "made", "dated", index={"timestamp": stamp}, about=about))
    words = " ".join(page.words for path, page in pages(channel).items() if "dated" in path)
    assert ("4 March 2021" in words) is not is_own
    assert "when and how long it took was not recorded" in words


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
    assert "diff --git a/a.c b/a.c" not in words


def test_a_damaged_package_costs_its_files_only(channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    path = channel.path / "linux-64" / "libtoy-1.0-0.conda"
    path.write_bytes(path.read_bytes()[:-100])
    write_page(channel)
    assert "is damaged" in pages(channel)["page/build/linux-64/libtoy-1.0-0.html"].words
    assert "libtoy-1.0-0.conda" in caplog.text


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
