# SPDX-License-Identifier: BSD-3-Clause
"""MatchSpecs, package names and the records that they are compared with, all read by py-rattler.

Every requirement of a package, a lock or a stack is read here, so that ``alib<2``, ``ours::alib <2``, ``ALIB <2`` and
``alib[version='<2']`` mean the same everywhere. What was read is cached: a channel repeats the same few thousand
requirements, and matching needs them again for each candidate.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

from rattler import BuildString, MatchSpec, PackageRecord, Version, VersionSpec
from rattler.exceptions import InvalidMatchSpecError, InvalidPackageNameError, InvalidVersionError

from channel_tools.conda.addresses import text_without_credentials
from channel_tools.system.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

_CACHED = 1 << 16
_HINT = "write it as conda does, for example: name, name >=1.2,<2, name=1.2=build*"
_VIRTUAL_PREFIX = "__"
_LEAST = Version("0")
_SHOWN = 80
_NUMBERS = re.compile(r"\d+(?:\.\d+)*")
_HASHED_ADDRESS = re.compile(r"(?P<address>\s*(?:/|[a-z][a-z0-9+.-]*://)[^#\"]*)#(?P<hash>.*)", re.IGNORECASE)
_HASH = re.compile(r"(?:(?P<md5>(?:md5:)?[0-9a-f]{32})|(?P<sha256>(?:sha256:)?[0-9a-f]{64}))\s*", re.IGNORECASE)
_ADDRESS = re.compile(r'(?<=url=")[^"]*')


_CORRECT = "whoever makes it has to correct its metadata"


class InvalidSpecError(IntegrityError):
    """A text that is not a MatchSpec; its message quotes the text and gives py-rattler's reason, on one line."""

    def __init__(self, text: str, reason: str) -> None:
        self.reason = text_without_credentials(" ".join(reason.split()))
        super().__init__(f"{text_without_credentials(text)!r} is not a valid MatchSpec ({self.reason})", hint=_HINT)


class InvalidRecordError(IntegrityError):
    """Metadata that py-rattler cannot compare with MatchSpecs; its message gives field, value and reason."""


@functools.lru_cache(maxsize=_CACHED)
def read_spec(text: str) -> MatchSpec:
    """The MatchSpec, as py-rattler reads it: not strict, like conda, so ``name=*=build*`` is one.

    Of a package's address, what follows ``#`` is its md5 or sha256, as in explicit lists. Raises InvalidSpecError.
    """
    hashed = _HASHED_ADDRESS.fullmatch(text)
    if hashed is not None:
        # py-rattler 0.28 takes it for a comment
        spec = read_spec(hashed["address"])
        address, expected = address_in(spec), _hash_in(hashed["hash"], text)
        return read_spec(f'{spec.name.normalized}[url="{address}", {expected}]')
    try:
        return MatchSpec(text, strict=False)
    except InvalidMatchSpecError as err:
        raise InvalidSpecError(text, str(err)) from None


def _hash_in(fragment: str, text: str) -> str:
    """What follows the ``#`` of an address, as a MatchSpec has it."""
    match = _HASH.fullmatch(fragment)
    if match is None:
        raise InvalidSpecError(text, f"after # is {fragment[:_SHOWN]!r}; expected an md5 or sha256 in hexadecimal")
    kind = "md5" if match["md5"] else "sha256"
    return f'{kind}="{match[0].strip().rpartition(":")[2].lower()}"'


@functools.lru_cache(maxsize=_CACHED)
def spec_name(text: str) -> str:
    """The name of the package that a MatchSpec is about, in lower case. Raises InvalidSpecError.

    >>> spec_name("conda-forge::Python 3.12.*")
    'python'
    """
    return read_spec(text).name.normalized


def spec_names(specs: Iterable[str], owner: object) -> tuple[str, ...]:
    """The names of the packages that MatchSpecs of ``owner`` are about, each once, in their order.

    Raises IntegrityError that names the owner and the first text that is not a MatchSpec.
    """
    try:
        return tuple(dict.fromkeys(map(spec_name, specs)))
    except InvalidSpecError as err:
        raise IntegrityError(f"{owner}: {err}", hint=_CORRECT) from None


def required_names(index: Mapping[str, Any], owner: object) -> tuple[str, ...]:
    """The names of the packages that ``depends`` of index.json or a record is about, as spec_names.

    Raises IntegrityError that names the owner, also if it is not a list.
    """
    try:
        depends = texts_of(index, "depends")
    except InvalidRecordError as err:
        raise IntegrityError(f"{owner}: {err}", hint=_CORRECT) from None
    return spec_names(depends, owner)


def specs_on(names: Collection[str], specs: Iterable[str]) -> list[str]:
    """Those of the MatchSpecs that are about packages of these names; a text that is no MatchSpec is about none."""
    return [text for text in specs if name_or_none(text) in names]


@functools.lru_cache(maxsize=_CACHED)
def name_or_none(text: str) -> str | None:
    """As spec_name, but None for a text that is not a MatchSpec, for where it is only shown."""
    try:
        return spec_name(text)
    except InvalidSpecError:
        return None


def is_virtual(name: str) -> bool:
    """Whether a package name is that of a virtual package, which no channel has (CEP 30).

    >>> is_virtual("__glibc"), is_virtual("glibc")
    (True, False)
    """
    return name.startswith(_VIRTUAL_PREFIX)


def as_record(
    name: str, version: str, build: str = "0", *, build_number: int = 0, subdir: str = "noarch"
) -> PackageRecord:
    """A record with only these fields. Raises InvalidRecordError for a name or version that conda cannot order."""
    try:
        return PackageRecord(
            name=name, version=version, build=BuildString(build), build_number=build_number, subdir=subdir
        )
    except InvalidVersionError as err:
        raise InvalidRecordError(f"version {version!r} cannot be ordered by conda ({err})") from None
    except InvalidPackageNameError as err:
        raise InvalidRecordError(f"{name!r} is not a package name ({err})") from None


def record_of(index: Mapping[str, Any], *, name: str, subdir: str) -> PackageRecord:
    """A package as a record with all that a MatchSpec can ask for, from its index.json or its record in repodata.

    ``name`` and ``subdir`` are given by its place, since old index.json have no subdir. Raises InvalidRecordError.
    """
    number = index.get("build_number")
    record = as_record(
        name,
        str(index.get("version")),
        str(index.get("build")),
        build_number=number if isinstance(number, int) else 0,
        subdir=subdir,
    )
    record.track_features = list(track_features_of(index))
    record.flags = list(texts_of(index, "flags"))
    record.license = text_or_none(index.get("license"))
    record.license_family = text_or_none(index.get("license_family"))
    record.features = text_or_none(index.get("features"))
    record.md5 = _hash_of(index, "md5")
    record.sha256 = _hash_of(index, "sha256")
    return record


def _hash_of(index: Mapping[str, Any], key: str) -> bytes | None:
    text = text_or_none(index.get(key))
    try:
        return bytes.fromhex(text) if text else None
    except ValueError:
        raise InvalidRecordError(f"{key} is {text!r:.80}; expected hexadecimal digits") from None


def matches(spec: MatchSpec, record: PackageRecord, *, file_name: str | None = None) -> bool:
    """Whether py-rattler's MatchSpec matches a record.

    That leaves out subdir, file name, channel and address, which are not of the package but of its place. ``subdir``
    and ``fn`` are compared here where the place is known: with ``file_name``. ``when`` conditions and extras say when a
    requirement applies and what it adds, not what satisfies it. A channel may have many names, so it is not compared.
    """
    if not spec.matches(record):
        return False
    if file_name is None:
        return True
    return spec.subdir in {None, record.subdir} and spec.file_name in {None, file_name}


def condition_of(text: str) -> str:
    """What a MatchSpec says after the name, version and build string, to be shown. Raises InvalidSpecError.

    >>> condition_of("libswitchml 1.1.* udp*")
    '1.1.* udp*'
    """
    spec = read_spec(text)
    return " ".join(part for part in (spec.version, spec.build) if part is not None)


def address_in(spec: MatchSpec) -> str | None:
    """The address of one package file that a MatchSpec names, which py-rattler 0.28 shows only in its texts.

    >>> address_in(read_spec("https://example.org/ours/noarch/toy-1.0-0.conda")), address_in(read_spec("toy"))
    ('https://example.org/ours/noarch/toy-1.0-0.conda', None)
    """
    match = _ADDRESS.search(str(spec).partition("[")[2])
    return None if match is None else match[0]


def is_on_address(spec: MatchSpec) -> bool:
    """Whether a MatchSpec names the address of one package file."""
    return address_in(spec) is not None


def texts_of(index: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of texts in index.json or repodata (``depends``, ``constrains``, ``flags``).

    A missing key and ``null`` are an empty list, as for conda. Raises InvalidRecordError for anything but a list.
    """
    value = index.get(key)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise InvalidRecordError(f"{key} is {value!r:.80}; expected a list")
    return tuple(str(item) for item in value)


def text_or_none(value: object) -> str | None:
    """The value of a field of metadata that is a text or missing; anything else, ``null`` too, is missing."""
    return value if isinstance(value, str) else None


def track_features_of(index: Mapping[str, Any]) -> tuple[str, ...]:
    """The features that a package tracks: a list, or a text with spaces or commas between them (CEP 34).

    >>> track_features_of({"track_features": "a, b"})
    ('a', 'b')
    """
    value = index.get("track_features")
    if isinstance(value, str):
        return tuple(value.replace(",", " ").split())
    return texts_of(index, "track_features")


@functools.lru_cache(maxsize=_CACHED)
def least_version(spec: str) -> tuple[int, ...]:
    """The numbers of the oldest version that a MatchSpec accepts; () if it accepts the oldest of all.

    The bounds that it names are candidates; which of them it accepts, alone or just above, is py-rattler's decision.
    Raises InvalidSpecError.

    >>> least_version("python >=3.10,<3.14"), least_version("python"), least_version("__glibc >2.17")
    ((3, 10), (), (2, 17))
    """
    text = read_spec(spec).version
    if text is None:
        return ()
    accepted = VersionSpec(text)
    if accepted.matches(_LEAST):
        return ()
    named = sorted({tuple(map(int, number.split("."))) for number in _NUMBERS.findall(text)})
    return next((version for version in named if _accepts(accepted, version)), ())


def _accepts(spec: VersionSpec, version: tuple[int, ...]) -> bool:
    text = ".".join(map(str, version))
    return any(spec.matches(Version(text + above)) for above in ("", ".0.1"))
