# SPDX-License-Identifier: BSD-3-Clause
"""From an address to the target behind it. Each back end is a module of its own, imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from channel_tools.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from channel_tools.publish.model import Target

    Opener = Callable[[str, Mapping[str, str]], Target]

# scheme of an address to the module and the function that opens it: open(address, environ) -> Target
_BACK_ENDS: Mapping[str, tuple[str, str]] = {
    "": ("channel_tools.publish.folder", "open_folder"),
    "file": ("channel_tools.publish.folder", "open_folder"),
    "http": ("channel_tools.publish.server", "open_server"),
    "https": ("channel_tools.publish.server", "open_server"),
    "s3": ("channel_tools.publish.objects", "open_bucket"),
    "anaconda": ("channel_tools.publish.foreign", "open_foreign"),
    "artifactory+http": ("channel_tools.publish.foreign", "open_foreign"),
    "artifactory+https": ("channel_tools.publish.foreign", "open_foreign"),
    "cloudsmith": ("channel_tools.publish.foreign", "open_foreign"),
    "prefix": ("channel_tools.publish.foreign", "open_foreign"),
    "quetz+http": ("channel_tools.publish.foreign", "open_foreign"),
    "quetz+https": ("channel_tools.publish.foreign", "open_foreign"),
}


def open_target(address: str, *, environ: Mapping[str, str]) -> Target:
    """The target that ``address`` names: a path, or a URL whose scheme says what kind of place it is.

    ``environ`` is where a back end finds credentials; nothing is contacted yet. Raises UsageError for an address that
    no back end takes.
    """
    scheme = address.partition("://")[0].lower() if "://" in address else ""
    if scheme not in _BACK_ENDS:
        known = ", ".join(f"{name}://" for name in sorted(_BACK_ENDS) if name)
        message = f"{address}: nothing can be published to addresses that begin with {scheme}://"
        raise UsageError(message, hint=f"give a folder, or an address that begins with one of: {known}")
    module, function = _BACK_ENDS[scheme]
    return cast("Opener", getattr(importlib.import_module(module), function))(address, environ)
