# SPDX-License-Identifier: BSD-3-Clause
"""Options that several commands have in common, said once as the fields of a dataclass."""

from __future__ import annotations

import functools
import inspect
from dataclasses import fields
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


def grouped(kind: type[T]) -> Callable[[Callable[Concatenate[T, P], None]], Callable[..., None]]:
    """A decorator for commands whose first parameter is a ``kind``: each of its fields becomes an option of its own.

    ``kind`` is a dataclass whose fields are annotated as parameters of a typer command are. What the command requires
    comes first, then the fields, then the command's own options.
    """
    names = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    hints = get_type_hints(kind, include_extras=True)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[name], default=getattr(kind, name))
        for name in names
    ]

    def decorate(command: Callable[Concatenate[T, P], None]) -> Callable[..., None]:
        _group, *own = inspect.signature(command, eval_str=True).parameters.values()

        @functools.wraps(command)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            given = kind(**{name: kwargs.pop(name) for name in names})
            command(given, *args, **kwargs)

        required = [parameter for parameter in own if parameter.default is inspect.Parameter.empty]
        parameters = [*required, *options, *(parameter for parameter in own if parameter not in required)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate
