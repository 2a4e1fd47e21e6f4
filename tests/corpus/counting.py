# SPDX-License-Identifier: BSD-3-Clause
"""The second reader: counts what a file of another program has, with nothing of channel_tools.

It is simple on purpose: YAML or JSON is parsed and its entries are counted, so a count that differs from what a command
took means that one of the two misread the file. What it cannot count is None.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml
import zstandard
from conda_package_streaming.package_streaming import stream_conda_component

PLATFORM = "linux-64"
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_SELECTOR = re.compile(r"#\s*\[([^\[\]]+)\]\s*$")
_TARGET = "target_platform"
_OF_EVERY_RECIPE = ("channel_sources", "channel_targets")
"""Keys that multiply the variants of every recipe."""
_SPEC = re.compile(r"(?:.*::)?([\w.-]+)(.*)")
_TEMPLATE = re.compile(r"\$\{\{\s*(\w+)")
_ADDRESS = re.compile(r"\w+://.*/(?P<subdir>[a-z0-9-]+)/(?P<file>[^/#]+)#(?P<md5>[0-9a-fA-F]{32})$")
_SELECTOR_NAMES = {
    "linux": True,
    "linux64": True,
    "unix": True,
    "x86": True,
    "x86_64": True,
    **dict.fromkeys(
        ("osx", "win", "win32", "win64", "aarch64", "arm64", "ppc64le", "s390x", "emscripten", "wasi"), False
    ),
}


def load_yaml(path: Path) -> Any:  # noqa: ANN401 - another program's file
    """The parsed file, or None if it is not YAML. Values stay text."""
    try:
        return yaml.load(path.read_text(encoding="utf-8-sig"), Loader=_LOADER)  # noqa: S506 - makes text only
    except (yaml.YAMLError, UnicodeDecodeError, ValueError):
        return None


def pixi_lock_parts(path: Path) -> Iterator[tuple[str, str, int]]:
    """Each environment and platform of a pixi.lock with the number of its entries; format 3 has one environment."""
    content = load_yaml(path) or {}
    for platform, entries in _by_platform(content.get("package")).items():
        yield "default", platform, len(entries)
    for environment, described in content.get("environments", {}).items():
        for platform, entries in (described.get("packages") or {}).items():
            yield environment, platform, len(entries or ())


def _by_platform(packages: Any) -> dict[str, list[Any]]:  # noqa: ANN401 - another program's file
    found: dict[str, list[Any]] = {}
    for package in packages or ():
        found.setdefault(package.get("platform", ""), []).append(package)
    return found


def conda_lock_parts(path: Path) -> Iterator[tuple[str, str, int]]:
    """Each category and platform of a conda-lock.yml with the number of packages of it and of main.

    A package of two categories has two entries, and virtual packages are none.
    """
    for platform, packages in _by_platform((load_yaml(path) or {}).get("package")).items():
        for category in sorted({package.get("category", "main") for package in packages}):
            wanted = [one for one in packages if one.get("category", "main") in {"main", category}]
            names = {one.get("name", "") for one in wanted}
            yield category, platform, sum(not name.startswith("__") for name in names)


def explicit_entries(path: Path) -> int:
    """The lines of an explicit list that are neither comments nor the mark."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines())
    return sum(1 for line in lines if line and not line.startswith(("#", "@")))


def environment_specs(path: Path) -> dict[str, str]:
    """The packages that an environment.yml names, each with the rest of its dependency, without virtual packages."""
    content = load_yaml(path)
    found: dict[str, str] = {}
    dependencies = content.get("dependencies") if isinstance(content, dict) else None
    for text in dependencies if isinstance(dependencies, list) else ():
        if isinstance(text, str) and (match := _SPEC.match(text.strip())) and not match[1].startswith("__"):
            found[match[1].lower()] = found.get(match[1].lower(), "") + " " + match[2]
    return found


def variant_values(path: Path) -> dict[str, int] | None:
    """The number of different values of each key of a variant file on linux-64; None if that needs more."""
    kept = []
    for line in path.read_text(encoding="utf-8-sig").splitlines():
        found = _SELECTOR.search(line)
        try:
            if found is None or eval(found.group(1), {"__builtins__": {}}, dict(_SELECTOR_NAMES)):  # noqa: S307 - see above
                kept.append(line)
        except Exception:  # noqa: BLE001 - any expression of other people's
            return None
    try:
        content = yaml.load("\n".join(kept), Loader=_LOADER)  # noqa: S506 - makes text only
    except yaml.YAMLError:
        return None
    if not isinstance(content, dict):
        return None
    if any(len(content.get(key) or ()) > 1 for key in _OF_EVERY_RECIPE) or "if:" in "".join(kept):
        return None
    lists = {key: one if isinstance(one, list) else [one] for key, one in content.items() if one and key != "zip_keys"}
    here = min(1, lists.get(_TARGET, [PLATFORM]).count(PLATFORM))
    return {key: here if key == _TARGET else here * len(set(map(str, one))) for key, one in lists.items()}


def recipe_outputs(path: Path) -> int | None:
    """The outputs that a v1 recipe has on every platform; None if some are conditional or skipped."""
    content = load_yaml(path)
    if not isinstance(content, dict) or "skip:" in path.read_text(encoding="utf-8-sig"):
        return None
    outputs = content.get("outputs")
    if _has_variant_names(outputs, content.get("context")):
        return None
    if outputs is None:
        return 1 if "package" in content else None
    plain = [item for item in outputs if isinstance(item, dict) and "package" in item]
    return len(plain) if isinstance(outputs, list) and len(plain) == len(outputs) else None


def _has_variant_names(outputs: Any, context: Any) -> bool:  # noqa: ANN401 - another program's file
    """Whether the name of an output depends on more than the recipe's context, as on a variant."""
    names = [str(one["package"]) for one in outputs or () if isinstance(one, dict) and "package" in one]
    return any(found not in (context or {}) for name in names for found in _TEMPLATE.findall(name))


def explicit_records(path: Path) -> dict[str, dict[str, Any]]:
    """A record for each address of an explicit list, by ``subdir/file name``, with its md5 and a sha256."""
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        match = _ADDRESS.match(line.strip())
        if match is not None:
            subdir, file_name = match["subdir"], match["file"].replace("%21", "!")
            name, version, build = file_name.removesuffix(".conda").removesuffix(".tar.bz2").rsplit("-", 2)
            found[f"{subdir}/{file_name}"] = {
                "name": name,
                "version": version,
                "build": build,
                "build_number": 0,
                "depends": [],
                "md5": match["md5"].lower(),
                "sha256": hashlib.sha256(line.encode()).hexdigest(),
                "size": 1,
                "subdir": subdir,
            }
    return found


def shard_entries(path: Path) -> int | None:
    """The records in the shards that an index of shards names, which lie where it says; None if it is not one."""
    try:
        index = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes()))
        folder = path.parent / str(index["info"]["shards_base_url"])
        packed = [(folder / f"{sha256.hex()}.msgpack.zst").read_bytes() for sha256 in index["shards"].values()]
        shards = [
            msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompressobj().decompress(one)) for one in packed
        ]
    except (ValueError, OSError, LookupError, TypeError, zstandard.ZstdError):
        return None
    return len({name for one in shards for key in ("packages", "packages.conda") for name in one.get(key) or ()})


def repodata_entries(path: Path) -> int | None:
    """The records of a repodata.json, packed or not; None if it is not one."""
    raw = path.read_bytes()
    try:
        if path.suffix == ".zst":
            raw = zstandard.ZstdDecompressor().decompressobj().decompress(raw)
        content = json.loads(raw)
    except (ValueError, OSError, zstandard.ZstdError):
        return None
    if not isinstance(content, dict) or not {"packages", "packages.conda"} & content.keys():
        return None
    return len({name for key in ("packages", "packages.conda") for name in content.get(key) or ()})


def package_files(path: Path) -> int | None:
    """The files and links of a package outside info/, by conda-package-streaming; None if it cannot read it."""
    try:
        with path.open("rb") as stream:
            members = [member for _, member in stream_conda_component(path.name, stream, component="pkg")]
    except Exception:  # noqa: BLE001 - whatever its reader raises for a damaged file
        return None
    return sum(1 for member in members if not member.isdir() and not member.name.startswith("info/"))
