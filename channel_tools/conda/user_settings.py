# SPDX-License-Identifier: BSD-3-Clause
"""What a user has configured for conda, rattler and pixi: where channels are, and how they are reached.

From conda's .condarc (``condarc``) and the config.toml of rattler and pixi, which py-rattler finds, reads and merges.
A variable of the environment (HTTP_PROXY, HTTPS_PROXY, SSL_CERT_FILE, RATTLER_AUTH_FILE) stands over all files, and the
config.toml over .condarc. A channel's name that nothing here gives an address is an error: it is sent nowhere.

conda's configuration files (.condarc): which of a user's settings say where channels are and how to reach them.

Files are searched, merged and expanded as conda does (conda/base/constants.py, SEARCH_PATH; conda/common/
configuration.py): a later file stands over an earlier one, mappings are merged key by key, lists are joined, and
``#!final`` keeps what the first file has. A variable ``CONDA_<KEY>`` stands over all files. conda's own reader needs
conda.
"""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from rattler import Config

from channel_tools.conda.addresses import (
    is_channel_name,
    parse_address,
    path_of,
    scheme_of,
    without_quoted,
)
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.settings import USER_SETTINGS_VARIABLE, wants_user_settings
from channel_tools.system.yamlfile import parse_yaml, read_yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from channel_tools.system.yamlfile import YamlDocument, YamlValue

_SYSTEM = ("/etc/conda", "/var/lib/conda")
_NAMES = (".condarc", "condarc", "condarc.d")
_SUFFIXES = frozenset({".yml", ".yaml"})
_TEXTS = ("channel_alias", "ssl_verify", "client_ssl_cert", "client_ssl_cert_key")
_MAPPINGS = ("custom_channels", "proxy_servers")
_LISTS = "default_channels"
_LISTS_BY_NAME = "custom_multichannels"
_SETTINGS = (*_TEXTS, *_MAPPINGS, _LISTS, _LISTS_BY_NAME)
_ORDERED = re.compile(r"#!(top|bottom)\b")
_VARIABLE = re.compile(r"\$(\w+|\{[^}]*\})")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class CondaSetting(Generic[T]):
    """A value, and where it stands: ``FILE:LINE``, or a variable's name."""

    value: T
    origin: str
    final: bool = False


@dataclass(kw_only=True, slots=True)
class Condarc:
    """What conda's configuration says of channels and connections."""

    texts: dict[str, CondaSetting[str | bool]] = field(default_factory=dict)
    custom_channels: dict[str, CondaSetting[str]] = field(default_factory=dict)
    proxy_servers: dict[str, CondaSetting[str]] = field(default_factory=dict)
    multichannels: dict[str, CondaSetting[tuple[str, ...]]] = field(default_factory=dict)


def condarc_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """The files that conda would read, those that stand over others later.

    conda's own folder is CONDA_ROOT, else what its activation says by CONDA_EXE.
    """
    executable = environ.get("CONDA_EXE", "")
    root = environ.get("CONDA_ROOT", "") or (str(Path(executable).parent.parent) if executable else "")
    config, home, prefix = (environ.get(name, "") for name in ("XDG_CONFIG_HOME", "HOME", "CONDA_PREFIX"))
    folders = [*_SYSTEM, root, f"{config}/conda" if config else ""]
    folders += [f"{home}/.config/conda", f"{home}/.conda"] if home else []
    paths = [Path(folder, name) for folder in folders if folder for name in _NAMES]
    paths += [Path(home, ".condarc")] if home else []
    paths += [Path(prefix, name) for name in _NAMES] if prefix else []
    if named := environ.get("CONDARC", ""):
        paths.append(Path(os.path.expanduser(_expanded(named, environ))))  # noqa: PTH111 - as conda does
    for path in dict.fromkeys(paths):
        if path.is_dir():
            yield from sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES and file.is_file())
        elif path.is_file() and (path.name in _NAMES or path.suffix in _SUFFIXES):
            yield path


def read_condarc(environ: Mapping[str, str]) -> Condarc:
    """What all of conda's files and variables say. Raises ConfigError (file, line) for what conda would not read."""
    merged = Condarc()
    for path in condarc_files(environ):
        text = read_yaml_text(path)
        try:
            document = parse_yaml(text, path)
        except ConfigError as err:
            if any(f"duplicate key {key!r}" in str(err) for key in _SETTINGS):
                raise
            message = "not valid YAML (its text is not quoted here, since it may have secrets)"
            raise ConfigError(message, path=path, line=err.line, hint=err.hint) from None
        if document.value is None:
            continue
        if not isinstance(document.value, dict):
            raise ConfigError("not a configuration file of conda", path=path, hint="write each setting as  KEY: value")
        _File(document, document.value, text.splitlines(), environ).merge_into(merged)
    for key in _TEXTS:
        if value := environ.get(f"CONDA_{key.upper()}", ""):
            merged.texts[key] = CondaSetting(value=_as_boolean(value), origin=f"CONDA_{key.upper()}")
    if value := environ.get(f"CONDA_{_LISTS.upper()}", ""):
        names = tuple(name.strip() for name in value.split(",") if name.strip())
        _join(merged.multichannels, "defaults", CondaSetting(value=names, origin=f"CONDA_{_LISTS.upper()}"))
    return merged


class _File:
    """One file, whose settings stand over those that were merged before, unless these are final."""

    def __init__(
        self, document: YamlDocument, content: dict[str, YamlValue], lines: list[str], environ: Mapping[str, str]
    ) -> None:
        self._document, self._content, self._lines, self._environ = document, content, lines, environ

    def merge_into(self, merged: Condarc) -> None:
        content = self._content
        for key in _TEXTS:
            if content.get(key) is not None:
                _stand_over(merged.texts, key, self._setting(self._text(key), key))
        for key, into in zip(_MAPPINGS, (merged.custom_channels, merged.proxy_servers), strict=True):
            for name, value in self._mapping(key).items():
                if value is not None:
                    _stand_over(into, name, self._setting(str(self._text(key, name)), key, name))
        if content.get(_LISTS) is not None:
            _join(merged.multichannels, "defaults", self._setting(self._list(_LISTS), _LISTS))
        for name in self._mapping(_LISTS_BY_NAME):
            _join(merged.multichannels, name, self._setting(self._list(_LISTS_BY_NAME, name), _LISTS_BY_NAME, name))

    def _setting(self, value: T, *where: str) -> CondaSetting[T]:
        line = self._document.line_of(*where)
        final = "#!final" in self._lines[line - 1]
        return CondaSetting(value=value, origin=f"{self._document.path}:{line}", final=final)

    def _at(self, *where: str) -> YamlValue:
        value: YamlValue = self._content
        for key in where:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def _text(self, *where: str) -> str | bool:
        value = self._at(*where)
        if isinstance(value, bool) and where == ("ssl_verify",):
            return value
        if not isinstance(value, str):
            raise self._document.error(f"{'.'.join(where)}: expected text", *where, hint="write it in quotes")
        return _as_boolean(_expanded(value, self._environ)) if where == ("ssl_verify",) else self._expanded(value)

    def _expanded(self, value: str) -> str:
        return _expanded(value, self._environ)

    def _mapping(self, key: str) -> dict[str, YamlValue]:
        value = self._content.get(key)
        if value is not None and not isinstance(value, dict):
            raise self._document.error(f"{key}: expected names and values", key, hint="write  NAME: value  below it")
        return value or {}

    def _list(self, *where: str) -> tuple[str, ...]:
        value = self._at(*where)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._document.error(f"{'.'.join(where)}: expected a list", *where, hint="write each as  - ADDRESS")
        at = {self._document.line_of(*where, *below) for below in ((), *((index,) for index in range(len(value))))}
        if any(_ORDERED.search(self._lines[line - 1]) for line in at):
            message = "#!top and #!bottom in lists of channels are not read here"
            raise self._document.error(message, *where, hint="write the whole list, in order, into one file")
        return tuple(self._expanded(str(item)) for item in value)


def _stand_over(into: dict[str, CondaSetting[T]], key: str, setting: CondaSetting[T]) -> None:
    earlier = into.get(key)
    if earlier is None or not earlier.final:
        into[key] = setting


def _join(into: dict[str, CondaSetting[tuple[str, ...]]], key: str, setting: CondaSetting[tuple[str, ...]]) -> None:
    """Lists of later files come first; what an earlier one has besides follows."""
    earlier = into.get(key)
    if earlier is None:
        into[key] = setting
    elif not earlier.final:
        values = tuple(dict.fromkeys([*setting.value, *earlier.value]))
        into[key] = CondaSetting(value=values, origin=f"{setting.origin}, {earlier.origin}", final=setting.final)


def _as_boolean(value: str) -> str | bool:
    """As conda reads text where a switch or a path is expected."""
    known = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    return known.get(value.strip().lower(), value)


def _expanded(value: str, environ: Mapping[str, str]) -> str:
    """With the variables ``$NAME`` and ``${NAME}`` that are set."""
    return _VARIABLE.sub(lambda match: environ.get(match[1].strip("{}"), match[0]), value)


_TOOL = "pixi"
"""Whose config.toml is read beside rattler's own."""
_ANACONDA = "https://conda.anaconda.org"
"""What rattler and pixi make of a name; only used where a mirror takes its place."""
_PLATFORM_STORE = "truststore"


@dataclass(frozen=True, kw_only=True, slots=True)
class _TomlFile:
    path: Path
    config: Config


@dataclass(frozen=True, kw_only=True, slots=True)
class UserSettings:
    """All of them; the default has none."""

    conda: Condarc = field(default_factory=Condarc)
    rattler: Config = field(default_factory=Config)
    files: tuple[_TomlFile, ...] = ()
    """The config.toml files that were read, those that stand over others later."""
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    def addresses_of(self, channels: Sequence[str]) -> tuple[str, ...]:
        """The addresses or folders of these channels; names are replaced by what the settings say.

        Raises UsageError for a name that no setting gives an address.
        """
        return tuple(dict.fromkeys(address for channel in channels for address in self._addresses(channel)))

    def _addresses(self, channel: str) -> Iterator[str]:
        custom = self._custom(channel)
        if custom is None and not is_channel_name(channel):
            yield channel
        elif (several := self.conda.multichannels.get(channel)) is not None:
            for member in several.value:
                yield member if scheme_of(member) else self._below_alias(member)
        else:
            yield custom or self._below_alias(channel)

    def _custom(self, channel: str) -> str | None:
        """The address by custom_channels or as one of a list of channels, which also have ``NAME/label/...``.

        None if no name of these begins it.
        """
        if scheme_of(channel) or channel.startswith((".", "/", "~")):
            return None
        parts = channel.split("/")
        for count in range(len(parts), 0, -1):
            name = "/".join(parts[:count])
            if name in self._member_addresses or name in self.conda.custom_channels:
                if "/" in channel and Path(channel).is_dir():
                    return None
                base = self._place_of(name)
                return self._below_alias(channel) if base is None else f"{base}/{channel}"
        return None

    def _place_of(self, name: str) -> str | None:
        """What stands before a custom channel's name, None for channel_alias."""
        custom = self.conda.custom_channels.get(name)
        if custom is None:
            return self._member_addresses[name].removesuffix(f"/{name}")
        base = custom.value.rstrip("/")
        return base if scheme_of(base) else None

    @property
    def _member_addresses(self) -> dict[str, str]:
        """The addresses in lists of channels, each by its path: conda knows these names, too."""
        listed = (address for several in self.conda.multichannels.values() for address in several.value)
        plain = (address.rstrip("/") for address in listed if scheme_of(address))
        return {name: address for address in plain if (name := path_of(address).strip("/"))}

    def _below_alias(self, name: str) -> str:
        alias = self.conda.texts.get("channel_alias")
        if alias is not None:
            try:
                parse_address(str(alias.value))
            except UsageError as err:
                raise ConfigError(f"{alias.origin}: channel_alias: {err}", hint=err.hint) from None
            return f"{str(alias.value).rstrip('/')}/{name}"
        address = f"{_ANACONDA}/{name}"
        if any(f"{address}/".startswith(f"{mirrored.rstrip('/')}/") for mirrored in self.rattler.mirrors):
            return address
        message = f"{name}: a channel's name, and no setting says where it is"
        hint = (
            f"write its address ({_ANACONDA}/{name} is the public one) or ./{name} for a folder, "
            "or set custom_channels or channel_alias in ~/.condarc"
        )
        raise UsageError(message, hint=hint)

    def variables(self) -> dict[str, str]:
        """The environment variables that say the same to rattler's client and ours, without those that are set."""
        variables: dict[str, str] = {}
        for scheme in ("http", "https"):
            known = self.conda.proxy_servers
            ours = {"http": self.rattler.proxy_http, "https": self.rattler.proxy_https}[scheme]
            setting = known.get(scheme, known.get("all"))
            if (proxy := (ours or (setting.value if setting else None))) is not None:
                variables[f"{scheme}_proxy"] = proxy
        if hosts := self.rattler.proxy_non_proxy_hosts:
            variables["no_proxy"] = ",".join(hosts)
        if (file := self.rattler.authentication_override_file) is not None:
            variables["RATTLER_AUTH_FILE"] = str(file)
        if (bundle := self.certificates) is not None:
            variables["SSL_CERT_DIR" if bundle.is_dir() else "SSL_CERT_FILE"] = str(bundle)
        if "SSL_CERT_FILE" in self.environ or "SSL_CERT_DIR" in self.environ:
            variables = {name: value for name, value in variables.items() if not name.startswith("SSL_")}
        return {name: value for name, value in variables.items() if not _is_set(name, self.environ)}

    @property
    def verifies(self) -> bool:
        """Whether certificates of servers are verified."""
        if self.rattler.tls_no_verify is not None:
            return not self.rattler.tls_no_verify
        setting = self.conda.texts.get("ssl_verify")
        return setting is None or setting.value is not False

    @property
    def unverified_by(self) -> str:
        """Where it says that certificates are not verified: a file, or a variable."""
        files = [str(file.path) for file in self.files if file.config.tls_no_verify]
        return files[-1] if files else self.conda.texts["ssl_verify"].origin

    @property
    def certificates(self) -> Path | None:
        """A file or folder of certificates to trust instead of the platform's. Raises ConfigError if it is missing."""
        setting = self.conda.texts.get("ssl_verify")
        if setting is None or isinstance(setting.value, bool) or setting.value == _PLATFORM_STORE:
            return None
        return _existing(setting, "ssl_verify")

    @property
    def client_certificate(self) -> tuple[Path, Path | None] | None:
        """The file with the client's certificate, and that of its key. Raises ConfigError if one is missing."""
        certificate, key = (self.conda.texts.get(name) for name in ("client_ssl_cert", "client_ssl_cert_key"))
        if certificate is None:
            return None
        key_file = None if key is None else _existing(key, "client_ssl_cert_key")
        return _existing(certificate, "client_ssl_cert"), key_file


def _is_set(name: str, environ: Mapping[str, str]) -> bool:
    return bool(environ.get(name) or environ.get(name.upper()))


def _existing(setting: CondaSetting[str | bool], key: str) -> Path:
    path = Path(os.path.expanduser(str(setting.value)))  # noqa: PTH111 - where there is no home, it does not exist
    if not path.exists():
        raise ConfigError(f"{setting.origin}: {key}: {path} does not exist", hint="name a file of certificates (PEM)")
    return path


def find_user_settings(environ: Mapping[str, str]) -> UserSettings:
    """The user's settings; none where CHANNEL_TOOLS_USER_SETTINGS says ``no``.

    Raises ConfigError for a file that its own program could not read either.
    """
    if not wants_user_settings(environ):
        return UserSettings(environ=environ)
    return _read_once(tuple(sorted(environ.items())))


@functools.lru_cache(maxsize=1)
def _read_once(environ_items: tuple[tuple[str, str], ...]) -> UserSettings:
    Path.cwd()  # raises where it was removed, in which rattler's Config panics
    environ = dict(environ_items)
    files = tuple(
        _read_toml(path, shared=shared) for path, shared in Config.config_search_paths(_TOOL) if path.is_file()
    )
    merged = functools.reduce(Config.merge, (file.config for file in files), Config())
    return UserSettings(conda=read_condarc(environ), rattler=merged, files=files, environ=environ)


def _read_toml(path: Path, *, shared: bool) -> _TomlFile:
    """A config.toml; a ``shared`` one is for all tools of rattler's. Raises ConfigError."""
    try:
        config, _unknown = Config.from_toml_with_unused_keys(path.read_text(encoding="utf-8"), shared)
        config.validate()
    except ValueError as err:
        lines = str(err).splitlines()  # those between quote the file, which may have a proxy's password
        reason = ": ".join(dict.fromkeys(map(without_quoted, (lines[0], lines[-1].strip()))))
        hint = f"correct the file; {USER_SETTINGS_VARIABLE}=no leaves all such files out"
        raise ConfigError(f"not a configuration of rattler: {reason}", path=path, hint=hint) from None
    return _TomlFile(path=path, config=config)
