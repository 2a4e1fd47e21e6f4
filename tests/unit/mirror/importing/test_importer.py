# SPDX-License-Identifier: BSD-3-Clause
"""A bundle's whole way: made, verified, imported; and bundles of what is new, of use only where the rest is."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from channel_tools.channel import Foundation, create_channel, open_channel, verify_channel
from channel_tools.mirror.exporting.plan import read_since
from channel_tools.mirror.files import open_bundle
from channel_tools.mirror.format import BundleRejectedError
from channel_tools.mirror.importing.site import import_state
from channel_tools.mirror.keys import KeyFolder
from channel_tools.page.model import PageChoices
from channel_tools.provenance.trust import create_key, read_trusted_keys
from channel_tools.provenance.verify import verify_folder
from channel_tools.requests.attest import AttestRequest, SignRequest
from channel_tools.requests.names import BaseName
from channel_tools.system.errors import IntegrityError, UsageError
from channel_tools.workflow.attest import sign_packages
from channel_tools.workflow.channel_page import write_channel_page
from tests.support.damage import LARGE_BYTES
from tests.unit.mirror.bundles import ExportingSite, add_toys, exporting_site, import_to, listed, verify


def imported_once(folder: Path) -> ExportingSite:
    """The exporting site, beside the importing one, which has the first bundle."""
    site = exporting_site(folder)
    site.bundle(folder / "first")
    import_to(folder / "first", folder / "far", site.fingerprint)
    return site


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    imported_once(folder)
    return folder


@pytest.fixture
def site(made: Path, tmp_path: Path) -> ExportingSite:
    """A copy, whose channel has another address than it had for the first bundle."""
    shutil.copytree(made, tmp_path, symlinks=True, dirs_exist_ok=True)
    return exporting_site(tmp_path, open_channel(tmp_path / "channel"), keys=KeyFolder(path=tmp_path / "keys"))


@pytest.mark.parametrize("known_by", ["far/.mirror/received.json", "first"])
def test_an_update_brings_only_what_the_far_side_lacks(tmp_path: Path, site: ExportingSite, known_by: str) -> None:
    add_toys(open_channel(tmp_path / "channel"), ["more"])
    report = site.bundle(tmp_path / "second", plan=site.plan(since=read_since(tmp_path / known_by)))
    assert (report.fetched_files, report.omitted) == (1, 2)
    packages = [name for name in open_bundle(tmp_path / "second").sizes if name.endswith(".conda")]
    assert packages == ["channels/channel/linux-64/more-1.0-0.conda"]
    verify(tmp_path / "second", site.fingerprint)
    assert import_to(tmp_path / "second", tmp_path / "far").version == 2
    channel = open_channel(tmp_path / "far" / "channels" / "channel")
    assert verify_channel(channel) == []
    assert listed(channel.path) == ["more-1.0-0.conda", "toy-1.0-0.conda", "zlib-1.0-0.conda"]


@pytest.mark.parametrize("base", ["debian-11", "debian-12", "debian-13"])
def test_a_channel_keeps_its_base(tmp_path: Path, base: BaseName) -> None:
    channel = create_channel(tmp_path / "channel", Foundation().on(base))
    add_toys(channel, ["zlib", "toy"])
    site = exporting_site(tmp_path, channel)
    part = dataclasses.replace(site.channels[0], base=base)
    dataclasses.replace(site, channels=(part,)).bundle(tmp_path / "first")
    import_to(tmp_path / "first", tmp_path / "far", site.fingerprint)
    assert open_channel(tmp_path / "far" / "channels" / "channel").foundation.release == base


def test_nothing_new_is_seen_without_fetching(tmp_path: Path) -> None:
    site = imported_once(tmp_path)
    for known_by in ("far/.mirror/received.json", "first"):
        assert site.plan(since=read_since(tmp_path / known_by)).brings_nothing()
    add_toys(open_channel(tmp_path / "channel"), ["more"])
    assert not site.plan(since=read_since(tmp_path / "first")).brings_nothing()


def test_updates_follow_one_another_and_a_page_follows_them(tmp_path: Path, site: ExportingSite) -> None:
    write_channel_page(
        str(tmp_path / "far" / "channels" / "channel"), None, choices=PageChoices(title="Mirrored"), environ={}
    )
    for number, name in enumerate(["more", "most"], start=2):
        add_toys(open_channel(tmp_path / "channel"), [name])
        since = read_since(import_state(tmp_path / "far").received_file)
        site.bundle(tmp_path / f"bundle {number}", plan=site.plan(since=since))
        import_to(tmp_path / f"bundle {number}", tmp_path / "far")
        page = (tmp_path / "far" / "channels" / "channel" / "index.html").read_text()
        assert "<h1>Mirrored</h1>" in page
        assert f"page/name/{name}.html" in page
    assert len(listed(tmp_path / "far" / "channels" / "channel")) == 4
    assert site.plan(since=read_since(tmp_path / "far" / ".mirror" / "received.json")).brings_nothing()


def test_an_update_is_refused_where_the_earlier_bundles_never_came(tmp_path: Path, site: ExportingSite) -> None:
    add_toys(open_channel(tmp_path / "channel"), ["more"])
    site.bundle(tmp_path / "second", plan=site.plan(since=read_since(tmp_path / "first")))
    with pytest.raises(BundleRejectedError, match=r"toy-1\.0-0\.conda.*from earlier bundles") as caught:
        import_to(tmp_path / "second", tmp_path / "elsewhere", site.fingerprint)
    assert caught.value.fault == "missing"
    assert not (tmp_path / "elsewhere" / "channels").exists()


def test_a_package_lost_on_the_far_side_is_noticed(tmp_path: Path, site: ExportingSite) -> None:
    (tmp_path / "far" / "channels" / "channel" / "linux-64" / "toy-1.0-0.conda").unlink()
    add_toys(open_channel(tmp_path / "channel"), ["more"])
    site.bundle(tmp_path / "second", plan=site.plan(since=read_since(tmp_path / "first")))
    with pytest.raises(BundleRejectedError, match=r"toy-1\.0-0\.conda"):
        import_to(tmp_path / "second", tmp_path / "far")
    site.bundle(tmp_path / "complete")
    assert import_to(tmp_path / "complete", tmp_path / "far").files > 0
    assert "toy-1.0-0.conda" in listed(tmp_path / "far" / "channels" / "channel")


def test_a_file_left_out_of_a_complete_bundle_is_missed(tmp_path: Path, site: ExportingSite) -> None:
    site.bundle(tmp_path / "second")
    (tmp_path / "second" / "channels" / "channel" / "linux-64" / "toy-1.0-0.conda").unlink()
    with pytest.raises(BundleRejectedError, match=r"toy-1\.0-0\.conda is in the signed list, but missing"):
        import_to(tmp_path / "second", tmp_path / "far")


@pytest.mark.parametrize("name", ["bundle", "bundle.tar"])
def test_what_was_mirrored_is_what_the_far_side_gets(tmp_path: Path, name: str) -> None:
    site = exporting_site(tmp_path)
    made = site.bundle(tmp_path / name)
    assert (made.version, made.fetched_files) == (1, 2)
    assert verify(tmp_path / name, site.fingerprint).files > 2
    report = import_to(tmp_path / name, tmp_path / "far", site.fingerprint)
    channel = open_channel(tmp_path / "far" / "channels" / "channel")
    assert report.addresses == {"channel": channel.address}
    assert verify_channel(channel) == []
    assert listed(channel.path) == ["toy-1.0-0.conda", "zlib-1.0-0.conda"]
    for package in listed(channel.path):
        source = tmp_path / "channel" / "linux-64" / package
        assert (channel.path / "linux-64" / package).read_bytes() == source.read_bytes()


def test_a_complete_bundle_is_a_channel_as_it_lies_there(tmp_path: Path) -> None:
    exporting_site(tmp_path).bundle(tmp_path / "bundle")
    assert listed(tmp_path / "bundle" / "channels" / "channel") == listed(tmp_path / "channel")


def test_importing_again_changes_nothing(tmp_path: Path) -> None:
    site = exporting_site(tmp_path)
    site.bundle(tmp_path / "bundle")
    import_to(tmp_path / "bundle", tmp_path / "far", site.fingerprint)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "far" / "channels").rglob("*.json")}
    again = import_to(tmp_path / "bundle", tmp_path / "far")
    assert (again.files, again.size_bytes) == (0, 0)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "far" / "channels").rglob("*.json")} == before


def test_nothing_is_believed_without_a_fingerprint(tmp_path: Path) -> None:
    site = exporting_site(tmp_path)
    site.bundle(tmp_path / "bundle")
    with pytest.raises(UsageError, match="which keys to trust"):
        import_to(tmp_path / "bundle", tmp_path / "far")
    assert not (tmp_path / "far" / "channels").exists()


def test_a_file_here_that_has_changed_is_named_before_anything_changes(tmp_path: Path, site: ExportingSite) -> None:
    package = tmp_path / "far" / "channels" / "channel" / "linux-64" / "toy-1.0-0.conda"
    content = bytearray(package.read_bytes())
    content[50] ^= 1
    package.write_bytes(content)
    add_toys(open_channel(tmp_path / "channel"), ["more"])
    site.bundle(tmp_path / "second", plan=site.plan(since=read_since(tmp_path / "first")))
    with pytest.raises(
        IntegrityError, match=r"far/channels/channel/linux-64/toy-1\.0-0\.conda: its sha256 is"
    ) as caught:
        import_to(tmp_path / "second", tmp_path / "far")
    assert "delete it" in str(caught.value.hint)
    assert "more-1.0-0.conda" not in listed(tmp_path / "far" / "channels" / "channel")


def test_what_is_here_already_is_read_and_counted(tmp_path: Path, site: ExportingSite) -> None:
    site.bundle(tmp_path / "again")
    report = import_to(tmp_path / "again", tmp_path / "far")
    assert report.held == report.held_verified == 2
    site.bundle(tmp_path / "third")
    report = import_to(tmp_path / "third", tmp_path / "far", trust_existing=True)
    assert (report.held, report.held_verified) == (2, 0)


@pytest.mark.parametrize("name", ["root.json", "timestamp.json", "snapshot.json", "targets.json"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-9],
        lambda content: content.replace(b'"sig":"', b'"sig":"00', 1),
        lambda _content: b"{}",
        lambda _content: b"[" * 100_000,
        lambda content: content.replace(b'"version":1', b'"version":7'),
    ],
    ids=["cut", "signature", "empty", "nested", "version"],
)
def test_damage_to_what_is_trusted_is_not_blamed_on_the_bundle(
    tmp_path: Path, site: ExportingSite, name: str, damage: Callable[[bytes], bytes]
) -> None:
    file = tmp_path / "far" / ".mirror" / "trusted" / name
    file.write_bytes(damage(file.read_bytes()))
    site.bundle(tmp_path / "again")
    with pytest.raises(IntegrityError, match="this site's trusted metadata is damaged") as caught:
        import_to(tmp_path / "again", tmp_path / "far", site.fingerprint)
    assert caught.value.message.startswith(str(file))
    assert not isinstance(caught.value, BundleRejectedError)
    shutil.rmtree(file.parent)
    assert import_to(tmp_path / "again", tmp_path / "far", site.fingerprint).version == 2


def test_attestations_travel_with_their_packages(tmp_path: Path) -> None:
    site = exporting_site(tmp_path)
    keys = create_key(tmp_path / "signing", passphrase=None, days=30, now=datetime.now(UTC)).parent
    request = SignRequest(target=tmp_path / "channel", attest=AttestRequest(signing_key=keys))
    assert sign_packages(None, request) == ["linux-64/toy-1.0-0.conda"]
    site.bundle(tmp_path / "bundle")
    import_to(tmp_path / "bundle", tmp_path / "far", site.fingerprint)
    channel = open_channel(tmp_path / "far" / "channels" / "channel")
    assert verify_channel(channel) == []
    toy, zlib = verify_folder(channel.path, read_trusted_keys([keys]))
    assert toy.verified is not None
    assert "has no attestation" in str(zlib.error)
    [sidecar] = (tmp_path / "bundle" / "channels" / "channel" / "linux-64").glob("*.sigs.*")
    assert (channel.path / "linux-64" / sidecar.name).read_bytes() == sidecar.read_bytes()


@pytest.mark.parametrize("path", ["bundle.json", "channels/channel/linux-64/toy-1.0-0.conda"])
def test_a_file_here_that_has_become_huge_is_named_without_reading_it(
    tmp_path: Path, site: ExportingSite, path: str
) -> None:
    os.truncate(tmp_path / "far" / path, LARGE_BYTES)
    with pytest.raises(IntegrityError, match=rf"far/{re.escape(path)}: it has {LARGE_BYTES} bytes, but \d+ were imp"):
        import_to(tmp_path / "first", tmp_path / "far", site.fingerprint)


def test_a_list_of_targets_that_has_become_huge_is_named_without_reading_it(tmp_path: Path, made: Path) -> None:
    shutil.copytree(made / "first", tmp_path / "first")
    assert read_since(tmp_path / "first").version == 1
    os.truncate(tmp_path / "first" / "metadata" / "1.targets.json", LARGE_BYTES)
    with pytest.raises(BundleRejectedError, match=rf"metadata/1\.targets\.json has {LARGE_BYTES} bytes; at most"):
        read_since(tmp_path / "first")
