# SPDX-License-Identifier: BSD-3-Clause
"""Credentials with the requests to an OCI registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.publish.oci.registry import Registry
from tests.unit.publish.oci.docker import ADDRESS, docker


def test_a_credential_helper_is_asked_once_for_all_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = docker(tmp_path, credHelpers={"registry.example:5000": "toys"})
    asked, helper = tmp_path / "asked", tmp_path / "docker-credential-toys"
    answer = '{"Username": "us", "Secret": "a:b"}'
    helper.write_text(f"#!/bin/sh\necho asked >> {asked}\ncat > /dev/null\necho '{answer}'\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    registry = Registry(address=ADDRESS, environ=environ)
    for name in ("team/ours/linux-64/toy", "team/ours/noarch/toy"):
        with registry.repository(name) as repository:
            assert repository.has_credentials
    assert asked.read_text() == "asked\n"
