# SPDX-License-Identifier: BSD-3-Clause
"""Statements of packages, signed and checked; securesystemslib's own DSSE verification is the other side."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError as BadSignatureError

from channel_tools.channel import add_set, channel_writer, index_channel, verify_channel
from channel_tools.conda.archive import read_package
from channel_tools.conda.package import hashed_name, remove_sidecars, sidecar_of, write_sidecar
from channel_tools.provenance.attestations import PAYLOAD_TYPE, Verified, signed_sidecar, verify_sidecar
from channel_tools.provenance.statements import Built, Run, Subject, provenance_statement, publish_statement
from channel_tools.provenance.trust import TrustedKey, create_key, open_signer, read_trusted_keys
from channel_tools.provenance.verify import verify_folder
from channel_tools.requests.attest import AttestRequest, SignRequest
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import ChannelToolsError, ConfigError, IntegrityError, UsageError, VerificationError
from channel_tools.system.files import sha256_of_file
from channel_tools.workflow.attest import sign_packages
from tests.support.packages import make_conda, new_channel

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
SHA256 = "ab" * 32
SUBJECT = Subject(file_name="toy-1.0-h1_0.conda", sha256=SHA256)
KEY = {
    "schema": 1,
    "keyid": "a",
    "keytype": "ed25519",
    "scheme": "ed25519",
    "keyval": {"public": "ab" * 32},
    "valid_from": "2026-01-01T00:00:00Z",
    "expires": "2027-01-01T00:00:00Z",
}
RECORDED = {
    "digest": "cd" * 32,
    "inputs": {
        "file:build.sh": f"{'1' * 64} executable",
        "foundation:host/zlib": f"1.3 h0_0 {'2' * 64}",
        "package:libtoy": "3" * 64,
        "recipe:about": "4" * 64,
        "variant:python": "3.11",
    },
    "sources": [
        {"url": ["https://upstream.example/toy.tar.gz"], "sha256": "5" * 64},
        {"git": ["https://upstream.example/toy.git"], "rev": "6" * 40},
    ],
}
BUILT = Built(subject=SUBJECT, name="toy", version="1.0", subdir="linux-64", recorded=RECORDED, variant={"a": "b"})
RUN = Run(command=("channel_tools", "build"), tools={"engine": "1"}, finished=NOW)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys") / "builder"
    create_key(folder, passphrase=None, days=365, now=NOW)
    return folder


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys") / "stranger"
    create_key(folder, passphrase=None, days=365, now=NOW)
    return folder


def sidecar(folder: Path, *, built: Built = BUILT, finished: datetime = NOW) -> bytes:
    signer = open_signer(folder, passphrase=None)
    run = replace(RUN, finished=finished)
    return signed_sidecar([provenance_statement(built, run), publish_statement(built.subject)], signer)


def check(content: bytes, folder: Path, *, subject: Subject = SUBJECT, now: datetime = NOW) -> Verified:
    return verify_sidecar(content, subject, read_trusted_keys([folder]), now=now, where="toy.sigs")


def test_securesystemslib_verifies_the_envelopes(keys: Path, strangers: Path) -> None:
    [ours], [theirs] = read_trusted_keys([keys]), read_trusted_keys([strangers])
    for bundle in json.loads(sidecar(keys)):
        envelope = Envelope.from_dict(bundle["dsseEnvelope"])
        assert envelope.payload_type == PAYLOAD_TYPE
        assert list(envelope.verify([ours.key], 1)) == [ours.key.keyid]
        with pytest.raises(BadSignatureError):
            envelope.verify([theirs.key], 1)


def test_a_trusted_keys_attestation_of_these_bytes_is_verified(keys: Path) -> None:
    [key] = read_trusted_keys([keys])
    assert check(sidecar(keys), keys) == Verified(signer=key.key.keyid, finished=NOW)


def test_the_statement_says_what_went_into_the_build() -> None:
    statement: Any = provenance_statement(BUILT, RUN)
    definition = statement["predicate"]["buildDefinition"]
    assert statement["subject"] == [{"name": SUBJECT.file_name, "digest": {"sha256": SHA256}}]
    assert definition["internalParameters"] == {"digest": "cd" * 32}
    assert definition["externalParameters"]["recipe"] == {"about": "4" * 64}
    assert definition["externalParameters"]["command"] == ["channel_tools", "build"]
    assert [(row["uri"], row.get("digest")) for row in definition["resolvedDependencies"]] == [
        ("https://upstream.example/toy.tar.gz", {"sha256": "5" * 64}),
        (f"git+https://upstream.example/toy.git@{'6' * 40}", {"gitCommit": "6" * 40}),
        ("file:build.sh", {"sha256": "1" * 64}),
        ("pkg:conda/zlib@1.3?build=h0_0", {"sha256": "2" * 64}),
        ("pkg:conda/libtoy", None),
    ]
    assert statement["predicate"]["runDetails"]["metadata"] == {"finishedOn": "2026-05-01T12:00:00Z"}


def test_a_foundations_package_names_the_wheel_and_debian_package_that_it_was_made_of() -> None:
    taken = [
        {"kind": "wheel", "name": "torch", "version": "2.13.0+cpu", "sha256": "1" * 64},
        {"kind": "deb", "name": "zlib1g", "version": "1:1.2.13", "sha256": "2" * 64},
    ]
    statement: Any = provenance_statement(replace(BUILT, recorded={"digest": "d", "taken": taken}), RUN)
    definition = statement["predicate"]["buildDefinition"]
    assert [row["uri"] for row in definition["resolvedDependencies"]] == [
        "pkg:pypi/torch@2.13.0%2Bcpu",
        "pkg:deb/debian/zlib1g@1%3A1.2.13",
    ]


def test_a_channel_is_named_as_cep_27_has_it() -> None:
    statement = publish_statement(SUBJECT, channel="https://channel.example/main/")
    assert statement["predicate"] == {"targetChannel": "https://channel.example/main"}
    assert publish_statement(SUBJECT)["predicate"] is None


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (replace(SUBJECT, file_name="other-1.0-h1_0.conda"), "attests another package, 'toy-1.0-h1_0.conda'"),
        (replace(SUBJECT, sha256="0" * 64), "it is for another build with this name"),
    ],
    ids=["another package", "an older file"],
)
def test_an_attestation_of_something_else_is_refused(subject: Subject, message: str, keys: Path) -> None:
    with pytest.raises(VerificationError, match=message):
        check(sidecar(keys), keys, subject=subject)


def test_an_unknown_key_is_named_beside_those_that_are_trusted(keys: Path, strangers: Path) -> None:
    [key] = read_trusted_keys([keys])
    with pytest.raises(VerificationError, match=f"'{key.short}', which is not trusted"):
        check(sidecar(keys), strangers)


def test_a_strangers_statement_beside_ours_changes_nothing(keys: Path, strangers: Path) -> None:
    foreign = json.loads(sidecar(strangers, built=replace(BUILT, subject=replace(SUBJECT, sha256="0" * 64))))
    assert check(json.dumps([*foreign, *json.loads(sidecar(keys))]).encode(), keys).finished == NOW


@pytest.mark.parametrize(
    ("finished", "now", "message"),
    [
        (NOW + timedelta(days=1), NOW, "but the time here is 2026-05-01T12:00:00Z"),
        (NOW + timedelta(days=400), NOW + timedelta(days=500), "is valid from 2026-05-01"),
        (NOW - timedelta(days=1), NOW, "is valid from 2026-05-01"),
    ],
    ids=["a clock is wrong", "the key had expired", "before the key was made"],
)
def test_times_that_do_not_fit_are_refused(finished: datetime, now: datetime, message: str, keys: Path) -> None:
    with pytest.raises(VerificationError, match=message):
        check(sidecar(keys, finished=finished), keys, now=now)


def test_an_attestation_outlives_its_key(keys: Path) -> None:
    assert check(sidecar(keys), keys, now=NOW + timedelta(days=4000)).finished == NOW


def changed(change: Callable[[Any], None]) -> Callable[[bytes], bytes]:
    def apply(content: bytes) -> bytes:
        bundles = json.loads(content)
        change(bundles)
        return json.dumps(bundles).encode()

    return apply


def set_payload(bundles: list[dict[str, Any]]) -> None:
    payload = json.loads(base64.b64decode(bundles[0]["dsseEnvelope"]["payload"]))
    payload["subject"][0]["name"] = "evil-1.0-0.conda"
    bundles[0]["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda _content: b"<html>", IntegrityError, "not a file of attestations"),
        (lambda _content: b"[]", VerificationError, "signed by a trusted key"),
        (lambda _content: b'[{"verificationMaterial":{}}]', VerificationError, "signed by a trusted key"),
        (changed(lambda bundles: bundles.pop(0)), VerificationError, "signed by a trusted key"),
        (changed(set_payload), VerificationError, "signature by the key .* is invalid"),
        (
            changed(lambda bundles: bundles[0]["dsseEnvelope"].update(payloadType="text/html")),
            IntegrityError,
            "payload has type 'text/html'",
        ),
        (
            changed(lambda bundles: bundles[0]["dsseEnvelope"].update(payload="<b>")),
            IntegrityError,
            "not a valid signed envelope",
        ),
        (
            changed(lambda bundles: bundles[0]["dsseEnvelope"]["signatures"][0].update(sig="")),
            VerificationError,
            "signature by the key .* is invalid",
        ),
    ],
    ids=["a page", "none", "no envelope", "published only", "changed", "another type", "no base64", "no signature"],
)
def test_a_damaged_file_is_one_error(
    damage: Callable[[bytes], bytes], error: type[ChannelToolsError], message: str, keys: Path
) -> None:
    with pytest.raises(error, match=message):
        check(damage(sidecar(keys)), keys)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"-----BEGIN PRIVATE KEY-----", "not a valid public key"),
        (b"{}", "not a valid public key"),
        (json.dumps(KEY | {"schema": 9}).encode(), "has schema 9"),
        (json.dumps(KEY | {"keyval": {"public": "ab cd"}}).encode(), "not 64 hexadecimal digits"),
    ],
    ids=["the private one", "nothing", "a later schema", "cut short"],
)
def test_what_is_not_a_public_key_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "key.json").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_trusted_keys([tmp_path])


def test_keys_are_never_overwritten_and_private(keys: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="already exists"):
        create_key(keys, passphrase=None, days=1, now=NOW)
    with pytest.raises(UsageError, match="beyond the last date"):
        create_key(tmp_path / "new", passphrase=None, days=10**9, now=NOW)
    assert {path.stat().st_mode & 0o077 for path in (keys, *keys.glob("*.pem"))} == {0}
    trusted: TrustedKey = read_trusted_keys([keys])[0]
    assert (trusted.valid_from, trusted.expires) == (NOW, NOW + timedelta(days=365))


def test_a_channels_packages_are_signed_afterwards_and_its_index_says_where(tmp_path: Path, keys: Path) -> None:
    about: dict[str, object] = {"extra": {"channel_tools": RECORDED}}
    package = make_conda(tmp_path / "made", "toy", about=about)
    channel = new_channel(tmp_path)
    with channel_writer(channel) as writer:
        add_set(writer, [package])
    request = AttestRequest(signing_key=keys)
    assert sign_packages(None, SignRequest(target=channel.path, attest=request)) == ["linux-64/toy-1.0-0.conda"]
    assert sign_packages(None, SignRequest(target=channel.path, attest=request)) == []
    there = channel.path / "linux-64" / package.name
    record = json.loads((there.parent / "repodata.json").read_bytes())["packages.conda"][there.name]
    assert record["attestations_sha256"] == sha256_of_file(sidecar_of(there))
    assert (there.parent / hashed_name(there.name, record["attestations_sha256"])).is_file()
    assert verify_channel(channel) == []
    [verdict] = verify_folder(channel.path, read_trusted_keys([keys]))
    assert verdict.verified is not None


def test_an_index_names_what_a_killed_command_signed_and_not_what_is_gone(tmp_path: Path) -> None:
    about: dict[str, object] = {"extra": {"channel_tools": RECORDED}}
    channel = new_channel(tmp_path)
    with channel_writer(channel) as writer:
        add_set(writer, [make_conda(tmp_path / "made", "toy", about=about)])
    there = channel.path / "linux-64" / "toy-1.0-0.conda"
    write_sidecar(there, b"[]")
    for is_attested in (True, False):
        assert verify_channel(channel) != []
        with channel_writer(channel) as writer:
            assert index_channel(writer).written
            assert not index_channel(writer).written
        assert verify_channel(channel) == []
        assert (b"attestations_sha256" in (there.parent / "repodata.json").read_bytes()) is is_attested
        remove_sidecars(Beneath(root=there.parent), there.name)


def test_a_channel_is_signed_around_packages_that_its_index_does_not_know(tmp_path: Path, keys: Path) -> None:
    about: dict[str, object] = {"extra": {"channel_tools": RECORDED}}
    channel = new_channel(tmp_path)
    for name in ("copied", "damaged"):
        make_conda(channel.path, name, about=about)
    damaged = channel.path / "linux-64" / "damaged-1.0-0.conda"
    damaged.write_bytes(b"PK")
    with pytest.raises(IntegrityError, match="damaged-1"):
        sign_packages(None, SignRequest(target=channel.path, attest=AttestRequest(signing_key=keys)))
    damaged.unlink()
    assert sign_packages(None, SignRequest(target=channel.path, attest=AttestRequest(signing_key=keys))) == []
    assert verify_channel(channel) == []
    assert [verdict.error for verdict in verify_folder(channel.path, read_trusted_keys([keys]))] == [None]


def test_attestations_come_into_a_channel_with_their_package(tmp_path: Path, keys: Path) -> None:
    package = make_conda(tmp_path / "made", "toy", about={"extra": {"channel_tools": RECORDED}})
    sign_packages(None, SignRequest(target=package, attest=AttestRequest(signing_key=keys)))
    channel = new_channel(tmp_path)
    write_sidecar(channel.path / "linux-64" / package.name, b"left by a killed writer")
    with channel_writer(channel) as writer:
        add_set(writer, [package])
    there = channel.path / "linux-64" / package.name
    assert sidecar_of(there).read_bytes() == sidecar_of(package).read_bytes()
    [verdict] = verify_folder(there, read_trusted_keys([keys]))
    assert verdict.error is None
    assert verify_channel(channel) == []


def test_attestations_follow_a_package_that_was_there_before_them(tmp_path: Path, keys: Path) -> None:
    package = make_conda(tmp_path / "made", "toy", about={"extra": {"channel_tools": RECORDED}})
    channel = new_channel(tmp_path)
    with channel_writer(channel) as writer:
        add_set(writer, [package])
    sign_packages(None, SignRequest(target=package, attest=AttestRequest(signing_key=keys)))
    with channel_writer(channel) as writer:
        assert add_set(writer, [package]).written
        assert not add_set(writer, [package]).written
    [verdict] = verify_folder(channel.path, read_trusted_keys([keys]))
    assert verdict.error is None
    assert verify_channel(channel) == []


def test_a_package_without_attestation_or_origin_is_named(tmp_path: Path, keys: Path) -> None:
    package = make_conda(tmp_path, "toy")
    [verdict] = verify_folder(package, read_trusted_keys([keys]))
    assert "has no attestation" in str(verdict.error)
    with pytest.raises(UsageError, match="was not built by channel_tools"):
        sign_packages(None, SignRequest(target=package, attest=AttestRequest(signing_key=keys)))
    assert Built.of(package.name, read_package(package, contents=False)).recorded == {}
