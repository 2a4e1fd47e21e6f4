# SPDX-License-Identifier: BSD-3-Clause
"""Channels that other tools made become ours: packages, hotfixes and removals stay, and every command works on them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from channel_tools.channel import index_channel, open_channel, verify_channel
from channel_tools.channel.adopt import Adoption, adopt, plan_adoption
from channel_tools.channel.maintenance import Retention
from channel_tools.channel.model import Foundation
from channel_tools.channel.state import read_listing
from channel_tools.channel.store import channel_writer
from channel_tools.page.model import INDEX_PAGE
from channel_tools.publish.folder import open_folder
from channel_tools.publish.maintenance import retain, yank
from channel_tools.publish.model import file_set
from channel_tools.system.errors import ChannelError, FoundationError, IntegrityError, UsageError
from channel_tools.system.progress import SilentProgress
from channel_tools.workflow.adopt import adopt_channel
from channel_tools.workflow.channel_page import write_channel_page
from tests.support.packages import CONDA_FORGE, REGISTRY, make_conda
from tests.unit.channel.other_tools import (
    CHANNELS,
    MAKERS,
    Maker,
    by_hand,
    by_rattler,
    by_shards,
    leave_only_shards,
    one_of_each,
    write_shards,
)
from tests.unit.mirror.bundles import exporting_site, verify


def packages_in(channel: Path) -> dict[str, str]:
    """The sha256 of every package file."""
    files = (*channel.glob("*/*.conda"), *channel.glob("*/*.tar.bz2"))
    return {f"{file.parent.name}/{file.name}": hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def repodata(channel: Path, subdir: str = "linux-64") -> dict[str, dict[str, object]]:
    index = json.loads((channel / subdir / "repodata.json").read_bytes())
    return {**index["packages"], **index["packages.conda"]}


def all_records(channel: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for folder in (path for path in channel.iterdir() if path.is_dir()):
        file = next((folder / name for name in ("repodata.json", "repodata.kept") if (folder / name).is_file()), None)
        if file is not None:
            index = json.loads(file.read_text())
            rows = index["packages"] | index["packages.conda"]
            found |= {f"{folder.name}/{name}": row for name, row in rows.items()}
    return found


def adopted(channel: Path, foundation: Foundation = CONDA_FORGE) -> Adoption:
    plan = plan_adoption(channel, foundation)
    adopt(plan)
    return plan


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
@pytest.mark.parametrize("fill", CHANNELS, ids=lambda fill: fill.__name__)
def test_packages_stay_as_they_are_and_records_mean_the_same(tmp_path: Path, maker: Maker, fill: Maker) -> None:
    channel = tmp_path / "channel"
    fill(channel)
    maker(channel)
    before = packages_in(channel)
    former = all_records(channel)
    plan = adopted(channel)
    assert plan.remarks == ()
    assert plan.patches == {}
    assert packages_in(channel) == before
    assert verify_channel(open_channel(channel)) == []
    listed = all_records(channel)
    assert {name: row["sha256"] for name, row in listed.items()} == before
    for name, row in listed.items():
        assert row["subdir"] == name.partition("/")[0]
        assert row["version"] == former[name]["version"]
    assert not list(channel.glob("*/current_repodata*"))


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_every_command_works_on_it_afterwards(tmp_path: Path, maker: Maker) -> None:
    channel = tmp_path / "channel"
    one_of_each(channel)
    make_conda(channel, "toy", version="0.5")
    maker(channel)
    adopted(channel)
    target = open_folder(str(channel), {})
    new = make_conda(tmp_path / "made", "new")
    plan = target.plan(file_set([new], CONDA_FORGE), label="main")
    target.publish(plan, progress=SilentProgress())
    rule = Retention(keep=1, grace_s=0.0)
    assert retain(target, rule, label=None, dry_run=False)["main"].delete == ("linux-64/toy-0.5-0.conda",)
    yank(target, "pure", label=None, reason="wrong", dry_run=False)
    target.promote(("linux-64/new-1.0-0.conda",), source="main", label="testing", progress=SilentProgress())
    write_channel_page(str(channel), None, label="main", environ={})
    assert b"toys" in (channel / INDEX_PAGE).read_bytes()
    assert sorted(repodata(channel)) == ["new-1.0-0.conda", "old-1.0-0.tar.bz2", "toy-1.0-0.conda"]
    assert repodata(channel, "noarch") == {}
    assert verify_channel(open_channel(channel)) == []
    site = exporting_site(tmp_path, open_channel(channel))
    site.bundle(tmp_path / "bundle")
    assert verify(tmp_path / "bundle", site.fingerprint).files


def test_hotfixes_removals_and_revocations_stay(tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    one_of_each(channel)
    make_conda(channel, "gone")
    make_conda(channel, "revoked", index={"depends": ["toy"]})
    changes: dict[str, dict[str, object]] = {
        "toy-1.0-0.conda": {"depends": ["zlib <2"], "license": None, "constrains": ["other >=3"]},
        "old-1.0-0.tar.bz2": {"license": "BSD-3-Clause"},
        "revoked-1.0-0.conda": {"depends": ["toy", "package_has_been_revoked"], "revoked": True},
    }
    by_hand(channel, changes=changes, removed=["gone-1.0-0.conda", "deleted-1.0-0.conda"])
    plan = adopted(channel)
    assert [(remark.path, remark.kind) for remark in plan.remarks] == [("linux-64/gone-1.0-0.conda", "removed")]
    rows = repodata(channel)
    toy = rows["toy-1.0-0.conda"]
    assert (toy["depends"], toy["constrains"], "license" in toy) == (["zlib <2"], ["other >=3"], False)
    assert rows["old-1.0-0.tar.bz2"]["license"] == "BSD-3-Clause"
    assert rows["revoked-1.0-0.conda"]["depends"] == ["toy", "package_has_been_revoked"]
    assert rows["revoked-1.0-0.conda"]["revoked"] is True
    assert "gone-1.0-0.conda" not in rows
    assert (channel / "linux-64" / "gone-1.0-0.conda").is_file()
    assert verify_channel(open_channel(channel)) == []
    assert set(read_listing(open_channel(channel)).patches) == {"linux-64"}


def test_shards_say_what_repodata_says(tmp_path: Path) -> None:
    plans = []
    for name in ("plain", "sharded"):
        channel = tmp_path / name
        one_of_each(channel)
        make_conda(channel, "gone")
        changes: dict[str, dict[str, object]] = {
            "toy-1.0-0.conda": {"depends": ["zlib <2"], "more": 1},
            "old-1.0-0.tar.bz2": {"license": "BSD-3-Clause"},
        }
        by_hand(channel, changes=changes, removed=["gone-1.0-0.conda"], v3={"whl": {"a.whl": {"name": "a"}}})
        if name == "sharded":
            index = json.loads((channel / "linux-64" / "repodata.json").read_bytes())
            shards: dict[str, dict[str, object]] = {"gone": {"removed": ["gone-1.0-0.conda"]}}
            for key in ("packages", "packages.conda"):
                for file_name, row in index[key].items():
                    row |= {kind: bytes.fromhex(row[kind]) for kind in ("md5", "sha256")}
                    shards.setdefault(row["name"], {})[key] = {file_name: row}
            write_shards(channel, shards | {"a": {"v3": index["v3"]}})
            leave_only_shards(channel)
        plans.append(adopted(channel))
        assert verify_channel(open_channel(channel)) == []
    plain, sharded = ([(one.path, one.kind) for one in plan.remarks if "noarch" not in one.path] for plan in plans)
    assert plain == sharded
    assert ("linux-64", "field") in plain
    assert plans[0].rows.keys() == plans[1].rows.keys()
    assert plans[0].patches == plans[1].patches
    assert len(plans[0].patches["linux-64"].names()) == len(changes) + 1
    rows = [repodata(tmp_path / name) for name in ("plain", "sharded")]
    assert [row["depends"] for row in (rows[0]["toy-1.0-0.conda"], rows[1]["toy-1.0-0.conda"])] == [["zlib <2"]] * 2


def test_the_former_shards_are_kept(tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    one_of_each(channel)
    by_shards(channel)
    before = {name: one for name, one in content(channel).items() if "shard" in name}
    adopted(channel)
    assert {
        name: one for name, one in content(channel / ".channel_tools" / "former").items() if "shard" in name
    } == before


def test_what_only_the_unpatched_index_lists_stays_hidden(tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    one_of_each(channel)
    by_hand(channel)
    folder = channel / "linux-64"
    (folder / "repodata_from_packages.json").write_bytes((folder / "repodata.json").read_bytes())
    index = json.loads((folder / "repodata.json").read_bytes())
    del index["packages.conda"]["toy-1.0-0.conda"]
    (folder / "repodata.json").write_text(json.dumps(index))
    assert [(remark.path, remark.kind) for remark in adopted(channel).remarks] == [
        ("linux-64/toy-1.0-0.conda", "removed")
    ]
    assert "toy-1.0-0.conda" not in repodata(channel)


def test_what_it_does_not_take_over_is_named(tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    one_of_each(channel)
    changed = make_conda(channel, "changed")
    misplaced = make_conda(channel, "misplaced")
    missing = make_conda(channel, "missing")
    changes: dict[str, dict[str, object]] = {
        "toy-1.0-0.conda": {"app_type": "web", "build_number": 7, "depends": ["zlib >=1,,"]},
    }
    by_hand(channel, changes=changes)
    changed.write_bytes(make_conda(tmp_path / "other", "changed", files={"x": b"other"}).read_bytes())
    missing.unlink()
    misplaced.rename(channel / "noarch" / misplaced.name)
    (channel / "linux-64" / "bad-1.0-0.conda").write_bytes(b"junk")
    make_conda(channel, "added")
    before = packages_in(channel)
    plan = adopted(channel)
    found = {(remark.path, remark.kind): remark.message for remark in plan.remarks}
    assert set(found) == {
        ("linux-64", "field"),
        ("linux-64/added-1.0-0.conda", "new"),
        ("linux-64/bad-1.0-0.conda", "not listed"),
        ("linux-64/changed-1.0-0.conda", "not listed"),
        ("linux-64/misplaced-1.0-0.conda", "missing"),
        ("linux-64/missing-1.0-0.conda", "missing"),
        ("linux-64/toy-1.0-0.conda", "field"),
        ("noarch/misplaced-1.0-0.conda", "not listed"),
    }
    assert "1 record has the field app_type" in found["linux-64", "field"]
    assert "published files never change" in found["linux-64/changed-1.0-0.conda", "not listed"]
    assert "is for the subdir 'linux-64'" in found["noarch/misplaced-1.0-0.conda", "not listed"]
    assert [remark.message for remark in plan.remarks if remark.path.endswith("toy-1.0-0.conda")] == [
        "build_number was 7 in the former record; the package's own 0 is listed",
        next(remark.message for remark in plan.remarks if "'zlib >=1,,' is not a valid MatchSpec" in remark.message),
    ]
    assert packages_in(channel) == before
    assert sorted(repodata(channel)) == ["added-1.0-0.conda", "old-1.0-0.tar.bz2", "toy-1.0-0.conda"]


def test_a_changed_file_is_not_listed_by_later_runs_either(tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    one_of_each(channel)
    changed = make_conda(channel, "changed")
    by_hand(channel)
    changed.write_bytes(make_conda(tmp_path / "other", "changed", files={"x": b"other"}).read_bytes())
    adopted(channel)
    for _ in range(2):
        with channel_writer(open_channel(channel)) as writer:
            assert [finding.path for finding in index_channel(writer).refused] == [changed]


def test_the_former_index_is_kept_and_no_old_one_is_left_for_clients(tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    one_of_each(channel)
    by_hand(channel)
    (channel / "index.html").write_text("<html>")
    former = content(channel)
    adopted(channel)
    kept = content(channel / ".channel_tools" / "former")
    names = ("repodata.json", "current_repodata.json", "index.html")
    for name in (*(f"{subdir}/{name}" for subdir in ("linux-64", "noarch") for name in names), "index.html"):
        assert kept[name] == former[name]
    left = {path.name for path in (channel / "linux-64").iterdir() if path.is_file()}
    assert left == {
        "old-1.0-0.tar.bz2",
        "repodata.json",
        "repodata.json.zst",
        "repodata_shards.msgpack.zst",
        "run_exports.json",
        "toy-1.0-0.conda",
    }


@pytest.mark.parametrize("maker", [by_rattler, by_hand], ids=lambda maker: maker.__name__)
def test_a_plan_changes_nothing_and_a_second_run_neither(tmp_path: Path, maker: Maker) -> None:
    channel = tmp_path / "channel"
    one_of_each(channel)
    maker(channel)
    before = content(channel)
    [planned] = adopt_channel(channel, "conda-forge", CONDA_FORGE.address, dry_run=True)
    assert content(channel) == before
    [first] = adopt_channel(channel, "conda-forge", CONDA_FORGE.address, dry_run=False)
    assert (first.rows, first.remarks) == (planned.rows, planned.remarks)
    after = content(channel)
    [second] = adopt_channel(channel, None, None, dry_run=False)
    assert (second.is_ours, second.remarks, content(channel)) == (True, (), after)


def test_an_interrupted_run_is_completed_with_the_hotfixes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = tmp_path / "channel"
    one_of_each(channel)
    by_hand(channel, changes={"toy-1.0-0.conda": {"license": "BSD-3-Clause"}})

    def killed(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("channel_tools.channel.adopt.index_channel", killed)
        with pytest.raises(KeyboardInterrupt):
            adopted(channel)
    adopted(channel)
    assert repodata(channel)["toy-1.0-0.conda"]["license"] == "BSD-3-Clause"
    assert not (channel / "linux-64" / "current_repodata.json").exists()
    assert verify_channel(open_channel(channel)) == []


def test_labels_below_it_are_taken_over_as_well(tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    for folder in (channel, channel / "label" / "testing"):
        one_of_each(folder)
        by_rattler(folder)
    make_conda(channel / "label" / "testing", "extra")
    by_rattler(channel / "label" / "testing")
    assert len(adopt_channel(channel, "conda-forge", CONDA_FORGE.address, dry_run=False)) == 2
    target = open_folder(str(channel), {})
    assert target.labels() == ["main", "testing"]
    assert len(target.packages("testing")) == 4


def test_the_foundation_is_asked_for_and_recorded(tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    one_of_each(channel)
    by_rattler(channel)
    with pytest.raises(UsageError, match="on which foundation its packages are built") as caught:
        adopt_channel(channel, None, None, dry_run=False)
    assert "--foundation conda-forge" in str(caught.value.hint)
    adopt_channel(channel, "registry", None, dry_run=False)
    assert open_channel(channel).foundation == REGISTRY
    with pytest.raises(FoundationError):
        adopt_channel(channel, "conda-forge", None, dry_run=True)


def test_the_way_in_is_named_for_a_channel_of_another_tool(tmp_path: Path) -> None:
    one_of_each(tmp_path / "channel")
    by_rattler(tmp_path / "channel")
    with pytest.raises(ChannelError) as caught:
        open_channel(tmp_path / "channel")
    assert "channel index --adopt" in str(caught.value.hint)


def elsewhere(folder: Path) -> None:
    one_of_each(folder)
    by_hand(folder, info={"subdir": "linux-64", "base_url": "https://files.example/"})


@pytest.mark.parametrize("base_url", [None, "", "./", ".", "../linux-64", "../linux-64/"])
def test_base_url_that_is_the_folder_itself_changes_nothing(tmp_path: Path, base_url: str | None) -> None:
    channel = tmp_path / "my channel"
    make_conda(channel, "toy")
    by_hand(channel, info={"subdir": "linux-64"} | ({} if base_url is None else {"base_url": base_url}))
    assert adopted(channel).remarks == ()


def cut_short(folder: Path) -> None:
    one_of_each(folder)
    by_rattler(folder)
    index = folder / "linux-64" / "repodata.json"
    index.write_bytes(index.read_bytes()[:-10])


def nothing(folder: Path) -> None:
    del folder


def lost_shard(folder: Path) -> None:
    one_of_each(folder)
    by_rattler(folder)
    leave_only_shards(folder)
    for shard in (folder / "linux-64" / "shards").iterdir():
        shard.unlink()


def cut_shard(folder: Path) -> None:
    one_of_each(folder)
    by_rattler(folder)
    leave_only_shards(folder)
    for shard in (folder / "linux-64" / "shards").iterdir():
        shard.write_bytes(shard.read_bytes()[:-1])


def far_shards(folder: Path) -> None:
    one_of_each(folder)
    write_shards(folder, {}, shards_base_url="https://shards.example/")


@pytest.mark.parametrize(
    ("fill", "error", "said"),
    [
        (Path.mkdir, ChannelError, "not a channel; expected folders such as linux-64"),
        (nothing, ChannelError, "no such folder"),
        (elsewhere, ChannelError, r"packages are at https://files\.example/ \(base_url\)"),
        (cut_short, IntegrityError, r"repodata\.json: the index cannot be read"),
        (lost_shard, IntegrityError, r"shards/[0-9a-f]+\.msgpack\.zst: is missing"),
        (cut_shard, IntegrityError, "the sha256 of its bytes is not the one in its name"),
        (far_shards, ChannelError, r"its shards are at https://shards\.example/"),
    ],
    ids=["empty", "nothing", "base_url", "truncated", "shard lost", "shard truncated", "shards elsewhere"],
)
def test_what_cannot_be_adopted_is_named_and_left(
    tmp_path: Path, fill: Maker, error: type[Exception], said: str
) -> None:
    channel = tmp_path / "channel"
    fill(channel)
    before: Iterable[str] = content(channel) if channel.exists() else ()
    with pytest.raises(error, match=said):
        adopted(channel)
    assert (content(channel) if channel.exists() else ()) == before


def test_a_folder_that_was_never_indexed_is_listed(tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    one_of_each(channel)
    assert adopted(channel).remarks == ()
    assert sorted(repodata(channel)) == ["old-1.0-0.tar.bz2", "toy-1.0-0.conda"]
