# SPDX-License-Identifier: BSD-3-Clause
"""Options that several commands share, each declared once, and how they become a command's request (``grouped``)."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Literal, ParamSpec, TypeVar, get_args

import typer

from channel_tools.requests.plan import FoundationKind
from channel_tools.system.errors import UsageError
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

Declared = Mapping[str, object]
"""Options by the fields of a request: annotations of typer, or for a field that is a request itself, its options."""

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


def stack_option(default: str) -> Any:  # noqa: ANN401 - as typer.Option
    """The option for a stack; ``default`` says which one it is where none is given."""
    words = "The stack; `channel_tools list` shows them."
    return typer.Option("--variant", "--stack", "-V", help=words, show_default=default)


Stack = Annotated[str | None, stack_option("the default stack")]
Every = Annotated[bool, typer.Option("--all", help="All stacks.")]
Python = Annotated[
    str | None,
    typer.Option(
        "--python",
        help="For this Python, such as 3.13, or 3.13t (free-threaded).",
        show_default="the default variant's",
    ),
]
Pytorch = Annotated[
    str | None, typer.Option("--pytorch", help="For this PyTorch, such as 2.12.", show_default="the default variant's")
]
AllVariants = Annotated[
    bool,
    typer.Option("--all-variants", help="For every Python and PyTorch, not only the default variant's."),
]
Force = Annotated[bool, typer.Option("--force", help="Also build what is already in the channel.")]
Packages = Annotated[
    list[str] | None,
    typer.Option("--package", "-p", help="Only this package and what it needs; may be repeated.", show_default="all"),
]
Foundation = Annotated[
    FoundationKind | None,
    typer.Option(
        "--foundation",
        help="The channel's foundation: made from wheels and Debian packages, or conda-forge.",
        show_default="the channel's own; registry for a new one",
    ),
]


def given_channels(channels: list[str] | None) -> list[str] | None:
    """The addresses and folders of channels that an option names, by the user's settings. Raises as addresses_of."""
    if not channels:
        return None
    from channel_tools.conda.user_settings import find_user_settings

    return list(find_user_settings(os.environ).addresses_of(channels))


def channels_option(words: str, default: str) -> Any:  # noqa: ANN401 - as typer.Option
    """The option for channels by address, folder or name; ``default`` says which they are where none is given."""
    return typer.Option("--channel", "-c", callback=given_channels, help=words, show_default=default)


def _given_channel(channel: str | None) -> str | None:
    addresses = given_channels([channel] if channel else None)
    if addresses and len(addresses) > 1:
        message = f"{channel}: several channels by the settings: {', '.join(addresses)}"
        raise UsageError(message, hint="give the address of one")
    return addresses[0] if addresses else None


FoundationAddress = Annotated[
    str | None,
    typer.Option(
        "--foundation-channel",
        callback=_given_channel,
        help="With --foundation conda-forge: the address of a channel with conda-forge's package names.",
        show_default="conda-forge",
    ),
]
Update = Annotated[bool, typer.Option("--update", help="Look for newer versions of the foundation's inputs.")]
Locked = Annotated[
    Path | None,
    typer.Option("--locked", help="Use exactly the versions and hashes of this foundation.json.", show_default=False),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Packages at once.", show_default="the number of cores")
]
Channels = Annotated[
    list[str] | None,
    channels_option(
        "Install from this address, folder or name (`config` shows whose); may be repeated.", "the local channel"
    ),
]
FurtherChannels = Annotated[
    list[str] | None,
    channels_option(
        "Build and host requirements may also come from this address, folder or name (`config` shows whose), "
        "below the local channel, which records it; may be repeated.",
        "those that the local channel records",
    ),
]
Categories = Annotated[
    list[str] | None,
    typer.Option(
        "--category",
        help="Also the packages of this category of a conda-lock.yml; may be repeated.",
        show_default="main alone",
    ),
]
LockEnvironment = Annotated[
    str | None,
    typer.Option("--environment", help="The environment of a pixi.lock.", show_default="default"),
]
VirtualPackages = Annotated[
    list[str] | None,
    typer.Option(
        "--virtual-package",
        help="Assume this virtual package: __cuda=12.9, linux-64:__glibc=2.28, __cuda= (none); may be repeated.",
        show_default="this machine's",
    ),
]
At = Annotated[
    str, typer.Option("--at", metavar="TARGET", help="The target, as given to publish --to.", show_default=False)
]
SigningKey = Annotated[
    Path | None,
    typer.Option(
        "--signing-key",
        metavar="FILE",
        help="The private key for attestations, or its folder; default: CHANNEL_TOOLS_SIGNING_KEY.",
        show_default="OUTPUT/keys, created if missing",
    ),
]
PassphraseFile = Annotated[
    Path | None,
    typer.Option("--passphrase-file", help="The file whose first line is the keys' passphrase.", show_default="none"),
]
SigstoreConfig = Annotated[
    Path | None,
    typer.Option(
        "--sigstore-config",
        metavar="FILE",
        help="A Sigstore of your own: its ClientTrustConfig (JSON).",
        show_default="the public instance",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Show what would be done; change nothing.")]
STACK_PACKAGES: Declared = {
    "stack": Stack,
    "every_stack": Every,
    "packages": Packages,
    "all_variants": AllVariants,
    "python": Python,
    "pytorch": Pytorch,
}
"""The options for packages of a stack, by the fields of PlanRequest."""
TRUST: Declared = {
    "trusted_keys": Annotated[
        list[Path] | None,
        typer.Option(
            "--trusted-key",
            metavar="FILE",
            help="A public key (attestation-KEYID.json), or a folder of such files; may be repeated.",
            show_default="those beside the local channel's signing key",
        ),
    ],
    "certificate_identity": Annotated[
        str | None,
        typer.Option(
            metavar="URL|EMAIL",
            help="The identity that must have signed with Sigstore, as in its certificate.",
            show_default="none",
        ),
    ],
    "certificate_oidc_issuer": Annotated[
        str | None, typer.Option(metavar="URL", help="The OpenID Connect issuer of that identity.", show_default="none")
    ],
    "sigstore_config": SigstoreConfig,
}
"""The options for whose attestations count, by the fields of TrustRequest."""
ON_FOUNDATION: Declared = {**STACK_PACKAGES, "foundation": Foundation, "address": FoundationAddress}
"""The same on a foundation."""
TO_PLAN: Declared = {**ON_FOUNDATION, "further": FurtherChannels, "force": Force}
"""The same for what is built."""
P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


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
    active one) or this program's own has. Raises as settings_from and install_stacks do.
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
    prefixes = (*(() if chosen is None else (chosen,)), Path(sys.prefix))
    if (settings_here := installed_settings(prefixes, output=output, environ=os.environ, cwd=cwd)) is None:
        message = "nothing here says what a stack is: no tree of recipes, no channel, no installed channel_tools-stacks"
        hint = "name one: --root TREE, or --channel ADDRESS where the command has it; or install channel_tools-stacks"
        raise UsageError(message, hint=hint)
    yield settings_here


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


def grouped(kind: type[T], declared: Declared) -> Callable[[Callable[Concatenate[T, P], None]], Callable[..., None]]:
    """A decorator for commands whose first parameter is a request: a ``kind``, a dataclass that knows nothing of typer.

    ``declared`` says which of its fields are options. A field that is a tuple or a set has the values of a list option,
    or its default without any; one that is a request itself is made of the options that are declared for it. What the
    command requires comes first, then the fields, then the command's own options. Raises KeyError for a name that is no
    field.
    """
    grouped_parameters = list(_parameters(kind, declared))

    def decorate(command: Callable[Concatenate[T, P], None]) -> Callable[..., None]:
        _group, *own = inspect.signature(command, eval_str=True).parameters.values()

        @functools.wraps(command)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            values: dict[str, Any] = {parameter.name: kwargs.pop(parameter.name) for parameter in grouped_parameters}
            command(_requested(kind, declared, values), *args, **kwargs)

        every = [*grouped_parameters, *own]
        required = [parameter for parameter in own if parameter.default is inspect.Parameter.empty]
        required += [parameter for parameter in grouped_parameters if parameter.default is inspect.Parameter.empty]
        parameters = [*required, *(parameter for parameter in every if parameter not in required)]
        return with_parameters(run, parameters)

    return decorate


def _parameters(kind: type[T], declared: Declared) -> Iterator[inspect.Parameter]:
    """The options of a request, and of the requests that it is made of, in the order of their declaration."""
    for name, annotation in declared.items():
        default = _default(kind, name)
        if isinstance(annotation, Mapping):
            yield from _parameters(type(default), annotation)
        else:
            yield _parameter(name, annotation, default)


def _requested(kind: type[T], declared: Declared, values: Mapping[str, Any]) -> T:
    """The request with the values of its options."""
    arguments: dict[str, Any] = {}
    for name, annotation in declared.items():
        default = _default(kind, name)
        if isinstance(annotation, Mapping):
            arguments[name] = _requested(type(default), annotation, values)
        elif isinstance(default, (tuple, frozenset)):
            arguments[name] = type(default)(values[name] or default)
        elif isinstance(values[name], list):  # of a field without a default
            arguments[name] = tuple(values[name])
        else:
            arguments[name] = values[name]
    return kind(**arguments)


def _default(kind: type, name: str) -> object:
    """The default of a request's field; MISSING if it has none."""
    field = {item.name: item for item in fields(kind)}[name]
    return field.default if field.default_factory is MISSING else field.default_factory()


def with_parameters(command: Callable[P, R], parameters: Sequence[inspect.Parameter]) -> Callable[P, R]:
    """The command with the parameters that typer is to make options of: Python's own way to say them (PEP 362)."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _parameter(name: str, annotation: object, default: object) -> inspect.Parameter:
    """An option of a command: required without a default, or if None is one but not a value of the annotated type.

    That of a tuple or a set is a list option, which is None if it is not given.
    """
    if isinstance(default, (tuple, frozenset)):
        default = None
    elif default is MISSING or (default is None and type(None) not in get_args(get_args(annotation)[0])):
        default = inspect.Parameter.empty
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
