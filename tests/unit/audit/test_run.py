# SPDX-License-Identifier: BSD-3-Clause
"""Each rule on a package that breaks it, in the audit and at the gate, and on a twin that does not."""

from __future__ import annotations

import io
import json
import tarfile
import time
from pathlib import Path

import pytest

from channel_tools.audit.dependencies import Known, neighbours_in_files
from channel_tools.audit.model import Finding, PackageAudit, Rule
from channel_tools.audit.reading import Reader
from channel_tools.audit.run import Gate, audit_channel, audit_package, audit_packages, channel_packages
from channel_tools.build.schedule import take_in
from channel_tools.channel import Channel, ChannelWriter, Foundation, create_channel, published_packages
from channel_tools.conda.archive import PackageInfo
from channel_tools.requests.names import BaseName
from channel_tools.system.errors import ChannelError, IntegrityError, VerificationError
from channel_tools.system.progress import SilentProgress
from tests.support.damage import bounded, damage
from tests.support.packages import make_conda, new_channel
from tests.unit.audit.packages import BUILD_FOLDER, Entry, Toy
from tests.unit.audit.spoiled import CASES, GXX, Case, library

# test_instructions.py and test_licenses.py have the packages for the two rules that are not below
OF_FOUNDATIONS = (Rule.DEPENDS, Rule.OWNER, Rule.LEFTOVER)  # test_foundation.py spoils packages for each
by_id = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}: {case.id}")


def audited(package: Path, *neighbours: Path) -> PackageAudit:
    known = Known(neighbours_in_files(neighbours))
    return audit_package(package, known, Reader(build_paths=(BUILD_FOLDER,)))


def findings(package: Path, *neighbours: Path) -> list[Finding]:
    return list(audited(package, *neighbours).findings)


def enter(channel: Channel, package: Path) -> None:
    gate = Gate(channel=channel.path, build_paths=(BUILD_FOLDER,))
    writer = ChannelWriter(channel=channel, clock=time.time)

    def admit(package: Path) -> PackageInfo | None:
        return gate.admit(package).info

    take_in(writer, package, admit=admit, progress=SilentProgress())


@by_id
def test_a_spoiled_package_has_the_finding(tmp_path: Path, case: Case) -> None:
    package = case.spoiled.write(tmp_path)
    found = [finding for finding in findings(package) if finding.rule == case.rule]
    assert [(finding.package, finding.file, finding.where) for finding in found] == [
        (package.name, case.file, case.where)
    ]
    assert case.found in found[0].found
    assert found[0].expected
    assert found[0].fix


@by_id
def test_its_twin_has_none(tmp_path: Path, case: Case) -> None:
    assert findings(case.clean.write(tmp_path)) == []


@by_id
def test_the_gate_keeps_a_spoiled_package_out(tmp_path: Path, case: Case) -> None:
    channel = new_channel(tmp_path)
    before = sorted(path for path in channel.path.rglob("*") if path.is_file())
    with pytest.raises((VerificationError, IntegrityError)) as caught:
        enter(channel, case.spoiled.write(tmp_path / "made"))
    assert case.found in str(caught.value)
    assert sorted(path for path in channel.path.rglob("*") if path.is_file()) == before


def test_the_gate_lets_a_sound_package_in(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    enter(channel, Toy(files={"share/toy": b"x"}).write(tmp_path / "made"))
    assert [package.row.name for package in published_packages(channel)] == ["toy"]


@pytest.mark.parametrize(("base", "is_kept_out"), [("debian-11", True), (None, False), ("debian-13", False)])
def test_a_package_that_needs_more_than_the_channels_base_is_kept_out(
    tmp_path: Path, base: BaseName | None, *, is_kept_out: bool
) -> None:
    channel = create_channel(tmp_path / "channel", Foundation().on(base))
    needy = Toy(
        files={"lib/libtoy.so.1": library(rpath="$ORIGIN", versions=["GLIBC_2.34"])},
        depends=("__glibc >=2.34,<3.0.a0",),
    ).write(tmp_path / "made")
    gate = Gate(channel=channel.path, build_paths=(BUILD_FOLDER,), glibc=channel.foundation.glibc)
    if is_kept_out:
        with pytest.raises(
            VerificationError, match=r"needs GLIBC_2\.34\n.*newer than glibc 2\.31, which the channel's base"
        ):
            gate.admit(needy)
    else:
        assert gate.admit(needy).findings == ()


def test_a_path_of_the_host_is_advice(tmp_path: Path) -> None:
    package = Toy(files={"lib/libtoy.so.1": library(rpath="$ORIGIN", constants=b"\0/etc/toy.d/%s.conf\0/etc/hosts")})
    audit = audited(package.write(tmp_path))
    assert [(finding.rule, finding.subject) for finding in audit.findings] == [(Rule.HOST_PATH, "/etc/toy.d/%s.conf")]
    assert audit.barring == ()


def test_every_rule_has_a_spoiled_package() -> None:
    assert {case.rule for case in CASES} == set(Rule) - {
        Rule.HOST_PATH,
        Rule.INSTRUCTIONS,
        Rule.LICENSE,
        *OF_FOUNDATIONS,
    }


def test_a_damaged_package_is_a_finding(tmp_path: Path) -> None:
    package = Toy(files={"lib/x": b"x" * 5000}).write(tmp_path)
    package.write_bytes(package.read_bytes()[:300])
    assert [finding.rule for finding in findings(package)] == [Rule.PACKAGE]


def test_a_library_of_a_run_dependency_is_found(tmp_path: Path) -> None:
    lower = Toy(name="lower", files={"lib/liblower.so.1": library(rpath="$ORIGIN")}).write(tmp_path)
    needy = library(needed=["liblower.so.1"], rpath="$ORIGIN")
    upper = Toy(files={"lib/libtoy.so.1": needy}, depends=("lower 1.*",)).write(tmp_path)
    assert findings(upper, lower) == []
    (alone,) = findings(Toy(files={"lib/libtoy.so.1": needy}).write(tmp_path), lower)
    assert (alone.rule, alone.subject) == (Rule.NEEDED, "liblower.so.1")


def test_a_library_elsewhere_than_the_rpath_leads_is_not_found(tmp_path: Path) -> None:
    files = {"lib/deep/libdeep.so.1": library(), "bin/toy": library(needed=["libdeep.so.1"], rpath="$ORIGIN/../lib")}
    (finding,) = findings(Toy(files=files).write(tmp_path))
    assert "is at lib/deep/libdeep.so.1, but the rpath names lib" in finding.found


def test_a_link_may_lead_to_a_file_of_a_run_dependency(tmp_path: Path) -> None:
    lower = Toy(name="lower", files={"lib/liblower.so.1": b"x"}).write(tmp_path)
    upper = Toy(files={"lib/liblower.so": Entry(link="liblower.so.1")}, depends=("lower",)).write(tmp_path)
    assert findings(upper, lower) == []


@pytest.mark.parametrize(("version", "found"), [("12.2.0", []), ("11.4.0", [Rule.LIBSTDCXX])], ids=["enough", "older"])
def test_an_open_requirement_means_what_the_channel_has(tmp_path: Path, version: str, found: list[Rule]) -> None:
    runtime = Toy(name="libstdcxx", version=version).write(tmp_path)
    package = Toy(files=GXX.files, depends=("libstdcxx",)).write(tmp_path)
    assert [finding.rule for finding in findings(package, runtime)] == found


def test_a_noarch_packages_dependency_lies_where_it_is_installed(tmp_path: Path) -> None:
    lower = Toy(name="lower", subdir="noarch", files={"site-packages/lower/data": b"x"})
    index = {"name": "lower", "version": "1.0", "build": "h0123456_0", "build_number": 0, "subdir": "noarch"}
    info = {"index.json": json.dumps(index | {"noarch": "python"}).encode()}
    written = Toy(name="lower", subdir="noarch", files=lower.files, info=info).write(tmp_path)
    python = Toy(name="python", version="3.12.4").write(tmp_path)
    link = Entry(link="../lib/python3.12/site-packages/lower/data")
    upper = Toy(files={"share/data": link}, depends=("python", "lower")).write(tmp_path)
    assert findings(upper, python, written) == []


def test_a_channels_packages_in_the_old_format_are_audited(tmp_path: Path) -> None:
    path = tmp_path / "noarch" / "old-1.0-0.tar.bz2"
    path.parent.mkdir()
    script = b"touch $PREFIX/data"
    rows = [{"_path": "bin/.old-post-link.sh", "path_type": "hardlink", "size_in_bytes": len(script)}]
    members = {
        "info/index.json": json.dumps({"name": "old", "version": "1.0", "build": "0", "build_number": 0}).encode(),
        "info/paths.json": json.dumps({"paths": rows, "paths_version": 1}).encode(),
        "bin/.old-post-link.sh": script,
    }
    with tarfile.open(path, "w:bz2") as written:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            written.addfile(member, io.BytesIO(content))
    (path.parent / "repodata.json").write_text(json.dumps({"packages": {path.name: {}}, "packages.conda": {}}))
    report = audit_channel(tmp_path, Reader(build_paths=()), jobs=1, progress=SilentProgress())
    assert [(finding.package, finding.rule) for finding in report.findings] == [(path.name, Rule.LINK_SCRIPT)]


@pytest.mark.parametrize("name", ["repodata.json", "toy-1.0-h0123456_0.conda"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "link out", "link to a device", "link to itself"])
def test_what_others_put_into_a_channels_folder_is_one_error(tmp_path: Path, name: str, kind: str) -> None:
    """A pipe in the place of an index had the audit wait for ever."""
    folder = tmp_path / "channel"
    package = Toy().write(folder)
    (package.parent / "repodata.json").write_text(json.dumps({"packages.conda": {package.name: {}}}))
    damage(folder, f"{package.parent.name}/{name}", kind, tmp_path)
    with bounded(f"audit of a {kind}"), pytest.raises(ChannelError, match=rf"{name}: is a ") as caught:
        audit_channel(folder, Reader(build_paths=()), jobs=1, progress=SilentProgress())
    assert caught.value.hint == "remove it, or restore it from a copy"


def test_a_link_in_the_place_of_a_subdir_is_followed_in_the_channel_only(tmp_path: Path) -> None:
    """The packages of such a subdir were left out, and the audit passed without them."""
    folder = tmp_path / "channel"
    package = Toy().write(folder)
    subdir = package.parent
    (folder / "kept").mkdir()
    subdir.rename(folder / "kept" / "own")
    subdir.symlink_to("kept/own")
    assert channel_packages(folder) == [package]
    subdir.unlink()
    (folder / "kept" / "own").rename(tmp_path / "own")
    subdir.symlink_to("../own")
    with pytest.raises(ChannelError, match=f"{subdir.name}: is a symbolic link out of the folder"):
        audit_channel(folder, Reader(), jobs=1, progress=SilentProgress())


def test_a_folder_of_any_name_is_audited(tmp_path: Path) -> None:
    """No index takes it for a subdir; its packages are there all the same."""
    package = Toy().write(tmp_path / "channel")
    other = package.parent.rename(tmp_path / "channel" / "001") / package.name
    assert channel_packages(tmp_path / "channel") == [other]


def test_a_package_that_is_exchanged_for_a_link_is_not_read(tmp_path: Path) -> None:
    package = Toy().write(tmp_path / "channel")
    other = Toy().write(tmp_path / "elsewhere")
    package.unlink()
    package.symlink_to(other)
    with pytest.raises(ChannelError, match=r"is a symbolic link to .*, out of the folder"):
        audit_packages([package], (), Reader(), jobs=None, progress=SilentProgress(), within=tmp_path / "channel")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize(
    ("text", "rule", "said"),
    [
        ("/opt/site/build-7/work/a.c", "build-path", "names /opt/site/build-7 in UTF-"),
        ("/home/x/bld/rattler-build_wp/work", "build-path", "names /bld/rattler-build_ in UTF-"),
        ("/opt/conda" + "_placehold" * 9 + "/share", "placeholder", "_placehold_placehold in UTF-"),
        ("/opt/site/build-70/work", None, None),
    ],
)
def test_paths_in_strings_of_wide_characters_are_found(
    tmp_path: Path, encoding: str, text: str, rule: str | None, said: str | None
) -> None:
    package = make_conda(tmp_path, "wide", files={"lib/wide.bin": b"\x7fX\0\1" + text.encode(encoding) + bytes(8)})
    reader = Reader(build_paths=("/opt/site/build-7",))
    [audit] = audit_packages([package], [], reader, jobs=None, progress=SilentProgress())
    found = [(finding.rule.value, finding.found) for finding in audit.findings if finding.file == "lib/wide.bin"]
    if rule is None:
        assert found == []
    else:
        assert [(name, str(said) in what) for name, what in found] == [(rule, True)]
