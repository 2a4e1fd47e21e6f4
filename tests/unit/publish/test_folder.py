# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from channel_tools.channel import channel_writer, index_channel, open_channel, verify_channel
from channel_tools.channel.publish import check_package
from channel_tools.channel.records import CachedPackage
from channel_tools.conda.package import sidecar_of, write_sidecar
from channel_tools.page.model import PageChoices
from channel_tools.page.write import add_page, follow_page
from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.model import PackageFile, PackageSet, PublishReport
from channel_tools.system.errors import ChannelError, FoundationError, IntegrityError, UsageError
from channel_tools.system.progress import SilentProgress
from tests.support.packages import CONDA_FORGE, REGISTRY, make_conda, own
from tests.unit.publish.sets import make_set


@pytest.fixture
def target(tmp_path: Path) -> FolderTarget:
    return FolderTarget(root=tmp_path / "target", changed=follow_page)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return tmp_path / "made"


def publish(target: FolderTarget, packages: PackageSet, label: str = "main") -> PublishReport:
    return target.publish(target.plan(packages, label=label), progress=SilentProgress())


def listed(folder: Path) -> list[str]:
    subdirs = ("linux-64", "noarch")
    return [
        f"{subdir}/{name}"
        for subdir in subdirs
        for name in json.loads((folder / subdir / "repodata.json").read_bytes())["packages.conda"]
    ]


def test_a_set_is_published_with_its_foundation(target: FolderTarget, made: Path) -> None:
    toy, zlib = make_conda(made, "toy"), make_conda(made, "zlib", subdir="noarch", index={"noarch": "generic"})
    packages = make_set([toy], [zlib])
    plan = target.plan(packages, label="main")
    assert (plan.upload, plan.upload_bytes) == (packages.files, toy.stat().st_size + zlib.stat().st_size)
    assert not target.root.exists()
    report = publish(target, packages)
    assert report.uploaded == ("linux-64/toy-1.0-0.conda", "noarch/zlib-1.0-0.conda")
    assert listed(target.root) == list(report.uploaded)
    assert (target.root / "linux-64" / toy.name).samefile(toy)
    assert publish(target, packages).uploaded == ()
    assert target.plan(packages, label="main").present == packages.files
    assert verify_channel(open_channel(target.root)) == []


def test_what_was_read_in_full_is_not_read_again(
    target: FolderTarget, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make_conda(made, "toy")
    packages, row = make_set([file]), check_package(file)

    def fail(path: Path, **_: object) -> CachedPackage:
        raise AssertionError(f"{path} was read")

    monkeypatch.setattr("channel_tools.channel.publish.check_package", fail)

    def publish_received(rows: Mapping[str, CachedPackage]) -> PublishReport:
        return target.publish_received(packages, packages.files, label="main", rows=rows, progress=SilentProgress())

    key = "linux-64/toy-1.0-0.conda"
    for wrong in ({}, {key: msgspec.structs.replace(row, sha256="0" * 64)}):
        with pytest.raises(AssertionError, match="was read"):
            publish_received(wrong)
    report = publish_received({key: row})
    assert report.uploaded == (key,)
    monkeypatch.undo()
    assert verify_channel(open_channel(target.root)) == []


def test_of_a_set_that_was_received_only_what_the_channel_lacks_is_needed(target: FolderTarget, made: Path) -> None:
    toy, zlib = make_conda(made, "toy"), make_conda(made, "zlib")
    publish(target, make_set([toy]))
    packages = make_set([toy, zlib])
    received = [file for file in packages.files if file.file_name == zlib.name]

    def publish_received(received: Sequence[PackageFile]) -> PublishReport:
        return target.publish_received(packages, received, label="main", rows={}, progress=SilentProgress())

    with pytest.raises(ChannelError, match=r"linux-64/zlib-1\.0-0\.conda: is missing in .*, and no label") as caught:
        publish_received([])
    assert caught.value.hint == "run the same command again"
    assert publish_received(received).uploaded == ("linux-64/zlib-1.0-0.conda",)
    assert listed(target.root) == ["linux-64/toy-1.0-0.conda", "linux-64/zlib-1.0-0.conda"]


def test_labels_share_bytes_and_are_channels_of_their_own(target: FolderTarget, made: Path) -> None:
    packages = make_set([make_conda(made, "toy")])
    publish(target, packages, "testing")
    assert (listed(target.root), listed(target.root / "label" / "testing")) == ([], ["linux-64/toy-1.0-0.conda"])
    assert target.plan(packages, label="main").link == packages.files
    report = publish(target, packages)
    assert (report.uploaded, report.linked) == ((), ("linux-64/toy-1.0-0.conda",))
    assert report.address == target.address
    assert target.labels() == ["main", "testing"]


def test_promoting_links_the_same_bytes(target: FolderTarget, made: Path) -> None:
    toy, zlib = make_conda(made, "toy"), make_conda(made, "zlib")
    publish(target, make_set([toy], [zlib]), "testing")
    keys = ("linux-64/toy-1.0-0.conda", "linux-64/zlib-1.0-0.conda")
    report = target.promote(keys, source="testing", label="main", progress=SilentProgress())
    assert (report.uploaded, report.linked) == ((), keys)
    assert listed(target.root) == list(keys)
    assert (target.root / keys[0]).samefile(toy)
    assert target.promote(keys, source="testing", label="main", progress=SilentProgress()).linked == ()


def test_what_one_label_has_read_no_other_reads_again(
    target: FolderTarget, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = make_set([make_conda(made, "toy")])
    publish(target, packages, "testing")
    monkeypatch.setattr("channel_tools.channel.publish.read_package", None)
    monkeypatch.setattr("channel_tools.channel.records.read_package", None)
    assert publish(target, packages).linked == ("linux-64/toy-1.0-0.conda",)
    monkeypatch.undo()
    assert verify_channel(open_channel(target.root)) == []


def test_promoting_what_a_label_does_not_list_is_refused(target: FolderTarget, made: Path) -> None:
    with pytest.raises(UsageError, match="has no label 'testing'"):
        target.promote(("linux-64/x.conda",), source="testing", label="main", progress=SilentProgress())
    publish(target, make_set([make_conda(made, "toy", build="h1", about=own("d1"), variant={})]), "testing")
    publish(target, make_set([make_conda(made, "toy", build="h2", about=own("d2"), variant={})]), "testing")
    for name in ("toy-1.0-h1", "nothing-1-0"):
        with pytest.raises(ChannelError, match=f"label testing does not list linux-64/{name}"):
            target.promote((f"linux-64/{name}.conda",), source="testing", label="main", progress=SilentProgress())


@pytest.mark.parametrize("label", ["main", "testing"])
def test_other_bytes_under_a_name_of_any_label_are_refused(target: FolderTarget, made: Path, label: str) -> None:
    publish(target, make_set([make_conda(made / "1", "toy", files={"a": b"1"})]), label)
    other = make_set([make_conda(made / "2", "toy", files={"a": b"2"}), make_conda(made / "2", "more")])
    with pytest.raises(ChannelError, match="has other bytes under this name"):
        target.plan(other, label="main")
    assert not (target.root / "linux-64" / "more-1.0-0.conda").exists()


def test_a_name_taken_by_another_publisher_after_planning_is_refused(target: FolderTarget, made: Path) -> None:
    plan = target.plan(make_set([make_conda(made / "1", "toy", files={"a": b"1"})]), label="main")
    publish(target, make_set([make_conda(made / "2", "toy", files={"a": b"2"})]), "testing")
    with pytest.raises(ChannelError, match="has other bytes under this name"):
        target.publish(plan, progress=SilentProgress())


def test_a_label_with_a_page_keeps_it_in_step(target: FolderTarget, made: Path) -> None:
    publish(target, make_set([make_conda(made, "toy", about=own("1"))]))
    with channel_writer(open_channel(target.root)) as writer:
        add_page(writer, PageChoices(title="Ours"))
    publish(target, make_set([make_conda(made, "new", about=own("2"))]))
    publish(target, make_set([make_conda(made, "other", about=own("3"))]), label="testing")
    assert "page/name/new.html" in (target.root / "index.html").read_text()
    target.yank(("linux-64/new-1.0-0.conda",), label="main", reason="it sums wrongly")
    assert "yanked: it sums wrongly" in (target.root / "page/build/linux-64/new-1.0-0.html").read_text()
    assert not (target.root / "label" / "testing" / "index.html").exists()


def test_a_page_that_cannot_be_written_is_told_from_what_was_published(target: FolderTarget, made: Path) -> None:
    publish(target, make_set([make_conda(made, "toy", about=own("1"))]))
    (target.root / ".channel_tools" / "page.json").write_text("{")
    with pytest.raises(ChannelError, match=r"the channel was changed, but not its page: .*page\.json"):
        publish(target, make_set([make_conda(made, "new", about=own("2"))]))
    assert "new-1.0-0.conda" in str(listed(target.root))
    assert verify_channel(open_channel(target.root)) == []


def test_a_set_built_on_another_foundation_is_refused(target: FolderTarget, made: Path) -> None:
    publish(target, make_set([make_conda(made, "toy")]))
    with pytest.raises(FoundationError, match="registry, not conda-forge at"):
        target.plan(make_set([make_conda(made, "other")], on=CONDA_FORGE), label="main")


def test_a_folder_that_is_no_channel_of_ours_is_left_alone(target: FolderTarget, made: Path) -> None:
    (target.root / "linux-64").mkdir(parents=True)
    with pytest.raises(ChannelError, match="not a channel"):
        target.plan(make_set([make_conda(made, "toy")]), label="main")


def test_nothing_is_published_when_one_package_is_damaged(target: FolderTarget, made: Path) -> None:
    good, bad = make_conda(made, "good"), make_conda(made, "bad")
    bad.write_bytes(bad.read_bytes()[:-30])
    with pytest.raises(IntegrityError, match=r"bad-1\.0-0\.conda"):
        publish(target, make_set([good, bad]))
    assert listed(target.root) == []


def test_a_damaged_file_in_the_target_is_replaced(target: FolderTarget, made: Path) -> None:
    packages = make_set([make_conda(made, "toy")])
    publish(target, packages)
    entered = target.root / "linux-64" / "toy-1.0-0.conda"
    sound = entered.read_bytes()
    entered.unlink()
    entered.write_bytes(sound[:-10] + b"0123456789")
    with channel_writer(open_channel(target.root)) as writer:
        index_channel(writer)
    publish(target, packages)
    assert entered.read_bytes() == sound
    assert listed(target.root) == ["linux-64/toy-1.0-0.conda"]


def test_attestations_follow_a_package_that_was_published_before_them(target: FolderTarget, tmp_path: Path) -> None:
    package = make_conda(tmp_path, "toy")
    for _time in range(2):
        target.publish(target.plan(make_set([package]), label="main"), progress=SilentProgress())
        write_sidecar(package, b"[{}]")
    assert sidecar_of(target.root / "linux-64" / package.name).read_bytes() == b"[{}]"


def test_further_channels_are_added_to_the_record_of_a_target(target: FolderTarget, made: Path) -> None:
    publish(target, make_set([make_conda(made, "toy")]))
    assert open_channel(target.root).foundation.further == ()
    for name, addresses in (("more", ("file:///first/lab",)), ("most", ("file:///other", "file:///second/lab"))):
        on = REGISTRY.with_further(addresses)
        publish(target, make_set([make_conda(made, name)], on=on))
        assert open_channel(target.root).foundation.further == addresses  # of two with one name the later one
    publish(target, make_set([make_conda(made, "last")]))
    assert open_channel(target.root).foundation.further == ("file:///other", "file:///second/lab")
    with pytest.raises(FoundationError):
        publish(target, make_set([make_conda(made, "else")], on=CONDA_FORGE.with_further(["file:///other"])))
