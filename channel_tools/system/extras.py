# SPDX-License-Identifier: BSD-3-Clause
"""The optional dependencies (extras) of this program, and the error that names the one to install."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Literal

from channel_tools.system.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Extra = Literal["cluster", "mirror", "pack", "s3", "sbom", "serve", "sigstore"]
MODULES: Mapping[Extra, tuple[str, ...]] = {
    "mirror": ("tuf",),
    "pack": ("conda_pack",),
    "s3": ("boto3",),
    "sbom": ("cyclonedx",),
    "serve": ("granian", "starlette"),
    "sigstore": ("sigstore",),
}
"""The modules imported from each extra. ``cluster`` has programs instead."""
AIR_GAPPED: tuple[Extra, ...] = ("mirror", "s3", "serve")
"""The extras that bundles for sites without a network contain, and their bootstrap.py installs."""


def missing(package: str, extra: Extra, *, purpose: str) -> CommandError:
    """The error for a missing module or program of an extra; ``purpose`` says what needs it."""
    hint = f"install the extra in this program's environment: pip install 'channel-tools[{extra}]'"
    return CommandError(f"{package}: not installed; it is required for {purpose}", hint=hint)


def skip_unused_plugins() -> None:
    """Have pydantic search for no plugins, of which this program uses none: it reads every package's metadata."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


@contextlib.contextmanager
def needs_extra(extra: Extra, purpose: str) -> Iterator[None]:
    """Wrap imports, or a whole function: a missing module of the extra raises a CommandError that names both."""
    try:
        yield
    except ModuleNotFoundError as err:
        module = (err.name or "").partition(".")[0]
        if module not in MODULES[extra]:
            raise
        raise missing(module, extra, purpose=purpose) from None
