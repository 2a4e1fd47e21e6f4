# SPDX-License-Identifier: BSD-3-Clause
"""A made-up conda-forge: an index that offers, for every requirement of a tree, something that meets it.

It has no packages, which planning and rendering do not need: so every variant of every stack can be planned without a
network, those too that the registry foundation cannot serve.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from rattler import MatchSpec, PackageRecord
from rattler.package import BuildString

from channel_tools.matrix import Pin, RenderedPackage
from channel_tools.plan.environments import pin_by_variant

_NUMBER = re.compile(r"\d+(?:\.\d+)*")


def write_made_up_foundation(folder: Path, rendered: Iterable[RenderedPackage], platform: str) -> Path:
    """A channel folder for ``platform`` that meets every requirement of ``rendered`` but those among themselves."""
    packages = list(rendered)
    own = {package.name for package in packages}
    offers: dict[str, tuple[set[str], set[str]]] = {}
    for spec in sorted({spec for package in packages for spec in _specs(package)}):
        name = _name_of(spec)
        if name not in own and not name.startswith("__"):
            version, build = _meeting(MatchSpec(spec), name, platform)
            versions, builds = offers.setdefault(name, (set(), set()))
            versions.add(version)
            builds.add(build)
    # each version in each build: one requirement may ask for the version, another for the build
    entries = {
        f"{name}-{version}-{build}.conda": _entry(name, version, build, platform)
        for name, (versions, builds) in sorted(offers.items())
        for version in sorted(versions)
        for build in sorted(builds)
    }
    for subdir, content in ((platform, entries), ("noarch", {})):
        index = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": content, "repodata_version": 1}
        (folder / subdir).mkdir(parents=True, exist_ok=True)
        (folder / subdir / "repodata.json").write_text(json.dumps(index), encoding="utf-8")
        exports = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": {}}
        (folder / subdir / "run_exports.json").write_text(json.dumps(exports), encoding="utf-8")
    return folder


def _specs(package: RenderedPackage) -> Iterator[str]:
    pinned = [pin_by_variant(item, package.variant) for item in (*package.build, *package.host)]
    tests = [item for test in package.tests for item in (*test.build, *test.run)]
    yield from (item for item in (*pinned, *package.run, *tests) if not isinstance(item, Pin))


def _name_of(spec: str) -> str:
    return re.split(r"[ =<>!~\[]", spec.rpartition("::")[2].strip(), maxsplit=1)[0].lower()


def _meeting(spec: MatchSpec, name: str, platform: str) -> tuple[str, str]:
    """The first of some likely versions that the requirement takes, and a build string."""
    text = str(spec.version or "")
    build = "h1_0" if spec.build is None else str(spec.build).strip("^$").replace(".*", "x").replace("*", "x")
    for version in _likely_versions(text):
        record = PackageRecord(name, version, BuildString(build), 0, platform)
        if spec.matches(record):
            return version, build
    message = f"no version for {spec} could be made up from {text!r}: teach _likely_versions about it"
    raise AssertionError(message)


def _likely_versions(text: str) -> Iterator[str]:
    numbers = _NUMBER.findall(text) or ["1.0"]
    for number in numbers:
        yield from (number, f"{number}.0", f"{number}.1", f"{number}.99")
    for number in numbers:
        first, _dot, rest = number.partition(".")
        yield from (f"{int(first) - 1}.99" if int(first) else "0", f"{first}.{rest}.99" if rest else f"{first}.99")


def _entry(name: str, version: str, build: str, platform: str) -> dict[str, object]:
    return {
        "name": name,
        "version": version,
        "build": build,
        "build_number": 0,
        "depends": [],
        "subdir": platform,
        "size": 1,
        "sha256": hashlib.sha256(f"{name}-{version}-{build}".encode()).hexdigest(),
    }
