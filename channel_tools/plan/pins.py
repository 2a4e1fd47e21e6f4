# SPDX-License-Identifier: BSD-3-Clause
"""``pin_compatible`` and ``pin_subpackage``: as template text again, and as MatchSpecs once a version is known.

An evaluated recipe holds pins as mappings that the engine does not read back. The engine itself resolves them when it
builds; the MatchSpecs made here serve planning and pins between the outputs of one recipe.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rattler import Version

if TYPE_CHECKING:
    from channel_tools.matrix.model import Pin

_EXPRESSION = re.compile(r"x(\.x)*")


def pin_expression(pin: Pin) -> str:
    """The template text that means ``pin``, every bound written out."""
    arguments = [_quote(pin.name)]
    if pin.exact:
        arguments.append("exact=True")
    else:
        arguments += [f"lower_bound={_quote(pin.lower_bound)}", f"upper_bound={_quote(pin.upper_bound)}"]
        arguments += [f"build={_quote(pin.build)}"] if pin.build is not None else []
    return f"${{{{ {pin.function}({', '.join(arguments)}) }}}}"


def resolve_pin(pin: Pin, version: str, build_string: str) -> str:
    """The MatchSpec that ``pin`` gives for a package of this version and build string."""
    if pin.exact:
        return f"{pin.name} =={version} {build_string}"
    bounds = [
        *([f">={_lower(pin.lower_bound, version)}"] if pin.lower_bound is not None else []),
        *([f"<{_upper(pin.upper_bound, version)}"] if pin.upper_bound is not None else []),
    ]
    text = f"{pin.name} {','.join(bounds) or '*'}"
    return text if pin.build is None else f"{text} {pin.build}"


def _lower(bound: str, version: str) -> str:
    if not _EXPRESSION.fullmatch(bound):
        return bound
    parsed = Version(version).remove_local()
    return str(parsed.with_segments(0, min(bound.count("x"), parsed.segment_count)))


def _upper(bound: str, version: str) -> str:
    if not _EXPRESSION.fullmatch(bound):
        return bound
    segments = bound.count("x")
    parsed = Version(version).remove_local().extend_to_length(segments)
    return str(parsed.with_segments(0, segments).bump_segment(segments - 1).with_alpha())


def _quote(value: str | None) -> str:
    return "None" if value is None else f"'{value}'"
