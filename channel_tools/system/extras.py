# SPDX-License-Identifier: BSD-3-Clause
"""The optional dependencies (extras) of this program, and the error that names the one to install."""

from __future__ import annotations

import contextlib
import os
import shlex
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
    """The error for a missing module or program of an extra; ``purpose`` says what needs it.

    The hint names what the extra needs: no package index need have this program itself.
    """
    hint = f"install the extra {extra} into this program's environment: pip install {shlex.join(_requirements(extra))}"
    return CommandError(f"{package}: not installed; it is required for {purpose}", hint=hint)


def _requirements(extra: Extra) -> list[str]:
    # these take time, which commands that need no extra are spared
    from importlib.metadata import requires  # noqa: PLC0415

    from packaging.requirements import Requirement  # noqa: PLC0415

    stated = [Requirement(text) for text in requires("channel-tools") or ()]
    return sorted(
        f"{item.name}{item.specifier}"
        for item in stated
        if item.marker is not None
        and item.marker.evaluate({"extra": extra})
        and not item.marker.evaluate({"extra": ""})  # of every installation on such a machine
    )


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
