# SPDX-License-Identifier: BSD-3-Clause
"""The files of a bundle that version 0.2 wrote, as it wrote them."""

from __future__ import annotations

from pathlib import Path

from channel_tools.mirror.format import BundleChannel, decode_lock, decode_manifest, read_received

MANIFEST = (
    b'{"channels":[{"address":"file:///srv/output/channel","name":"channel","own":true,"removed":[]}],'
    b'"created":"2026-11-28T20:20:35+00:00","created_with":"channel_tools 0.2.0","locks":["locks/tree.json"],'
    b'"omitted":[],"platforms":["linux-64"],"schema":1,"since":null,"stacks":["tree"],'
    b'"tool":{"machines":["x86_64"],"pythons":["3.11"],"version":"0.2.0"},"version":1,"with_sources":false}\n'
)
LOCK = (
    b'{"lock":{"channels":["file:///srv/output/channel"],"platforms":[{"packages":[{"build":"h2bd1999_0",'
    b'"build_number":0,"channel":"file:///srv/output/channel","constrains":[],"depends":["__glibc >=2.34,<3.0.a0"],'
    b'"file_name":"ncurses-6.4-h2bd1999_0.conda","license":"MIT/X11","md5":"0d2ac7f99954281effdc25f3aa63c741",'
    b'"name":"ncurses","noarch":null,"python_site_packages_path":null,'
    b'"sha256":"85635ee1f33f030220e7d5bfdecd5dd2e1541a698d148eef39c9159200183e1f","size_bytes":395957,'
    b'"subdir":"linux-64","timestamp_ms":1683470027000,'
    b'"url":"file:///srv/output/channel/linux-64/ncurses-6.4-h2bd1999_0.conda","version":"6.4"}],'
    b'"platform":"linux-64","virtual_packages":["__glibc=2.36=0","__unix=0=0"]}],"specs":["ncurses"],"stack":"tree"},'
    b'"schema":1}\n'
)
RECEIVED = '{"files":{"bootstrap.py":"3651f38c"},"root_sha256":"4fad9ad8","schema":1,"version":1}\n'


def test_they_are_read(tmp_path: Path) -> None:
    manifest = decode_manifest(MANIFEST, where="bundle.json")
    assert (manifest.version, manifest.locks, manifest.stacks) == (1, ("locks/tree.json",), ("tree",))
    assert manifest.channels == (BundleChannel(name="channel", address="file:///srv/output/channel", own=True),)
    assert manifest.tool is not None
    lock = decode_lock(LOCK, where="locks/tree.json")
    [package] = lock.platforms[0].packages
    assert (package.file_name, package.size_bytes) == ("ncurses-6.4-h2bd1999_0.conda", 395957)
    (tmp_path / "received.json").write_text(RECEIVED)
    assert read_received(tmp_path / "received.json").files == {"bootstrap.py": "3651f38c"}
