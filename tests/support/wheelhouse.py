# SPDX-License-Identifier: BSD-3-Clause
"""The wheels that this program requires, put together again from where they are installed: no package index is asked.

They lie where ``mirror create`` keeps those that it downloaded.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import sys
import zipfile
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from channel_tools.foundation.model import LockedArtifact
from channel_tools.mirror.exporting.extras import own_requirements, wheel_folder
from channel_tools.system.files import sha256_of_file


def fill_wheel_cache(cache: Path, machine: str) -> None:
    """Put everything that our requirements lead to into ``cache``, for the Python that runs here."""
    folder = wheel_folder(cache, f"{sys.version_info.major}.{sys.version_info.minor}", machine)
    folder.mkdir(parents=True)
    taken = [repacked(importlib.metadata.distribution(name), folder) for name in _closure()]
    (folder / "wheels.json").write_bytes(msgspec.json.encode(taken))


def _closure() -> list[str]:
    found: set[str] = set()
    waiting = [Requirement(text) for text in own_requirements()]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        stated = [Requirement(text) for text in importlib.metadata.requires(name) or ()]
        extras = {"", *requirement.extras}
        waiting += [
            other
            for other in stated
            if (other.marker is None or any(other.marker.evaluate({"extra": extra}) for extra in extras))
            and canonicalize_name(other.name) not in found
        ]
        found.add(name)
    return sorted(found)


def repacked(distribution: importlib.metadata.Distribution, folder: Path) -> LockedArtifact:
    """A wheel of an installed distribution; its programs are left out."""
    tags = [
        line.partition(":")[2].strip().split("-")
        for line in (distribution.read_text("WHEEL") or "").splitlines()
        if line.startswith("Tag:")
    ]
    tag = "-".join(".".join(sorted({parts[place] for parts in tags})) for place in range(3))
    name = distribution.metadata["Name"].replace("-", "_").replace(".", "_").lower()
    path = folder / f"{name}-{distribution.version}-{tag}.whl"
    lines = []
    with zipfile.ZipFile(path, "w") as archive:
        for file in distribution.files or ():
            if ".." in file.parts or "__pycache__" in file.parts or file.name in {"RECORD", "INSTALLER", "REQUESTED"}:
                continue
            content = Path(str(file.locate())).read_bytes()
            archive.writestr(str(file), content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{file},sha256={digest},{len(content)}\n")
        info = next(str(file.parent) for file in distribution.files or () if file.name == "METADATA")
        archive.writestr(f"{info}/RECORD", "".join([*lines, f"{info}/RECORD,,\n"]))
    return LockedArtifact(
        kind="wheel",
        name=name,
        version=distribution.version,
        file_name=path.name,
        sha256=sha256_of_file(path),
        size_bytes=path.stat().st_size,
        requires=(),
    )
