# SPDX-License-Identifier: BSD-3-Clause
"""Compares what the engine resolved for a build with what was planned: the package's name stands for the latter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from channel_tools.system.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SHOWN = 5


def check_resolved(recipe: Mapping[str, Any], rendered: Mapping[str, Any]) -> None:
    """Raise BuildError if the environments of a build had other packages of the foundation than its digest covers.

    ``recipe`` is the one that was built, ``rendered`` what the engine recorded of the build.
    """
    planned = recipe.get("extra", {}).get("channel_tools", {}).get("inputs", {})
    if differences := list(_differences(planned, rendered)):
        more = f" and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        message = f"the build did not get the packages that were planned: {'; '.join(differences[:_SHOWN])}{more}"
        raise BuildError(message, hint="run the same command again; if it comes back, report it with the build's log")


def _differences(planned: Mapping[str, str], rendered: Mapping[str, Any]) -> Iterator[str]:
    dependencies = rendered.get("finalized_dependencies") or {}
    for part in ("build", "host"):
        resolved = (dependencies.get(part) or {}).get("resolved") or ()
        by_name = {
            str(package["name"]): f"{package['version']} {package['build']} {package.get('sha256', '')}"
            for package in resolved
        }
        start = f"foundation:{part}/"
        for key, wanted in planned.items():
            name = key.removeprefix(start)
            if key.startswith(start) and by_name.get(name) != wanted:
                yield f"{part}/{name} {_short(by_name.get(name))} instead of {_short(wanted)}"


def _short(text: str | None) -> str:
    return "(none)" if text is None else "-".join(text.split(" ")[:2])
