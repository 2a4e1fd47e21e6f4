# SPDX-License-Identifier: BSD-3-Clause
"""The default stack as users get it: ``pytorch-switchml`` from the server, with a token."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.serving import make_token, running
from tests.integration.test_serve_clients import auth_file, drive, naming

pytestmark = pytest.mark.integration


def test_the_stack_is_installed_from_the_server_with_a_token(stack_channel: Path, tmp_path: Path) -> None:
    root = tmp_path / "channels"
    root.mkdir()
    (root / "ours").symlink_to(stack_channel)
    token = make_token(root, "ours")
    prefix = tmp_path / "env"
    with running(root, work=tmp_path, workers=2) as server:
        environ = auth_file(tmp_path, "127.0.0.1", {"BearerToken": token})
        driver = ("tests.integration.install_driver", f"{server.address}/ours", tmp_path / "cache", prefix)
        done = drive(*driver, "pytorch-switchml", environ=environ)
        assert done.returncode == 0, done.stderr
        assert {row["token"] for row in server.log() if row["status"] == 200} == {token[3:11]}
    assert any(name.startswith("torch-switchml-") for name in json.loads(done.stdout))
    found = subprocess.run(
        [prefix / "bin" / "python", "-c", "import torch, torch_switchml; print(torch_switchml.stats()['active'])"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert found.stdout == "False\n", found.stderr
    assert naming(token, prefix / "conda-meta") == []
