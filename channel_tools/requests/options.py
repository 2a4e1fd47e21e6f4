# SPDX-License-Identifier: BSD-3-Clause
"""How a field of a request says that it is an option of the command line, and the options that several requests share.

A field whose type is ``Annotated[T, Option(...)]`` or ``Annotated[T, Argument(...)]`` (typer's own classes) is one: its
name, type and default are the option's. A field whose default is a request brings the options of that request.
``cli.options.asks`` makes the command from them, and words_of the words of a command that is to be run elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer import Option

from channel_tools.requests.names import BaseName, FoundationKind
from channel_tools.system.errors import UsageError


def stack_option(default: str) -> Any:  # noqa: ANN401 - as typer.Option
    """The option for a stack; ``default`` says which one it is where none is given."""
    words = "The stack; `channel_tools list` shows them."
    return Option("--variant", "--stack", "-V", help=words, show_default=default)


def given_channels(channels: list[str] | None) -> list[str] | None:
    """The addresses and folders of channels that an option names, by the user's settings. Raises as addresses_of."""
    if not channels:
        return None
    from channel_tools.conda.user_settings import find_user_settings

    return list(find_user_settings(os.environ).addresses_of(channels))


def channels_option(words: str, default: str) -> Any:  # noqa: ANN401 - as typer.Option
    """The option for channels by address, folder or name; ``default`` says which they are where none is given."""
    return Option("--channel", "-c", callback=given_channels, help=words, show_default=default)


def _given_channel(channel: str | None) -> str | None:
    addresses = given_channels([channel] if channel else None)
    if addresses and len(addresses) > 1:
        message = f"{channel}: several channels by the settings: {', '.join(addresses)}"
        raise UsageError(message, hint="give the address of one")
    return addresses[0] if addresses else None


Stack = Annotated[str | None, stack_option("the default stack")]
Python = Annotated[
    str | None,
    Option(
        "--python",
        help="For this Python, such as 3.13, or 3.13t (free-threaded).",
        show_default="the default variant's",
    ),
]
Pytorch = Annotated[
    str | None, Option("--pytorch", help="For this PyTorch, such as 2.12.", show_default="the default variant's")
]
Foundation = Annotated[
    FoundationKind | None,
    Option(
        "--foundation",
        help="The channel's foundation: made from wheels and Debian packages, or conda-forge.",
        show_default="the channel's own; registry for a new one",
    ),
]
Base = Annotated[
    BaseName | None,
    Option(
        "--base",
        help="The Debian release that the registry foundation is made from, whose glibc packages then require.",
        show_default="the channel's own; for a new one the newest that runs here",
    ),
]
FoundationAddress = Annotated[
    str | None,
    Option(
        "--foundation-channel",
        callback=_given_channel,
        help="With --foundation conda-forge: the address of a channel with conda-forge's package names.",
        show_default="conda-forge",
    ),
]
FurtherChannels = Annotated[
    tuple[str, ...],
    channels_option(
        "Build and host requirements may also come from this address, folder or name (`config` shows whose), "
        "below the local channel, which records it; may be repeated.",
        "those that the local channel records",
    ),
]
Label = Annotated[str, Option("--label", help="The label to publish under; main is the target's own address.")]
Jobs = Annotated[
    int | None, Option("--jobs", "-j", min=1, help="Packages at once.", show_default="the number of cores")
]
Categories = Annotated[
    tuple[str, ...],
    Option(
        "--category",
        help="Also the packages of this category of a conda-lock.yml; may be repeated.",
        show_default="main alone",
    ),
]
LockEnvironment = Annotated[
    str | None, Option("--environment", help="The environment of a pixi.lock.", show_default="default")
]
VirtualPackages = Annotated[
    tuple[str, ...],
    Option(
        "--virtual-package",
        help="Assume this virtual package: __cuda=12.9, linux-64:__glibc=2.28, __cuda= (none); may be repeated.",
        show_default="this machine's",
    ),
]
SigningKey = Annotated[
    Path | None,
    Option(
        "--signing-key",
        metavar="FILE",
        help="The private key for attestations, or its folder; default: CHANNEL_TOOLS_SIGNING_KEY.",
        show_default="OUTPUT/keys, created if missing",
    ),
]
PassphraseFile = Annotated[
    Path | None,
    Option("--passphrase-file", help="The file whose first line is the keys' passphrase.", show_default="none"),
]
SigstoreConfig = Annotated[
    Path | None,
    Option(
        "--sigstore-config",
        metavar="FILE",
        help="A Sigstore of your own: its ClientTrustConfig (JSON).",
        show_default="the public instance",
    ),
]
MirrorKeys = Annotated[
    Path | None,
    Option("--keys", metavar="FOLDER", help="The key folder.", show_default="in the user's settings folder"),
]
Json = Annotated[bool, Option("--json", help="Print JSON on stdout.")]
DryRun = Annotated[bool, Option("--dry-run", "-n", help="Show what would be done; change nothing.")]


def option_fields(kind: type) -> Iterator[tuple[Field[Any], Any, Any]]:
    """The fields of a request that are options or bring some: with the request that brings them, or their own type."""
    hints = get_type_hints(kind, include_extras=True)
    for item in fields(kind):
        factory: Any = item.default_factory
        if is_dataclass(factory):
            yield item, factory, None
        elif get_origin(hints[item.name]) is Annotated:
            yield item, None, hints[item.name]


def words_of(request: Any, *, omit: Collection[str] = ()) -> Iterator[str]:  # noqa: ANN401 - any request
    """The words of a command line that ask for the same as a request: its options that are not at their defaults.

    ``omit`` are fields that are left out. Flags and options with values are meant, no arguments.
    """
    for item, part, annotation in option_fields(type(request)):
        value = getattr(request, item.name)
        if item.name in omit or (part is None and value == item.default):
            continue
        if part is not None:
            yield from words_of(value, omit=omit)
            continue
        # in an Annotated, typer takes what is given first for the default, also if it is a name
        given = (name for declared in get_args(annotation)[1:] for name in (declared.default, *declared.param_decls))
        names = (name for name in given if isinstance(name, str) and name.startswith("--"))
        name = next(names, f"--{item.name.replace('_', '-')}")
        if value is True:
            yield name
            continue
        for text in value if isinstance(value, (tuple, frozenset)) else (value,):
            yield from (name, str(text))
