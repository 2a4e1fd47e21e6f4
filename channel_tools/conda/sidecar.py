# SPDX-License-Identifier: BSD-3-Clause
"""Where a package's attestations lie: beside the package, as CEP 50 lays them out and rattler's indexer takes them.

``NAME.conda.sigs`` is a JSON array of Sigstore bundles. Clients read the same bytes as ``NAME.conda.sigs.SHA256``, a
name that they make from ``attestations_sha256`` of the package's record, so that other attestations get another name.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from channel_tools.system.errors import IntegrityError
from channel_tools.system.files import link_or_copy, sha256_of_file, write_bytes_atomically

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX = ".sigs"
RECORD_FIELD = "attestations_sha256"
LIMIT_BYTES = 4 << 20
"""What rattler reads of one."""
HASHED_NAME = re.compile(r"(?P<package>.+\.conda)\.sigs\.(?P<sha256>[0-9a-f]{64})")


def sidecar_of(package: Path) -> Path:
    """The file beside a package that holds its attestations, whether it is there or not."""
    return package.with_name(package.name + SUFFIX)


def hashed_name(file_name: str, sha256: str) -> str:
    """The name under which clients read the attestations of the package ``file_name``."""
    return f"{file_name}{SUFFIX}.{sha256}"


def sidecar_sha256(package: Path) -> str | None:
    """What the package's record says of its attestations, None where there are none."""
    sidecar = sidecar_of(package)
    return sha256_of_file(sidecar) if sidecar.is_file() else None


def read_sidecar(path: Path) -> bytes:
    """The attestations in a file. Raises IntegrityError for one that is larger than clients read."""
    with path.open("rb") as stream:
        content = stream.read(LIMIT_BYTES + 1)
    if len(content) > LIMIT_BYTES:
        raise IntegrityError(f"{path}: larger than the {LIMIT_BYTES >> 20} MiB that clients read of attestations")
    return content


def write_sidecar(package: Path, content: bytes) -> None:
    """Give a package these attestations, in place of those it has: the name that clients read first."""
    sha256 = hashlib.sha256(content).hexdigest()
    for path in (package.with_name(hashed_name(package.name, sha256)), sidecar_of(package)):
        write_bytes_atomically(path, content, durable=False)


def link_sidecar(source: Path, destination: Path) -> None:
    """Give the package ``destination``, whose bytes are new there, the attestations of ``source``, or none."""
    remove_sidecars(destination)
    sidecar = sidecar_of(source)
    if sidecar.is_file():
        link_or_copy(sidecar, destination.with_name(hashed_name(destination.name, sha256_of_file(sidecar))))
        link_or_copy(sidecar, sidecar_of(destination))


def remove_sidecars(package: Path) -> None:
    """Remove the attestations of a package that is removed."""
    sidecar = sidecar_of(package)
    if sidecar.is_file():
        package.with_name(hashed_name(package.name, sha256_of_file(sidecar))).unlink(missing_ok=True)
        sidecar.unlink()
