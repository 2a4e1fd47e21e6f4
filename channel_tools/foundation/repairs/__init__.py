# SPDX-License-Identifier: BSD-3-Clause
"""The repair steps that the table's rows name, merged from the modules of this package (each exports ``STEPS``)."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.foundation.model import Repair


def _merge() -> Mapping[str, Repair]:
    merged: dict[str, Repair] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        steps: Mapping[str, Repair] = getattr(importlib.import_module(f"{__name__}.{module.name}"), "STEPS", {})
        for name, step in steps.items():
            if name in merged:
                message = f"repair step {name!r} stands in both {merged[name].__module__} and {step.__module__}"
                raise RuntimeError(message)
            merged[name] = step
    return merged


REPAIRS: Mapping[str, Repair] = _merge()
