# SPDX-License-Identifier: BSD-3-Clause
"""The key folder: who may sign, where secrets lie, and how keys change hands."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from channel_tools.mirror.keys import (
    KeyFolder,
    Rotation,
    create_keys,
    open_signing,
    rotate_keys,
    show_keys,
    sign_pending,
    signing_keys,
)
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.keys import load_key
from tests.unit.mirror.bundles import exporting_site, import_to, new_keys, verify

NOW = datetime.now(UTC)
PASSPHRASE = b"correct horse"


def root_files(keys: KeyFolder) -> list[Path]:
    return sorted(keys.private.glob("root-*.pem"))


def test_private_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    keys = new_keys(tmp_path / "keys", root_keys=2, threshold=2)
    files = list(keys.private.iterdir())
    assert len(files) == 5
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (keys.path, keys.private)} == {0o700}


def test_keys_are_encrypted_with_a_passphrase(tmp_path: Path) -> None:
    keys = new_keys(tmp_path / "keys", passphrase=PASSPHRASE)
    [path] = root_files(keys)
    assert b"ENCRYPTED" in path.read_bytes()
    assert load_key(path, PASSPHRASE).public_key.keyid in keys.root().signed.keys
    with pytest.raises(UsageError, match="passphrase is wrong"):
        load_key(path, b"guess")
    with pytest.raises(UsageError, match="no passphrase was given"):
        load_key(path, None)
    with pytest.raises(UsageError, match="passphrase"):
        signing_keys(keys, passphrase=None)


def test_nothing_is_fetched_or_written_with_a_wrong_passphrase(tmp_path: Path) -> None:
    site = exporting_site(tmp_path, keys=new_keys(tmp_path / "keys", passphrase=PASSPHRASE))
    with pytest.raises(UsageError, match="passphrase is wrong") as caught:
        site.signing(passphrase=b"guess")
    assert "guess" not in f"{caught.value}{caught.value.hint}"
    assert site.keys.settings().issued == 0


def test_days_that_no_date_has_room_for_change_nothing(tmp_path: Path) -> None:
    keys = new_keys(tmp_path / "keys")
    before = keys.settings()
    for role, days in (("root", 2**31), ("targets", 3_000_000)):
        rotation = Rotation(expiry_days={role: days})  # type: ignore[dict-item]
        with pytest.raises(UsageError, match=f"{days} days"):
            rotate_keys(keys, rotation, root_files=root_files(keys), passphrase=None, now=NOW)
    with pytest.raises(UsageError, match="after the year 9999"):
        open_signing(keys, passphrase=None, expires_days=10**30, now=NOW)
    assert keys.settings() == before
    assert not keys.pending.exists()
    with pytest.raises(UsageError, match="after the year 9999"):
        create_keys(
            tmp_path / "new", root_keys=1, threshold=1, expiry_days={"timestamp": 2**31}, passphrase=None, now=NOW
        )
    assert not (tmp_path / "new").exists()


def test_more_root_keys_than_anybody_signs_with_are_an_error_at_once(tmp_path: Path) -> None:
    keys = new_keys(tmp_path / "keys")
    with pytest.raises(UsageError, match="are too many; expected at most 100"):
        create_keys(tmp_path / "new", root_keys=2**31, threshold=1, expiry_days={}, passphrase=None, now=NOW)
    before = keys.settings()
    rotation = Rotation(roles=("root",), root_keys=2**31, expiry_days={"root": 30})
    with pytest.raises(UsageError, match="are too many; expected at most 100"):
        rotate_keys(keys, rotation, root_files=root_files(keys), passphrase=None, now=NOW)
    assert keys.settings() == before
    assert list(tmp_path.iterdir()) == [keys.path]


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN PRIVATE KEY-----\nxx\n-----END PRIVATE KEY-----\n"])
def test_a_file_that_is_no_key(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key.pem").write_bytes(content)
    with pytest.raises(UsageError, match=r"key\.pem"):
        load_key(tmp_path / "key.pem", None)


def test_keys_are_never_overwritten(tmp_path: Path) -> None:
    new_keys(tmp_path / "keys")
    with pytest.raises(UsageError, match="never overwritten"):
        new_keys(tmp_path / "keys")


@pytest.mark.parametrize(("count", "threshold"), [(1, 2), (2, 0), (0, 0)])
def test_a_threshold_that_cannot_be_met(tmp_path: Path, count: int, threshold: int) -> None:
    with pytest.raises(UsageError, match="threshold cannot be"):
        new_keys(tmp_path / "keys", root_keys=count, threshold=threshold)
    assert list(tmp_path.iterdir()) == []


def test_no_number_is_given_twice(tmp_path: Path) -> None:
    keys = new_keys(tmp_path / "keys")
    assert [keys.take_version() for _ in range(3)] == [1, 2, 3]


def test_root_keys_may_be_anywhere_else(tmp_path: Path) -> None:
    keys = new_keys(tmp_path / "keys", root_keys=2, threshold=2)
    (tmp_path / "stick").mkdir()
    moved = [path.rename(tmp_path / "stick" / path.name) for path in root_files(keys)]
    site = exporting_site(tmp_path, keys=keys)
    site.bundle(tmp_path / "bundle")
    verify(tmp_path / "bundle", site.fingerprint)
    assert rotate_keys(keys, Rotation(), root_files=moved, passphrase=None, now=NOW).version == 2


def test_several_people_sign_one_after_the_other(tmp_path: Path) -> None:
    keys = new_keys(tmp_path / "keys", root_keys=3, threshold=2)
    one, other, _third = root_files(keys)
    site = exporting_site(tmp_path, keys=keys)
    site.bundle(tmp_path / "first")
    import_to(tmp_path / "first", tmp_path / "far", site.fingerprint)
    state = rotate_keys(keys, Rotation(roles=("snapshot",)), root_files=[one], passphrase=None, now=NOW)
    assert (state.version, state.pending) == (
        1,
        "1 of 2 signatures by the current root keys, 1 of 2 signatures by the new root keys",
    )
    with pytest.raises(UsageError, match="still waiting for signatures"):
        rotate_keys(keys, Rotation(), root_files=[one], passphrase=None, now=NOW)
    assert sign_pending(keys, root_files=[one], passphrase=None).version == 1
    assert sign_pending(keys, root_files=[other], passphrase=None).version == 2
    with pytest.raises(UsageError, match="no root metadata is waiting"):
        sign_pending(keys, root_files=[other], passphrase=None)
    site.bundle(tmp_path / "second")
    assert import_to(tmp_path / "second", tmp_path / "far").version == 2


def test_new_root_keys_need_the_old_ones_and_the_new_ones(tmp_path: Path) -> None:
    keys = new_keys(tmp_path / "keys")
    old = root_files(keys)
    site = exporting_site(tmp_path, keys=keys)
    site.bundle(tmp_path / "first")
    import_to(tmp_path / "first", tmp_path / "far", site.fingerprint)
    rotation = Rotation(roles=("root",), root_keys=3, threshold=2)
    state = rotate_keys(keys, rotation, root_files=old, passphrase=None, now=NOW)
    assert state.pending == "0 of 2 signatures by the new root keys"
    new = [path for path in root_files(keys) if path not in old]
    assert len(new) == 3
    sign_pending(keys, root_files=[new[0]], passphrase=None)
    state = sign_pending(keys, root_files=[new[2]], passphrase=None)
    assert (state.version, state.threshold, state.pending) == (2, 2, None)
    assert state.first_fingerprint == site.fingerprint != state.fingerprint
    site.bundle(tmp_path / "second")
    assert import_to(tmp_path / "second", tmp_path / "far").version == 2
    assert verify(tmp_path / "second", state.fingerprint).bundle.root_version == 2
    assert verify(tmp_path / "second", state.first_fingerprint).bundle.root_version == 2


def test_a_strangers_key_is_refused(tmp_path: Path) -> None:
    keys, stranger = new_keys(tmp_path / "keys"), new_keys(tmp_path / "stranger")
    with pytest.raises(UsageError, match="neither a current nor a new root key"):
        rotate_keys(keys, Rotation(), root_files=root_files(stranger), passphrase=None, now=NOW)
    assert show_keys(keys).version == 1


def test_expiry_is_a_setting(tmp_path: Path) -> None:
    keys = create_keys(
        tmp_path / "keys",
        root_keys=1,
        threshold=1,
        expiry_days={"targets": 10, "root": 20},
        passphrase=None,
        now=NOW,
    )
    assert keys.settings().expiry_days == {"root": 20, "targets": 10, "snapshot": 180, "timestamp": 180}
    rotate_keys(keys, Rotation(expiry_days={"targets": 30}), root_files=(), passphrase=None, now=NOW)
    assert keys.settings().expiry_days["targets"] == 30


def test_what_the_folder_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a key folder"):
        KeyFolder(path=tmp_path / "nothing").root()
    keys = new_keys(tmp_path / "keys")
    next(keys.private.glob("snapshot-*.pem")).unlink()
    with pytest.raises(UsageError, match="0 of the 1 required snapshot keys"):
        signing_keys(keys, passphrase=None)
    rotate_keys(keys, Rotation(roles=("snapshot",)), root_files=(), passphrase=None, now=NOW)
    assert set(signing_keys(keys, passphrase=None)) == {"targets", "snapshot", "timestamp"}
    (keys.metadata / "1.root.json").unlink()
    with pytest.raises(ConfigError, match="has the versions 2"):
        keys.root()
    (keys.path / "keys.json").write_text(json.dumps({"schema": 2, "expiry_days": {}}))
    with pytest.raises(ConfigError, match="has schema 2"):
        keys.settings()
