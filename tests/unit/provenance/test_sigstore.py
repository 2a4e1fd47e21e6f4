# SPDX-License-Identifier: BSD-3-Clause
"""Packages that Sigstore signed, checked here by an identity and by py-rattler; the services are our own."""

from __future__ import annotations

import asyncio
import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import rattler
from rattler.exceptions import AttestationError
from rattler.sigstore import Issuer, Publisher, TrustedRoot, VerificationPolicy, verify_attestation
from sigstore.oidc import IssuerError

from channel_tools.channel import Channel, add_set, channel_writer
from channel_tools.channel.verify import verify_channel
from channel_tools.conda.package import read_sidecar, sidecar_of, write_sidecar
from channel_tools.provenance.sigstore import failures_reported
from channel_tools.provenance.trust import TrustedIdentity, create_key, read_trusted_keys
from channel_tools.provenance.verify import verify_folder
from channel_tools.requests.attest import AttestRequest, SignRequest
from channel_tools.system.errors import ConfigError, NetworkError, UsageError, VerificationError
from channel_tools.workflow.attest import sign_packages
from tests.support.packages import make_conda, new_channel, own
from tests.support.sigstore import Sigstore, identity_token, running_sigstore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IDENTITY = "https://ci.example/ours/channel/.ci/publish"
ISSUER = "https://tokens.ci.example"
ADDRESS = "https://conda.example/ours"


@pytest.fixture(scope="module")
def sigstore() -> Iterator[Sigstore]:
    with running_sigstore() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, sigstore: Sigstore) -> Path:
    """The client's configuration, a token and a key."""
    made = tmp_path_factory.mktemp("sigstore")
    (made / "config.json").write_text(json.dumps(sigstore.client_config()))
    (made / "token").write_text(identity_token(identity=IDENTITY, issuer=ISSUER))
    create_key(made / "keys", passphrase=None, days=30, now=datetime.now(UTC))
    return made


@pytest.fixture(scope="module")
def request_(folder: Path) -> SignRequest:
    return SignRequest(
        target=Path("a package"),
        attest=AttestRequest(signing_key=folder / "keys", channel=ADDRESS),
        sigstore=True,
        identity_token_file=folder / "token",
        sigstore_config=folder / "config.json",
    )


@pytest.fixture(scope="module")
def trusted(folder: Path) -> TrustedIdentity:
    return TrustedIdentity(identity=IDENTITY, issuer=ISSUER, config=folder / "config.json")


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory, request_: SignRequest) -> Channel:
    """``toy`` and ``late``, of which a key signed ``toy`` before Sigstore signed both."""
    path = tmp_path_factory.mktemp("channel")
    made = new_channel(path)
    toy, late = (make_conda(path / "made", name, about=own(f"digest of {name}")) for name in ("toy", "late"))
    sign_packages(None, SignRequest(target=toy, attest=request_.attest))
    with channel_writer(made) as writer:
        add_set(writer, [toy, late])
    signed = sign_packages(None, replace(request_, target=made.path))
    assert signed == ["linux-64/late-1.0-0.conda", "linux-64/toy-1.0-0.conda"]
    return made


def test_what_an_identity_signed_is_verified_and_the_key_beside_it_still_counts(
    channel: Channel, request_: SignRequest, trusted: TrustedIdentity, folder: Path
) -> None:
    verdicts = verify_folder(channel.path, trusted)
    assert [one.verified.signer if one.verified else one.error for one in verdicts] == [IDENTITY, IDENTITY]
    by_key = verify_folder(channel.path, read_trusted_keys([folder / "keys"]))
    ended = [(one.verified.finished if one.verified else one.error) for one in by_key]
    assert ended == [one.verified.finished if one.verified else None for one in verdicts]
    assert verify_channel(channel) == []
    assert sign_packages(None, replace(request_, target=channel.path)) == []


def test_py_rattler_verifies_what_sigstore_signed(channel: Channel, sigstore: Sigstore) -> None:
    root = TrustedRoot.from_json(json.dumps(sigstore.trusted_root()))

    def policy(identity: str) -> VerificationPolicy:
        publisher = Publisher(identity=identity, issuer=Issuer(ISSUER))
        return VerificationPolicy.require(publisher, channel_check=rattler.sigstore.ChannelCheck.IGNORE)

    async def outcome() -> tuple[Any, str]:
        repos = await rattler.Gateway().query([rattler.Channel(channel.address)], ["linux-64"], ["toy"])
        [record] = [record for repo in repos for record in repo]
        verified = await verify_attestation(record, policy(IDENTITY), None, root)
        with pytest.raises(AttestationError) as caught:
            await verify_attestation(record, policy("https://ci.example/another"), None, root)
        return verified, str(caught.value)

    verified, refusal = asyncio.run(outcome())
    attestation = verified.attestation
    assert (attestation.identity, attestation.issuer, attestation.target_channel) == (IDENTITY, ISSUER, ADDRESS)
    assert attestation.checks.inclusion_proof
    assert "does not match the trusted publisher" in refusal


@pytest.mark.parametrize(
    ("identity", "issuer"), [("https://ci.example/another", ISSUER), (IDENTITY, "https://tokens.elsewhere.example")]
)
def test_what_another_identity_signed_does_not_count(
    channel: Channel, folder: Path, identity: str, issuer: str
) -> None:
    other = TrustedIdentity(identity=identity, issuer=issuer, config=folder / "config.json")
    late, toy = verify_folder(channel.path, other)
    assert late.verified is None
    assert f"not signed with Sigstore by {identity} (issuer {issuer})" in str(toy.error)


@pytest.mark.parametrize(
    ("found", "message"),
    [("another's", "not signed by the key [0-9a-f]{16}"), ("none", "no statement signed by the key [0-9a-f]{16}")],
)
def test_sigstore_signs_no_statement_of_others(request_: SignRequest, tmp_path: Path, found: str, message: str) -> None:
    package = make_conda(tmp_path, "toy", about=own("digest"))
    create_key(tmp_path / "another's", passphrase=None, days=30, now=datetime.now(UTC))
    sign_packages(None, SignRequest(target=package, attest=AttestRequest(signing_key=tmp_path / "another's")))
    if found == "none":
        write_sidecar(package, b"[]")
    before = read_sidecar(sidecar_of(package))
    with pytest.raises(VerificationError, match=message):
        sign_packages(None, replace(request_, target=package))
    assert read_sidecar(sidecar_of(package)) == before
    assert sign_packages(None, replace(request_, target=package, again=True)) == [package.name]


def take_payload_of(other: Path) -> Callable[[list[Any]], None]:
    def change(bundles: list[Any]) -> None:
        foreign = json.loads(read_sidecar(sidecar_of(other)))
        for mine, theirs in zip(bundles, foreign, strict=True):
            mine["dsseEnvelope"]["payload"] = theirs["dsseEnvelope"]["payload"]

    return change


def take_bundles_of(other: Path) -> Callable[[list[Any]], None]:
    return lambda bundles: bundles.__setitem__(slice(None), json.loads(read_sidecar(sidecar_of(other))))


def drop_certificates(bundles: list[Any]) -> None:
    bundles[:] = [bundle for bundle in bundles if "certificate" not in bundle["verificationMaterial"]]


def take_promises(bundles: list[Any]) -> None:
    for bundle in bundles:
        for entry in bundle["verificationMaterial"].get("tlogEntries", []):
            entry["integratedTime"] = str(int(entry["integratedTime"]) + 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (take_payload_of, "the first bundle: DSSE: invalid signature"),
        (take_bundles_of, "attests another package, 'late-1.0-0.conda'"),
        (lambda _other: drop_certificates, r"not signed with Sigstore by .*\)$"),
        (lambda _other: take_promises, "not signed with Sigstore by .*; the first bundle: "),
    ],
    ids=["another payload", "of another package", "keys alone", "another time in the log"],
)
def test_an_attestation_that_was_changed_does_not_count(
    tmp_path: Path,
    channel: Channel,
    trusted: TrustedIdentity,
    change: Callable[[Path], Callable[[list[Any]], None]],
    message: str,
) -> None:
    toy, late = (channel.path / "linux-64" / f"{name}-1.0-0.conda" for name in ("toy", "late"))
    copy = tmp_path / toy.name
    copy.write_bytes(toy.read_bytes())
    bundles = json.loads(read_sidecar(sidecar_of(toy)))
    change(late)(bundles)
    write_sidecar(copy, json.dumps(bundles).encode())
    (verdict,) = verify_folder(copy, trusted)
    assert verdict.verified is None
    assert re.search(message, str(verdict.error))


def test_who_cannot_sign_is_told_why(
    tmp_path: Path, folder: Path, sigstore: Sigstore, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_conda(tmp_path / "made", "toy", about=own("digest"))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    for name in ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "CIRCLECI"):
        monkeypatch.delenv(name, raising=False)

    attest, config = AttestRequest(signing_key=folder / "keys"), folder / "config.json"
    request = SignRequest(target=package, attest=attest, sigstore=True, sigstore_config=config)

    def sign(token: Path | None = None, *, config: Path = config) -> list[str]:
        return sign_packages(None, replace(request, identity_token_file=token, sigstore_config=config))

    with pytest.raises(UsageError, match="no identity to sign as: no CI service"):
        sign()
    for content, why in ((b"no token", "Identity token is malformed"), (b"\xff", "can't decode byte 0xff")):
        (tmp_path / "token").write_bytes(content)
        with pytest.raises(UsageError, match=f"token: not a valid identity token at this time: .*{why}"):
            sign(tmp_path / "token")
    with pytest.raises(FileNotFoundError):
        sign(tmp_path / "no token")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="not a valid Sigstore client configuration"):
        sign(folder / "token", config=tmp_path / "config.json")
    away = (folder / "config.json").read_text().replace(sigstore.url, "http://127.0.0.1:9")
    (tmp_path / "config.json").write_text(away)
    with pytest.raises(NetworkError, match="Sigstore: "):
        sign(folder / "token", config=tmp_path / "config.json")
    assert not sidecar_of(package).exists()


def test_a_defect_is_no_failure_of_a_service() -> None:
    with pytest.raises(AttributeError), failures_reported("Sigstore"):
        raise AttributeError("a name that is not there")
    for fault in (ConnectionError("refused"), ValueError("no JSON"), IssuerError("no address to log in at")):
        with pytest.raises(NetworkError, match=r"Sigstore: .*(refused|no JSON|log in)"), failures_reported("Sigstore"):
            raise fault
