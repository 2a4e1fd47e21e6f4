# SPDX-License-Identifier: BSD-3-Clause
"""What ``export feedstock`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedstockRequest:
    """The recipe to export as a feedstock, and where to; ``channels`` are in order of priority."""

    package: Annotated[str, Argument(help="A recipe, by its folder's name.", show_default=False)]
    destination: Annotated[Path, Option("--output-dir", "-o", help="The feedstock's folder; must not exist.")]
    maintainers: Annotated[
        tuple[str, ...], Option("--maintainer", help="GitHub name of a maintainer; may be repeated.")
    ]
    homepage: Annotated[str | None, Option(help="The homepage, for a recipe that names none.", show_default=False)] = (
        None
    )
    channels: Annotated[
        tuple[str, ...],
        Option(
            "--channel",
            "-c",
            help="A channel that the feedstock's builds solve from; may be repeated.",
            show_default="conda-forge",
        ),
    ] = ("conda-forge",)
    stack: Annotated[
        str | None,
        Option("--variant", "-V", help="Only this stack's variants.", show_default="every stack that has it"),
    ] = None
