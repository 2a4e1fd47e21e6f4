# SPDX-License-Identifier: BSD-3-Clause
"""A registry's address, and the configuration of a user of docker."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from channel_tools.publish.oci.layout import parse_registry_address

ADDRESS = parse_registry_address("oci://registry.example:5000/team/ours")


def docker(folder: Path, **config: object) -> dict[str, str]:
    """The environment of a user with this configuration."""
    (folder / "config.json").write_text(json.dumps(config))
    return {"HOME": str(folder), "DOCKER_CONFIG": str(folder)}


def auth(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}
