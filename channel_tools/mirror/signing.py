# SPDX-License-Identifier: BSD-3-Clause
"""The near side's half of trust: TUF metadata over the files of a bundle.

All bundles of a key folder are versions of one TUF repository; the number is taken before anything is signed, so that
two different bundles never carry the same one.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from tuf.api.metadata import Metadata, MetaFile, Snapshot, TargetFile, Targets, Timestamp
from tuf.api.serialization.json import JSONSerializer

from channel_tools.mirror.model import METADATA_FOLDER, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from securesystemslib.signer import CryptoSigner

    from channel_tools.mirror.keys import KeyFolder
    from channel_tools.mirror.model import BundleFile


def take_version(folder: KeyFolder) -> int:
    """The number of the next bundle; it is never given again. Raises ChannelError when another command is at it."""
    with folder.locked():
        settings = folder.settings()
        folder.write_settings(replace(settings, issued=settings.issued + 1))
        return settings.issued + 1


def sign_bundle(
    folder: KeyFolder,
    keys: Mapping[Role, Sequence[CryptoSigner]],
    files: Iterable[BundleFile],
    *,
    version: int,
    now: datetime,
    expiry_days: Mapping[Role, int],
) -> dict[str, bytes]:
    """The metadata files of a bundle, by path in it: the root chain, then targets, snapshot and timestamp."""
    made = {f"{METADATA_FOLDER}/{path.name}": path.read_bytes() for path in folder.root_files()}

    def expires(role: Role) -> datetime:
        return (now + timedelta(days=expiry_days[role])).replace(microsecond=0)

    listed = {
        file.path: TargetFile(length=file.size_bytes, hashes={"sha256": file.sha256}, path=file.path)
        for file in sorted(files)
    }
    targets = _signed(Targets(version=version, expires=expires("targets"), targets=listed), keys["targets"])
    meta = {"targets.json": _meta(version, targets)}
    snapshot = _signed(Snapshot(version=version, expires=expires("snapshot"), meta=meta), keys["snapshot"])
    seen = _meta(version, snapshot)
    timestamp = _signed(Timestamp(version=version, expires=expires("timestamp"), snapshot_meta=seen), keys["timestamp"])
    made[f"{METADATA_FOLDER}/{version}.targets.json"] = targets
    made[f"{METADATA_FOLDER}/{version}.snapshot.json"] = snapshot
    made[f"{METADATA_FOLDER}/timestamp.json"] = timestamp
    return made


def _signed(signed: Targets | Snapshot | Timestamp, keys: Sequence[CryptoSigner]) -> bytes:
    metadata: Metadata[Targets] = Metadata(signed)  # type: ignore[arg-type]  # of whichever of the three
    for key in keys:
        metadata.sign(key, append=True)
    return metadata.to_bytes(JSONSerializer(compact=True))


def _meta(version: int, content: bytes) -> MetaFile:
    return MetaFile(version=version, length=len(content), hashes={"sha256": hashlib.sha256(content).hexdigest()})
