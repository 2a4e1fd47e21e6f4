# SPDX-License-Identifier: BSD-3-Clause
"""Yank, hotfix and retention of a folder: what each index says afterwards, and that it stays so."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from channel_tools.channel import channel_writer, index_channel, open_channel, verify_channel
from channel_tools.channel.listing import with_yanked, without_yanked
from channel_tools.channel.maintenance import Retention, RetentionPlan
from channel_tools.channel.state import read_listing, write_listing
from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.maintenance import Changed, hotfix, promoted_keys, retain, yank
from channel_tools.publish.target import MaintainedTarget, maintained, open_target
from channel_tools.system.errors import ChannelError, ChannelToolsError, ConfigError, UsageError
from channel_tools.system.progress import SilentProgress
from tests.support.packages import make_conda, own
from tests.unit.publish.sets import make_set

DAY_S = 24 * 3600.0
NOW_S = 1.8e9


class Clock:
    def __init__(self) -> None:
        self.now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def target(tmp_path: Path, clock: Clock) -> FolderTarget:
    return FolderTarget(root=tmp_path / "target", clock=clock)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return tmp_path / "made"


def publish(target: FolderTarget, *own: Path, foundation: list[Path] | None = None, label: str = "main") -> None:
    plan = target.plan(make_set(list(own), foundation), label=label)
    target.publish(plan, progress=SilentProgress())


def repodata(folder: Path, name: str = "repodata.json") -> dict[str, dict[str, dict[str, object]]]:
    value: dict[str, dict[str, dict[str, object]]] = json.loads((folder / "linux-64" / name).read_bytes())
    return value


def listed(folder: Path) -> list[str]:
    return [name.removesuffix(".conda") for name in repodata(folder)["packages.conda"]]


def sound(target: FolderTarget) -> bool:
    """All indexes of all labels agree with each other and with the packages, and indexing again changes nothing."""
    places = [target.root if label == "main" else target.root / "label" / label for label in target.labels()]
    for place in places:
        with channel_writer(open_channel(place)) as writer:
            assert index_channel(writer).written == ()
    return [finding for place in places for finding in verify_channel(open_channel(place))] == []


def instructions(folder: Path, **keys: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "patch_instructions.json"
    records = {"packages.conda": keys.pop("records")} if "records" in keys else {}
    path.write_text(json.dumps({"patch_instructions_version": 1} | records | keys))
    return path


def test_a_yanked_package_is_hidden_under_every_label_and_its_file_stays(target: FolderTarget, made: Path) -> None:
    toys = [make_conda(made, "toy", version=version) for version in ("1.0", "2.0")]
    publish(target, *toys)
    publish(target, *toys, label="testing")
    changed = yank(target, "toy=2", label=None, reason="wrong sums", dry_run=False)
    assert changed == [Changed(label=name, key="linux-64/toy-2.0-0.conda") for name in ("main", "testing")]
    for folder in (target.root, target.root / "label" / "testing"):
        assert listed(folder) == ["toy-1.0-0"]
        assert list(repodata(folder)["removed"]) == ["toy-2.0-0.conda"]
        assert (folder / "linux-64" / "toy-2.0-0.conda").is_file()
    assert {package.yanked for package in target.packages("main")} == {None, "wrong sums"}
    assert sound(target)
    with pytest.raises(ChannelError, match=r"was yanked \(wrong sums\) and is not published again"):
        publish(target, *toys, label="prod")
    assert yank(target, "toy-2.0-0.conda", label="main", reason=None, dry_run=False) == changed[:1]
    assert listed(target.root) == ["toy-1.0-0", "toy-2.0-0"]
    assert sound(target)


def test_yanking_nothing_is_refused_with_the_nearest_name_and_again_changes_nothing(
    target: FolderTarget, made: Path
) -> None:
    publish(target, make_conda(made, "libtoy"))
    with pytest.raises(UsageError, match="no package matches 'libtyo'") as caught:
        yank(target, "libtyo", label=None, reason="x", dry_run=False)
    assert caught.value.hint == "did you mean libtoy?"
    assert yank(target, "libtoy", label="main", reason="x", dry_run=True) != []
    assert listed(target.root) == ["libtoy-1.0-0"]
    yank(target, "libtoy", label="main", reason="x", dry_run=False)
    assert yank(target, "libtoy", label="main", reason="y", dry_run=False) == []
    assert [package.yanked for package in target.packages("main")] == ["x"]
    with pytest.raises(UsageError, match="no package matches"):
        yank(target, "zzz", label="main", reason=None, dry_run=False)
    with pytest.raises(UsageError, match="has no label 'prod'"):
        yank(target, "libtoy", label="prod", reason="x", dry_run=False)
    with pytest.raises(UsageError, match="is not a valid MatchSpec"):
        yank(target, "libtoy >=1,,", label="main", reason="x", dry_run=False)


@pytest.mark.parametrize("undo", [False, True], ids=["yank", "undo"])
def test_a_yank_that_was_interrupted_before_the_index_is_completed_by_the_next(
    target: FolderTarget, made: Path, *, undo: bool
) -> None:
    """As on a full disk: the channel's records have the change, the index is the one of before."""
    publish(target, *(make_conda(made, "toy", version=version) for version in ("1.0", "2.0")))
    if undo:
        yank(target, "toy=2", label=None, reason="x", dry_run=False)
    channel = open_channel(target.root)
    listing = read_listing(channel)
    names = ["linux-64/toy-2.0-0.conda"]
    write_listing(channel, without_yanked(listing, names) if undo else with_yanked(listing, names, "x"))
    assert yank(target, "toy=2", label=None, reason=None if undo else "x", dry_run=False) == []
    assert listed(target.root) == (["toy-1.0-0", "toy-2.0-0"] if undo else ["toy-1.0-0"])
    assert sound(target)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("toy", {"linux-64/toy-1.0-0.conda", "linux-64/toy-2.0-0.conda", "noarch/toy-3.0-0.conda"}),
        ("TOY<2", {"linux-64/toy-1.0-0.conda"}),
        ("toy[subdir=noarch]", {"noarch/toy-3.0-0.conda"}),
        ("toy[fn=toy-2.0-0.conda]", {"linux-64/toy-2.0-0.conda"}),
        ("toy[license=MIT]", {"linux-64/toy-1.0-0.conda"}),
        ("toy[track_features=old]", {"linux-64/toy-2.0-0.conda"}),
        ("toy[build_number='<1']", {"linux-64/toy-1.0-0.conda", "linux-64/toy-2.0-0.conda", "noarch/toy-3.0-0.conda"}),
    ],
)
def test_a_matchspec_selects_by_the_whole_record(
    target: FolderTarget, made: Path, spec: str, expected: set[str]
) -> None:
    publish(
        target,
        make_conda(made, "toy", version="1.0", index={"license": "MIT"}),
        make_conda(made, "toy", version="2.0", index={"track_features": "old"}),
        make_conda(made, "toy", version="3.0", subdir="noarch", index={"noarch": "generic"}),
        make_conda(made, "toys"),
    )
    assert {one.key for one in yank(target, spec, label="main", reason="x", dry_run=True)} == expected


def test_a_hash_selects_one_package(target: FolderTarget, made: Path) -> None:
    publish(target, *(make_conda(made, "toy", version=version) for version in ("1.0", "2.0")))
    for package in target.packages("main"):
        for spec in (f"toy[sha256={package.sha256}]", f"toy[md5={package.md5}]"):
            assert [one.key for one in yank(target, spec, label="main", reason="x", dry_run=True)] == [str(package.key)]


@pytest.mark.parametrize(
    "spec", ["ours::toy", "https://host/c::toy", "toy[url='https://host/toy.conda']", "ours/linux-64::toy"]
)
def test_a_channel_in_a_matchspec_is_refused_and_not_ignored(target: FolderTarget, made: Path, spec: str) -> None:
    publish(target, make_conda(made, "toy"))
    with pytest.raises(UsageError, match="names a channel; expected only the package"):
        yank(target, spec, label="main", reason="x", dry_run=False)
    assert listed(target.root) == ["toy-1.0-0"]


def test_promotion_takes_what_is_required_in_every_form(target: FolderTarget, made: Path) -> None:
    forms = ["LIBTOY<2", "ours::zlib", "tool[license=MIT]"]
    publish(
        target,
        make_conda(made, "app", index={"depends": forms}),
        make_conda(made, "libtoy"),
        make_conda(made, "zlib"),
        make_conda(made, "tool", index={"license": "MIT"}),
        make_conda(made, "other"),
    )
    names = {key.partition("/")[2].partition("-")[0] for key in promoted_keys(target, "main", ["app"])}
    assert names == {"app", "libtoy", "zlib", "tool"}


def test_a_hotfix_changes_records_and_not_files_and_stays(target: FolderTarget, made: Path) -> None:
    toy = make_conda(made, "toy", index={"depends": ["other"], "license": "MIT"}, run_exports={"weak": ["toy"]})
    publish(target, toy, make_conda(made, "other"), make_conda(made, "bad"), make_conda(made, "worse"))
    before = (target.root / "linux-64" / toy.name).read_bytes()
    path = instructions(
        made / "fix",
        records={"toy-1.0-0.conda": {"depends": ["other <2"], "license": None}},
        remove=["bad-1.0-0.conda"],
        revoke=["worse-1.0-0.conda"],
    )
    named = [Changed(label="main", key=f"linux-64/{name}-1.0-0.conda") for name in ("bad", "toy", "worse")]
    assert hotfix(target, path, subdir=None, label=None, replace=False, dry_run=True) == named
    assert listed(target.root) == ["bad-1.0-0", "other-1.0-0", "toy-1.0-0", "worse-1.0-0"]
    assert hotfix(target, path, subdir=None, label=None, replace=False, dry_run=False) == named
    rows = repodata(target.root)["packages.conda"]
    assert (rows["toy-1.0-0.conda"]["depends"], "license" in rows["toy-1.0-0.conda"]) == (["other <2"], False)
    assert rows["worse-1.0-0.conda"]["depends"] == ["package_has_been_revoked"]
    assert list(rows) == ["other-1.0-0.conda", "toy-1.0-0.conda", "worse-1.0-0.conda"]
    unpatched = repodata(target.root, "repodata_from_packages.json")["packages.conda"]
    assert unpatched["toy-1.0-0.conda"]["depends"] == ["other"]
    assert "bad-1.0-0.conda" in unpatched
    assert (target.root / "linux-64" / toy.name).read_bytes() == before
    publish(target, make_conda(made, "new"))
    assert repodata(target.root)["packages.conda"]["toy-1.0-0.conda"] == rows["toy-1.0-0.conda"]
    assert sound(target)
    hotfix(target, instructions(made / "fix"), subdir="linux-64", label=None, replace=True, dry_run=False)
    assert repodata(target.root)["packages.conda"]["toy-1.0-0.conda"]["depends"] == ["other"]
    assert not (target.root / "linux-64" / "repodata_from_packages.json").exists()
    assert sound(target)


def test_a_yanked_package_is_in_no_index_at_all(target: FolderTarget, made: Path) -> None:
    publish(target, make_conda(made, "toy"), make_conda(made, "other"))
    path = instructions(made / "fix", records={"other-1.0-0.conda": {"license": "MIT"}})
    hotfix(target, path, subdir=None, label=None, replace=False, dry_run=False)
    yank(target, "toy", label=None, reason="x", dry_run=False)
    for name in ("repodata.json", "repodata_from_packages.json", "run_exports.json"):
        assert list(repodata(target.root, name)["packages.conda"]) == ["other-1.0-0.conda"]
    assert "toy" not in json.loads((target.root / "channeldata.json").read_bytes())["packages"]
    assert sound(target)


def test_a_patch_comes_along_when_its_package_is_promoted(target: FolderTarget, made: Path) -> None:
    publish(target, make_conda(made, "toy"), make_conda(made, "other"), label="testing")
    records = {f"{name}-1.0-0.conda": {"license": name} for name in ("toy", "other")}
    path = instructions(made / "fix", records=records)
    hotfix(target, path, subdir=None, label="testing", replace=False, dry_run=False)
    target.promote(("linux-64/toy-1.0-0.conda",), source="testing", label="main", progress=SilentProgress())
    assert repodata(target.root)["packages.conda"]["toy-1.0-0.conda"]["license"] == "toy"
    publish(target, make_conda(made, "other"))
    assert "license" not in repodata(target.root)["packages.conda"]["other-1.0-0.conda"]
    assert sound(target)


def test_a_folder_of_instructions_patches_several_subdirs(target: FolderTarget, made: Path) -> None:
    publish(target, make_conda(made, "toy"), make_conda(made, "any", subdir="noarch", index={"noarch": "generic"}))
    instructions(made / "fix" / "linux-64", records={"toy-1.0-0.conda": {"license": "A"}})
    instructions(made / "fix" / "noarch", records={"any-1.0-0.conda": {"license": "B"}})
    changed = hotfix(target, made / "fix", subdir=None, label=None, replace=False, dry_run=False)
    assert [item.key for item in changed] == ["linux-64/toy-1.0-0.conda", "noarch/any-1.0-0.conda"]
    assert sound(target)
    with pytest.raises(ConfigError, match="has no SUBDIR/"):
        hotfix(target, made, subdir=None, label=None, replace=False, dry_run=False)


def test_a_hotfix_that_names_what_is_not_published_is_refused(target: FolderTarget, made: Path) -> None:
    publish(target, make_conda(made, "toy"), make_conda(made, "toy", subdir="noarch", index={"noarch": "generic"}))
    path = instructions(made / "fix", remove=["toy-1.0-0.conda"])
    with pytest.raises(ConfigError, match="names packages of several subdirs: linux-64, noarch") as caught:
        hotfix(target, path, subdir=None, label=None, replace=False, dry_run=False)
    assert "--subdir" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="names no published package"):
        hotfix(
            target,
            instructions(made / "fix", remove=["tyo-1-0.conda"]),
            subdir=None,
            label=None,
            replace=False,
            dry_run=False,
        )


def test_retention_keeps_the_newest_and_what_they_may_need(target: FolderTarget, made: Path, clock: Clock) -> None:
    def toy(version: str, *depends: str) -> Path:
        return make_conda(made, "toy", version=version, index={"depends": list(depends)})

    libs = [make_conda(made, "lib", version=f"1.{number}") for number in range(4)]
    publish(target, *libs, toy("1.9", "lib 1.0.*"), toy("1.10", "lib >=1.2"))
    rule = Retention(keep=1, grace_s=DAY_S)
    plan = target.retain(rule, label="main", dry_run=True)
    assert plan.retire == ("linux-64/lib-1.0-0.conda", "linux-64/lib-1.1-0.conda", "linux-64/toy-1.9-0.conda")
    assert plan.keep == {"linux-64/lib-1.2-0.conda": "linux-64/toy-1.10-0.conda may need it"}
    assert len(listed(target.root)) == 6
    assert target.retain(rule, label="main", dry_run=False) == plan
    assert listed(target.root) == ["lib-1.2-0", "lib-1.3-0", "toy-1.10-0"]
    assert (target.root / "linux-64" / "toy-1.9-0.conda").is_file()
    clock.now_s += DAY_S - 1
    assert target.retain(rule, label="main", dry_run=False).delete == ()
    clock.now_s += 1
    assert target.retain(rule, label="main", dry_run=False).delete == plan.retire
    assert not (target.root / "linux-64" / "toy-1.9-0.conda").exists()
    nothing = RetentionPlan(retire=(), delete=(), keep=plan.keep)
    assert target.retain(rule, label="main", dry_run=False) == nothing
    assert sound(target)


def test_retention_never_takes_what_a_lock_or_the_foundation_names(target: FolderTarget, made: Path) -> None:
    toys = [make_conda(made, "toy", version=f"{number}") for number in range(1, 5)]
    old, new = make_conda(made, "ssl", build="h1_0"), make_conda(made, "ssl", build="h2_0")
    publish(target, *toys, foundation=[old])
    publish(target, foundation=[new])
    publish(target, toys[0], label="prod")
    rule = Retention(
        keep=1,
        locked_files=frozenset({toys[1].name}),
        locked_hashes=frozenset({make_set([toys[2]]).files[0].sha256}),
        grace_s=0,
    )
    plan = target.retain(rule, label="main", dry_run=False)
    assert plan.retire == plan.delete == ("linux-64/ssl-1.0-h1_0.conda", "linux-64/toy-1-0.conda")
    assert plan.keep == {
        "linux-64/toy-2-0.conda": "a lock file names it",
        "linux-64/toy-3-0.conda": "a lock file names it",
    }
    assert listed(target.root) == ["ssl-1.0-h2_0", "toy-2-0", "toy-3-0", "toy-4-0"]
    assert listed(target.label_folder("prod")) == ["toy-1-0"]
    assert sound(target)


def test_what_was_hidden_is_not_deleted_while_a_lock_names_it(target: FolderTarget, made: Path, clock: Clock) -> None:
    toys = [make_conda(made, "toy", version=f"{number}") for number in range(1, 5)]
    publish(target, *toys)
    hidden = tuple(f"linux-64/{toy.name}" for toy in toys[:3])
    assert target.retain(Retention(grace_s=DAY_S), label="main", dry_run=False).retire == hidden
    clock.now_s += 2 * DAY_S
    # too young for the rule: only that they were hidden before has them deleted
    rule = Retention(older_than_s=9 * DAY_S, locked_files=frozenset({toys[0].name}), grace_s=DAY_S)
    plan = target.retain(rule, label="main", dry_run=False)
    assert plan.keep == {hidden[0]: "a lock file names it"}
    assert (plan.retire, plan.delete) == ((), hidden[1:])
    assert [(target.root / key).is_file() for key in hidden] == [True, False, False]
    assert listed(target.root) == ["toy-4-0"]
    assert target.retain(Retention(grace_s=DAY_S), label="main", dry_run=False).delete == hidden[:1]
    assert sound(target)


def test_what_was_promoted_is_deleted_by_each_labels_own_rule(target: FolderTarget, made: Path) -> None:
    toys = [make_conda(made, "toy", version=f"{number}") for number in range(1, 4)]
    publish(target, *toys, label="testing")
    target.promote(
        promoted_keys(target, "testing", []), source="testing", label="main", progress=SilentProgress()
    )  # fmt: skip
    old = tuple(f"linux-64/{toy.name}" for toy in toys[:2])
    assert target.retain(Retention(grace_s=0), label="testing", dry_run=False).delete == old
    assert [(target.root / key).is_file() for key in old] == [True, True]
    plans = retain(target, Retention(keep=2, grace_s=0), label=None, dry_run=False)
    assert {label: plan.delete for label, plan in plans.items()} == {"main": old[:1], "testing": ()}
    assert (listed(target.root), listed(target.label_folder("testing"))) == (["toy-2-0", "toy-3-0"], ["toy-3-0"])
    assert sound(target)


def test_what_is_named_is_removed_from_a_label_unless_it_is_needed(target: FolderTarget, made: Path) -> None:
    lib = make_conda(made, "lib")
    toys = [make_conda(made, "toy", version=f"{number}") for number in range(1, 4)]
    app = make_conda(made, "app", index={"depends": ["lib"]})
    for label in ("main", "testing"):
        publish(target, lib, app, *toys, label=label)
    rule = Retention(grace_s=0, locked_files=frozenset({toys[0].name}))
    specs = ["toy >=3", toys[0].name, "lib"]
    plan = retain(target, rule, label="main", dry_run=False, remove=specs)["main"]
    assert plan.retire == plan.delete == (f"linux-64/{toys[2].name}",)
    assert plan.keep == {
        "linux-64/lib-1.0-0.conda": "linux-64/app-1.0-0.conda may need it",
        "linux-64/toy-1-0.conda": "a lock file names it",
    }
    assert "toy-3-0" in listed(target.label_folder("testing"))
    with pytest.raises(UsageError, match="label main: no package matches 'toi'"):
        retain(target, rule, label="main", dry_run=False, remove=["toi"])
    assert sound(target)


def test_age_counts_from_when_a_package_came(target: FolderTarget, made: Path, clock: Clock) -> None:
    publish(target, make_conda(made, "toy", version="1"))
    clock.now_s += 5 * DAY_S
    publish(target, make_conda(made, "toy", version="2"), make_conda(made, "toy", version="3"))
    clock.now_s += 6 * DAY_S
    plans = retain(target, Retention(older_than_s=10 * DAY_S), label=None, dry_run=False)
    assert plans["main"].retire == ("linux-64/toy-1-0.conda",)


def test_all_variants_of_a_kept_version_stay_and_hidden_builds_go(target: FolderTarget, made: Path) -> None:
    def toy(build: str, variant: str) -> Path:
        return make_conda(made, "toy", build=build, about=own(f"d{build}"), variant={"v": variant})

    publish(target, toy("udp_h1", "udp"), toy("rdma_h1", "rdma"))
    publish(target, toy("udp_h2", "udp"))
    assert target.retain(Retention(grace_s=0), label="main", dry_run=False).delete == ("linux-64/toy-1.0-udp_h1.conda",)
    assert listed(target.root) == ["toy-1.0-rdma_h1", "toy-1.0-udp_h2"]


def test_a_deleted_name_never_gets_other_bytes(target: FolderTarget, made: Path) -> None:
    first = make_conda(made / "1", "toy", files={"a": b"1"})
    publish(target, first, make_conda(made, "toy", version="2.0"))
    target.retain(Retention(grace_s=0), label="main", dry_run=False)
    assert listed(target.root) == ["toy-2.0-0"]
    for label in ("main", "testing"):
        with pytest.raises(ChannelError, match="other bytes were published under this name before"):
            target.plan(make_set([make_conda(made / "2", "toy", files={"a": b"2"})]), label=label)
    assert not (target.root / "linux-64" / first.name).exists()
    publish(target, first)
    assert listed(target.root) == ["toy-1.0-0", "toy-2.0-0"]
    assert sound(target)


def test_files_that_are_not_ours_are_left_alone(target: FolderTarget, made: Path) -> None:
    """Signatures, bills of materials and web pages may lie beside everything that is ours."""
    publish(target, make_conda(made, "toy"))
    publish(target, make_conda(made, "toy"), label="testing")
    foreign = [
        target.root / name
        for name in (
            "index.html", "label/index.html", "label/testing/index.html", "keys/root.json", "linux-64/index.html",
            "linux-64/toy-1.0-0.conda.sigs", "linux-64/toy-1.0-0.conda.sigs.ab12", "linux-64/toy-1.0-0.conda.cdx.json",
            "linux-64/shards/notes.txt", "noarch/rss.xml", ".channel_tools/notes",
        )
    ]  # fmt: skip
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("not ours")
    publish(target, make_conda(made, "toy", version="2.0"))
    yank(target, "toy=2", label="main", reason="x", dry_run=False)
    yank(target, "toy=2", label="main", reason=None, dry_run=False)
    retain(target, Retention(keep=2, grace_s=0), label=None, dry_run=False)
    assert target.labels() == ["main", "testing"]
    assert [path for path in foreign if path.read_text() != "not ours"] == []
    assert sound(target)


def test_a_target_that_only_takes_uploads_cannot_be_curated(target: FolderTarget) -> None:
    assert isinstance(maintained(open_target(str(target.root), environ={})), MaintainedTarget)
    with pytest.raises(UsageError, match="nothing has been published there yet"):
        retain(target, Retention(), label=None, dry_run=True)

    class Uploads:
        address = "https://host"

    with pytest.raises(UsageError, match="cannot yank"):
        maintained(Uploads())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        ("toy=1.2", ["toy-1.2-0", "toy-1.2.1-0"]),
        ("toy==1.2", ["toy-1.2-0"]),
        ("elsewhere::toy<1.2", ["toy-1.0-0"]),
        ("toy=1.2=0", ["toy-1.2-0"]),
        ("toy", ["toy-1.0-0", "toy-1.2-0", "toy-1.2.1-0"]),
        ("lib", []),
    ],
)
def test_retention_keeps_every_package_that_a_locked_spec_accepts(
    target: FolderTarget, made: Path, spec: str, kept: list[str]
) -> None:
    publish(target, *(make_conda(made, "toy", version=version) for version in ("1.0", "1.2", "1.2.1", "2.0")))
    plans = retain(target, Retention(keep=1, grace_s=0), label=None, dry_run=False, locked_specs=[spec])
    assert sorted(plans["main"].keep) == [f"linux-64/{name}.conda" for name in kept]
    assert listed(target.root) == [*kept, "toy-2.0-0"]


ODD = os.fsdecode(b"x\xfc-1-0")
"""A name that is no UTF-8."""


@pytest.mark.parametrize("folder", ["target", os.fsdecode(b"\xfc/target")])
@pytest.mark.parametrize(
    "place",
    [".", "linux-64", "noarch", "linux-64/shards", ".channel_tools", "label", "label/stable", "label/stable/linux-64"],
)
def test_names_that_are_no_utf_8_are_in_no_changes_way(tmp_path: Path, made: Path, place: str, folder: str) -> None:
    target = FolderTarget(root=tmp_path / folder)
    publish(target, make_conda(made, "toy"))
    publish(target, make_conda(made, "toy"), label="stable")
    damaged = make_conda(made, "other").read_bytes()
    (target.root / place / f"{ODD}.conda").write_bytes(damaged)
    (target.root / place / f"toy-1.0-0.conda.v0{ODD}.sigs").touch()
    (target.root / place / ODD).mkdir()
    publish(target, make_conda(made, "new"))
    yank(target, "toy", label="stable", reason="wrong", dry_run=False)
    yank(target, "toy", label=None, reason="wrong", dry_run=False)
    assert listed(target.root) == ["new-1.0-0"]
    assert yank(target, "toy", label=None, reason=None, dry_run=False)
    assert listed(target.root) == ["new-1.0-0", "toy-1.0-0"]
    findings = verify_channel(open_channel(target.root))
    assert {finding.path.name for finding in findings} == (
        {f"{ODD}.conda"} if place in {"linux-64", "noarch"} else set()
    )


@pytest.mark.parametrize("place", ["label", "label/stable", "label/stable/linux-64"])
def test_a_label_that_a_link_leads_out_of_the_channel_is_refused(tmp_path: Path, made: Path, place: str) -> None:
    target = FolderTarget(root=tmp_path / "target")
    publish(target, make_conda(made, "toy"))
    publish(target, make_conda(made, "toy"), label="stable")
    (target.root / place).rename(tmp_path / "outside")
    (target.root / place).symlink_to(tmp_path / "outside")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "outside").rglob("*")}
    for change in (
        lambda: publish(target, make_conda(made, "new"), label="stable"),
        lambda: publish(target, make_conda(made, "new")),
        lambda: yank(target, "toy", label=None, reason="wrong", dry_run=False),
    ):
        with pytest.raises(ChannelToolsError, match=r"is a symbolic link to .*outside, out of the folder"):
            change()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "outside").rglob("*")} == before
