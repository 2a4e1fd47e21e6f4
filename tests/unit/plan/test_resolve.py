# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.matrix.model import Pin
from channel_tools.plan.resolve import pin_expression, resolve_pin

if TYPE_CHECKING:
    from channel_tools.matrix.model import PinFunction


def _pin(
    lower: str | None = "x.x.x.x.x.x",
    upper: str | None = "x",
    *,
    function: PinFunction = "pin_compatible",
    exact: bool = False,
    build: str | None = None,
) -> Pin:
    return Pin(function=function, name="toy", lower_bound=lower, upper_bound=upper, exact=exact, build=build)


@pytest.mark.parametrize(
    ("pin", "version", "spec"),
    [
        (_pin(), "2.13.0", "toy >=2.13.0,<3.0a0"),
        (_pin(upper="x.x"), "2.13.0", "toy >=2.13.0,<2.14.0a0"),
        (_pin("x.x", "x.x"), "3.11.2", "toy >=3.11,<3.12.0a0"),
        (_pin(upper="x.x.x"), "1.2", "toy >=1.2,<1.2.1.0a0"),
        (_pin(None, "x"), "1.2", "toy <2.0a0"),
        (_pin("x", None), "1.2", "toy >=1"),
        (_pin(None, None), "1.2", "toy *"),
        (_pin("1.0", "3.0"), "1.2", "toy >=1.0,<3.0"),
        (_pin(upper="x.x"), "2.13.0+cpu", "toy >=2.13.0,<2.14.0a0"),
        (_pin(build="cpu*"), "1.2", "toy >=1.2,<2.0a0 cpu*"),
        (_pin(exact=True), "1.2", "toy ==1.2 h1_0"),
    ],
)
def test_a_pin_becomes_a_match_spec(pin: Pin, version: str, spec: str) -> None:
    assert resolve_pin(pin, version, "h1_0") == spec


@pytest.mark.parametrize(
    ("pin", "text"),
    [
        (_pin(), "${{ pin_compatible('toy', lower_bound='x.x.x.x.x.x', upper_bound='x') }}"),
        (_pin(None, "x.x"), "${{ pin_compatible('toy', lower_bound=None, upper_bound='x.x') }}"),
        (_pin(function="pin_subpackage", exact=True), "${{ pin_subpackage('toy', exact=True) }}"),
        (_pin("x", None, build="a*"), "${{ pin_compatible('toy', lower_bound='x', upper_bound=None, build='a*') }}"),
    ],
)
def test_a_pin_becomes_template_text(pin: Pin, text: str) -> None:
    assert pin_expression(pin) == text
