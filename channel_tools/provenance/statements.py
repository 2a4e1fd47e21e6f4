# SPDX-License-Identifier: BSD-3-Clause
"""in-toto statements (v1) about packages: how one was built (SLSA provenance v1), that it was published (CEP 27).

A build's statement says only what the plan wrote into the package itself, so it can also be made later. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from channel_tools import __version__
from channel_tools.conda.addresses import last_part
from channel_tools.conda.metadata import subdir_of
from channel_tools.system.document import decode_json
from channel_tools.system.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from channel_tools.conda.archive import PackageInfo
    from channel_tools.conda.contents import JsonObject

STATEMENT = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
PUBLISH = "https://schemas.conda.org/attestations-publish-1.schema.json"
_CERTIFICATES = frozenset({"certificate", "x509CertificateChain"})
"""Fields of which a bundle signed with Sigstore has one, in the current and an older format."""
_RECIPE_BUILD = "urn:channel-tools:build:recipe:1"
_FOUNDATION_BUILD = "urn:channel-tools:build:foundation:1"
_BUILDER = "urn:channel-tools:builder"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_IN_PACKAGE = ("file", "source")
"""Inputs that are files and folders of the recipe, by their paths in the recipe."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """The package that a statement is about."""

    file_name: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """How a build was run: the command, the versions of the build tools, and when it finished (UTC)."""

    command: Sequence[str]
    tools: Mapping[str, str]
    finished: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """A package that this program built. ``recorded`` is what its build wrote into it (``extra.channel_tools``)."""

    subject: Subject
    name: str
    version: str
    subdir: str
    recorded: Mapping[str, Any]
    variant: Mapping[str, object]

    @classmethod
    def of(cls, file_name: str, info: PackageInfo) -> Built:
        """The package from a file that was read."""
        return cls(
            subject=Subject(file_name=file_name, sha256=info.sha256),
            name=str(info.index.get("name")),
            version=str(info.index.get("version")),
            subdir=str(subdir_of(info.index)),
            recorded=recorded_in(info.about),
            variant=info.variant or {},
        )


def recorded_in(about: Mapping[str, object]) -> Mapping[str, Any]:
    """What this program's builds write into a package's about.json; empty for a package from elsewhere."""
    extra = about.get("extra")
    ours = extra.get("channel_tools") if isinstance(extra, Mapping) else None
    return ours if isinstance(ours, Mapping) else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Material:
    """Something that a package was made from: upstream's archive or commit, a wheel, a Debian package.

    ``sha256`` is None for a commit, ``address`` for a package from a registry, ``purl`` if there is none.
    """

    name: str
    version: str
    sha256: str | None = None
    address: str | None = None
    purl: str | None = None


def origins_in(recorded: Mapping[str, Any]) -> Iterator[Material]:
    """Upstream's sources, and the wheels and Debian packages of the foundation, that a package records."""
    for row in _rows(recorded.get("sources")):
        if "git" in row:
            address = str(row["git"][0])
            name = (last_part(address) or address).removesuffix(".git")
            yield Material(name=name, version=str(row["rev"]), address=f"git+{address}@{row['rev']}")
        else:
            address = str(row["url"][0])
            yield Material(name=last_part(address) or address, version="", sha256=str(row["sha256"]), address=address)
    for row in _rows(recorded.get("taken")):
        name, version = str(row["name"]), str(row["version"])
        yield Material(name=name, version=version, sha256=str(row["sha256"]), purl=_purl_of_taken(row))


def _rows(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def publish_statement(subject: Subject, *, channel: str | None = None) -> JsonObject:
    """The statement that the package was published, to the channel at this address if it is known (CEP 27)."""
    predicate = None if channel is None else {"targetChannel": channel.rstrip("/")}
    return _statement(subject, PUBLISH, predicate)


def provenance_statement(built: Built, run: Run) -> JsonObject:
    """The statement of how the package was built: its recipe, sources, foundation, environments, command and digest."""
    recorded = built.recorded
    parameters: JsonObject = {}
    materials = [_material(origin) for origin in origins_in(recorded)]
    if "taken" in recorded:
        kind = _FOUNDATION_BUILD
    else:
        value = recorded.get("inputs")
        inputs = {str(key): str(item) for key, item in value.items()} if isinstance(value, Mapping) else {}
        kind = _RECIPE_BUILD
        parameters = {"recipe": _of_kind(inputs, "recipe"), "variant": dict(built.variant)}
        materials += _inputs(inputs)
    definition: JsonObject = {
        "buildType": kind,
        "externalParameters": {
            "name": built.name,
            "version": built.version,
            "subdir": built.subdir,
            "command": list(run.command),
            **parameters,
        },
        "internalParameters": {"digest": recorded.get("digest")},
        "resolvedDependencies": materials,
    }
    details: JsonObject = {
        "builder": {"id": _BUILDER, "version": {"channel_tools": __version__, **run.tools}},
        "metadata": {"finishedOn": time_text(run.finished)},
    }
    return _statement(built.subject, PROVENANCE, {"buildDefinition": definition, "runDetails": details})


def time_text(moment: datetime) -> str:
    """A time as statements write it: UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _statement(subject: Subject, kind: str, predicate: object) -> JsonObject:
    return {
        "_type": STATEMENT,
        "subject": [{"name": subject.file_name, "digest": {"sha256": subject.sha256}}],
        "predicateType": kind,
        "predicate": predicate,
    }


def _of_kind(inputs: Mapping[str, str], kind: str) -> dict[str, str]:
    return {name.partition(":")[2]: value for name, value in inputs.items() if name.startswith(f"{kind}:")}


def _inputs(inputs: Mapping[str, str]) -> Iterator[JsonObject]:
    """The recipe's files, and the packages of its environments, including our own."""
    for key, value in inputs.items():
        kind, _, name = key.partition(":")
        if kind in _IN_PACKAGE and (match := _SHA256.match(value)):
            yield {"uri": f"{kind}:{name}", "digest": {"sha256": match[0]}}
        elif kind == "foundation":
            environment, _, package = name.partition("/")
            words = value.split()  # version, build and sha256
            version, build = [*words, "", ""][:2]
            uri = f"pkg:conda/{package}@{version}?build={build}"
            digest = {"digest": {"sha256": words[-1]}} if words and _SHA256.fullmatch(words[-1]) else {}
            yield {"uri": uri, **digest, "annotations": {"environment": environment}}
        elif kind == "package":
            yield {"uri": f"pkg:conda/{name}", "annotations": {"digest": value}}


def _material(origin: Material) -> JsonObject:
    digest = {"gitCommit": origin.version} if origin.sha256 is None else {"sha256": origin.sha256}
    return {"uri": origin.purl or origin.address, "digest": digest}


def _purl_of_taken(row: Mapping[str, Any]) -> str:
    """The package URL of a wheel or Debian package."""
    kind = "pypi" if row["kind"] == "wheel" else "deb/debian"
    version = str(row["version"]).replace("%", "%25").replace(":", "%3A").replace("+", "%2B").replace("~", "%7E")
    return f"pkg:{kind}/{row['name']}@{version}"


class Signature(msgspec.Struct):
    """A signature of an envelope, and the id of its key."""

    sig: str
    keyid: str = ""


class SignedEnvelope(msgspec.Struct):
    """A DSSE envelope: a statement in base64 and who signed it."""

    payload: str
    payloadType: str  # noqa: N815 - DSSE's name
    signatures: list[Signature]


class Bundle(msgspec.Struct):
    """A bundle in a file of attestations, as far as it is parsed here; not verified yet."""

    verificationMaterial: dict[str, object]  # noqa: N815 - Sigstore's name
    dsseEnvelope: SignedEnvelope | None = None  # noqa: N815 - Sigstore's name

    @property
    def is_certified(self) -> bool:
        """Whether Sigstore signed it."""
        return not _CERTIFICATES.isdisjoint(self.verificationMaterial)


class _ReadSubject(msgspec.Struct):
    name: str
    digest: dict[str, str]


class _Metadata(msgspec.Struct):
    finishedOn: datetime | None = None  # noqa: N815 - SLSA's name


class _RunDetails(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Predicate(msgspec.Struct):
    runDetails: _RunDetails = msgspec.field(default_factory=_RunDetails)  # noqa: N815 - SLSA's name


class _ReadStatement(msgspec.Struct, rename={"type_": "_type"}):
    type_: str
    subject: list[_ReadSubject]
    predicateType: str  # noqa: N815 - in-toto's name
    predicate: _Predicate | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """The parts of a signed statement that are checked: its package, its type, when the build ended."""

    subject: Subject
    kind: str
    finished: datetime | None


def read_statement(payload: bytes, *, where: str) -> Statement:
    """Parse the statement in a signed payload. Raises IntegrityError if it is not a valid one."""
    try:
        read = decode_json(payload, _ReadStatement)
    except msgspec.DecodeError as err:
        raise IntegrityError(f"{where}: the signed content is not an in-toto statement: {err}") from None
    if read.type_ != STATEMENT or len(read.subject) != 1:
        message = f"{where}: the signed content is not an in-toto statement (v1) about one package"
        raise IntegrityError(message, hint="attest the package again with a key that its readers trust")
    [subject] = read.subject
    finished = read.predicate.runDetails.metadata.finishedOn if read.predicate else None
    if finished is not None and finished.tzinfo is None:
        finished = finished.replace(tzinfo=UTC)
    return Statement(
        subject=Subject(file_name=subject.name, sha256=subject.digest.get("sha256", "")),
        kind=read.predicateType,
        finished=finished,
    )
