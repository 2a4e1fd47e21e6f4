# SPDX-License-Identifier: BSD-3-Clause
"""The JSON form of a plan (docs/reference/plan-json.md). The schema rises when a reader would have to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.plan.model import SCHEMA_VERSION

if TYPE_CHECKING:
    from channel_tools.matrix.model import RenderedPackage
    from channel_tools.plan.model import Plan, PlannedPackage, UnservedPackage

JsonValue = None | bool | int | str | list["JsonValue"] | dict[str, "JsonValue"]


def plan_to_json(plan: Plan) -> dict[str, JsonValue]:
    """The plan as plain values, in the plan's order."""
    return {
        "schema": SCHEMA_VERSION,
        "packages": [_planned(package) for package in plan.packages],
        "unserved": [_unserved(package) for package in plan.unserved],
    }


def _planned(package: PlannedPackage) -> dict[str, JsonValue]:
    return {
        **_common(package.rendered),
        "build_string": package.build_string,
        "file_name": package.file_name,
        "status": package.status,
        "reasons": list(package.reasons),
        "digest": package.digest,
        "waits_for": list(package.waits_for),
        "inputs": dict(package.inputs),
    }


def _unserved(package: UnservedPackage) -> dict[str, JsonValue]:
    return {**_common(package.rendered), "status": "unserved", "reason": package.reason}


def _common(rendered: RenderedPackage) -> dict[str, JsonValue]:
    return {
        "stack": rendered.stack,
        "name": rendered.name,
        "version": rendered.version,
        "build_number": rendered.build_number,
        "subdir": rendered.subdir,
        "recipe": rendered.recipe_file.name,
        "variant": dict(rendered.variant),
    }
