# SPDX-License-Identifier: BSD-3-Clause
"""An address that a command does not take may have a password in it: the error says so without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import run_tool
from tests.support.packages import make_conda

SECRET = "Made-Up-S3cret"  # noqa: S105 - no real one
ADDRESSES = {
    "user": f"https://me:{SECRET}@lab.invalid/x",
    "port": f"https://me:{SECRET}@lab.invalid:bad/x",
    "bracket": f"https://me:{SECRET}@[::1/x",
    "capitals": f"HTTPS://me:{SECRET}@lab.invalid:99999/x",
    "token": f"https://lab.invalid/t/{SECRET}/x y",
    "query": f"https://lab.invalid/x?token={SECRET}",
    "ftp": f"ftp://me:{SECRET}@lab.invalid/x",
    "bucket": f"s3://me:{SECRET}@bucket/x",
    "registry": f"oci://me:{SECRET}@lab.invalid/x",
    "quetz": f"quetz://me:{SECRET}@lab.invalid/x",
}
COMMANDS = {
    "publish": ["publish", "FILE", "--to", "ADDRESS"],
    "publish-files-to-a-label": ["publish", "FILE", "--to", "ADDRESS", "--label", "x"],
    "promote": ["promote", "a", "b", "--at", "ADDRESS"],
    "yank": ["yank", "toy", "--at", "ADDRESS", "--reason", "none"],
    "channel-verify": ["channel", "verify", "--at", "ADDRESS"],
    "channel-index": ["channel", "index", "--at", "ADDRESS"],
    "audit": ["audit", "ADDRESS"],
    "env-pack": ["env", "pack", "ADDRESS", "-o", "x.tar.gz"],
    "env-create": ["env", "create", "ADDRESS", "toy", "-c", "."],
    "lock": ["env", "create", "env", "--lock", "ADDRESS"],
    "serve": ["serve", "ADDRESS"],
    "init": ["init", "ADDRESS"],
}
REACHES_OUT = {"publish", "publish-files-to-a-label", "promote", "yank"}
"""What takes an address: those that are right would be asked for."""
UNUSABLE = {"port", "bracket", "token", "query", "ftp", "bucket", "registry", "quetz"}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_address_that_is_not_taken_is_not_shown(tmp_path: Path, command: str) -> None:
    package = make_conda(tmp_path / "packages", "toy")
    shown = {}
    for kind in UNUSABLE if command in REACHES_OUT else ADDRESSES:
        words = [{"ADDRESS": ADDRESSES[kind], "FILE": str(package)}.get(word, word) for word in COMMANDS[command]]
        run = run_tool(*words, cwd=tmp_path)
        assert run.returncode in {2, 3, 5, 6, 8}, run.stderr
        if SECRET in run.stdout + run.stderr:
            shown[kind] = run.stderr
    assert shown == {}
    assert [path.name for path in tmp_path.iterdir()] == ["packages"]
