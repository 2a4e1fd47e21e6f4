# SPDX-License-Identifier: BSD-3-Clause
"""The extras of this program: what only some commands need, and the error that names the one to install."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Literal

from channel_tools.system.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Extra = Literal["cluster", "mirror", "s3", "sbom", "serve", "sigstore"]
MODULES: Mapping[Extra, tuple[str, ...]] = {
    "mirror": ("tuf",),
    "s3": ("botocore",),
    "sbom": ("cyclonedx",),
    "serve": ("httptools", "prometheus_client", "starlette", "uvicorn", "uvloop"),
    "sigstore": ("sigstore",),
}
"""What is imported of each extra. ``cluster`` has programs."""
AIR_GAPPED: tuple[Extra, ...] = ("mirror", "s3", "serve")
"""The extras that a bundle for a place without a network brings; bootstrap.py there has them, too."""


def missing(what: str, extra: Extra, *, purpose: str) -> CommandError:
    """The error for a module or program of an extra that is not there; ``purpose`` is what for."""
    hint = f"install the extra where this program is: pip install 'channel-tools[{extra}]'"
    return CommandError(f"{what}: not installed; it is needed for {purpose}", hint=hint)


def skip_unused_plugins() -> None:
    """Have libraries that look for plug-ins of their own, of which this program uses none, not import or look for them.

    pydantic reads the metadata of every package that is installed; securesystemslib imports boto3, where it is
    installed, for keys in AWS, which takes as long as many commands run.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    sys.modules.setdefault("boto3", None)  # type: ignore[arg-type]


@contextlib.contextmanager
def needs_extra(extra: Extra, purpose: str) -> Iterator[None]:
    """Around imports, or a whole function: a module of the extra that is missing is a CommandError that names both."""
    try:
        yield
    except ModuleNotFoundError as err:
        module = (err.name or "").partition(".")[0]
        if module not in MODULES[extra]:
            raise
        raise missing(module, extra, purpose=purpose) from None
