# SPDX-License-Identifier: BSD-3-Clause
"""Bills of materials as CycloneDX 1.6 (JSON), made with OWASP's library, which the extra ``sbom`` installs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import (
    Component as Part,
)
from cyclonedx.model.component import (
    ComponentType,
    Diff,
    Patch,
    PatchClassification,
    Pedigree,
)
from cyclonedx.model.dependency import Dependency
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from channel_tools import __version__
from channel_tools.provenance.components import conda_purl, dependencies_among
from channel_tools.provenance.licenses import spdx_expression

if TYPE_CHECKING:
    from datetime import datetime

    from channel_tools.conda.compiled_in import HostPackage
    from channel_tools.provenance.components import Component, Inventory
    from channel_tools.provenance.statements import Material

_SAFE = ":/?#[]@!$&'()*+,;=%-._~"
"""Characters that need no encoding in a URI."""


def cyclonedx_document(inventory: Inventory, *, created_at: datetime) -> str:
    """The bill of materials as text."""
    parts = {component.purl: _part(component) for component in inventory.components}
    refs = {purl: part.bom_ref for purl, part in parts.items()}
    tool = Part(name="channel_tools", version=__version__, type=ComponentType.APPLICATION)
    single = inventory.platform is None and len(parts) == 1
    root = (
        next(iter(parts.values()))
        if single
        else Part(name=inventory.title, type=ComponentType.APPLICATION, bom_ref=inventory.uuid.urn)
    )
    metadata = BomMetaData(tools=ToolRepository(components=[tool]), component=root, timestamp=created_at)
    bom = Bom(
        serial_number=inventory.uuid,
        metadata=metadata,
        components=() if single else parts.values(),
        dependencies=[
            Dependency(refs[purl], [Dependency(refs[other]) for other in others])
            for purl, others in dependencies_among(inventory.components).items()
        ],
    )
    if not single:
        bom.register_dependency(root, parts.values())
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string()
    return json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n"


def _part(component: Component) -> Part:
    references = []
    if component.home:
        references.append(ExternalReference(type=ExternalReferenceType.WEBSITE, url=_uri(component.home)))
    return Part(
        name=component.name,
        version=component.version,
        type=ComponentType.LIBRARY,
        bom_ref=component.purl,
        purl=PackageURL.from_string(component.purl),
        description=component.summary,
        hashes=[_sha256(component.sha256)],
        licenses=_licenses(component.license),
        external_references=references,
        properties=[
            Property(name="channel_tools:file", value=f"{component.subdir}/{component.file_name}"),
            *(Property(name=f"channel_tools:patch:{patch.name}", value=patch.sha256) for patch in component.patches),
        ],
        pedigree=_pedigree(component),
        components=[_contained(component, host) for host in component.contains],
    )


def _contained(component: Component, host: HostPackage) -> Part:
    """A package that is linked into another: a part of it, known under a reference of its own in each."""
    purl = conda_purl(host)
    return Part(
        name=host.name,
        version=host.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{purl}#in={component.name}-{component.version}-{component.build}",
        purl=PackageURL.from_string(purl),
        hashes=[_sha256(host.sha256)] if host.sha256 else [],
        licenses=_licenses(host.license),
    )


def _licenses(declared: str | None) -> list[DisjunctiveLicense | LicenseExpression]:
    expression = spdx_expression(declared)
    if expression is not None:
        return [LicenseExpression(expression)]
    return [DisjunctiveLicense(name=declared)] if declared else []


def _pedigree(component: Component) -> Pedigree | None:
    if not component.origins and not component.patches:
        return None
    return Pedigree(
        ancestors=[_ancestor(origin) for origin in component.origins],
        patches=[
            Patch(type=PatchClassification.UNOFFICIAL, diff=Diff(url=_uri(patch.name))) for patch in component.patches
        ],
    )


def _ancestor(origin: Material) -> Part:
    references = []
    if origin.address is not None:
        kind = ExternalReferenceType.VCS if origin.sha256 is None else ExternalReferenceType.DISTRIBUTION
        references.append(ExternalReference(type=kind, url=_uri(origin.address)))
    return Part(
        name=origin.name,
        version=origin.version or None,
        type=ComponentType.LIBRARY,
        purl=None if origin.purl is None else PackageURL.from_string(origin.purl),
        hashes=[] if origin.sha256 is None else [_sha256(origin.sha256)],
        external_references=references,
    )


def _sha256(value: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=value)


def _uri(text: str) -> XsUri:
    """A URI from an address that people wrote: characters that a URI may not contain are encoded."""
    return XsUri(quote(text, safe=_SAFE))
