# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.system.errors import UsageError
from channel_tools.system.keys import load_key, new_key, read_passphrase


def test_a_key_is_its_owners_alone_and_read_again_with_its_passphrase(tmp_path: Path) -> None:
    made = new_key(tmp_path / "keys", "test", b"secret")
    (path,) = (tmp_path / "keys").iterdir()
    assert path.name == f"test-{made.public_key.keyid[:16]}.pem"
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_key(path, b"secret").public_key.keyid == made.public_key.keyid
    for passphrase in (None, b"another"):
        with pytest.raises(UsageError, match=str(path)):
            load_key(path, passphrase)


def test_a_file_without_a_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_text("no key")
    with pytest.raises(UsageError, match=str(path)):
        load_key(path, None)


def test_a_passphrase_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "passphrase"
    path.write_text("secret words\nnot this\n")
    assert read_passphrase(path) == b"secret words"
    assert read_passphrase(None) is None
    path.write_text("\n")
    with pytest.raises(UsageError, match="its first line is empty"):
        read_passphrase(path)
