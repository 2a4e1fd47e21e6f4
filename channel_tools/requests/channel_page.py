# SPDX-License-Identifier: BSD-3-Clause
"""What ``channel page`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option


@dataclass(frozen=True, kw_only=True, slots=True)
class PageRequest:
    """The page of a label, and what it says. What is None stays as it was given last."""

    at: Annotated[
        str | None,
        Option("--at", metavar="FOLDER", help="The channel's folder.", show_default="the local channel"),
    ] = None
    label: Annotated[str, Option("--label", help="The label; main is the target's own address.")] = "main"
    address: Annotated[
        str | None,
        Option(help="The channel's address for clients, shown in the page's commands.", show_default="as given last"),
    ] = None
    title: Annotated[str | None, Option(help="The channel's title on the page.", show_default="its folder's name")] = (
        None
    )
    sentence: Annotated[
        str | None,
        Option(help="What the channel is for, in a sentence; none removes it.", show_default="as given last"),
    ] = None
    contact: Annotated[
        str | None,
        Option(help="An e-mail or web address for questions; none removes it.", show_default="as given last"),
    ] = None
    logo: Annotated[
        Path | None,
        Option(help="A PNG or SVG file of at most 100 kB; none removes it.", show_default="as given last"),
    ] = None
