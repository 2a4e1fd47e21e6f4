# SPDX-License-Identifier: BSD-3-Clause
"""The environment of builds."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_PATH = "/usr/bin:/bin"
_PASSED_ON = (
    "HOME",  # the engine finds its store of channel credentials by it; build scripts get another
    "RATTLER_AUTH_FILE", "NETRC", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
)  # fmt: skip

_OF_THE_SITE = re.compile(r"CHANNEL_(?!TOOLS)[A-Z_]+_DIR")


def child_environment(environ: Mapping[str, str], *, cores: int, temporary: Path, cache: Path) -> dict[str, str]:
    """The whole environment of a worker.

    Of the caller's, it has how to reach and trust channels, and where the site's own libraries are that packages such
    as xrt-external look for (``CHANNEL_XRT_DIR``).
    The engine keeps the PATH's folders after those of its environments, so the PATH has only those of a plain system.
    """
    passed = {name: environ[name] for name in environ if name in _PASSED_ON or _OF_THE_SITE.fullmatch(name)}
    plain = {"PATH": _PATH, "LANG": "C.UTF-8", "NO_COLOR": "1"}
    own = {"TMPDIR": str(temporary), "CPU_COUNT": str(cores), "RATTLER_CACHE_DIR": str(cache)}
    return passed | plain | own


def shell_environment(folder: Path, environ: Mapping[str, str], *, cores: int, cache: Path) -> dict[str, str]:
    """The environment of a build in ``folder``, with the user's terminal and without a history file for shells."""
    inherited = child_environment(environ, cores=cores, temporary=folder / "tmp", cache=cache)
    return inherited | {"HISTFILE": os.devnull} | {name: environ[name] for name in ("TERM",) if name in environ}
