# SPDX-License-Identifier: BSD-3-Clause
"""Reads a stack's ``validate`` block into the settings of its method."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from channel_tools.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


def read_method_options(kind: type[T], *, stack: str, method: str, values: Mapping[str, object]) -> T:
    """``values`` as the dataclass ``kind``. Raises ConfigError naming each unknown key or unusable value."""
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as err:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in err.errors())
        known = ", ".join(one.name for one in fields(_as_dataclass(kind)))
        raise ConfigError(f"stack {stack}: validate: {faults}", hint=f"the method {method} knows: {known}") from None


def _as_dataclass(kind: Any) -> Any:  # noqa: ANN401  (typeshed's protocol for dataclasses is private)
    return kind
