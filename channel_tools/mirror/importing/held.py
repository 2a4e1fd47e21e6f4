# SPDX-License-Identifier: BSD-3-Clause
"""Whether what the importing site holds of a bundle already is still what was signed.

A bundle of what is new relies on what earlier ones brought, and a complete one is not copied over it. So those files
are read, unless the user knows that their disk keeps what it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.mirror.bundle.format import CHANNELS_FOLDER, LOCKS_FOLDER, package_at
from channel_tools.mirror.importing.verify import VERIFY_THREADS
from channel_tools.system.errors import IntegrityError
from channel_tools.system.files import sha256_of_file
from channel_tools.system.workers import run_in_threads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.mirror.bundle.format import BundleFile
    from channel_tools.mirror.importing.target import ImportTarget
    from channel_tools.mirror.trust.metadata import TrustedBundle
    from channel_tools.system.progress import Progress


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldReport:
    """How many files of the bundle the site holds already, and how many of these were read and found right."""

    files: int = 0
    verified: int = 0


def check_held(
    target: ImportTarget, bundle: TrustedBundle, received: Mapping[str, str], *, trust: bool, progress: Progress
) -> HeldReport:
    """Read the files of the bundle that the site holds as they were signed; none of them with ``trust``.

    Indexes and locks, which are written anew here, are none of these, and packages on a server cannot be read from
    here: their bytes are compared whenever they are published. Raises IntegrityError for a file that has changed.
    """
    known = [file for path, file in sorted(bundle.targets.items()) if received.get(path) == file.sha256]
    held = [file for file in known if _stays_as_signed(file.path)]
    here = [file for file in held if target.server is None or not file.path.startswith(f"{CHANNELS_FOLDER}/")]
    if trust or not here:
        return HeldReport(files=len(held))

    with progress.task("reading what is here", total=sum(file.size_bytes for file in here), unit="bytes") as task:

        def check(file: BundleFile) -> None:
            path = target.files / file.path
            if (found := sha256_of_file(path)) != file.sha256:
                message = f"{path}: its sha256 is {found}, but {file.sha256} was imported here"
                hint = (
                    "delete it, then import a bundle that brings it: channel_tools mirror create makes a complete one"
                )
                raise IntegrityError(message, hint=hint)
            task.advance(file.size_bytes)

        run_in_threads(check, here, threads=VERIFY_THREADS)
    return HeldReport(files=len(held), verified=len(here))


def _stays_as_signed(path: str) -> bool:
    if path.startswith(f"{CHANNELS_FOLDER}/"):
        return package_at(path) is not None
    return not path.startswith(f"{LOCKS_FOLDER}/")
