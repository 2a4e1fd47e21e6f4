# SPDX-License-Identifier: BSD-3-Clause
"""How a request becomes the options of a command (``asks``), and what commands share besides their requests."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import os
import sys
import types
from collections.abc import Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    TypeVar,
    get_args,
    get_origin,
)

import typer

from channel_tools.requests import options as of_requests
from channel_tools.system.errors import ChannelError, NetworkError, UsageError
from channel_tools.system.settings import (
    ROOT_VARIABLE,
    Settings,
    active_prefix,
    find_cache,
    make_settings,
    package_cache_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from channel_tools.provenance.trust import Trust

# the options of requests that commands without a request have as well
DryRun = of_requests.DryRun
Base = of_requests.Base
Foundation = of_requests.Foundation
FoundationAddress = of_requests.FoundationAddress
Jobs = of_requests.Jobs
Json = of_requests.Json
Label = of_requests.Label
MirrorKeys = of_requests.MirrorKeys
PassphraseFile = of_requests.PassphraseFile
Stack = of_requests.Stack
channels_option = of_requests.channels_option
stack_option = of_requests.stack_option

ColorChoice = Literal["auto", "never"]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result and errors alone.")]
Color = Annotated[
    ColorChoice,
    typer.Option("--color", help="Colours and bars: on a terminal, or never, as with NO_COLOR."),
]
Root = Annotated[
    Path | None,
    typer.Option(
        help="The tree of recipes and variants; default: CHANNEL_TOOLS_ROOT, else searched upwards from here.",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(help="The folder for results; default: CHANNEL_TOOLS_OUTPUT, else TREE/output.", show_default=False),
]


At = Annotated[
    str, typer.Option("--at", metavar="TARGET", help="The target, as given to publish --to.", show_default=False)
]
_log = logging.getLogger(__name__)
_COLLECTIONS = (tuple, frozenset)
P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


def root_words(root: Path | None) -> list[str]:
    """The option that names the tree to another run of this program."""
    return [] if root is None else ["--root", str(root)]


def settings_from(root: Path | None, output: Path | None) -> Settings:
    """The locations of a command, from its options and the environment."""
    return make_settings(root=root, output=output, environ=os.environ, cwd=Path.cwd())


@contextlib.contextmanager
def settings_for_stacks(
    root: Path | None,
    output: Path | None,
    *,
    channels: Sequence[str] = (),
    prefix: Path | None = None,
    trust: Trust | None = None,
    is_named: bool = True,
) -> Iterator[Settings]:
    """The locations of a command that reads nothing of a tree but its stacks, while the block runs.

    Unless the stack ``is_named`` or a tree is, the stacks that the environment itself has come before those of a tree.
    Without a tree, the stacks are those of the channels, else those that the environment ``prefix`` (by default the
    active one) has. In one without any, as a client makes it from names of packages, they are those of the channels
    that it is from; this program's own are the same if they are from there, and are taken where these channels have
    none or cannot be read. Raises as settings_from and install_stacks do.
    """
    from channel_tools.system.settings import installed_settings, make_stacks_settings

    cwd = Path.cwd()
    chosen = prefix or active_prefix(os.environ)
    is_tree_named = root is not None or ROOT_VARIABLE in os.environ
    own: Settings | None = None
    if chosen is not None and not is_named and not is_tree_named:
        own = installed_settings((chosen,), output=output, environ=os.environ, cwd=cwd)
    try:
        settings = own or settings_from(root, output)
    except UsageError:
        if is_tree_named:
            raise
        settings = None
    if settings is not None:
        yield settings
        return
    if channels:
        with _stacks_of(channels, trust) as folder:
            yield make_stacks_settings(folder, output=output, environ=os.environ, cwd=cwd)
        return
    prefixes = () if chosen is None else (chosen,)
    of_prefix, of_program = (
        installed_settings(places, output=output, environ=os.environ, cwd=cwd)
        for places in (prefixes, (Path(sys.prefix),))
    )
    reason = ""
    if of_prefix is None and chosen is not None:
        named = _channels_of(chosen)
        if of_program is not None and not {*named}.isdisjoint(_channels_of(Path(sys.prefix))):
            named = ()
        with contextlib.ExitStack() as stack:
            try:
                found = stack.enter_context(_stacks_of(named, trust)) if named else None
            except (ChannelError, NetworkError, UsageError) as err:
                found, reason = None, f"; {err.message}"
                if of_program is not None:
                    _log.warning("stacks: those of this program's own environment; %s", err.message)
            if found is not None:
                yield make_stacks_settings(found, output=output, environ=os.environ, cwd=cwd)
                return
    if (settings_here := of_prefix or of_program) is None:
        if prefix is not None:
            from channel_tools.environments import check_environment

            check_environment(prefix)
        message = (
            "nothing here says what a stack is: no tree of recipes, no channel, no installed "
            f"channel_tools-stacks{reason}"
        )
        hint = (
            "name one: --root TREE, or --channel ADDRESS where the command has it; or have an environment keep them: "
            "channel_tools env add PREFIX channel_tools-stacks --channel ADDRESS"
        )
        raise UsageError(message, hint=hint)
    yield settings_here


def _channels_of(prefix: Path) -> tuple[str, ...]:
    """The channels that an environment's packages are from, in order of priority; none for what is no environment."""
    from channel_tools.environments.state import META, read_state

    return read_state(prefix).channels if (prefix / META).is_dir() else ()


@contextlib.contextmanager
def _stacks_of(channels: Sequence[str], trust: Trust | None) -> Iterator[Path]:
    """The folder of the stacks that channels have, while the block runs; ``trust`` says who must have signed them."""
    import asyncio

    from channel_tools.environments.stacks import install_stacks
    from channel_tools.provenance.verify import attestation_check
    from channel_tools.system.work_folder import temporary_folder

    cache = package_cache()
    cache.mkdir(parents=True, exist_ok=True)
    check = attestation_check(trust, channels, os.environ)
    with temporary_folder(cache) as folder:
        yield asyncio.run(install_stacks(folder / "stacks", channels, package_cache=cache, check=check))


def settings_if_any(root: Path | None, output: Path | None) -> Settings | None:
    """As settings_from, for commands that also work without a tree; None if there is none and none was named."""
    try:
        return settings_from(root, output)
    except UsageError:
        if root is not None or output is not None or ROOT_VARIABLE in os.environ:
            raise
        return None


def package_cache() -> Path:
    """The package cache, for commands that work without a tree."""
    return package_cache_in(find_cache(os.environ))


def asks(kind: type[T]) -> Callable[[Callable[Concatenate[T, P], None]], Callable[..., None]]:
    """A decorator for commands whose first parameter is a request of this ``kind``: its fields are the options.

    A field is an option if its type says so (``channel_tools.requests.options``); one whose default is a request brings
    the options of that request. The other fields keep their defaults. What the command requires comes first, then the
    fields in their order, then the command's own options.
    """
    asked = list(_parameters(kind))

    def decorate(command: Callable[Concatenate[T, P], None]) -> Callable[..., None]:
        _request, *own = inspect.signature(command, eval_str=True).parameters.values()

        @functools.wraps(command)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            values = {parameter.name: kwargs.pop(parameter.name) for parameter in asked}
            command(_requested(kind, values), *args, **kwargs)

        required = [item for item in (*own, *asked) if item.default is inspect.Parameter.empty]
        return with_parameters(run, [*required, *(item for item in (*asked, *own) if item not in required)])

    return decorate


def _parameters(kind: type) -> Iterator[inspect.Parameter]:
    """The options of a request as parameters of a command, which is how typer reads them."""
    for item, part, annotation in of_requests.option_fields(kind):
        if part is not None:
            yield from _parameters(part)
            continue
        value, *declared = get_args(annotation)
        default = inspect.Parameter.empty if item.default is MISSING else item.default
        if get_origin(value) in _COLLECTIONS:  # a list for typer, None if it is not given
            value = types.GenericAlias(list, get_args(value)[:1])
            value, default = (value, default) if item.default is MISSING else (value | None, None)
        option = Annotated[value, *declared]  # type: ignore[valid-type]
        yield inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, annotation=option, default=default)


def _requested(kind: type[T], values: Mapping[str, Any]) -> T:
    """The request with the values of its options, which may be those of more than this request."""
    arguments: dict[str, Any] = {}
    for item, part, annotation in of_requests.option_fields(kind):
        if part is not None:
            arguments[item.name] = _requested(part, values)
        elif (collection := get_origin(get_args(annotation)[0])) not in _COLLECTIONS:
            arguments[item.name] = values[item.name]
        elif values[item.name]:
            arguments[item.name] = collection(values[item.name])
    return kind(**arguments)


def with_parameters(command: Callable[P, R], parameters: Sequence[inspect.Parameter]) -> Callable[P, R]:
    """The command with the parameters that typer is to make options of: Python's own way to say them (PEP 362)."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command
