# SPDX-License-Identifier: BSD-3-Clause
"""What builds into a clone's output folder take from earlier builds.

Packages of the foundation from any clone: their names have a digest of all that they are made from, code included.
Objects of a compiler cache from a clone at the same path. Both are kept below the user's cache folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from filelock import FileLock

from channel_tools.foundation.record import RECORD_NAME
from channel_tools.system.files import link_or_copy
from channel_tools.system.settings import find_cache
from tests.support.programs import has, program

_ROOM_BYTES = 2 << 30
"""Several foundations; the default stack's has 280 MB."""


def compiler_cache(environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Options and environment for a build that takes from ccache what was compiled before; none without ccache."""
    if not has("ccache"):
        return [], dict(environ)
    path = os.pathsep.join([environ["PATH"], str(Path(program("ccache")).parent)])
    folder = find_cache(environ) / "tests" / "compiled"
    return ["--compiler-cache", "ccache"], {**environ, "PATH": path, "CCACHE_DIR": str(folder)}


@contextlib.contextmanager
def kept_foundation(foundation: Path, environ: Mapping[str, str], *, room_bytes: int = _ROOM_BYTES) -> Iterator[None]:
    """For the block, which builds: a foundation that has no record yet has the kept packages, and is kept after it.

    The build finds those that it would make by their names, as after an interruption, and removes the others. Where
    the kept ones take more than ``room_bytes``, they are exchanged for those of this foundation. Clones take turns.
    """
    kept, record = find_cache(environ) / "tests" / "foundation", foundation / RECORD_NAME
    kept.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(kept.with_name("foundation.lock"))
    if kept.is_dir() and not record.exists():
        from channel_tools.channel import Foundation, ensure_channel  # noqa: PLC0415 - rattler takes half a second
        from channel_tools.conda.platforms import current_platform  # noqa: PLC0415

        ensure_channel(foundation, Foundation(kind="registry"), subdirs=(current_platform(),))
        with lock:
            _link_packages(kept, foundation)
    yield
    if record.exists():
        with lock:
            if sum(path.stat().st_size for path in kept.glob("*/*.conda")) > room_bytes:
                shutil.rmtree(kept, ignore_errors=True)
            _link_packages(foundation, kept)


def _link_packages(source: Path, destination: Path) -> None:
    for path in sorted(source.glob("*/*.conda")):
        place = destination / path.parent.name / path.name
        place.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(path, place)
