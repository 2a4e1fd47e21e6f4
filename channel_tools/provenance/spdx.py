# SPDX-License-Identifier: BSD-3-Clause
"""Bills of materials as SPDX 2.3 (JSON); plain enough to need no library."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from channel_tools import __version__
from channel_tools.provenance.components import conda_purl, dependencies_among
from channel_tools.provenance.licenses import spdx_expression
from channel_tools.provenance.statements import time_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from channel_tools.conda.compiled_in import HostPackage
    from channel_tools.conda.contents import JsonObject
    from channel_tools.provenance.components import Component, Inventory
    from channel_tools.provenance.statements import Material

_DOCUMENT = "SPDXRef-DOCUMENT"
_UNKNOWN = "NOASSERTION"
_LICENSE_REF = re.compile(r"LicenseRef-[A-Za-z0-9.-]+")
_WEB_ADDRESS = re.compile(r"https?://[A-Za-z0-9.-]+(?::[0-9]+)?(?:/[A-Za-z0-9._~:/?#@!$&'()*+,;=%-]*)?")


def spdx_document(inventory: Inventory, *, created_at: datetime) -> str:
    """The bill of materials as text."""
    licenses: dict[str, str] = {}
    refs = {component.purl: f"SPDXRef-Package-{number}" for number, component in enumerate(inventory.components)}
    packages: list[JsonObject] = []
    relationships: list[JsonObject] = [_relation(_DOCUMENT, "DESCRIBES", ref) for ref in refs.values()]
    for component in inventory.components:
        ref = refs[component.purl]
        packages.append(_package(component, ref, licenses))
        for number, origin in enumerate(component.origins):
            packages.append(_origin(origin, f"{ref}-from-{number}"))
            relationships.append(_relation(ref, "GENERATED_FROM", f"{ref}-from-{number}"))
        for number, patch in enumerate(component.patches):
            packages.append(_file_package(patch.name, patch.sha256, f"{ref}-patch-{number}"))
            relationships.append(_relation(f"{ref}-patch-{number}", "PATCH_FOR", ref))
        for number, host in enumerate(component.contains):
            packages.append(_contained(host, f"{ref}-contains-{number}", licenses))
            relationships.append(_relation(ref, "CONTAINS", f"{ref}-contains-{number}"))
    for purl, others in dependencies_among(inventory.components).items():
        relationships += [_relation(refs[purl], "DEPENDS_ON", refs[other]) for other in others]
    document: JsonObject = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": _DOCUMENT,
        "name": inventory.title,
        "documentNamespace": f"urn:uuid:{inventory.uuid}",
        "creationInfo": {"created": time_text(created_at), "creators": [f"Tool: channel_tools-{__version__}"]},
        "packages": packages,
        "relationships": relationships,
    }
    if extracted := list(_extracted(licenses)):
        document["hasExtractedLicensingInfos"] = extracted
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _package(component: Component, ref: str, licenses: dict[str, str]) -> JsonObject:
    package: JsonObject = {
        **_file_package(component.name, component.sha256, ref),
        "versionInfo": component.version,
        "packageFileName": f"{component.subdir}/{component.file_name}",
        "licenseDeclared": _declared(component.license, licenses),
        "externalRefs": [_purl(component.purl)],
    }
    if component.summary:
        package["summary"] = component.summary
    if component.home and _WEB_ADDRESS.fullmatch(component.home):
        package["homepage"] = component.home
    return package


def _contained(host: HostPackage, ref: str, licenses: dict[str, str]) -> JsonObject:
    package = _file_package(host.name, host.sha256, ref)
    if not host.sha256:
        del package["checksums"]
    return package | {
        "versionInfo": host.version,
        "packageFileName": f"{host.subdir}/{host.file_name}",
        "licenseDeclared": _declared(host.license or None, licenses),
        "externalRefs": [_purl(conda_purl(host))],
    }


def _file_package(name: str, sha256: str, ref: str) -> JsonObject:
    return {
        "SPDXID": ref,
        "name": name,
        "downloadLocation": _UNKNOWN,
        "filesAnalyzed": False,
        "checksums": [{"algorithm": "SHA256", "checksumValue": sha256}],
        "licenseConcluded": _UNKNOWN,
        "licenseDeclared": _UNKNOWN,
        "copyrightText": _UNKNOWN,
    }


def _origin(origin: Material, ref: str) -> JsonObject:
    package = _file_package(origin.name, origin.sha256 or "", ref)
    if origin.sha256 is None:
        del package["checksums"]
    if origin.version:
        package["versionInfo"] = origin.version
    if origin.address is not None and _WEB_ADDRESS.fullmatch(origin.address.removeprefix("git+")):
        package["downloadLocation"] = origin.address
    if origin.purl is not None:
        package["externalRefs"] = [_purl(origin.purl)]
    return package


def _purl(purl: str) -> JsonObject:
    return {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}


def _relation(subject: str, kind: str, other: str) -> JsonObject:
    return {"spdxElementId": subject, "relationshipType": kind, "relatedSpdxElement": other}


def _declared(declared: str | None, licenses: dict[str, str]) -> str:
    """The licence as an expression; the text of each LicenseRef in it is added to ``licenses``."""
    if declared is None:
        return _UNKNOWN
    expression = spdx_expression(declared)
    if expression is None:
        known = {text: name for name, text in licenses.items()}
        expression = known.get(declared, f"LicenseRef-declared-{len(licenses)}")
        licenses[expression] = declared
    for name in _LICENSE_REF.findall(expression):
        licenses.setdefault(name, "See info/licenses in the package.")
    return expression


def _extracted(licenses: dict[str, str]) -> Iterator[JsonObject]:
    for name, text in sorted(licenses.items()):
        yield {"licenseId": name, "extractedText": text, "name": name.removeprefix("LicenseRef-")}
