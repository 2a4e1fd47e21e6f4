# SPDX-License-Identifier: BSD-3-Clause
"""Only packages that a trusted key signed are installed; py-rattler reads the same attestations."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
import rattler
from rattler.exceptions import AttestationError
from rattler.sigstore import TrustedRoot, VerificationPolicy, verify_attestation

from channel_tools.channel import Channel, add_set, channel_writer
from channel_tools.environments import create_environment
from channel_tools.environments.state import read_state
from channel_tools.provenance.trust import TrustedKey, create_key, read_trusted_keys
from channel_tools.provenance.verify import attestation_check, fetch_attestations, verify_address, verify_folder
from channel_tools.requests.attest import AttestRequest, SignRequest
from channel_tools.system.errors import IntegrityError, UsageError, VerificationError
from channel_tools.system.progress import SilentProgress
from channel_tools.workflow.attest import sign_packages
from tests.support.packages import make_conda, new_channel, own
from tests.unit.environments.toychannel import move_packages, served

AUTHORIZATION = "Bearer abc"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> list[TrustedKey]:
    folder = tmp_path_factory.mktemp("keys") / "own"
    create_key(folder, passphrase=None, days=30, now=datetime.now(UTC))
    return read_trusted_keys([folder])


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Channel:
    """``toy`` and ``late``, of which ``toy`` alone is attested, by a key in ``keys`` beside the channel."""
    folder = tmp_path_factory.mktemp("channel")
    create_key(folder / "keys", passphrase=None, days=30, now=datetime.now(UTC))
    made = new_channel(folder)
    toy, late = (make_conda(folder / "made", name, about=own(f"digest of {name}")) for name in ("toy", "late"))
    sign_packages(None, SignRequest(target=toy, attest=AttestRequest(signing_key=folder / "keys")))
    with channel_writer(made) as writer:
        add_set(writer, [toy, late])
    return made


@pytest.fixture(scope="module")
def trusted(channel: Channel) -> list[TrustedKey]:
    return read_trusted_keys([channel.path.parent / "keys"])


def install(tmp_path: Path, address: str, specs: list[str], keys: list[TrustedKey]) -> list[str]:
    result = asyncio.run(
        create_environment(
            tmp_path / "env",
            specs,
            [address],
            package_cache=tmp_path / "pkgs",
            subdir="linux-64",
            progress=SilentProgress(),
            virtual_packages=(),
            check=attestation_check(keys, [address], {}),
        )
    )
    return [record.name for record in result.records]


def test_an_attested_package_is_installed_with_a_token(
    tmp_path: Path, channel: Channel, trusted: list[TrustedKey]
) -> None:
    with served(channel.path, authorization=AUTHORIZATION) as address:
        host = address.removeprefix("http://")
        assert install(tmp_path, f"http://{host}/t/abc", ["toy"], trusted) == ["toy"]


def test_a_package_without_attestation_is_not_installed(
    tmp_path: Path, channel: Channel, trusted: list[TrustedKey]
) -> None:
    with pytest.raises(VerificationError, match=r"late-1\.0-0\.conda: has no attestation at file:.*\.sigs$"):
        install(tmp_path, channel.address, ["toy", "late"], trusted)
    assert not list((tmp_path / "pkgs").glob("*-1.0-0"))
    assert not list((tmp_path / "env" / "conda-meta").glob("*.json"))


def test_packages_of_an_unknown_key_are_not_installed(tmp_path: Path, channel: Channel, keys: list[TrustedKey]) -> None:
    with pytest.raises(VerificationError, match="2 of 2 packages are not verified"):
        install(tmp_path, channel.address, ["toy", "late"], keys)


def test_a_channel_at_an_address_is_checked_by_what_it_lists(channel: Channel, trusted: list[TrustedKey]) -> None:
    with served(channel.path, authorization=AUTHORIZATION) as address:
        with_token = f"{address}/t/abc"
        late, toy = verify_address(with_token, trusted, {})
        (alone,) = verify_address(f"{with_token}/linux-64/toy-1.0-0.conda", trusted, {})
        with pytest.raises(UsageError, match=r"/linux-64/other-1\.0-0\.conda: no \.conda file is listed there"):
            verify_address(f"{with_token}/linux-64/other-1.0-0.conda", trusted, {})
    assert (toy.package, toy.error) == ("linux-64/toy-1.0-0.conda", None)
    assert alone == toy
    assert late.verified is None
    assert re.search(r"late-1\.0-0\.conda: has no attestation at http://[^/]+/linux-64/late", str(late.error))


def test_attestations_are_looked_for_beside_the_package_not_beside_the_index(
    tmp_path: Path, channel: Channel, trusted: list[TrustedKey]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(channel.path, copy)
    for name in ("repodata_shards.msgpack.zst", "repodata.json.zst"):
        (copy / "linux-64" / name).unlink()
    move_packages(copy, "../files/SUBDIR/", copy / "files")
    with served(copy, authorization=AUTHORIZATION) as address:
        given = f"{address}/t/abc"
        verdicts = {one.package: one for one in verify_address(given, trusted, {})}
        assert install(tmp_path, f"{address}/t/abc", ["toy"], trusted) == ["toy"]
    assert verdicts["linux-64/toy-1.0-0.conda"].verified is not None
    assert "files/linux-64/late-1.0-0.conda.sigs" in str(verdicts["linux-64/late-1.0-0.conda"].error)


def test_an_attestation_of_other_bytes_than_a_channel_lists_is_found(
    tmp_path: Path, channel: Channel, trusted: list[TrustedKey]
) -> None:
    copy = shutil.copytree(channel.path, tmp_path / "copy")
    index = copy / "linux-64" / "repodata.json"
    stated = json.loads(index.read_bytes())
    stated["packages.conda"]["toy-1.0-0.conda"]["sha256"] = "0" * 64
    stated["packages"] = {"old-1.0-0.tar.bz2": {"name": "old", "sha256": "0" * 64}}
    index.write_text(json.dumps(stated))
    (copy / "linux-64" / "old-1.0-0.tar.bz2").touch()
    verdicts = {one.package: one for one in verify_address(copy.as_uri(), trusted, {})}
    assert "it is for another build with this name" in str(verdicts["linux-64/toy-1.0-0.conda"].error)
    for found in (verdicts.values(), verify_folder(copy, trusted)):
        (old,) = (one for one in found if one.package == "linux-64/old-1.0-0.tar.bz2")
        assert "has no attestation" in str(old.error)


def test_what_an_environments_channels_list_of_its_packages_is_fetched(
    tmp_path: Path, channel: Channel, trusted: list[TrustedKey]
) -> None:
    copy = shutil.copytree(channel.path, tmp_path / "copy")
    with served(copy, authorization=AUTHORIZATION) as address:
        given = f"{address}/t/abc"
        install(tmp_path, given, ["toy"], trusted)
        records = read_state(tmp_path / "env").records
        found = fetch_attestations(records, [given], {})
        sigs = copy / "linux-64" / "toy-1.0-0.conda.sigs"
        assert found == {"toy-1.0-0.conda.sigs": sigs.read_bytes()}
        listed = sigs.with_name(f"{sigs.name}.{hashlib.sha256(sigs.read_bytes()).hexdigest()}")
        listed.write_bytes(b"[]")
        with pytest.raises(IntegrityError, match=r"toy-1\.0-0\.conda\.sigs\..*: has sha256"):
            fetch_attestations(records, [given], {})
        listed.unlink()
        with pytest.raises(VerificationError, match=r"toy-1\.0-0\.conda: its attestations are no more at http://"):
            fetch_attestations(records, [given], {})


def test_without_trust_nothing_is_checked() -> None:
    assert attestation_check(None, [], {}) is None


def test_py_rattler_finds_the_attestations_and_counts_a_keys_signature_as_none(channel: Channel) -> None:
    async def outcome() -> tuple[list[str], str]:
        records = await rattler.Gateway().query([rattler.Channel(channel.address)], ["linux-64"], ["toy"])
        [record] = [record for repo in records for record in repo]
        root = TrustedRoot.embedded()
        warned = await verify_attestation(record, VerificationPolicy.warn(), None, root)
        with pytest.raises(AttestationError) as caught:
            await verify_attestation(record, VerificationPolicy.require(), None, root)
        return warned.warnings, str(caught.value)

    [warning], refusal = asyncio.run(outcome())
    for said in (warning, refusal):
        assert "toy-1.0-0.conda passed verification" in said
        assert "bundle 1: sigstore verification failed" in said
        assert "inclusion proof" in said
