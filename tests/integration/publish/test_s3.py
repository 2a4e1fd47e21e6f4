# SPDX-License-Identifier: BSD-3-Clause
"""Publishing to a bucket, reading from it, promoting in it."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from channel_tools.channel.listing import Patch
from channel_tools.channel.maintenance import Retention
from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.s3.client import PART_BYTES
from channel_tools.publish.target import MaintainedTarget
from channel_tools.system.errors import ChannelError, FoundationError, IntegrityError, NetworkError, UsageError
from channel_tools.system.progress import SilentProgress
from tests.support.packages import CONDA_FORGE, make_conda, own
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.s3 import Answer, Bucket, Request, publish
from tests.unit.publish.sets import make_set

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_ROOT = Path(__file__).parents[3]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return tmp_path / "made"


def sent(bucket: Bucket) -> list[str]:
    """Names of the packages that were written since the last time this was asked."""
    asked, bucket.server.app.asked[:] = list(bucket.server.app.asked), []
    return sorted({Path(path.partition("?")[0]).name for method, path in asked if method == "PUT" and ".conda" in path})


@pytest.mark.parametrize(("scheme", "how"), [("http", "sharded"), ("s3", "plain")])
def test_a_client_installs_from_the_bucket(bucket: Bucket, made: Path, tmp_path: Path, scheme: str, how: str) -> None:
    libtoy = make_conda(made, "libtoy", files={"lib/libtoy.txt": b"lib"})
    toy = make_conda(made, "toy", subdir="noarch", index={"depends": ["libtoy"], "noarch": "generic"})
    publish(bucket.target(), make_set([toy], [libtoy]), label="testing")
    address, extra = f"s3://{bucket.name}/chan/label/testing", [bucket.server.endpoint]
    if scheme == "http":
        bucket.make_public()
        address, extra = f"{bucket.server.endpoint}/{bucket.name}/chan/label/testing", []
    driver = [sys.executable, "-m", "tests.integration.conda.clients", "install"]
    done = subprocess.run(
        [*driver, address, str(tmp_path / "env"), "toy", how, *extra],
        cwd=_ROOT, capture_output=True, text=True, timeout=TEST_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["libtoy-1.0-0.conda", "toy-1.0-0.conda"]
    assert (tmp_path / "env" / "lib" / "libtoy.txt").read_bytes() == b"lib"


def served_by_both(bucket: Bucket, folder: Path) -> list[str]:
    """The names of what the bucket serves, after comparing each with the folder's file, and the folder's with it.

    Only the folder keeps shards of its steps between two listings.
    """
    ours = ".channel_tools/"
    in_bucket = {name for key in bucket.keys() if not (name := key.removeprefix("chan/")).startswith(ours)}  # noqa: SIM118
    for name in sorted({*in_bucket, f"{ours}listing.json"}):
        assert bucket.get(f"chan/{name}") == (folder / name).read_bytes(), name
    in_folder = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    missing = {name for name in in_folder - in_bucket if not name.startswith(ours)}
    assert [name for name in missing if "/shards/" not in name] == []
    return sorted(in_bucket)


def test_the_bucket_serves_the_same_bytes_as_a_folder(bucket: Bucket, made: Path, tmp_path: Path) -> None:
    first = make_set(
        [make_conda(made, "one", about=own("d1"), variant={"v": "1"}, run_exports={"weak": ["one"]})],
        [make_conda(made, "zlib", build="h1_0"), make_conda(made, "any", subdir="noarch", index={"noarch": "generic"})],
    )
    second = make_set(
        [make_conda(made, "one", build="1", about=own("d2"), variant={"v": "1"}), make_conda(made, "two")],
        [make_conda(made, "zlib", build="h2_0")],
    )
    now = [1.7e9]
    folder = FolderTarget(root=tmp_path / "folder", clock=lambda: now[0])
    target = bucket.target()
    target = dataclasses.replace(target, clock=lambda: now[0])
    patch = Patch(records={"two-1.0-0.conda": {"depends": ["one"]}})
    keep = Retention(keep=1, grace_s=5.0)
    places: tuple[MaintainedTarget, ...] = (folder, target)
    for place in places:
        for packages in (first, second):
            place.publish(place.plan(packages, label="main"), progress=SilentProgress())
    served_by_both(bucket, folder.root)
    changes: tuple[tuple[Callable[[MaintainedTarget], object], str], ...] = (
        (lambda place: place.hotfix({"linux-64": patch}, label="main", replace=False), "repodata_from_packages.json"),
        (lambda place: place.yank(("linux-64/two-1.0-0.conda",), label="main", reason="wrong"), "two-1.0-0.conda"),
        (lambda place: place.yank(("linux-64/two-1.0-0.conda",), label="main", reason=None), "two-1.0-0.conda"),
        (lambda place: place.retain(keep, label="main", dry_run=False), "zlib-1.0-h1_0.conda"),
    )
    for step, expected in changes:
        assert step(folder) == step(target)
        assert f"linux-64/{expected}" in served_by_both(bucket, folder.root)
        assert folder.packages("main") == target.packages("main")
        now[0] += 10
    assert folder.retain(keep, label="main", dry_run=True) == target.retain(keep, label="main", dry_run=True)
    assert folder.retain(keep, label="main", dry_run=False) == target.retain(keep, label="main", dry_run=False)
    for place in places:
        place.hotfix({"linux-64": Patch()}, label="main", replace=True)
    served = served_by_both(bucket, folder.root)
    assert {"linux-64/zlib-1.0-h1_0.conda", "linux-64/repodata_from_packages.json"}.isdisjoint(served)


def test_what_was_yanked_is_not_published_again_under_any_label(bucket: Bucket, made: Path) -> None:
    packages = make_set([make_conda(made, "one")])
    publish(bucket.target(), packages, label="testing")
    bucket.target().yank(("linux-64/one-1.0-0.conda",), label="testing", reason="wrong sums")
    assert bucket.listed("testing") == []
    for label in ("testing", "main"):
        with pytest.raises(ChannelError, match=r"was yanked \(wrong sums\)"):
            bucket.target().plan(packages, label=label)
    with pytest.raises(UsageError, match="has no label 'stable'"):
        bucket.target().yank(("linux-64/one-1.0-0.conda",), label="stable", reason="x")


def test_publishing_reads_no_package_back_and_sends_none_twice(bucket: Bucket, made: Path) -> None:
    one, two = make_conda(made, "one"), make_conda(made, "two")
    assert publish(bucket.target(), make_set([one])).uploaded == ("linux-64/one-1.0-0.conda",)
    bucket.server.app.asked.clear()
    packages = make_set([one, two])
    plan = bucket.target().plan(packages, label="main")
    assert ([file.file_name for file in plan.upload], plan.upload_bytes) == ([two.name], two.stat().st_size)
    assert [file.file_name for file in plan.present] == [one.name]
    assert not [path for method, path in bucket.server.app.asked if method not in {"GET", "HEAD"}]
    assert publish(bucket.target(), packages).uploaded == ("linux-64/two-1.0-0.conda",)
    assert not [path for method, path in bucket.server.app.asked if method == "GET" and ".conda" in path]
    assert sent(bucket) == [two.name]
    assert bucket.listed() == [one.name, two.name]
    assert publish(bucket.target(), packages).uploaded == ()
    assert sent(bucket) == []


def test_objects_are_served_so_that_caches_and_browsers_do_right(bucket: Bucket, made: Path) -> None:
    publish(bucket.target(), make_set([make_conda(made, "one")]))
    shard = next(key for key in bucket.keys() if "/shards/" in key)  # noqa: SIM118 - as above
    seen = {
        key: (bucket.headers(f"chan/{key}")["content-type"], bucket.headers(f"chan/{key}")["cache-control"])
        for key in (
            "linux-64/one-1.0-0.conda", shard.removeprefix("chan/"), "linux-64/repodata.json",
            "linux-64/repodata.json.zst", "linux-64/repodata_shards.msgpack.zst", "channeldata.json",
        )
    }  # fmt: skip
    kept, asked_again = "public, max-age=31536000, immutable", "public, no-cache"
    assert list(seen.values()) == [
        ("application/octet-stream", kept),
        ("application/octet-stream", kept),
        ("application/json", asked_again),
        ("application/zstd", asked_again),
        ("application/octet-stream", asked_again),
        ("application/json", asked_again),
    ]
    assert not any("content-encoding" in bucket.headers(key) for key in bucket.keys())  # noqa: SIM118 - as above


@pytest.mark.parametrize("where", ["published", "under another label", "put there by somebody else"])
def test_a_name_with_other_bytes_is_refused_and_left_alone(bucket: Bucket, made: Path, where: str) -> None:
    target, key = bucket.target(), "chan/linux-64/one-1.0-0.conda"
    if where == "put there by somebody else":
        bucket.put(key, b"other bytes")
    else:
        publish(target, make_set([make_conda(made / "old", "one", files={"a": b"old"})]), label="main")
    before = bucket.get(key)
    changed = make_set([make_conda(made / "new", "one", files={"a": b"new"}), make_conda(made / "new", "two")])
    with pytest.raises(ChannelError, match="other bytes under this name") as caught:
        target.plan(changed, label="testing" if where == "under another label" else "main")
    assert key in caught.value.message
    assert "build number" in str(caught.value.hint)
    assert bucket.get(key) == before


def test_a_name_that_got_other_bytes_after_the_plan_is_refused(bucket: Bucket, made: Path) -> None:
    target = bucket.target()
    plan = target.plan(
        make_set([make_conda(made / "b", "one", files={"a": b"b"}), make_conda(made / "b", "two")]), label="main"
    )
    publish(target, make_set([make_conda(made / "a", "one", files={"a": b"a"})]))
    with pytest.raises(ChannelError, match="other bytes under this name"):
        target.publish(plan, progress=SilentProgress())
    assert bucket.listed() == ["one-1.0-0.conda"]


def test_damaged_and_changed_files_are_refused_before_anything_is_sent(bucket: Bucket, made: Path) -> None:
    target, one, two = bucket.target(), make_conda(made, "one"), make_conda(made, "two")
    plan = target.plan(make_set([one, two]), label="main")
    make_conda(made, "two", files={"a": b"made again meanwhile"})
    with pytest.raises(IntegrityError, match=", as planned"):
        target.publish(plan, progress=SilentProgress())
    two.write_bytes(two.read_bytes()[:-20])
    with pytest.raises(IntegrityError, match="not a complete"):
        publish(target, make_set([one, two]))
    assert bucket.keys() == []


def test_a_bucket_has_one_foundation(bucket: Bucket, made: Path) -> None:
    publish(bucket.target(), make_set([make_conda(made, "one")]))
    other = make_set([make_conda(made, "two")], on=CONDA_FORGE)
    with pytest.raises(FoundationError, match="was made with the foundation registry, not conda-forge"):
        bucket.target().plan(other, label="testing")


@pytest.mark.parametrize("how", ["of another tool", "records lost"])
def test_an_index_without_records_is_not_overwritten(bucket: Bucket, made: Path, how: str) -> None:
    if how == "records lost":
        publish(bucket.target(), make_set([make_conda(made, "one")]))
        bucket.server.client.delete_object(Bucket=bucket.name, Key="chan/.channel_tools/records.msgpack.zst")
    else:
        bucket.put("chan/linux-64/repodata.json", b"{}")
    before = bucket.get("chan/linux-64/repodata.json")
    with pytest.raises(ChannelError, match=r"is the index of a channel that has no channel_tools records") as caught:
        bucket.target().plan(make_set([make_conda(made, "two")]), label="main")
    assert "records.msgpack.zst" in str(caught.value.hint)
    assert bucket.get("chan/linux-64/repodata.json") == before


def test_promoting_lets_the_server_copy(bucket: Bucket, made: Path) -> None:
    target = bucket.target()
    packages = make_set([make_conda(made, "one", about=own("d1"), variant={"v": "1"})], [make_conda(made, "zlib")])
    publish(target, packages, label="testing")
    assert bucket.listed() == []
    bucket.server.app.asked.clear()
    keys = tuple(str(file.key) for file in packages.files)
    report = target.promote(keys, source="testing", label="main", progress=SilentProgress())
    assert (report.address, report.linked, report.uploaded) == (f"s3://{bucket.name}/chan", keys, ())
    assert bucket.listed() == bucket.listed("testing") == ["one-1.0-0.conda", "zlib-1.0-0.conda"]
    assert "x-amz-meta-sha256" in bucket.headers("chan/linux-64/one-1.0-0.conda")
    assert bucket.headers("chan/linux-64/one-1.0-0.conda")["cache-control"].endswith("immutable")
    listing = json.loads(bucket.get("chan/.channel_tools/listing.json"))
    assert listing["foundation"] == ["linux-64/zlib-1.0-0.conda"]
    again = target.promote(keys, source="testing", label="main", progress=SilentProgress())
    assert again.linked == ()


def test_what_cannot_be_promoted_is_named(bucket: Bucket, made: Path) -> None:
    target = bucket.target()
    publish(target, make_set([make_conda(made, "one")]), label="testing")
    with pytest.raises(ChannelError, match="label testing does not list linux-64/two-1"):
        target.promote(("linux-64/two-1.0-0.conda",), source="testing", label="main", progress=SilentProgress())
    with pytest.raises(UsageError, match="has no label 'staging'") as caught:
        target.promote(("linux-64/one-1.0-0.conda",), source="staging", label="main", progress=SilentProgress())
    assert "main, testing" in str(caught.value.hint)


def test_shards_that_no_index_names_leave_after_the_grace_time(bucket: Bucket, made: Path) -> None:
    target = bucket.target(grace_s=3600.0)
    now = [1.7e9]
    target = dataclasses.replace(target, clock=lambda: now[0])
    counts = []
    builds = [make_conda(made, "one", build=str(number)) for number in range(3)]
    for later_s, build in zip((0.0, 10.0, 3500.0, 3700.0), (*builds, builds[0]), strict=True):
        now[0] = 1.7e9 + later_s
        publish(target, make_set([build]))
        counts.append(len(bucket.keys("chan/linux-64/shards/")))
    assert counts == [1, 2, 3, 2]
    assert len(bucket.listed()) == 3


def refuse_the_third(request: Request) -> Answer | None:
    return ("403 Forbidden", b"") if "partNumber=3" in request.path else None


def test_big_packages_go_in_parts_that_a_later_run_does_not_send_again(bucket: Bucket, made: Path) -> None:
    big = make_conda(made, "big", files={"data": os.urandom(2 * PART_BYTES)})
    app = bucket.server.app
    with app.watched(refuse_the_third), pytest.raises(NetworkError, match="not allowed to write part 3"):
        publish(bucket.target(), make_set([big]))
    assert bucket.keys("chan/linux-64/big") == []
    app.asked.clear()
    publish(bucket.target(), make_set([big]))
    parts = sorted(path.rpartition("partNumber=")[2] for method, path in app.asked if "partNumber=" in path)
    assert parts in (["3"], ["2", "3"])  # the second may have been under way
    assert bucket.get("chan/linux-64/big-1.0-0.conda") == big.read_bytes()
    assert bucket.listed() == ["big-1.0-0.conda"]
    assert bucket.uploads() == []


def test_uploads_that_nobody_goes_on_with_are_given_up_and_those_of_others_left_alone(
    bucket: Bucket, made: Path
) -> None:
    now = [1.7e9]
    target = bucket.target(grace_s=3600.0)
    target = dataclasses.replace(target, clock=lambda: now[0])
    others = "chan/linux-64/of-somebody-else.conda"
    bucket.server.client.create_multipart_upload(Bucket=bucket.name, Key=others)
    for name in ("big", "large"):
        files = {"data": os.urandom(2 * PART_BYTES)}
        with bucket.server.app.watched(refuse_the_third), pytest.raises(NetworkError):
            publish(target, make_set([make_conda(made, name, files=files)]))
    again = make_conda(made, "big", files={"data": os.urandom(2 * PART_BYTES)})
    publish(target, make_set([again]))
    assert bucket.get("chan/linux-64/big-1.0-0.conda") == again.read_bytes()
    assert bucket.uploads() == ["chan/linux-64/large-1.0-0.conda", others]
    now[0] += 3600
    publish(target, make_set([make_conda(made, "small")]))
    assert bucket.uploads() == [others]
    assert bucket.listed() == ["big-1.0-0.conda", "small-1.0-0.conda"]
