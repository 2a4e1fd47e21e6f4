# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools token`` as a process, and what it leaves behind."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from channel_tools.serve.access.tokens import TOKEN_PATTERN, TokenTable, read_token_file
from tests.support.command_line import run_tool


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_tool("token", *arguments, cwd=Path.cwd())


def test_a_token_is_printed_once_and_alone(tmp_path: Path) -> None:
    made = run("create", "for alice", "--at", str(tmp_path), "--channel", "ours", "--label", "main", "--label", "x")
    assert made.returncode == 0, made.stderr
    token = made.stdout.strip()
    assert re.fullmatch(TOKEN_PATTERN, token)
    assert token not in made.stderr
    kept = tmp_path / ".channel_tools" / "tokens.json"
    assert token not in kept.read_text()
    record = TokenTable(read_token_file(kept).records).find(token)
    assert record is not None
    assert (record.name, record.channels, record.labels, record.access) == (
        "for alice",
        ("ours",),
        ("main", "x"),
        "read",
    )
    rows = json.loads(run("list", "--tokens", str(kept), "--json").stdout)["tokens"]
    assert [(row["id"], row["state"]) for row in rows] == [(token[3:11], "valid")]
    assert "sha256" not in rows[0]
    revoked = run("revoke", token[3:11], "--at", str(tmp_path))
    assert revoked.stdout == f"token {token[3:11]} (for alice) is revoked\n"
    assert "revoked" in run("list", "--at", str(tmp_path)).stdout


def test_a_token_without_a_scope_is_refused(tmp_path: Path) -> None:
    for options in ((), ("--channel", "ours", "--all-channels")):
        done = run("create", "x", "--at", str(tmp_path), *options)
        assert done.returncode == 2
        assert "a token needs a scope" in done.stderr
    assert run("create", "x", "--all-channels").returncode == 2
    assert not (tmp_path / ".channel_tools").exists()
