# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.errors import ConfigError
from channel_tools.publish.lockfiles import read_locked_names

SHA256 = "ab" * 32
MD5 = "cd" * 16
LOCKS = {
    "conda-lock.yml": f"""\
version: 1
package:
- name: toy
  version: '1.0'
  url: https://host/t/x/linux-64/toy-1.0-udp_h1_0.conda
  hash: {{md5: {MD5}, sha256: {SHA256}}}
""",
    "pixi.lock": f"""\
packages:
- conda: https://host/channel/linux-64/toy-1.0-udp_h1_0.conda
  sha256: {SHA256}
  md5: {MD5}
""",
    "explicit.txt": f"@EXPLICIT\nhttps://host/linux-64/toy-1.0-udp_h1_0.conda#{MD5}\n# {SHA256}\n",
    "escaped.txt": f"https://host/linux-64/toy-1.0-udp_h1_0.conda#sha256:{SHA256} {MD5}\nhttps://host/a-1%2Bcpu-0.conda\n",
    "environment.yml": "dependencies:\n  - toy=1.0=udp_h1_0\n  - python=3.11\n  - pip:\n    - x==1\n",
    "spaced.txt": "toy ==1.0 =udp_h1_0\n",
    "conda-list.txt": "toy=1.0=udp_h1_0\nother-tool=2=0\n",
}


@pytest.mark.parametrize("name", LOCKS)
def test_every_format_names_the_package(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(LOCKS[name])
    found = read_locked_names([path])
    assert "toy-1.0-udp_h1_0.conda" in found.files
    if SHA256 in LOCKS[name]:
        assert found.hashes == {SHA256, MD5}


def test_only_packages_are_named_and_escapes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "escaped.txt"
    path.write_text(LOCKS["escaped.txt"])
    assert read_locked_names([path]).files == {"toy-1.0-udp_h1_0.conda", "a-1+cpu-0.conda"}
    path.write_text(LOCKS["environment.yml"])
    assert read_locked_names([path]).files == {"toy-1.0-udp_h1_0.conda"}
    assert read_locked_names([]).files == frozenset()


@pytest.mark.parametrize("content", [b"", b"dependencies:\n  - python\n", b"\xff\xfe\x00"])
def test_a_file_that_names_no_package_is_no_lock_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lock"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="lock"):
        read_locked_names([path])
    with pytest.raises(ConfigError, match="no such lock file"):
        read_locked_names([tmp_path / "missing"])
