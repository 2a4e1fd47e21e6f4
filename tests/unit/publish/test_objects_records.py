# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from channel_tools.channel.publish import check_package
from channel_tools.channel.records import CachedPackage
from channel_tools.channel.retention import Retention
from channel_tools.errors import ChannelError
from channel_tools.publish.objects_changes import contents, steps, with_found_shards, with_packages, with_served
from channel_tools.publish.objects_curation import apply_retention, label_packages
from channel_tools.publish.objects_records import ObjectRecords, decode_records, encode_records
from tests.unit.channel.toys import make_conda, own


def rows(*paths: Path) -> dict[str, CachedPackage]:
    return {f"{path.parent.name}/{path.name}": check_package(path, indexed_ms=1_700_000_000_000) for path in paths}


def published(records: ObjectRecords, *paths: Path, foundation: tuple[str, ...] = ()) -> ObjectRecords:
    """The records after a set, with its contents served."""
    new = rows(*paths)
    grown = with_packages(records, new, own=[key for key in new if key not in foundation], foundation=foundation)
    return with_served(grown, contents(grown), (), now_s=0.0, grace_s=100.0)[0]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    records = published(ObjectRecords(), make_conda(tmp_path, "one", about=own("d1"), variant={"v": "1"}))
    assert decode_records(encode_records(records), where="s3://toys/x") == records
    assert records.names() == records.listed() == {"linux-64/one-1.0-0.conda"}
    assert sorted(records.subdirs) == ["linux-64", "noarch"]


@pytest.mark.parametrize("damage", ["cut", "altered", "other schema", "no zstd"])
def test_damaged_records_are_refused(tmp_path: Path, damage: str) -> None:
    records = published(ObjectRecords(), make_conda(tmp_path, "one"))
    body = encode_records(records)
    spoiled = {
        "cut": body[:-9],
        "altered": body[:60] + bytes([body[60] ^ 1]) + body[61:],
        "other schema": encode_records(dataclasses.replace(records, schema=99)),
        "no zstd": b"<html>",
    }[damage]
    with pytest.raises(ChannelError, match="s3://toys/x: ") as caught:
        decode_records(spoiled, where="s3://toys/x")
    assert caught.value.hint


def test_a_new_build_hides_the_older_one_of_its_variant(tmp_path: Path) -> None:
    first = make_conda(tmp_path, "one", about=own("d1"), variant={"v": "1"})
    second = make_conda(tmp_path, "one", build="1", about=own("d2"), variant={"v": "1"})
    records = published(published(ObjectRecords(), first), second)
    assert records.listed() == {"linux-64/one-1.0-1.conda"}
    assert records.names() == {"linux-64/one-1.0-0.conda", "linux-64/one-1.0-1.conda"}


def test_what_needs_another_subdir_is_shown_after_it(tmp_path: Path) -> None:
    before = published(ObjectRecords(), make_conda(tmp_path, "zero"))
    new = rows(
        make_conda(tmp_path, "app", index={"depends": ["any"]}),
        make_conda(tmp_path, "any", subdir="noarch", index={"noarch": "generic", "depends": ["lib"]}),
        make_conda(tmp_path, "lib"),
    )
    after = with_packages(before, new, own=list(new), foundation=())
    made = contents(after)
    shown = [(content.subdir, sorted(content.listed)) for content in steps(before, after, made)]
    assert shown == [
        ("linux-64", ["lib-1.0-0.conda", "zero-1.0-0.conda"]),
        ("noarch", ["any-1.0-0.conda"]),
        ("linux-64", ["app-1.0-0.conda", "lib-1.0-0.conda", "zero-1.0-0.conda"]),
    ]
    assert steps(after, after, contents(after)) != []  # never served
    served = with_served(after, made, (), now_s=0.0, grace_s=1.0)[0]
    assert steps(served, served, contents(served)) == []


def test_shards_out_of_use_are_kept_for_a_time_and_then_given_up(tmp_path: Path) -> None:
    records = published(ObjectRecords(), make_conda(tmp_path, "one"))
    [old] = records.subdirs["linux-64"].present_shards()
    records = published(records, make_conda(tmp_path, "one", build="1"))
    assert records.subdirs["linux-64"].stale_since_s == {old: 0.0}
    found = with_found_shards(records, {"linux-64": [old, "lost"]}, now_s=50.0)
    assert found.subdirs["linux-64"].stale_since_s == {old: 0.0, "lost": 50.0}
    kept, expired = with_served(found, contents(found), (), now_s=100.0, grace_s=100.0)
    assert (expired["linux-64"], kept.subdirs["linux-64"].stale_since_s) == ([old], {"lost": 50.0})


def test_retention_takes_rows_away_once_their_time_is_over(tmp_path: Path) -> None:
    records = published(ObjectRecords(), make_conda(tmp_path, "one"), make_conda(tmp_path, "one", version="2.0"))
    rule = Retention(keep=1, grace_s=10.0)
    hidden, plan = apply_retention(records, rule, elsewhere=frozenset(), now_s=1.8e9)
    assert (plan.retire, plan.delete) == (("linux-64/one-1.0-0.conda",), ())
    assert hidden.names() == records.names()
    assert [package.hidden for package in label_packages(hidden)] == ["retired", None]
    gone, plan = apply_retention(hidden, rule, elsewhere=frozenset(), now_s=1.8e9 + 10)
    assert (plan.delete, gone.names()) == (("linux-64/one-1.0-0.conda",), {"linux-64/one-2.0-0.conda"})
