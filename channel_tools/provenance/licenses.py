# SPDX-License-Identifier: BSD-3-Clause
"""Licences as packages declare them: as SPDX expressions if they can be parsed, and what may be redistributed.

What a package declares is repeated and not checked. Packages of vendors whose terms have to be read are recognised by
name. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

if TYPE_CHECKING:
    from channel_tools.provenance.components import Component

Redistribution = Literal["yes", "with source", "by the vendor's terms", "no", "not known"]

_VENDORS = (
    (
        "NVIDIA",
        "https://docs.nvidia.com/cuda/eula/index.html",
        (
            *(
                "cuda",
                "cuda-*",
                "cudatoolkit",
                "cudnn",
                "libcublas*",
                "libcudnn*",
                "libcudss*",
                "libcufft*",
                "libcufile*",
            ),
            *("libcurand*", "libcusolver*", "libcusparse*", "libnpp*", "libnvj*", "libnvfatbin*", "libnvptxcompiler*"),
            *("libcufile*", "nvidia-*", "tensorrt*"),
        ),
    ),
    (
        "Intel",
        "https://www.intel.com/content/www/us/en/developer/articles/license/onemkl-license-faq.html",
        ("mkl", "mkl-*", "mkl_*", "intel-*", "impi*", "dpcpp*", "onemkl*", "tbb4py"),
    ),
    ("HPE", "the licence that came with the Cray programming environment", ("cray-*", "libcray*")),
)
"""Vendors whose packages have their own terms, where to read these, and the packages' names in conda and PyPI."""
_NOT_PASSED_ON = re.compile(r"-NC-|-NC$|BUSL|LicenseRef-.*(?:proprietary|noredist|nda)", re.IGNORECASE)
_COPYLEFT = re.compile(r"(?:A|L)?GPL|MPL|EPL|CDDL|EUPL|OSL|SLEEPYCAT", re.IGNORECASE)
_DEBIAN = {
    "expat": "MIT", "mit/x11": "MIT", "x11": "X11", "zlib": "Zlib", "isc": "ISC", "psf-2": "PSF-2.0",
    "bsd-2-clause": "BSD-2-Clause", "bsd-3-clause": "BSD-3-Clause",
    "apache-2": "Apache-2.0", "apache-2.0": "Apache-2.0", "apache 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0", "boost-1.0": "BSL-1.0",
    "public-domain": "LicenseRef-public-domain", "pd": "LicenseRef-public-domain",
}  # fmt: skip
"""Short names in Debian's copyright files and in wheels' metadata, and the SPDX identifiers that they mean."""
_PUBLIC_DOMAIN = "LicenseRef-public-domain"
_RANKS: tuple[Redistribution, ...] = ("yes", "with source", "not known", "no")
"""From the best to the worst for redistribution: of parts joined by AND, the worst counts."""
_WHY: dict[Redistribution, str] = {
    "yes": "keep the licence's text with it",
    "with source": "offer the sources to whoever gets the package",
    "not known": "a part of the licence has no SPDX identifier: read the package's info/licenses",
    "no": "the licence forbids redistribution, or restricts who may use it",
}
_GNU = re.compile(r"(?P<kind>[AL]?GPL)-?v?(?P<number>[0-9](?:\.[0-9])?)(?P<later>\+)?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class LicenseRow:
    """A package's licence: as declared, as an SPDX expression if it is one, and whether it permits redistribution.

    ``terms`` says where to read a vendor's terms, ``why`` explains ``redistribution``.
    """

    package: str
    declared: str | None
    spdx: str | None
    redistribution: Redistribution
    why: str
    vendor: str | None = None
    terms: str | None = None


def license_row(component: Component) -> LicenseRow:
    """Whether a package may be redistributed, by the licence that it declares and its vendor."""
    package = f"{component.name} {component.version}"
    spdx = spdx_expression(component.license)
    named = {component.name, *(origin.name for origin in component.origins)}
    for vendor, terms, patterns in _VENDORS:
        if any(fnmatchcase(name, pattern) for name in named for pattern in patterns):
            return LicenseRow(
                package=package,
                declared=component.license,
                spdx=spdx,
                redistribution="by the vendor's terms",
                why=f"comes from {vendor}, whose terms say what may be redistributed",
                vendor=vendor,
                terms=terms,
            )
    redistribution, why = _judge(spdx, component.license)
    return LicenseRow(package=package, declared=component.license, spdx=spdx, redistribution=redistribution, why=why)


def spdx_expression(declared: str | None) -> str | None:
    """The declared licence as an SPDX expression, None if it is not a valid one."""
    if not declared:
        return None
    words = re.split(r"\s+(and|or)\s+", declared.strip().strip("()"), flags=re.IGNORECASE)
    for text in (declared, " ".join(word.upper() if word.lower() in {"and", "or"} else _name(word) for word in words)):
        try:
            return str(canonicalize_license_expression(text))
        except InvalidLicenseExpression:
            continue
    return None


def _name(word: str) -> str:
    match = _GNU.fullmatch(word)
    if match is None:
        return _DEBIAN.get(word.lower(), word)
    number = match["number"] if "." in match["number"] else f"{match['number']}.0"
    return f"{match['kind'].upper()}-{number}-{'or-later' if match['later'] else 'only'}"


def _judge(spdx: str | None, declared: str | None) -> tuple[Redistribution, str]:
    if spdx is None:
        words = "no licence is declared" if not declared else "the declared licence is not a valid SPDX expression"
        return "not known", f"{words}: read the package's info/licenses"
    judgement = _RANKS[_either(re.findall(r"[()]|[^\s()]+", spdx))]
    return judgement, _WHY[judgement]


def _either(tokens: list[str]) -> int:
    """The rank of the best choice that the expression at the start of ``tokens`` permits; its tokens are removed."""
    ranks = [_all_of(tokens)]
    while tokens[:1] == ["OR"]:
        tokens.pop(0)
        ranks.append(_all_of(tokens))
    return min(ranks)


def _all_of(tokens: list[str]) -> int:
    ranks = [_operand(tokens)]
    while tokens[:1] == ["AND"]:
        tokens.pop(0)
        ranks.append(_operand(tokens))
    return max(ranks)


def _operand(tokens: list[str]) -> int:
    token = tokens.pop(0)
    if token == "(":  # noqa: S105 - a parenthesis
        rank = _either(tokens)
        tokens.pop(0)
        return rank
    if tokens[:1] == ["WITH"]:
        del tokens[:2]
    if _NOT_PASSED_ON.search(token):
        return _RANKS.index("no")
    if token.startswith("LicenseRef-") and token != _PUBLIC_DOMAIN:
        return _RANKS.index("not known")
    return _RANKS.index("with source" if _COPYLEFT.match(token) else "yes")
