# SPDX-License-Identifier: BSD-3-Clause
"""``variants/stacks.yaml``: what ``--variant NAME`` builds, installs and validates.

The validation method is one of a closed list; what settings each method takes is the validate stage's to say, which
comes later in the flow and is not imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rattler import MatchSpec
from rattler.exceptions import InvalidMatchSpecError

from channel_tools.errors import UsageError
from channel_tools.matrix.model import Stack
from channel_tools.matrix.nearest import nearest_names_hint
from channel_tools.yamlfile import read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from channel_tools.errors import ConfigError
    from channel_tools.matrix.model import LoadedTree
    from channel_tools.yamlfile import YamlDocument

_Plain = bool | int | float | str | list[str] | dict[str, str]
_Setting = _Plain | list[dict[str, _Plain]]
_Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _ValidationModel(BaseModel):
    """``method`` and that method's own settings: plain values, lists of text, text by name, lists of such mappings."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, _Setting]

    method: Literal["distributed", "switchml"]


class _StackModel(_Model):
    description: str
    variants: list[str] = []
    packages: Annotated[list[_Name], Field(min_length=1)]
    install: Annotated[list[str], Field(min_length=1)]
    validate_: _ValidationModel | None = Field(alias="validate", default=None)


class _StacksModel(_Model):
    default_stack: _Name
    stacks: Annotated[dict[_Name, _StackModel], Field(min_length=1)]


def read_stacks(path: Path) -> tuple[YamlDocument, Mapping[str, Stack], str]:
    """Read the file: its document, the stacks in its order, and the default stack's name.

    Raises ConfigError (file, line) for a wrong shape, a MatchSpec that does not parse, or an unknown default stack.
    """
    document = read_yaml(path)
    try:
        model = _StacksModel.model_validate(document.value if document.value is not None else {})
    except ValidationError as err:
        raise _shape_error(document, err.errors()[0]) from None
    stacks = {name: _make_stack(document, name, item) for name, item in model.stacks.items()}
    if model.default_stack not in stacks:
        message = f"default_stack names {model.default_stack!r}, which is no stack of this file"
        hint = nearest_names_hint(model.default_stack, stacks, what="stack")
        raise document.error(message, "default_stack", hint=hint)
    return document, stacks, model.default_stack


def _make_stack(document: YamlDocument, name: str, model: _StackModel) -> Stack:
    install = [
        _normalised_spec(document, spec, ("stacks", name, "install", index)) for index, spec in enumerate(model.install)
    ]
    return Stack(
        name=name,
        description=model.description,
        variants=tuple(model.variants),
        packages=tuple(model.packages),
        install=tuple(install),
        validation={} if model.validate_ is None else model.validate_.model_dump(),
    )


def _normalised_spec(document: YamlDocument, spec: str, key_path: tuple[str | int, ...]) -> str:
    """The command line's form (``libtoy=*=udp*``) becomes the one that every client takes (``libtoy * udp*``)."""
    try:
        return str(MatchSpec(spec))
    except InvalidMatchSpecError as err:
        message = f"{spec!r} is no MatchSpec: {' '.join(str(err).split())}"
        raise document.error(message, *key_path, hint="write for example  pytorch-switchml  or  numpy >=2") from None


def _shape_error(document: YamlDocument, detail: ErrorDetails) -> ConfigError:
    location = detail["loc"]
    name = ".".join(str(part) for part in location)
    hint = "the keys of this file stand in docs/reference/variants.md"
    if detail["type"] == "extra_forbidden":
        return document.error(f"unknown key {name}", *location, hint=hint)
    if detail["type"] == "missing":
        return document.error(f"{name} is missing", *location, hint=hint)
    found = f", found {detail['input']!r}" if isinstance(detail["input"], str | int | float | bool) else ""
    return document.error(f"{name}: {detail['msg']}{found}" if name else detail["msg"], *location, hint=hint)


def find_stack(loaded: LoadedTree, name: str | None) -> Stack:
    """The stack called ``name``, the default one for None. Raises UsageError with the nearest names."""
    wanted = loaded.default_stack if name is None else name
    if (stack := loaded.stacks.get(wanted)) is not None:
        return stack
    message = f"{wanted!r} is no stack of {loaded.tree.stacks_file}"
    raise UsageError(message, hint=nearest_names_hint(wanted, loaded.stacks, what="stack"))
