# SPDX-License-Identifier: BSD-3-Clause
"""What a package may contain of the packages that it was built with: static archives and headers that were compiled in.

The engine records a build's host environment in info/recipe/rendered_recipe.yaml. Nothing records what the linker took
from it, so a recipe says it: the licence texts of a host package that was compiled in are in
``info/licenses/compiled-in/NAME/``, which ``about.license_file: compiled-in/`` makes of a folder in the work folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from channel_tools.conda.archive import stream_component
from channel_tools.conda.contents import OTHER_METADATA_BYTES
from channel_tools.system.yamlfile import load_plain_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

RENDERED_RECIPE = "recipe/rendered_recipe.yaml"
"""The file of info/ in which the engine records a build."""
FOLDER = "licenses/compiled-in/"
"""The folder, below info/, of licence texts by the names of host packages."""
_ARCHIVE = ".a"
_HEADERS = (".h", ".hh", ".hpp", ".hxx", ".cuh", ".ipp")
_SHARED = (".so", ".dylib", ".dll")
_COMPILERS = ("/sysroot/", "lib/gcc/")
"""Parts of the paths of a compiler's own files, whose licences permit what compilers link into every program."""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class HostPackage:
    """A package of the environment that another one was built in; values that are not recorded are empty."""

    name: str
    version: str
    build: str
    subdir: str
    file_name: str
    sha256: str
    license: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderedRecipe:
    """The engine's record of a build: its plain value, None if there is none, and what is wrong with its text."""

    value: object = None
    fault: str = ""


def read_rendered(content: bytes | None) -> RenderedRecipe:
    """The record of a build from the bytes of a package's rendered recipe, None if it has no such file."""
    try:
        return RenderedRecipe(value=load_plain_yaml(content or b""))
    except yaml.YAMLError as err:
        return RenderedRecipe(fault=f"info/{RENDERED_RECIPE} cannot be read: {' '.join(str(err).split())}")


def host_packages(rendered: RenderedRecipe) -> tuple[HostPackage, ...]:
    """The host environment of a build, by name; empty if the package does not record it or the text is not YAML."""
    section = rendered.value
    for key in ("finalized_dependencies", "host", "resolved"):
        section = section.get(key) if isinstance(section, dict) else None
    rows = section if isinstance(section, list) else []
    return tuple(sorted(_host_package(row) for row in rows if isinstance(row, dict)))


def compiled_into(path: Path) -> tuple[HostPackage, ...]:
    """The host packages whose licence texts the package file has. Raises IntegrityError if it is damaged."""
    names, rendered = set[str](), None
    for member, stream in stream_component(path, "info"):
        name = member.name.removeprefix("info/")
        names.add(name)
        if name == RENDERED_RECIPE and stream is not None and member.size <= OTHER_METADATA_BYTES:
            rendered = stream.read()
    texts = packages_with_texts(names)
    return tuple(host for host in host_packages(read_rendered(rendered)) if host.name in texts) if texts else ()


def _host_package(row: dict[object, object]) -> HostPackage:
    def text(key: str) -> str:
        return str(row.get(key) or "")

    return HostPackage(
        name=text("name"),
        version=text("version"),
        build=text("build"),
        subdir=text("subdir"),
        file_name=text("fn"),
        sha256=text("sha256"),
        license=text("license"),
    )


def packages_with_texts(info_files: Iterable[str]) -> frozenset[str]:
    """The names of the host packages whose licence texts are among the files of info/ (paths below it)."""
    return frozenset(path.removeprefix(FOLDER).partition("/")[0] for path in info_files if path.startswith(FOLDER))


def what_can_be_compiled_in(files: Iterable[str]) -> str:
    """What of a package with these files a build may have copied into its own: ``lib/libx.a``, headers, or nothing.

    Headers count only where the package has no shared library: such headers mostly declare what that one contains.
    """
    paths = sorted(files)
    archives = [path for path in paths if path.endswith(_ARCHIVE) and not any(part in path for part in _COMPILERS)]
    if archives:
        return archives[0] + (f" and {len(archives) - 1} more archives" if len(archives) > 1 else "")
    headers = list(_headers(paths))
    return f"headers, such as {headers[0]}" if headers else ""


def _headers(paths: Iterable[str]) -> Iterator[str]:
    names = list(paths)
    if any(shared in path.rpartition("/")[2] for path in names for shared in _SHARED):
        return
    for path in names:
        if path.endswith(_HEADERS) and f"/{path}".rpartition("/include/")[1]:
            yield path
