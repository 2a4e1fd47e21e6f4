# SPDX-License-Identifier: BSD-3-Clause
"""The scripts of a package that clients may run while they install or remove it, by where clients look for them.

They are described in conda-build's documentation ("Adding pre-link, post-link, and pre-unlink scripts"); the paths are
those of conda/core/link.py (run_script). conda runs all four kinds. rattler knows post-link and pre-unlink
(crates/rattler/src/install/link_script.rs) and runs them only on request; pixi does not request it by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

INSTALLATION = ("pre-link", "post-link")
REMOVAL = ("pre-unlink", "post-unlink")
ACTIONS = INSTALLATION + REMOVAL


def link_script_paths(name: str, actions: Iterable[str] = ACTIONS, *, windows: bool) -> list[str]:
    """Where clients look for the scripts of the package ``name``, relative to the prefix."""
    folder, suffix = ("Scripts", "bat") if windows else ("bin", "sh")
    return [f"{folder}/.{name}-{action}.{suffix}" for action in actions]


def link_scripts_among(paths: Iterable[str], name: str) -> list[str]:
    """Those of a package's installed ``paths`` that are its scripts, for any platform; sorted."""
    known = {*link_script_paths(name, windows=False), *link_script_paths(name, windows=True)}
    return sorted(known.intersection(paths))
