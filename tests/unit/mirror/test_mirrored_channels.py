# SPDX-License-Identifier: BSD-3-Clause
"""What channels say after an import: the exporting site's records, hotfixes and yanks, ours and those of others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from channel_tools.channel import Foundation, add_set, channel_writer, create_channel, open_channel, verify_channel
from channel_tools.channel.listing import Patch
from channel_tools.conda.package import sidecar_of, write_sidecar
from channel_tools.mirror.exporting.plan import read_since
from channel_tools.publish.folder import FolderTarget
from channel_tools.system.errors import IntegrityError, UsageError
from channel_tools.system.files import sha256_of_file
from channel_tools.workflow.mirror import source_channels
from tests.support import conda_reader
from tests.support.packages import make_conda, taken
from tests.support.readers import unpack
from tests.unit.mirror.bundles import (
    ExportingSite,
    add_toys,
    exporting_site,
    foreign_channel,
    import_to,
    listed,
    lock_of,
    toy_channel,
    write_index,
)

SUBDIR = "linux-64"


def records(channel: Path) -> dict[str, dict[str, object]]:
    index = json.loads((channel / SUBDIR / "repodata.json").read_bytes())
    rows = {**index["packages"], **index["packages.conda"]}
    return {
        name: {key: value for key, value in row.items() if key != "indexed_timestamp"} for name, row in rows.items()
    }


def shards(channel: Path) -> dict[str, object]:
    folder = channel / SUBDIR
    index = msgspec.msgpack.decode(unpack(folder / "repodata_shards.msgpack.zst"))
    found: dict[str, object] = {}
    for sha256 in index["shards"].values():
        shard = msgspec.msgpack.decode(unpack(folder / "shards" / f"{sha256.hex()}.msgpack.zst"))
        for name, row in {**shard["packages"], **shard["packages.conda"]}.items():
            plain = {key: value.hex() if isinstance(value, bytes) else value for key, value in row.items()}
            found[name] = {key: value for key, value in plain.items() if key != "indexed_timestamp"}
    return found


def carry(site: ExportingSite, tmp_path: Path, name: str, *, update: bool = False) -> Path:
    """Make a bundle, import it; the importing site's folder of channels."""
    since = read_since(tmp_path / "far" / ".mirror" / "received.json") if update else None
    site.bundle(tmp_path / name, plan=site.plan(since=since))
    import_to(tmp_path / name, tmp_path / "far", site.fingerprint)
    return tmp_path / "far" / "channels"


def test_hotfixes_and_yanks_of_our_channel_reach_the_far_side(tmp_path: Path) -> None:
    site = exporting_site(tmp_path, toy_channel(tmp_path, ["toy", "more"]))
    far = carry(site, tmp_path, "first") / "channel"
    target = FolderTarget(root=tmp_path / "channel")
    patch = Patch(records={"toy-1.0-0.conda": {"depends": ["zlib >=1,<2"], "constrains": ["other <3"]}})
    target.hotfix({SUBDIR: patch}, label="main", replace=False)
    target.yank(("linux-64/more-1.0-0.conda",), label="main", reason="broken")
    carry(site, tmp_path, "second", update=True)
    assert records(far) == records(tmp_path / "channel")
    assert records(far)["toy-1.0-0.conda"]["depends"] == ["zlib >=1,<2"]
    assert listed(far) == ["toy-1.0-0.conda", "zlib-1.0-0.conda"]
    assert (far / SUBDIR / "more-1.0-0.conda").is_file()
    assert verify_channel(open_channel(far)) == []
    target.yank(("linux-64/more-1.0-0.conda",), label="main", reason=None)
    target.hotfix({}, label="main", replace=True)
    target.hotfix({SUBDIR: Patch()}, label="main", replace=True)
    carry(site, tmp_path, "third", update=True)
    assert records(far) == records(tmp_path / "channel")
    assert "more-1.0-0.conda" in listed(far)


def test_a_first_import_brings_hotfixes_as_well(tmp_path: Path) -> None:
    site = exporting_site(tmp_path)
    patch = Patch(records={"toy-1.0-0.conda": {"depends": ["zlib >=1,<2"]}})
    FolderTarget(root=tmp_path / "channel").hotfix({SUBDIR: patch}, label="main", replace=False)
    far = carry(site, tmp_path, "first") / "channel"
    assert records(far) == records(tmp_path / "channel")


@pytest.fixture
def site(tmp_path: Path) -> ExportingSite:
    foreign = foreign_channel(tmp_path / "conda-forge", ["numpy"], old=["ancient"])
    return exporting_site(tmp_path, toy_channel(tmp_path, foundation=[]), foreign)


def change(tmp_path: Path, name: str, **fields: object) -> None:
    """Hotfix a record of the foreign channel."""
    rows = {name: dict(row) for name, row in records(tmp_path / "conda-forge").items()}
    rows[name] |= fields
    write_index(tmp_path / "conda-forge" / SUBDIR, rows)


def test_a_foreign_channel_keeps_its_own_records_and_packages_of_both_formats(
    tmp_path: Path, site: ExportingSite
) -> None:
    change(tmp_path, "numpy-1.0-0.conda", depends=["python >=3"], odd={"kept": True})
    far = carry(site, tmp_path, "first")
    assert records(far / "conda-forge") == records(tmp_path / "conda-forge") == shards(far / "conda-forge")
    assert records(tmp_path / "first" / "channels" / "conda-forge") == records(tmp_path / "conda-forge")
    for name in ("numpy-1.0-0.conda", "ancient-1.0-0.tar.bz2"):
        source = tmp_path / "conda-forge" / SUBDIR / name
        assert (far / "conda-forge" / SUBDIR / name).read_bytes() == source.read_bytes()
    foundation = open_channel(far / "channel").foundation
    assert (foundation.kind, foundation.address) == ("conda-forge", (far / "conda-forge").as_uri())


def test_updates_merge_a_foreign_channels_records(tmp_path: Path, site: ExportingSite) -> None:
    far = carry(site, tmp_path, "first") / "conda-forge"
    foreign_channel(tmp_path / "conda-forge", ["scipy"])
    change(tmp_path, "numpy-1.0-0.conda", depends=["python >=3"])
    carry(site, tmp_path, "second", update=True)
    assert records(far) == records(tmp_path / "conda-forge") == shards(far)
    rows = records(tmp_path / "conda-forge")
    del rows["numpy-1.0-0.conda"]
    write_index(tmp_path / "conda-forge" / SUBDIR, rows)
    carry(site, tmp_path, "third", update=True)
    assert records(far) == rows == shards(far)
    assert (far / SUBDIR / "numpy-1.0-0.conda").is_file()


@pytest.mark.parametrize("lost", ["conda-forge", "conda-forge/linux-64/repodata.json", "channel", ""])
def test_a_channel_that_was_deleted_comes_back_with_all_its_records(
    tmp_path: Path, site: ExportingSite, lost: str
) -> None:
    change(tmp_path, "numpy-1.0-0.conda", depends=["python >=3"])
    patch = Patch(records={"toy-1.0-0.conda": {"depends": ["zlib >=1"]}})
    FolderTarget(root=tmp_path / "channel").hotfix({SUBDIR: patch}, label="main", replace=False)
    far = carry(site, tmp_path, "first")
    if (far / lost).is_dir():
        shutil.rmtree(far / lost)
    else:
        (far / lost).unlink()
    import_to(tmp_path / "first", tmp_path / "far")
    for name in ("conda-forge", "channel"):
        assert records(far / name) == records(tmp_path / name) == shards(far / name)
    verify_channel(open_channel(far / "channel"))


@pytest.mark.parametrize("is_wanted", [True, False], ids=["still wanted", "only held"])
def test_a_package_that_its_channel_replaced_is_listed_with_the_bytes_that_are_there(
    tmp_path: Path, site: ExportingSite, *, is_wanted: bool
) -> None:
    source, far = tmp_path / "conda-forge", carry(site, tmp_path, "first") / "conda-forge"
    name = "numpy-1.0-0.conda"
    before = records(far)[name]["sha256"]
    make_conda(source, "numpy", files={"share/numpy.txt": b"replaced\n"})
    foreign_channel(source, ["scipy"])
    now = records(source)[name]["sha256"]
    assert now != before
    names = None if is_wanted else ["scipy"]
    locks = [lock_of(site.channels[0].address), lock_of(source.as_uri(), names=names, stack="others")]
    since = read_since(tmp_path / "far" / ".mirror" / "received.json")
    site.bundle(tmp_path / "second", plan=site.plan(locks, since=since))
    import_to(tmp_path / "second", tmp_path / "far")
    assert sha256_of_file(far / SUBDIR / name) == (now if is_wanted else before)
    assert {file_name: row["sha256"] for file_name, row in records(far).items()} == {
        file_name: sha256_of_file(far / SUBDIR / file_name)
        for file_name in ("ancient-1.0-0.tar.bz2", name, "scipy-1.0-0.conda")
        if is_wanted or file_name != name
    }
    assert records(far) == shards(far)
    assert import_to(tmp_path / "second", tmp_path / "far").files == 0


def test_bundles_of_different_stacks_add_up(tmp_path: Path) -> None:
    site = exporting_site(tmp_path, toy_channel(tmp_path, ["toy", "more"], ["zlib", "ssl"]))
    address = (tmp_path / "channel").as_uri()
    for number, names in enumerate((["toy", "zlib"], ["more", "ssl"])):
        plan = site.plan([lock_of(address, names=names, stack=f"stack{number}")])
        site.bundle(tmp_path / f"bundle{number}", plan=plan)
        import_to(tmp_path / f"bundle{number}", tmp_path / "far", site.fingerprint)
    assert listed(tmp_path / "far" / "channels" / "channel") == listed(tmp_path / "channel")
    assert sorted(path.name for path in (tmp_path / "far" / "locks").iterdir()) == ["stack0", "stack1"]


def test_a_mirror_may_be_moved(tmp_path: Path, site: ExportingSite) -> None:
    carry(site, tmp_path, "first")
    (tmp_path / "far").rename(tmp_path / "moved")
    add_toys(open_channel(tmp_path / "channel"), ["more"])
    site.bundle(tmp_path / "second")
    import_to(tmp_path / "second", tmp_path / "moved")
    assert "more-1.0-0.conda" in listed(tmp_path / "moved" / "channels" / "channel")


def foundation_packages(far: Path) -> list[str]:
    packages = FolderTarget(root=far / "channel").packages("main")
    return [package.file_name for package in packages if package.foundation]


def test_packages_of_the_registry_foundation_are_known_as_such_where_they_arrive(tmp_path: Path) -> None:
    channel = toy_channel(tmp_path, foundation=[])
    with channel_writer(channel) as writer:
        add_set(writer, (), [make_conda(tmp_path / "made", "zlib", about=taken("digest of zlib"))])
    site = exporting_site(tmp_path, channel, foreign_channel(tmp_path / "lab", ["probe"]))
    far = carry(site, tmp_path, "first")
    assert foundation_packages(far) == ["zlib-1.0-0.conda"]
    foundation = open_channel(far / "channel").foundation
    assert (foundation.kind, foundation.further) == ("registry", ((far / "lab").as_uri(),))


def test_further_channels_are_at_the_new_place_after_a_move(tmp_path: Path) -> None:
    channel = toy_channel(tmp_path, foundation=[])
    site = exporting_site(tmp_path, channel, foreign_channel(tmp_path / "lab", ["probe"]))
    far, lab = tmp_path / "far" / "channels", (tmp_path / "far" / "channels" / "lab").as_uri()
    create_channel(far / "channel", Foundation(kind="registry", further=(lab,)))
    carry(site, tmp_path, "first")
    (tmp_path / "far").rename(tmp_path / "moved")
    add_toys(channel, ["more"])
    site.bundle(tmp_path / "second")
    import_to(tmp_path / "second", tmp_path / "moved")
    foundation = open_channel(tmp_path / "moved" / "channels" / "channel").foundation
    assert (foundation.kind, foundation.further) == ("registry", (lab.replace("/far/", "/moved/"),))


def test_a_bundle_without_packages_of_the_foundation_leaves_it_as_it_is(tmp_path: Path) -> None:
    channel = toy_channel(tmp_path, foundation=[])
    site = exporting_site(tmp_path, channel, foreign_channel(tmp_path / "forge", ["probe"]))
    far = carry(site, tmp_path, "first")
    expected = Foundation(kind="conda-forge", address=(far / "forge").as_uri())
    assert open_channel(far / "channel").foundation == expected
    add_toys(channel, ["more"])
    carry(exporting_site(tmp_path, channel, keys=site.keys), tmp_path, "second")
    assert open_channel(far / "channel").foundation == expected
    assert "more-1.0-0.conda" in listed(far / "channel")
    add_toys(channel, ["again"])
    carry(
        exporting_site(tmp_path, channel, foreign_channel(tmp_path / "lab", ["tool"]), keys=site.keys),
        tmp_path,
        "third",
    )
    found = open_channel(far / "channel").foundation
    assert (found, found.further) == (expected, ((far / "lab").as_uri(),))


def test_locks_from_elsewhere_are_refused(tmp_path: Path, site: ExportingSite) -> None:
    other = toy_channel(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="not one of the mirrored channels"):
        site.plan([lock_of(other.address)])


def test_a_channel_that_lists_other_bytes_than_were_locked_is_refused(tmp_path: Path, site: ExportingSite) -> None:
    lock = lock_of(*(channel.address for channel in site.channels))
    change(tmp_path, "numpy-1.0-0.conda", sha256="0" * 64)
    with pytest.raises(IntegrityError, match="other bytes"):
        site.plan([lock])


def test_a_yanked_package_that_a_lock_names_is_brought_but_not_listed(tmp_path: Path) -> None:
    site = exporting_site(tmp_path, toy_channel(tmp_path, ["toy", "more"]))
    lock = lock_of(*(channel.address for channel in site.channels))
    target = FolderTarget(root=tmp_path / "channel")
    target.yank(("linux-64/more-1.0-0.conda",), label="main", reason="broken")
    site.bundle(tmp_path / "bundle", plan=site.plan([lock]))
    import_to(tmp_path / "bundle", tmp_path / "far", site.fingerprint)
    far = tmp_path / "far" / "channels" / "channel"
    assert listed(far) == ["toy-1.0-0.conda", "zlib-1.0-0.conda"]
    assert (far / SUBDIR / "more-1.0-0.conda").is_file()


def test_conda_reads_imported_channels_and_the_next_import_mends_those_of_the_earlier_form(
    tmp_path: Path, site: ExportingSite
) -> None:
    package = tmp_path / "conda-forge" / SUBDIR / "numpy-1.0-0.conda"
    write_sidecar(package, b"[{}]")
    change(tmp_path, package.name, attestations_sha256=sha256_of_file(sidecar_of(package)))
    with conda_reader.earlier_form():
        far = carry(site, tmp_path, "first") / "conda-forge"
    with pytest.raises(TypeError, match="bytes is not JSON serializable"):
        conda_reader.records(far.as_uri(), SUBDIR)
    carry(site, tmp_path, "second")
    assert conda_reader.records(far.as_uri(), SUBDIR)[package.name]["attestations_sha256"] == sha256_of_file(
        sidecar_of(package)
    )
    for name, download in conda_reader.downloads(far.as_uri(), SUBDIR).items():
        assert download.fetch() == (far / SUBDIR / name).read_bytes()


def test_a_channel_that_only_rattler_reads_is_named_before_anything_is_solved() -> None:
    with pytest.raises(UsageError, match=r"s3://bucket/ours: channels are mirrored from folders, http://") as caught:
        source_channels(["s3://bucket/ours"])
    assert "over https" in str(caught.value.hint)


def test_a_package_that_only_its_record_makes_right_is_mirrored(tmp_path: Path) -> None:
    channel = toy_channel(tmp_path)
    wrong = make_conda(tmp_path / "made", "wrong", index={"constrains": ["dsk[array] >=2"]})
    patch = Patch(records={wrong.name: {"constrains": ["dsk >=2"]}})
    with channel_writer(channel) as writer:
        add_set(writer, [wrong], patches={SUBDIR: patch})
    site = exporting_site(tmp_path, channel)
    far = carry(site, tmp_path, "first") / "channel"
    assert records(far) == records(tmp_path / "channel")
    assert records(far)[wrong.name]["constrains"] == ["dsk >=2"]
    assert verify_channel(open_channel(far)) == []
