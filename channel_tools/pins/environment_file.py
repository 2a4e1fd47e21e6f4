# SPDX-License-Identifier: BSD-3-Clause
"""environment.yml: names, versions and channels that are still to be solved, as conda's clients read it.

conda's own reader is conda/env/env.py. It ignores keys that it does not know and comments such as ``# [linux]``, which
conda-lock evaluates as a selector; here the first are named and the second are refused, since what would be installed
depends on the tool. Packages of pip, which conda passes on to pip, are refused like those in locks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.conda.addresses import channel_address, is_channel_name
from channel_tools.conda.solving import parse_spec
from channel_tools.conda.user_settings import find_user_settings
from channel_tools.pins.choice import check_credentials, pip_error
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.yamlfile import parse_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from channel_tools.system.progress import Note
    from channel_tools.system.yamlfile import YamlDocument, YamlValue

DEPENDENCIES = "dependencies"
_KEYS = frozenset({"name", "prefix", "channels", DEPENDENCIES, "variables"})
_SELECTOR = re.compile(r"\s*-.*#\s*(\[[^\]]+\])\s*")
_PLATFORM = re.compile(r"#\s*platform:\s*(\S+)\s*")
_WITHOUT_DEFAULTS = "nodefaults"
_DEFAULTS = "defaults"
_ALIAS = "https://conda.anaconda.org"
"""What py-rattler makes of a name before ``::``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentFile:
    """What an environment.yml asks for.

    ``channels`` are addresses or names in order of priority, without ``nodefaults``; ``specs`` are MatchSpecs.
    ``variables`` are the names of the environment variables that conda would set. ``platform`` is the one that a file
    of ours was written for.
    """

    path: Path
    name: str
    channels: tuple[str, ...]
    specs: tuple[str, ...]
    variables: tuple[str, ...] = ()
    platform: str | None = None

    def required_channels(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """The channels to solve from, names by the settings of the user to whom ``environ`` belongs.

        Raises ConfigError if the file has none, one that needs a variable, or a name that no setting gives an address.
        """
        if not self.channels:
            message = "it names no channels; conda would take those of the user's configuration"
            raise ConfigError(message, path=self.path, hint="add channels to it, or give them with --channel")
        for channel in self.channels:
            if "$" in channel:
                message = f"the channel {channel} has a variable"
                raise ConfigError(message, path=self.path, hint="give the channels with --channel")
        try:
            return find_user_settings(environ).addresses_of(self.channels)
        except UsageError as err:
            raise ConfigError(str(err), path=self.path, hint=err.hint) from None


def parse_environment_file(text: str, path: Path, *, note: Note, pip_matters: bool = True) -> EnvironmentFile:
    """Read an environment.yml; ``note`` gets a line for each part of it that has no effect.

    Raises ConfigError (file, line) for what conda does not read either, a spec that py-rattler does not read, a comment
    that looks like a selector, and pip packages, unless ``pip_matters`` is false.
    """
    document = parse_yaml(text, path)
    content = document.value
    if not isinstance(content, dict) or DEPENDENCIES not in content:
        raise ConfigError(f"not an environment.yml: it has no {DEPENDENCIES}", path=path, hint="add them")
    for number, line in enumerate(text.splitlines(), start=1):
        if pip_matters and (match := _SELECTOR.fullmatch(line)) is not None:
            message = f"the comment # {match[1]} is a selector for conda-lock, and nothing for conda"
            raise ConfigError(message, path=path, line=number, hint="write one file for each platform without such")
    for key in content:
        if key not in _KEYS:
            note(f"note: {path}:{document.line_of(key)}: ignored {key}, which is no key of environment.yml")
    specs = tuple(_specs(document, content[DEPENDENCIES], pip_matters=pip_matters))
    variables = content.get("variables") or {}
    if not isinstance(variables, dict):
        raise document.error("variables: expected names and values", "variables", hint="write NAME: value")
    channels: dict[str, str] = {}
    for channel in [*_channels(document, content), *_named_channels(specs)]:
        channels.setdefault(
            channel if "$" in channel or is_channel_name(channel) else channel_address(channel), channel
        )
    platform = next((match[1] for line in text.splitlines() if (match := _PLATFORM.fullmatch(line))), None)
    return EnvironmentFile(
        path=path,
        name=_name(document, content),
        channels=tuple(channels.values()),
        specs=specs,
        variables=tuple(variables),
        platform=platform,
    )


def _name(document: YamlDocument, content: dict[str, YamlValue]) -> str:
    name = content.get("name")
    if name is None:
        return document.path.stem
    if isinstance(name, dict | list):
        raise document.error("name: expected text", "name", hint="write name: NAME")
    return document.spellings.get(("name",), str(name))


def _specs(document: YamlDocument, dependencies: YamlValue, *, pip_matters: bool) -> Iterator[str]:
    if not isinstance(dependencies, list | None):
        raise document.error("dependencies: expected a list", DEPENDENCIES, hint="write each as  - name=version")
    for index, value in enumerate(dependencies or []):
        where = (DEPENDENCIES, index)
        if isinstance(value, dict):
            _check_section(document, value, index, pip_matters=pip_matters)
            continue
        if not isinstance(value, str):
            message = f"{value!r} is not a dependency"
            raise document.error(message, *where, hint="write it as  - name=version")
        try:
            spec = parse_spec(value)
        except UsageError as err:
            raise document.error(str(err), *where, hint=err.hint) from None
        if spec.channel is not None and spec.channel.name == _DEFAULTS:
            message = f"{value}: defaults is several channels, which the user's configuration names"
            raise document.error(message, *where, hint="name one of them, such as  pkgs/main::NAME")
        yield value.strip()


def _check_section(document: YamlDocument, section: dict[str, YamlValue], index: int, *, pip_matters: bool) -> None:
    """Raise ConfigError for a list of packages of another installer."""
    for key, value in section.items():
        where = (DEPENDENCIES, index, key)
        if key != "pip":
            raise document.error(f"{key}: not an installer that conda knows", *where, hint="remove the section")
        if value and pip_matters:
            names = [str(item) for item in value] if isinstance(value, list) else [str(value)]
            raise pip_error(names, document.path, line=document.line_of(*where), tool="conda")


def _channels(document: YamlDocument, content: dict[str, YamlValue]) -> Iterator[str]:
    channels = content.get("channels") or []
    if not isinstance(channels, list):
        raise document.error("channels: expected a list", "channels", hint="write each as  - conda-forge")
    for index, channel in enumerate(channels):
        if not isinstance(channel, str):
            message = f"{channel!r} is not a channel"
            raise document.error(message, "channels", index, hint="write its name or address")
        if "$" in channel or is_channel_name(channel):
            if channel != _WITHOUT_DEFAULTS:
                yield channel
        else:
            check_credentials(channel, document.path, line=document.line_of("channels", index))
            try:
                channel_address(channel)
            except UsageError as err:
                raise document.error(str(err), "channels", index, hint=err.hint) from None
            yield channel


def _named_channels(specs: tuple[str, ...]) -> Iterator[str]:
    """The channels of specs such as ``channel::name``."""
    for text in specs:
        channel = parse_spec(text).channel
        if channel is not None:
            address = channel.base_url.rstrip("/")
            yield str(channel.name) if address == f"{_ALIAS}/{channel.name}" and address not in text else address
