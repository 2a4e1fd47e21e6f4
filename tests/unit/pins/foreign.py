# SPDX-License-Identifier: BSD-3-Clause
"""Locks as other tools write them, in every format, of given entries."""

from __future__ import annotations

from dataclasses import dataclass, field

ADDRESS = "https://channel.example/ours"
SHA256, MD5 = "5f" * 32, "6a" * 16


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry of any format; ``kind`` is conda, pip or source."""

    name: str
    kind: str = "conda"
    platform: str = "linux-64"
    category: str = "main"
    environment: str = "default"
    version: str = "1.0"
    address: str = ADDRESS
    hashes: dict[str, str] = field(default_factory=lambda: {"sha256": SHA256, "md5": MD5})

    @property
    def url(self) -> str:
        if self.kind == "pip":
            return f"https://files.example/{self.name}-{self.version}-py3-none-any.whl"
        return f"{self.address}/{self.platform}/{self.name}-{self.version}-h1_0.conda"


def conda_lock(*entries: Entry) -> str:
    lines = [
        "version: 1",
        "metadata:",
        "  content_hash: {linux-64: aa}",
        "  channels: [{url: conda-forge, used_env_vars: []}]",
        "  platforms: [linux-64, osx-64, win-64]",
        "  sources: [environment.yml]",
        "  time_metadata: {created_at: '2026-05-01T12:00:00Z'}",
        "package:",
    ]
    for one in entries:
        manager = "pip" if one.kind == "pip" else "conda"
        lines += [
            f"- {{name: {one.name}, version: '{one.version}', manager: {manager}, platform: {one.platform},",
            f"   dependencies: {{}}, url: '{one.url}', category: {one.category},",
            "   hash: {" + ", ".join(f"{name}: '{value}'" for name, value in one.hashes.items()) + "}}",
        ]
    return "\n".join(lines) + "\n"


def pixi_lock(version: int, *entries: Entry) -> str:
    """A pixi.lock of format 3 to 7."""
    if version == FIRST:
        return conda_lock(*entries).replace("version: 1", "version: 3").replace("category: main", "build: h1_0")
    lines = [f"version: {version}"]
    if version == NEWEST:
        lines += ["platforms: [{name: linux-64}, {name: osx-64}]"]
    lines += ["environments:"]
    for environment in dict.fromkeys(["default", *(one.environment for one in entries)]):
        lines += [f"  {environment}:", f"    channels: [{{url: {ADDRESS}/}}]", "    packages:"]
        for platform in dict.fromkeys(["linux-64", *(one.platform for one in entries)]):
            own = [one for one in entries if (one.environment, one.platform) == (environment, platform)]
            lines += [f"      {platform}:", *(f"      - {reference(version, one)}" for one in own)] if own else []
    lines += ["packages:"]
    for one in entries:
        lines += described(version, one)
    return "\n".join(lines) + "\n"


FIRST = 3
"""Has the keys of conda-lock.yml."""
NEWEST = 7
"""Names source packages by a hash."""
SHORT = 6
"""From this on, what addresses say is not repeated."""


def reference(version: int, one: Entry) -> str:
    """What an environment says of a package."""
    if one.kind == "source":
        return f"conda_source: '{one.name}[0a1b2c3d] @ ./{one.name}'" if version == NEWEST else f"conda: ./{one.name}"
    return f"{'pypi' if one.kind == 'pip' else 'conda'}: {one.url}"


def described(version: int, one: Entry) -> list[str]:
    """The lines on a package."""
    record = [f"  version: '{one.version}'", "  build: h1_0", f"  subdir: {one.platform}"]
    if one.kind == "source":
        return [f"- {reference(version, one)}", *record, *([f"  name: {one.name}"] if version < NEWEST else [])]
    hashes = [f"  {name}: {value}" for name, value in one.hashes.items() if one.kind == "conda" or name != "md5"]
    if one.kind == "pip":
        record = record[:1]
    if version < SHORT:
        kind = "pypi" if one.kind == "pip" else "conda"
        return [f"- kind: {kind}", f"  url: {one.url}", f"  name: {one.name}", *record, *hashes]
    named = [f"  name: {one.name}", *record] if one.kind == "pip" else []
    return [f"- {reference(version, one)}", *named, *hashes, *record[2:]]


def explicit(*entries: Entry) -> str:
    lines = ["# platform: linux-64", "@EXPLICIT"]
    for one in entries:
        hashes = one.hashes.get("sha256") or one.hashes.get("md5") or ""
        lines.append(f"# pip {one.name} @ {one.url}" if one.kind == "pip" else f"{one.url}#{hashes}")
    return "\n".join(lines) + "\n"


FORMATS = {
    "conda-lock": conda_lock,
    **{f"pixi-{version}": lambda *entries, v=version: pixi_lock(v, *entries) for version in (3, 4, 5, 6, 7)},
    "explicit": explicit,
}
