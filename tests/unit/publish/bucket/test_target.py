# SPDX-License-Identifier: BSD-3-Clause
"""Channels in any store: what a new kind of store gives by the methods of Store alone, tried with one in memory."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from channel_tools.channel.listing import Patch
from channel_tools.channel.maintenance import Retention
from channel_tools.channel.publish import check_package
from channel_tools.channel.records import CachedPackage
from channel_tools.conda.package import write_sidecar
from channel_tools.page.model import PageChoices
from channel_tools.page.write import add_page
from channel_tools.publish.bucket import target as target_module
from channel_tools.publish.bucket.lease import _myself
from channel_tools.publish.bucket.records import (
    LabelRecords,
    apply_retention,
    contents,
    decode_records,
    encode_records,
    steps,
    with_found_shards,
    with_packages,
    with_served,
)
from channel_tools.publish.bucket.target import BucketTarget
from channel_tools.publish.channels import checked_row, label_packages
from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.model import PackageFile, PackageSet, PublishReport, file_set
from channel_tools.publish.store import ObjectHead, Served, Upload, require_bytes, served_package
from channel_tools.publish.target import MaintainedTarget, maintained
from channel_tools.system.errors import ChannelError, IntegrityError, UsageError
from channel_tools.system.progress import SilentProgress, Task
from tests.support import conda_reader
from tests.support.packages import CONDA_FORGE, REGISTRY, make_conda, old_format, own
from tests.unit.publish.sets import make_set

ONE, TWO = "linux-64/one-1.0-0.conda", "linux-64/two-1.0-0.conda"


@dataclass
class MemoryStore:
    """The whole of a store: objects by key, with the headers that they are served with and the number of the write."""

    objects: dict[str, tuple[bytes, Served, int]] = field(default_factory=dict)
    writes: int = 0
    mutex: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        return "memory://toys"

    def url(self, key: str) -> str:
        return f"memory://toys/{key}"

    def head(self, key: str) -> ObjectHead | None:
        found = self.get(key)
        return None if found is None else found[1]

    def get(self, key: str) -> tuple[bytes, ObjectHead] | None:
        if key not in self.objects:
            return None
        body, served, write = self.objects[key]
        return body, ObjectHead(size_bytes=len(body), etag=str(write), metadata=served.metadata, age_s=0.0)

    def stream(self, key: str) -> Iterator[bytes]:
        yield self.objects[key][0]

    def put(
        self, key: str, body: bytes, *, served: Served, replaces: str | None, conditional: bool = True
    ) -> str | None:
        with self.mutex:
            found = self.head(key)
            if conditional and replaces != (None if found is None else found.etag):
                return None
            self.writes += 1
            self.objects[key] = body, served, self.writes
            return str(self.writes)

    def send(self, uploads: Sequence[Upload], task: Task, *, resume: Collection[str]) -> None:
        del resume
        for upload in uploads:
            served = served_package(upload.sha256)
            if self.put(upload.key, upload.path.read_bytes(), served=served, replaces=None) is None:
                require_bytes(self, upload.key, upload.sha256)
            task.advance(upload.stamp.size_bytes)

    def copy(self, source: tuple[str, ObjectHead], key: str, *, served: Served) -> bool:
        return self.put(key, self.objects[source[0]][0], served=served, replaces=None) is not None

    def keys(self, prefix: str) -> Iterator[str]:
        return iter(sorted(key for key in self.objects if key.startswith(prefix)))

    def folders(self, prefix: str) -> Sequence[str]:
        return sorted({rest.split("/")[0] for key in self.keys(prefix) if "/" in (rest := key.removeprefix(prefix))})

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    def abandon(self, keys: Iterable[str]) -> None:
        """Nothing is left of a send that was cut off."""


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def target(store: MemoryStore) -> BucketTarget:
    return BucketTarget(store=store, address="memory://toys/chan", prefix="chan", clock=lambda: 1.8e9)


def publish(target: MaintainedTarget, packages: PackageSet, label: str = "main") -> PublishReport:
    return target.publish(target.plan(packages, label=label), progress=SilentProgress())


def listed(store: MemoryStore, label: str = "") -> list[str]:
    base = f"chan/label/{label}" if label else "chan"
    return list(json.loads(store.objects[f"{base}/linux-64/repodata.json"][0])["packages.conda"])


def test_a_store_holds_labels_promotes_and_maintains_like_a_folder(
    target: BucketTarget, store: MemoryStore, tmp_path: Path
) -> None:
    folder = FolderTarget(root=tmp_path / "folder", clock=lambda: 1.8e9)
    packages = make_set(
        [make_conda(tmp_path, "one"), make_conda(tmp_path, "two"), make_conda(tmp_path, "two", version="2.0")]
    )
    patch = Patch(records={"one-1.0-0.conda": {"depends": ["two"]}})
    steps: tuple[Callable[[MaintainedTarget], object], ...] = (
        lambda place: publish(place, packages, "Testing").uploaded,
        lambda place: place.hotfix({"linux-64": patch}, label="Testing", replace=False),
        lambda place: place.promote((ONE, TWO), source="Testing", label="main", progress=SilentProgress()).linked,
        lambda place: place.yank((TWO,), label="main", reason="wrong"),
        lambda place: place.labels(),
        lambda place: [place.packages(label) for label in place.labels()],
        lambda place: place.yank((TWO,), label="main", reason=None),
        lambda place: place.retain(Retention(grace_s=0.0), label="Testing", dry_run=True),
        lambda place: place.retain(Retention(grace_s=0.0), label="Testing", dry_run=False),
        lambda place: [place.packages(label) for label in place.labels()],
    )
    for step in steps:
        assert step(target) == step(folder)
    assert maintained(target).labels() == ["main", "Testing"]
    for label, place in (("", folder.root), ("Testing", folder.root / "label" / "Testing")):
        assert listed(store, label) == list(
            json.loads((place / "linux-64" / "repodata.json").read_bytes())["packages.conda"]
        )
    body = store.objects["chan/linux-64/one-1.0-0.conda"][0]
    assert hashlib.sha256(body).hexdigest() == packages.files[0].sha256


def test_a_patch_comes_along_when_its_package_is_promoted_in_a_bucket(
    target: BucketTarget, store: MemoryStore, tmp_path: Path
) -> None:
    publish(target, make_set([make_conda(tmp_path, "one")]), "testing")
    patch = Patch(records={"one-1.0-0.conda": {"license": "patched"}})
    target.hotfix({"linux-64": patch}, label="testing", replace=False)
    target.promote((ONE,), source="testing", label="main", progress=SilentProgress())
    rows = json.loads(store.objects["chan/linux-64/repodata.json"][0])["packages.conda"]
    assert rows["one-1.0-0.conda"]["license"] == "patched"


def test_a_package_that_is_deleted_while_it_is_promoted_is_an_error(
    target: BucketTarget, store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(target, make_set([make_conda(tmp_path, "one"), make_conda(tmp_path, "one", version="2.0")]), "testing")
    add = BucketTarget._add

    def retained_before(self: BucketTarget, *arguments: object) -> object:
        self.retain(Retention(grace_s=0.0), label="testing", dry_run=False)
        return add(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(BucketTarget, "_add", retained_before)
    with pytest.raises(ChannelError, match=f"{ONE}: was deleted while it was being promoted to main"):
        target.promote((ONE,), source="testing", label="main", progress=SilentProgress())
    assert listed(store) == []


def test_further_channels_are_added_to_the_record_of_a_bucket(
    target: BucketTarget, store: MemoryStore, tmp_path: Path
) -> None:
    def further() -> list[str]:
        found: list[str] = json.loads(store.objects["chan/.channel_tools/channel.json"][0])["foundation"]["further"]
        return found

    publish(target, make_set([make_conda(tmp_path, "toy")]))
    assert further() == []
    publish(target, make_set([make_conda(tmp_path, "more")], on=REGISTRY.with_further(["file:///lab"])))
    assert further() == ["file:///lab"]
    publish(target, make_set([make_conda(tmp_path, "most")]))
    assert further() == ["file:///lab"]


def test_a_store_that_ignores_conditions_is_refused(
    target: BucketTarget, store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def always(self: MemoryStore, key: str, body: bytes, *, served: Served, **_: object) -> str:
        self.objects[key] = body, served, len(self.objects)
        return "written"

    monkeypatch.setattr(MemoryStore, "put", always)
    with pytest.raises(ChannelError, match="memory://toys: the server ignores the conditions of conditional writes"):
        publish(target, make_set([make_conda(tmp_path, "one")]))
    assert list(store.objects) == ["chan/.channel_tools/writer.json"]


def test_a_store_that_rejects_every_write_is_given_up(
    target: BucketTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryStore, "put", lambda *_arguments, **_options: None)
    with pytest.raises(ChannelError, match=r"chan/.channel_tools/writer\.json: 10 writes in a row were rejected"):
        publish(target, make_set([make_conda(tmp_path, "one")]))


def test_a_label_that_does_not_exist_is_named_with_those_that_do(target: BucketTarget, tmp_path: Path) -> None:
    publish(target, make_set([make_conda(tmp_path, "one")]), "testing")
    with pytest.raises(UsageError, match=r"memory://toys/chan: has no label 'prod'") as caught:
        target.packages("prod")
    assert caught.value.hint == "labels there: main, testing"


def rows(*paths: Path) -> dict[str, CachedPackage]:
    return {f"{path.parent.name}/{path.name}": check_package(path, indexed_ms=1_700_000_000_000) for path in paths}


def published(records: LabelRecords, *paths: Path, foundation: tuple[str, ...] = ()) -> LabelRecords:
    """The records after a set, with its contents served."""
    new = rows(*paths)
    grown = with_packages(records, new, own=[key for key in new if key not in foundation], foundation=foundation)
    return with_served(grown, contents(grown), (), now_s=0.0, grace_s=100.0)[0]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    records = published(LabelRecords(), make_conda(tmp_path, "one", about=own("d1"), variant={"v": "1"}))
    assert decode_records(encode_records(records), where="s3://toys/x") == records
    assert records.names() == records.listed() == {"linux-64/one-1.0-0.conda"}
    assert sorted(records.subdirs) == ["linux-64", "noarch"]


@pytest.mark.parametrize("damage", ["cut", "altered", "other schema", "no zstd"])
def test_damaged_records_are_refused(tmp_path: Path, damage: str) -> None:
    records = published(LabelRecords(), make_conda(tmp_path, "one"))
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
    records = published(published(LabelRecords(), first), second)
    assert records.listed() == {"linux-64/one-1.0-1.conda"}
    assert records.names() == {"linux-64/one-1.0-0.conda", "linux-64/one-1.0-1.conda"}


def test_what_needs_another_subdir_is_shown_after_it(tmp_path: Path) -> None:
    before = published(LabelRecords(), make_conda(tmp_path, "zero"))
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
    records = published(LabelRecords(), make_conda(tmp_path, "one"))
    [old] = records.subdirs["linux-64"].present_shards()
    records = published(records, make_conda(tmp_path, "one", build="1"))
    assert records.subdirs["linux-64"].stale_since_s == {old: 0.0}
    found = with_found_shards(records, {"linux-64": [old, "lost"]}, now_s=50.0)
    assert found.subdirs["linux-64"].stale_since_s == {old: 0.0, "lost": 50.0}
    kept, expired = with_served(found, contents(found), (), now_s=100.0, grace_s=100.0)
    assert (expired["linux-64"], kept.subdirs["linux-64"].stale_since_s) == ([old], {"lost": 50.0})


def test_retention_takes_rows_away_once_their_time_is_over(tmp_path: Path) -> None:
    records = published(LabelRecords(), make_conda(tmp_path, "one"), make_conda(tmp_path, "one", version="2.0"))
    rule = Retention(keep=1, grace_s=10.0)
    hidden, plan = apply_retention(records, rule, elsewhere=frozenset(), now_s=1.8e9)
    assert (plan.retire, plan.delete) == (("linux-64/one-1.0-0.conda",), ())
    assert hidden.names() == records.names()
    assert [package.hidden for package in label_packages(hidden)] == ["retired", None]
    gone, plan = apply_retention(hidden, rule, elsewhere=frozenset(), now_s=1.8e9 + 10)
    assert (plan.delete, gone.names()) == (("linux-64/one-1.0-0.conda",), {"linux-64/one-2.0-0.conda"})


def test_a_process_of_this_machine_that_has_ended_is_known_to_have() -> None:
    me = _myself()
    assert not me.has_ended()
    assert str(me) == f"process {me.process} on {me.host}"
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    ended = dataclasses.replace(me, process=process.pid)
    assert ended.has_ended()


def test_another_process_with_the_same_number_is_not_the_owner() -> None:
    assert dataclasses.replace(_myself(), started="1").has_ended()


def test_nothing_is_known_of_processes_of_other_machines_and_namespaces() -> None:
    for machine in ("", "another boot"):
        assert not dataclasses.replace(_myself(), machine=machine, process=1, started="x").has_ended()


def test_attestations_lie_beside_their_packages_and_go_with_them(
    target: BucketTarget, store: MemoryStore, tmp_path: Path
) -> None:
    one = make_conda(tmp_path, "one")
    write_sidecar(one, b"[{}]")
    publish(target, make_set([one]), "testing")
    target.promote((ONE,), source="testing", label="main", progress=SilentProgress())
    for base in ("chan/label/testing", "chan"):
        rows = json.loads(store.objects[f"{base}/linux-64/repodata.json"][0])["packages.conda"]
        sha256 = rows["one-1.0-0.conda"]["attestations_sha256"]
        assert store.objects[f"{base}/{ONE}.sigs.{sha256}"][0] == b"[{}]"
        assert store.objects[f"{base}/{ONE}.sigs"][0] == b"[{}]"


def test_conda_reads_a_bucket_and_the_next_publication_mends_one_of_the_earlier_form(
    target: BucketTarget, store: MemoryStore, tmp_path: Path
) -> None:
    def seen() -> list[str]:
        for key, (body, _served, _write) in store.objects.items():
            path = tmp_path / "bucket" / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
        return sorted(conda_reader.records((tmp_path / "bucket" / "chan").as_uri(), "linux-64"))

    one = make_conda(tmp_path, "one")
    write_sidecar(one, b"[{}]")
    with conda_reader.earlier_form():
        publish(target, make_set([one]))
    with pytest.raises(TypeError, match="bytes is not JSON serializable"):
        seen()
    publish(target, make_set([make_conda(tmp_path, "other", subdir="noarch")]))
    assert seen() == ["one-1.0-0.conda"]


def test_attestations_that_are_written_again_meanwhile_do_not_get_the_earlier_ones_name(
    target: BucketTarget, store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = make_conda(tmp_path, "one")
    write_sidecar(one, b"[{}]")

    def checked_then_signed(file: PackageFile, *, indexed_ms: int) -> CachedPackage:
        row = checked_row(file, indexed_ms=indexed_ms)
        write_sidecar(one, b"[{}, {}]")
        return row

    with monkeypatch.context() as patched:
        patched.setattr(target_module, "checked_row", checked_then_signed)
        with pytest.raises(IntegrityError, match="changed while its package was being published"):
            publish(target, make_set([one]))
    publish(target, make_set([one]))
    assert store.objects[f"chan/{ONE}.sigs"][0] == b"[{}, {}]"


def test_attestations_are_deleted_with_their_package(target: BucketTarget, store: MemoryStore, tmp_path: Path) -> None:
    old = make_conda(tmp_path, "one")
    write_sidecar(old, b"[{}]")
    publish(target, make_set([old, make_conda(tmp_path, "one", version="2.0")]))
    assert target.retain(Retention(grace_s=0.0), label="main", dry_run=False).delete
    assert not list(store.keys(f"chan/{ONE}"))


def test_a_label_with_a_page_keeps_it_in_step(target: BucketTarget, store: MemoryStore, tmp_path: Path) -> None:
    publish(target, make_set([make_conda(tmp_path, "toy", about=own("1"))]))
    with target.paged("main") as channel:  # the package is fetched for it
        report = add_page(channel, PageChoices(title="Ours"))
    assert (report.written, target.has_page("main")) == (report.files, True)
    assert b"toy.txt" in store.objects["chan/page/build/linux-64/toy-1.0-0.html"][0]
    assert store.objects["chan/page/name/toy.html"][1].content_type == "text/html; charset=utf-8"
    publish(target, make_set([make_conda(tmp_path, "new", about=own("2"))]))
    publish(target, make_set([make_conda(tmp_path, "other", about=own("3"))]), label="testing")
    assert b"page/name/new.html" in store.objects["chan/index.html"][0]
    target.yank(("linux-64/new-1.0-0.conda",), label="main", reason="it sums wrongly")
    assert b"yanked: it sums wrongly" in store.objects["chan/page/build/linux-64/new-1.0-0.html"][0]
    assert not target.has_page("testing")
    assert "chan/label/testing/index.html" not in store.objects


def test_the_page_of_a_damaged_bucket_says_so_and_one_of_others_stays(
    target: BucketTarget, store: MemoryStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UsageError, match="memory://toys/chan/: there is no channel here"), target.paged("main"):
        pass
    publish(target, make_set([make_conda(tmp_path, "toy", about=own("1"))]))
    store.put("chan/index.html", b"mine", served=Served(), replaces=None)
    with (
        target.paged("main") as channel,
        pytest.raises(ChannelError, match=r"memory://toys/chan/index\.html: already exists"),
    ):
        add_page(channel)
    store.delete(["chan/index.html", "chan/linux-64/toy-1.0-0.conda"])
    with target.paged("main") as channel:
        add_page(channel)
    assert "memory://toys/chan/linux-64/toy-1.0-0.conda: is missing" in caplog.text
    assert b"is damaged or missing" in store.objects["chan/page/build/linux-64/toy-1.0-0.html"][0]


def test_packages_of_either_format_go_from_any_folder_to_the_subdir_of_their_metadata(
    target: BucketTarget, store: MemoryStore, tmp_path: Path
) -> None:
    downloads = tmp_path / "Downloads"
    downloads.mkdir()
    made = [old_format(make_conda(tmp_path, "old")), make_conda(tmp_path, "mac", subdir="osx-arm64")]
    files = [path.rename(downloads / path.name) for path in made]
    publish(target, file_set(files, CONDA_FORGE))
    assert target.foundation() == CONDA_FORGE
    assert {str(package.key) for package in target.packages("main")} == {
        "linux-64/old-1.0-0.tar.bz2",
        "osx-arm64/mac-1.0-0.conda",
    }
    index = json.loads(store.objects["chan/linux-64/repodata.json"][0])
    assert (list(index["packages"]), index["packages.conda"]) == (["old-1.0-0.tar.bz2"], {})
    again = target.plan(file_set(files, CONDA_FORGE), label="main")
    assert (again.upload, len(again.present)) == ((), 2)
