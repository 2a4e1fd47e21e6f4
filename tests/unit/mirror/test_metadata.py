# SPDX-License-Identifier: BSD-3-Clause
"""The attacks that TUF's specification lists, on a bundle on its way: importing says which, and changes nothing.

Two bundles are made once, the first of them imported; every test spoils copies.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tuf.api.metadata import Metadata, Targets, Timestamp

from channel_tools.channel import open_channel
from channel_tools.conda.fetch import HashedFile
from channel_tools.mirror.format import BundleRejectedError
from channel_tools.mirror.importing.site import import_state
from channel_tools.mirror.keys import Rotation, create_keys, rotate_keys, signing_keys
from channel_tools.mirror.metadata import sign_bundle
from channel_tools.system.files import sha256_of_file
from tests.unit.mirror.bundles import ExportingSite, add_toys, exporting_site, import_to, new_keys, verify

PACKAGE = "channels/channel/linux-64/toy-1.0-0.conda"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """Bundle 1 was imported at the importing site; bundle 2 is on its way."""

    site: ExportingSite
    first: Path
    second: Path
    far: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("made")
    site = exporting_site(folder)
    site.bundle(folder / "first")
    import_to(folder / "first", folder / "far", site.fingerprint)
    add_toys(open_channel(folder / "channel"), ["more"])
    site.bundle(folder / "second")
    return Scene(site=site, first=folder / "first", second=folder / "second", far=folder / "far")


@pytest.fixture
def scene(made: Scene, tmp_path: Path) -> Scene:
    for name in ("first", "second", "far"):
        shutil.copytree(getattr(made, name), tmp_path / name, symlinks=True)
    shutil.copytree(made.site.keys.path, tmp_path / "keys")
    site = ExportingSite(keys=type(made.site.keys)(path=tmp_path / "keys"), channels=made.site.channels)
    return Scene(site=site, first=tmp_path / "first", second=tmp_path / "second", far=tmp_path / "far")


def content_of(folder: Path) -> dict[str, bytes | None]:
    """Every file of a folder, and every folder in it."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def rejected(bundle: Path, scene: Scene, fault: str) -> str:
    before = content_of(scene.far)
    with pytest.raises(BundleRejectedError) as caught:
        import_to(bundle, scene.far)
    assert caught.value.fault == fault, caught.value
    assert str(caught.value).startswith(fault + ": ")
    after = content_of(scene.far)
    assert {path: after[path] for path in after if not path.endswith(".owner")} == {
        path: before[path] for path in before if not path.endswith(".owner")
    }
    return str(caught.value)


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    value = json.loads(path.read_bytes())
    change(value)
    path.write_text(json.dumps(value))


def test_the_scene_is_sound(scene: Scene) -> None:
    assert import_to(scene.second, scene.far).version == 2


# arbitrary and wrong software


def test_a_package_changed_in_place(scene: Scene) -> None:
    path = scene.second / "channels/channel/linux-64/more-1.0-0.conda"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert path.name in rejected(scene.second, scene, "changed")


def test_a_first_bundle_that_is_rejected_leaves_no_folder(scene: Scene, tmp_path: Path) -> None:
    path = scene.first / "channels/channel/linux-64/zlib-1.0-0.conda"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BundleRejectedError, match="changed"):
        import_to(scene.first, tmp_path / "new" / "mirror", scene.site.fingerprint)
    assert sorted(tmp_path.iterdir()) == before


def test_a_package_cut_short(scene: Scene) -> None:
    path = scene.second / "channels/channel/linux-64/more-1.0-0.conda"
    path.write_bytes(path.read_bytes()[:-1])
    assert path.name in rejected(scene.second, scene, "changed")


def test_a_package_under_the_name_of_another(scene: Scene) -> None:
    folder = scene.second / "channels/channel/linux-64"
    shutil.copy(folder / "zlib-1.0-0.conda", folder / "more-1.0-0.conda")
    rejected(scene.second, scene, "changed")


def test_a_record_changed_in_the_index(scene: Scene) -> None:
    path = scene.second / "channels/channel/linux-64/repodata.json"
    path.write_bytes(path.read_bytes().replace(b'"zlib"', b'"evil"', 1))
    assert "repodata.json" in rejected(scene.second, scene, "changed")


def test_metadata_changed_in_place(scene: Scene) -> None:
    def widen(value: dict[str, Any]) -> None:
        value["signed"]["targets"][PACKAGE]["length"] = 5

    edit(scene.second / "metadata" / "2.targets.json", widen)
    assert "2.targets.json" in rejected(scene.second, scene, "too long")


STRANGE: dict[str, Callable[[bytes], bytes]] = {
    "bytes that are no UTF-8": lambda content: b"\xff\xfe" + content,
    "a text that is no UTF-8": lambda content: content.replace(b'"expires":"2', b'"expires":"\xff', 1),
    "UTF-16": lambda content: content.decode().encode("utf-16"),
    "half a character": lambda _content: b'{"signed":{"_type":"\\ud800"},"signatures":[]}',
    "lists in lists": lambda _content: b'{"signed":' + b"[" * 300_000,
    "a long number": lambda content: content.replace(b'"version":2', b'"version":' + b"9" * 100_000, 1),
    "no object": lambda _content: b"[]",
}


@pytest.mark.parametrize("name", ["timestamp.json", "2.snapshot.json", "2.targets.json"])
@pytest.mark.parametrize("kind", STRANGE)
def test_metadata_that_no_client_can_read(scene: Scene, name: str, kind: str) -> None:
    path = scene.second / "metadata" / name
    content = path.read_bytes()
    path.write_bytes(STRANGE[kind](content))
    assert path.read_bytes() != content
    with pytest.raises(BundleRejectedError, match=name.replace(".", "[.]")):
        import_to(scene.second, scene.far)
    assert import_to(scene.first, scene.far).version == 1  # nothing has changed there


def test_metadata_changed_without_changing_its_length(scene: Scene) -> None:
    path = scene.second / "metadata" / "2.targets.json"
    content = path.read_bytes()
    place = content.index(b'"sha256":"') + len(b'"sha256":"')
    path.write_bytes(content[:place] + (b"0" if content[place : place + 1] != b"0" else b"1") + content[place + 1 :])
    assert "2.targets.json" in rejected(scene.second, scene, "changed")


def test_the_timestamp_changed_in_place(scene: Scene) -> None:
    edit(scene.second / "metadata" / "timestamp.json", lambda value: value["signed"].update(version=3))
    rejected(scene.second, scene, "changed")


def test_the_timestamp_that_was_seen_last_in_other_bytes(scene: Scene) -> None:
    with (scene.first / "metadata" / "timestamp.json").open("ab") as stream:
        stream.write(b"\n")  # its signature stays right, and its version is the one that is trusted
    rejected(scene.first, scene, "changed")


# missing and added


def test_a_missing_package(scene: Scene) -> None:
    (scene.second / PACKAGE).unlink()
    assert PACKAGE in rejected(scene.second, scene, "missing")


@pytest.mark.parametrize("name", ["2.targets.json", "2.snapshot.json"])
def test_missing_metadata(scene: Scene, name: str) -> None:
    (scene.second / "metadata" / name).unlink()
    assert name in rejected(scene.second, scene, "missing")


@pytest.mark.parametrize("name", ["channels/channel/linux-64/evil-1.0-0.conda", "metadata/9.root.json", "run me"])
def test_an_added_file(scene: Scene, name: str) -> None:
    (scene.second / name).write_bytes(b"not signed for")
    assert name.rpartition("/")[2] in rejected(scene.second, scene, "added")


def test_a_link_in_the_place_of_a_package(scene: Scene) -> None:
    (scene.second / PACKAGE).unlink()
    (scene.second / PACKAGE).symlink_to("/etc/passwd")
    assert PACKAGE in rejected(scene.second, scene, "unsafe")


# rollback, freeze, mix and match


def test_an_older_bundle(scene: Scene) -> None:
    import_to(scene.second, scene.far)
    rejected(scene.first, scene, "older")


def test_an_older_bundle_after_an_import_that_was_killed(scene: Scene) -> None:
    import_to(scene.second, scene.far)
    state = import_state(scene.far)
    for name in ("snapshot.json", "targets.json"):  # metadata is kept in this order, file by file
        shutil.copy(scene.first / "metadata" / f"1.{name}", state.folder / "trusted" / name)
    rejected(scene.first, scene, "older")
    assert import_to(scene.second, scene.far).version == 2


def test_a_bundle_whose_time_is_over(scene: Scene, tmp_path: Path) -> None:
    scene.site.bundle(tmp_path / "late", now=datetime.now(UTC) - timedelta(days=181))
    assert "timestamp.json" in rejected(tmp_path / "late", scene, "frozen")


def test_root_metadata_whose_time_is_over(tmp_path: Path) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=2000)
    keys = create_keys(tmp_path / "keys", root_keys=1, threshold=1, expiry_days={}, passphrase=None, now=long_ago)
    site = exporting_site(tmp_path, keys=keys)
    site.bundle(tmp_path / "bundle")
    with pytest.raises(BundleRejectedError) as caught:
        verify(tmp_path / "bundle", site.fingerprint)
    assert caught.value.fault == "frozen"


@pytest.mark.parametrize("role", ["snapshot", "targets"])
def test_metadata_of_two_bundles_mixed(scene: Scene, role: str) -> None:
    shutil.copy(scene.first / "metadata" / f"1.{role}.json", scene.second / "metadata" / f"2.{role}.json")
    assert f"2.{role}.json" in rejected(scene.second, scene, "mixed")


def test_a_newer_timestamp_on_older_files(scene: Scene) -> None:
    shutil.copy(scene.second / "metadata" / "timestamp.json", scene.first / "metadata" / "timestamp.json")
    rejected(scene.first, scene, "missing")


# fast forward


def test_recovery_after_somebody_signed_with_far_too_high_a_number(scene: Scene, tmp_path: Path) -> None:
    settings = scene.site.keys.settings()
    scene.site.keys.write_settings(type(settings)(expiry_days=settings.expiry_days, issued=10**6))
    scene.site.bundle(tmp_path / "forward")
    import_to(tmp_path / "forward", scene.far)
    scene.site.keys.write_settings(settings)
    scene.site.bundle(tmp_path / "honest")
    rejected(tmp_path / "honest", scene, "older")
    rotate_keys(
        scene.site.keys,
        Rotation(roles=("timestamp", "snapshot")),
        root_files=(),
        passphrase=None,
        now=datetime.now(UTC),
    )
    assert scene.site.bundle(tmp_path / "recovered").version < 10**6
    assert import_to(tmp_path / "recovered", scene.far).version < 10**6


# key compromise, wrong keys, too few signatures


def test_a_bundle_signed_by_somebody_else(scene: Scene, tmp_path: Path) -> None:
    stranger = ExportingSite(keys=new_keys(tmp_path / "stranger"), channels=scene.site.channels)
    for _ in range(2):
        shutil.rmtree(tmp_path / "theirs", ignore_errors=True)
        stranger.bundle(tmp_path / "theirs")
    rejected(tmp_path / "theirs", scene, "wrong keys")


def test_another_fingerprint_than_was_told(scene: Scene) -> None:
    with pytest.raises(BundleRejectedError, match=r"the fingerprint of .* is not") as caught:
        verify(scene.second, "0" * 64)
    assert caught.value.fault == "wrong keys"


def test_the_online_keys_alone_cannot_make_new_root_metadata(scene: Scene) -> None:
    keys = scene.site.keys
    metadata = keys.root()
    metadata.signed.version = 2
    metadata.signatures.clear()
    metadata.sign(signing_keys(keys, passphrase=None)["targets"][0])
    (scene.second / "metadata" / "2.root.json").write_bytes(metadata.to_bytes())
    assert "2.root.json" in rejected(scene.second, scene, "wrong keys")


def test_one_signature_where_two_people_must_sign(tmp_path: Path) -> None:
    keys = new_keys(tmp_path / "keys", root_keys=3, threshold=2)
    site = exporting_site(tmp_path, keys=keys)
    site.bundle(tmp_path / "first")
    import_to(tmp_path / "first", tmp_path / "far", site.fingerprint)
    [one, *_others] = sorted(keys.private.glob("root-*.pem"))
    rotate_keys(keys, Rotation(roles=("targets",)), root_files=[one], passphrase=None, now=datetime.now(UTC))
    keys.pending.replace(keys.metadata / "2.root.json")
    site.bundle(tmp_path / "second")
    with pytest.raises(BundleRejectedError, match=r"1 of the 2 required signatures") as caught:
        import_to(tmp_path / "second", tmp_path / "far")
    assert caught.value.fault == "too few signatures"


def test_a_stolen_key_is_worth_nothing_after_rotation(scene: Scene, tmp_path: Path) -> None:
    stolen = tmp_path / "stolen"
    shutil.copytree(scene.site.keys.path, stolen)
    rotate_keys(scene.site.keys, Rotation(roles=("targets",)), root_files=(), passphrase=None, now=datetime.now(UTC))
    scene.site.bundle(tmp_path / "third")
    import_to(tmp_path / "third", scene.far)
    thief = ExportingSite(keys=type(scene.site.keys)(path=stolen), channels=scene.site.channels)
    settings = thief.keys.settings()
    thief.keys.write_settings(type(settings)(expiry_days=settings.expiry_days, issued=9))
    shutil.copy(scene.site.keys.root_files()[-1], stolen / "metadata" / "2.root.json")
    root = thief.keys.root().signed
    old = {path.name: path for path in (stolen / "private").glob("targets-*.pem")}
    [path] = old.values()
    path.rename(path.with_name(f"targets-{root.roles['targets'].keyids[0][:16]}.pem"))
    thief.bundle(tmp_path / "stolen bundle")
    rejected(tmp_path / "stolen bundle", scene, "wrong keys")


def test_a_timestamp_without_signatures(scene: Scene) -> None:
    edit(scene.second / "metadata" / "timestamp.json", lambda value: value["signatures"].clear())
    assert "0 of the 1 required signatures" in rejected(scene.second, scene, "too few signatures")


# endless data and damaged metadata


def test_an_endless_timestamp(scene: Scene) -> None:
    with (scene.second / "metadata" / "timestamp.json").open("ab") as stream:
        stream.write(b" " * 20_000)
    assert "timestamp.json" in rejected(scene.second, scene, "too long")


def test_an_endless_package(scene: Scene) -> None:
    with (scene.second / "channels/channel/linux-64/more-1.0-0.conda").open("ab") as stream:
        stream.truncate(1 << 40)
    assert "more-1.0-0.conda" in rejected(scene.second, scene, "too long")


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 5000, b"\xff\xfe", b'{"signed": {"_type": "root"}}'])
def test_metadata_that_is_none(scene: Scene, content: bytes) -> None:
    (scene.second / "metadata" / "timestamp.json").write_bytes(content)
    rejected(scene.second, scene, "damaged")


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a//evil", "metadata/1.root.json", "ev\nil", "a/./evil"])
def test_a_signed_name_that_climbs_out(scene: Scene, tmp_path: Path, name: str) -> None:
    scene.site.bundle(tmp_path / "third")
    resign(scene, tmp_path / "third", {}, HashedFile(path=name, size_bytes=1, sha256="0" * 64))
    rejected(tmp_path / "third", scene, "unsafe")


def test_a_bundle_of_a_later_version_of_this_program(scene: Scene, tmp_path: Path) -> None:
    scene.site.bundle(tmp_path / "third")
    manifest = tmp_path / "third" / "bundle.json"
    later = json.dumps({**json.loads(manifest.read_bytes()), "schema": 2}).encode()
    resign(scene, tmp_path / "third", {"bundle.json": later})
    assert "schema 2" in rejected(tmp_path / "third", scene, "newer schema")


def resign(scene: Scene, bundle: Path, small: dict[str, bytes], *others: HashedFile) -> None:
    """Put other files into a bundle, and sign for them (and ``others``)."""
    version = Metadata[Timestamp].from_file(str(bundle / "metadata" / "timestamp.json")).signed.version
    targets = Metadata[Targets].from_file(str(bundle / "metadata" / f"{version}.targets.json")).signed.targets
    for path, content in small.items():
        (bundle / path).write_bytes(content)
    files = [
        HashedFile(path=path, size_bytes=(bundle / path).stat().st_size, sha256=sha256_of_file(bundle / path))
        for path in targets
    ]
    metadata = sign_bundle(scene.site.signing(), [*files, *others], version=version)
    for path, content in metadata.items():
        (bundle / path).write_bytes(content)
