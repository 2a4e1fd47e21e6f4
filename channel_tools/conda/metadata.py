# SPDX-License-Identifier: BSD-3-Clause
"""The metadata of a conda package as values, and the check whether an index.json may be added to repodata.

One field of a wrong type in repodata can break every client. Most valid values are recognised by patterns; only others
are passed to rattler, which is slow to import.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from channel_tools.conda.contents import damaged_package
from channel_tools.conda.package import NOARCH
from channel_tools.system.archives import UnsafeMemberError, check_member_path
from channel_tools.system.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Written into files in place of the installation prefix; clients replace it when they install (CEP 34, paths.json).
# Long, as in conda-build, so that binary files can hold it too.
PREFIX_PLACEHOLDER = "/opt/anaconda1anaconda2anaconda3" + "_placehold" * 20
BINARY_PLACEHOLDER = (PREFIX_PLACEHOLDER + "_placehold" * 3)[:255]
"""The same in programs and libraries, where no longer prefix fits: as long as those that recipes are built in."""
SOURCE_DATE = "SOURCE_DATE_EPOCH"
"""The variable that gives build scripts the date of the package (reproducible-builds.org)."""
UNDATED_S = 1_577_836_800
"""2020-01-01, in seconds since 1970: the date of a package whose inputs have no date."""
PLATFORMS: Mapping[str, tuple[str, str]] = {"linux-64": ("linux", "x86_64"), "linux-aarch64": ("linux", "aarch64")}
_LARGEST = 2**53
"""Above it, numbers are no longer exact in every JSON reader."""
_LATEST_S = 253402207200
"""9999-12-30, 22:00: rattler keeps times as dates up to there, and cannot read an index that has a later one."""
_MILLISECONDS_FROM = 253402300800
"""From here on timestamps are in milliseconds, below it in seconds (CEP 36)."""
_NAME_CHARACTERS = 200
"""Name, version and build are parts of one file name, which may have 255 bytes with the names of temporary files."""
_LINE_CHARACTERS = 4096
"""The limit for one string in repodata: requirements with long lists of versions reach 1,000."""
_LINES = 10_000
"""The limit for one list in repodata: meta-packages name some hundreds of packages."""
RUN_EXPORT_KINDS = ("weak", "strong", "noarch", "weak_constrains", "strong_constrains")
PATCHABLE_SPECS = ("depends", "constrains")
PATCHABLE_TEXTS = ("features", "license", "license_family", "track_features")
PATCHABLE = (*PATCHABLE_SPECS, *PATCHABLE_TEXTS, "purls")
"""The fields of a record that a repodata patch can change."""
Correction = Callable[[], "Mapping[str, object] | None"]
"""Fields that a channel lists otherwise than the package's index.json has them (None: it has none); None removes one.

It is called only for a package whose own fields no index can contain.
"""
ABOUT_FIELDS = ("description", "dev_url", "doc_url", "home", "license", "source_url", "summary")
"""The fields of about.json that are copied to channeldata.json."""
_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]*")  # CEP 26
_BUILD = re.compile(r"[A-Za-z0-9_.+]+")
_SUBDIR = re.compile(r"[a-z0-9][a-z0-9_-]*")
_PURL = re.compile(r"pkg:[a-z]+(?:/[A-Za-z0-9._~-]*[A-Za-z0-9])+(?:@[A-Za-z0-9._+~-]+)?")
_PLAIN = re.compile(r"[^\s/-]+")
_LONG_NUMBER = re.compile(r"[0-9]{19}")
"""Clients store the numbers in versions in 64 bits; rattler decides on longer ones."""
_VERSION = re.compile(r"(?:[0-9]+!)?[0-9]+[0-9a-z]*(?:[._][0-9a-z]+)*(?:\+[0-9a-z]+(?:[._][0-9a-z]+)*)?")
_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_ENTRY_POINT = re.compile(rf"\s*(?!\.\.?\s*=)[^\s/=\\]+\s*=\s*{_DOTTED}\s*:\s*{_DOTTED}\s*")
"""``NAME = MODULE:FUNCTION``; NAME is a file's. Clients import the rest as it stands, so it has no extras."""
_LITERAL = r"[0-9]+[0-9a-z]*(?:\.[0-9a-z]+)*"
_CONDITION = rf"(?:(?:>=|<=|==|!=|<|>|=){_LITERAL}|=?{_LITERAL}(?:\.\*|\*)?|\*)"
_SPEC = re.compile(rf"[a-z0-9_][a-z0-9_.-]*(?: {_CONDITION}(?:[,|]{_CONDITION})*(?: (?:\*?[A-Za-z0-9_.]+\*?|\*))?)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageMetadata:
    """Everything about a package except its files (CEP 34)."""

    name: str
    version: str
    build: str
    subdir: str
    build_number: int = 0
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    license: str | None = None
    timestamp_ms: int = 0
    """When the newest source was made, in milliseconds since 1970 UTC: never the time of packing."""
    noarch: Literal["python", "generic"] | None = None
    python_site_packages_path: str | None = None
    run_exports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """MatchSpecs by kind: ``weak``, ``strong`` ... (CEP 12)."""
    entry_points: tuple[str, ...] = ()
    """``command = module:function`` lines of a noarch python package."""
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        """The package's name in a channel."""
        return f"{self.name}-{self.version}-{self.build}.conda"

    def index_json(self) -> dict[str, Any]:
        """The content of info/index.json."""
        platform, arch = PLATFORMS.get(self.subdir, (None, None))
        index: dict[str, Any] = {
            "arch": arch,
            "build": self.build,
            "build_number": self.build_number,
            "constrains": list(self.constrains),
            "depends": list(self.depends),
            "license": self.license,
            "name": self.name,
            "noarch": self.noarch,
            "platform": platform,
            "python_site_packages_path": self.python_site_packages_path,
            "subdir": self.subdir,
            "timestamp": self.timestamp_ms,
            "version": self.version,
        }
        optional = ("noarch", "license", "python_site_packages_path")
        return {key: value for key, value in index.items() if not (key in optional and value is None)}


def check_index(index: Mapping[str, object], path: Path) -> None:
    """Raise IntegrityError for a field of index.json that is not valid in repodata, naming it and its value."""
    for key, (check, expected) in _FIELDS.items():
        value = index.get(key)
        if value is None and key not in _REQUIRED:
            continue
        if not check(value):
            raise damaged_package(path, f"its index.json has {key} {_quoted(value)}; expected {expected}")
    for key in ("depends", "constrains"):
        for spec in _texts(index.get(key)):
            _check_spec(spec, key, path)
    _check_version(str(index["version"]), path)


def checked_index(
    index: Mapping[str, object], path: Path, correction: Correction | None = None
) -> Mapping[str, object]:
    """index.json as repodata can contain it: as it is, else with what the package's channel lists instead.

    Channels correct wrong requirements of published packages in their repodata alone; then the record is right, and
    the package is not. rattler reads the package's own fields, too, where it links it: those that are not even of the
    right type are not corrected. Raises IntegrityError as check_index does if there is no correction, or if it does not
    help.
    """
    try:
        check_index(index, path)
    except IntegrityError:
        if correction is None or not _is_readable(index) or (fields := correction()) is None:
            raise
    else:
        return index
    corrected = {key: value for key, value in {**index, **fields}.items() if value is not None}
    check_index(corrected, path)
    return corrected


def _is_readable(index: Mapping[str, object]) -> bool:
    """Whether the fields that can be corrected are lists of texts, and texts."""
    features = index.get("track_features") or []
    lists = [*(index.get(key, []) for key in PATCHABLE_SPECS), [features] if isinstance(features, str) else features]
    texts = [index.get(key) or "" for key in PATCHABLE_TEXTS if key != "track_features"]
    return all(isinstance(value, list) for value in lists) and all(
        isinstance(text, str) for value in (*lists, texts) for text in _texts(value)
    )


_OLD_MACHINES = {"x86": "32", "x86_64": "64"}
"""What ``arch`` is in the subdir's name where the two differ."""


def subdir_of(index: Mapping[str, object]) -> str | None:
    """The subdir that a package's index.json says it is for.

    Those of 2013 to 2017 may have no ``subdir``: then ``platform`` and ``arch`` give it, as for conda. None if they do
    not, either.
    """
    subdir, platform, arch = (index.get(key) for key in ("subdir", "platform", "arch"))
    if isinstance(subdir, str):
        return subdir
    if index.get("noarch") and not platform:
        return NOARCH
    if not isinstance(platform, str) or not isinstance(arch, str) or not (platform and arch):
        return None
    return f"{platform}-{_OLD_MACHINES.get(arch, arch)}"


def check_place(index: Mapping[str, object], path: Path, expected: str) -> None:
    """Raise IntegrityError unless index.json says that the package ``path`` is for the subdir ``expected``."""
    subdir = subdir_of(index)
    if subdir is None:
        message = "its index.json has no subdir, nor the platform and arch of older packages"
        raise damaged_package(path, f"{message}; expected one like linux-64 or noarch")
    if subdir != expected:
        message = f"{path}: is for the subdir {subdir!r}, as its index.json says; expected {expected!r}"
        hint = f"move it to the folder {subdir}; channel_tools publish {path.name} --to FOLDER puts it there itself"
        raise IntegrityError(message, hint=hint)


def check_about(about: Mapping[str, object], path: Path) -> None:
    """Raise IntegrityError for a field of about.json that is not valid in channeldata.json."""
    for key in ABOUT_FIELDS:
        value = about.get(key)
        texts = value if isinstance(value, list) else [value]
        if value is not None and not all(isinstance(text, str) for text in texts):
            raise damaged_package(
                path, f"its about.json has {key} {_quoted(value)}; expected a string or a list of them"
            )


def check_run_exports(exports: Mapping[str, object], path: Path) -> None:
    """Raise IntegrityError if a kind in run_exports.json is not a list of MatchSpecs."""
    for kind in RUN_EXPORT_KINDS:
        value = exports.get(kind) or []
        if not _is_lines(value):
            raise damaged_package(path, f"its run_exports.json has {kind} {_quoted(value)}; expected {_MATCH_SPECS}")
        for spec in _texts(value):
            _check_spec(spec, f"run_exports, {kind}", path)


def check_link(link: Mapping[str, object], path: Path) -> tuple[str, ...]:
    """The entry points in link.json: ``NAME = MODULE:FUNCTION``. Raises IntegrityError for what is not one.

    A client makes a program ``bin/NAME`` for each (conda's ``parse_entry_point_def``), so NAME must be a file's name.
    """
    noarch = link.get("noarch") or {}
    lines = (noarch.get("entry_points") or []) if isinstance(noarch, dict) else None
    if not _is_lines(lines):
        raise damaged_package(path, "noarch.entry_points in info/link.json is not a list of strings")
    for line in _texts(lines):
        if _ENTRY_POINT.fullmatch(line) is None:
            message = f"its link.json has the entry point {_quoted(line)}; expected NAME = MODULE:FUNCTION"
            raise damaged_package(path, message)
    return tuple(_texts(lines))


def is_inner_path(value: object) -> bool:
    """Whether it is the path of something below a prefix, in one line."""
    try:
        check_member_path(value if isinstance(value, str) else "")
    except UnsafeMemberError:
        return False
    return _is_line(value) and posixpath.normpath(str(value)) != "."


def _quoted(value: object) -> str:
    try:
        return repr(value)[:80]
    except (RecursionError, ValueError):  # nested too deep, a number of 5,000 digits
        return f"of the type {type(value).__name__}"


def _in_a_line(err: object) -> str:
    """An error of rattler, which quotes its input, as a part of our message."""
    return "".join(character if character.isprintable() else " " for character in str(err))[:200]


def _check_spec(spec: str, where: str, path: Path) -> None:
    if _SPEC.fullmatch(spec) and not _LONG_NUMBER.search(spec):
        return
    from channel_tools.conda.specs import InvalidSpecError, read_spec  # noqa: PLC0415

    try:
        read_spec(spec)
    except InvalidSpecError as err:
        raise damaged_package(
            path, f"its metadata has {where} {_quoted(spec)}, which is not a valid MatchSpec ({_in_a_line(err.reason)})"
        ) from None


def _check_version(version: str, path: Path) -> None:
    if _VERSION.fullmatch(version) and not _LONG_NUMBER.search(version):
        return
    from rattler import Version  # noqa: PLC0415
    from rattler.exceptions import InvalidVersionError  # noqa: PLC0415

    try:
        Version(version)
    except InvalidVersionError as err:
        raise damaged_package(
            path, f"its index.json has version {_quoted(version)}, which conda cannot order ({_in_a_line(err)})"
        ) from None


def _texts(value: object) -> list[str]:
    return value if isinstance(value, list) else []


def _is_line(value: object) -> bool:
    """One line of text: nothing in it ends a line, moves a cursor or is half a character."""
    return isinstance(value, str) and len(value) <= _LINE_CHARACTERS and value.isprintable()


def _is_lines(value: object) -> bool:
    return isinstance(value, list) and len(value) <= _LINES and all(map(_is_line, value))


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST


def is_purls(value: object) -> bool:
    """Whether it is a list of package URLs: rattler rejects an index that has anything else in that field."""
    return _is_lines(value) and all(map(_is_purl, _texts(value)))


def _is_purl(text: str) -> bool:
    if _PURL.fullmatch(text):
        return True
    from rattler import IndexJson  # noqa: PLC0415
    from rattler.exceptions import IoError  # noqa: PLC0415

    index = {"name": "x", "version": "1", "build": "0", "build_number": 0, "depends": [], "purls": [text]}
    try:
        IndexJson.from_str(msgspec.json.encode(index).decode())
    except IoError:  # also raised for JSON of the wrong shape
        return False
    return True


def _is_time(value: object) -> bool:
    return _is_number(value) and (
        cast("int", value) <= _LATEST_S or _MILLISECONDS_FROM <= cast("int", value) <= _LATEST_S * 1000
    )


def timestamp_ms(value: object) -> int:
    """A record's ``timestamp`` in milliseconds since 1970, though it may be in seconds (CEP 36).

    0 if it has none that can be right.
    """
    if not _is_time(value):
        return 0
    time = cast("int", value)
    return time if time >= _MILLISECONDS_FROM else time * 1000


def _matches(pattern: re.Pattern[str]) -> Callable[[object], bool]:
    return lambda value: (
        isinstance(value, str) and len(value) <= _NAME_CHARACTERS and pattern.fullmatch(value) is not None
    )


_REQUIRED = frozenset({"build", "build_number", "name", "version"})
_MATCH_SPECS = f"a list of MatchSpecs, at most {_LINES}, each one line of at most {_LINE_CHARACTERS} characters"
_LINE = f"one line of text of at most {_LINE_CHARACTERS} characters"
_FIELDS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "name": (_matches(_NAME), f"a package name in lower case, of at most {_NAME_CHARACTERS} characters"),
    "version": (_matches(_PLAIN), f"a version of at most {_NAME_CHARACTERS} characters"),
    "build": (_matches(_BUILD), f"a build string of at most {_NAME_CHARACTERS} letters, digits, dots, _ and +"),
    "build_number": (_is_number, f"a number from 0 to below {_LARGEST}"),
    "subdir": (_matches(_SUBDIR), "the name of a subdir"),
    "depends": (_is_lines, _MATCH_SPECS),
    "constrains": (_is_lines, _MATCH_SPECS),
    "timestamp": (_is_time, "milliseconds since 1970, before the end of the year 9999"),
    "noarch": (lambda value: _is_line(value) and value in ("generic", "python"), "generic or python"),
    "track_features": (lambda value: _is_line(value) or _is_lines(value), "a string or a list of them"),
    "purls": (is_purls, "a list of package URLs"),
    **dict.fromkeys(("arch", "features", "license", "license_family", "platform"), (_is_line, _LINE)),
    "python_site_packages_path": (is_inner_path, "the path of a folder below the prefix"),
}
