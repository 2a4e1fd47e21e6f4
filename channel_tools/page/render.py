# SPDX-License-Identifier: BSD-3-Clause
"""The files of a channel's page: which there are, what each is made of, and how it is rendered when that changed.

A file's digest is over all that it shows and over the code that shows it, so that a page is rendered, and the package
behind it opened, only when it would come out otherwise.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shlex
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from channel_tools import __version__
from channel_tools.conda.addresses import without_credentials
from channel_tools.page.content import field_lines, machine_needs, texts, versions_for, web_link
from channel_tools.page.details import Details, read_details
from channel_tools.page.model import INDEX_PAGE, PAGE_FOLDER, Site, name_page
from channel_tools.page.variants import variant_table
from channel_tools.system.errors import IntegrityError
from channel_tools.system.pages import page_templates, render, shared_style
from channel_tools.system.progress import format_amount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from channel_tools.page.model import Build, Package

_log = logging.getLogger(__name__)
_HERE = Path(__file__).parent
_TEMPLATES = page_templates(_HERE / "templates")
_TEMPLATES.filters |= {
    "web_link": web_link,
    "texts": texts,
    "size": partial(format_amount, unit="bytes"),
    "path": quote,
}
_TEMPLATES.globals |= {"name_page": name_page}
_NAMES_PER_PAGE = 500
_STYLE, _SCRIPT, _SEARCH = (f"{PAGE_FOLDER}/{name}" for name in ("page.css", "page.js", "names.js"))
_LICENCES_SHOWN = 20
ADDRESS = "CHANNEL"
"""Stands for the channel's address where nobody said it; with JavaScript, the browser's own takes its place."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PageFile:
    """One file of the site: its path below the channel, the digest of what it is made of, and how to make it."""

    path: str
    digest: str
    render: Callable[[], str]


def page_files(site: Site, channel: Path) -> list[PageFile]:
    """All files of the site, those that others lead to first; ``channel`` is where the package files are."""
    builds = list(_build_files(site, channel))
    return [
        _file(_STYLE, [], lambda: shared_style() + (_HERE / "static" / "page.css").read_text(encoding="utf-8")),
        _file(_SCRIPT, [], lambda: (_HERE / "static" / "page.js").read_text(encoding="utf-8")),
        *builds,
        *_name_files(site, {file.path: file.digest for file in builds}),
        *_list_files(site),
        _search_file(site),
        _index_file(site),
    ]


def _file(path: str, parts: Sequence[object], render: Callable[[], str]) -> PageFile:
    digest = hashlib.sha256(_code_digest())
    for part in parts:
        content = part if isinstance(part, bytes) else repr(part).encode(errors="surrogatepass")
        digest.update(b"%d:%b" % (len(content), content))
    return PageFile(path=path, digest=digest.hexdigest(), render=render)


@cache
def _code_digest() -> bytes:
    """Changes with everything that decides how a page looks."""
    digest = hashlib.sha256(__version__.encode() + shared_style().encode())
    for path in sorted(_HERE.rglob("*")):
        if path.suffix in {".py", ".jinja", ".css", ".js"}:
            digest.update(path.read_bytes())
    return digest.digest()


def _page(template: str, site: Site, path: str, **values: object) -> str:
    root = "../" * path.count("/")
    shared = {
        "site": site,
        "settings": site.settings,
        "root": root,
        "index_page": INDEX_PAGE,
        "list_page": _list_page(1),
    }
    return render(_TEMPLATES, template, {**shared, **values})


def _build_files(site: Site, channel: Path) -> Iterator[PageFile]:
    for package in site.packages.values():
        for build in package.builds:
            yield _file(
                build.page,
                [*_build_parts(site, build), site.settings.title],
                partial(_render_build, site, package, build, channel),
            )


def _build_parts(site: Site, build: Build) -> list[object]:
    row, known = build.row, [name for name in build.needs if name in site.packages]
    patched = build.record if build.patched else None
    return [row.record_json, row.about_json, row.origin_json, patched, (build.hidden, build.foundation, known)]


def _render_build(site: Site, package: Package, build: Build, channel: Path) -> str:
    return _page(
        "build.html.jinja",
        site,
        build.page,
        package=package,
        build=build,
        details=_details(channel / build.subdir / build.file_name),
        constrains=texts(build.record.get("constrains")),
        run_exports=field_lines(build.record.get("run_exports")),
        variant=sorted((build.row.origin.variant or {}).items()),
        needs=_linked_specs(site, build),
    )


def _details(path: Path) -> Details | None:
    try:
        return read_details(path)
    except IntegrityError as err:
        _log.warning("%s; its page lists no files", err)
        return None


def _linked_specs(site: Site, build: Build) -> list[tuple[str, str | None]]:
    """Each dependency, and the page of its package where the channel has it."""
    specs = texts(build.record.get("depends"))
    pages = {name: name_page(name) for name in build.needs if name in site.packages}
    return [(spec, pages.get(spec.split(" ")[0].rpartition("::")[2])) for spec in specs]


def _name_files(site: Site, builds: Mapping[str, str]) -> Iterator[PageFile]:
    """The pages of names; ``builds`` are the digests of the pages of builds, which show all that these say of them."""
    shared = repr((site.settings, site.foundation))
    for package in site.packages.values():
        digests = [(build.page, builds[build.page]) for build in package.builds]
        yield _file(package.page, [digests, package.needed_by, shared], partial(_render_name, site, package))


def _render_name(site: Site, package: Package) -> str:
    shown = package.shown
    versions = list(dict.fromkeys(build.version for build in package.builds))
    by_version = {version: [one for one in package.builds if one.version == version] for version in versions}
    return _page(
        "name.html.jinja",
        site,
        package.page,
        package=package,
        shown=shown,
        about=shown.row.about,
        needs=_linked_specs(site, shown),
        machine=machine_needs([shown]),
        run_exports=field_lines(shown.record.get("run_exports")),
        versions=[(version, builds, variant_table(builds)) for version, builds in by_version.items()],
        commands=_commands(site, package.name, [package.name]),
    )


def _list_files(site: Site) -> Iterator[PageFile]:
    names = list(site.packages)
    chunks = [names[start : start + _NAMES_PER_PAGE] for start in range(0, len(names), _NAMES_PER_PAGE)] or [[]]
    ranges = [(_list_page(number), chunk[0], chunk[-1]) for number, chunk in enumerate(chunks, 1) if chunk]
    for number, chunk in enumerate(chunks, 1):
        rows = [_summary_row(site.packages[name]) for name in chunk]
        path = _list_page(number)
        yield _file(
            path,
            [rows, ranges, site.settings.title],
            partial(_page, "list.html.jinja", site, path, rows=rows, ranges=ranges, count=len(names), here=path),
        )


def _list_page(number: int) -> str:
    return f"{PAGE_FOLDER}/packages-{number}.html"


def _summary_row(package: Package) -> tuple[str, str, str, str]:
    shown = package.shown
    licence = str(shown.record.get("license") or "")
    return package.name, shown.version, licence, _summary(shown)


def _summary(build: Build) -> str:
    return " ".join(texts(build.row.about.get("summary")))


def _search_file(site: Site) -> PageFile:
    """The names for the search: a script and not JSON, since a page opened as a file may load nothing else."""
    rows = [[name, package.shown.version, _summary(package.shown)] for name, package in site.packages.items()]
    content = json.dumps(rows, separators=(",", ":"))  # ASCII alone
    return _file(_SEARCH, [content], lambda: f"const packageNames = {content};\n")


def _index_file(site: Site) -> PageFile:
    listed = [build for package in site.packages.values() for build in package.builds if build.hidden is None]
    own = [build for build in listed if not build.foundation]
    names = sorted({build.row.name for build in own})
    values: dict[str, object] = {
        "subdirs": _counts([build.subdir for build in listed]),
        "machine": machine_needs(own),
        "made_for": _made_for(site, own),
        "rows": [_summary_row(site.packages[name]) for name in names[:_NAMES_PER_PAGE]],
        "more": max(0, len(names) - _NAMES_PER_PAGE),
        "packages": len({build.row.name for build in listed}),
        "files": len(listed),
        "size_bytes": sum(build.row.stamp.size_bytes for build in listed),
        "licences": sorted({str(one.record["license"]) for one in own if one.record.get("license")})[:_LICENCES_SHOWN],
        "stacks": _stacks(site),
        "example": names[0] if names else None,
    }
    values["commands"] = _commands(site, "NAME", ["PACKAGE"])
    return _file(INDEX_PAGE, [values, site.settings], lambda: _page("index.html.jinja", site, INDEX_PAGE, **values))


def _counts(subdirs: list[str]) -> list[tuple[str, int]]:
    return [(subdir, subdirs.count(subdir)) for subdir in sorted(set(subdirs))]


def _made_for(site: Site, own: list[Build]) -> dict[str, tuple[str, ...]]:
    """The versions of Python and PyTorch that own packages were made for, else those that the channel has."""
    found = {}
    for words, name in (("Python", "python"), ("PyTorch", "pytorch")):
        versions = versions_for(own, name)
        if not versions and name in site.packages:
            listed = [build.version for build in site.packages[name].builds if build.hidden is None]
            versions = tuple(dict.fromkeys(listed))
        if versions:
            found[words] = versions
    return found


def _stacks(site: Site) -> list[tuple[str, str, list[tuple[str, str]], list[tuple[str, str]]]]:
    """The stacks of which the channel lists every package that is installed: name, description, packages, commands."""
    shown = []
    for stack in site.settings.stacks:
        names = [spec.split(" ")[0] for spec in stack.install]
        if all(_is_listed(site, spec) for spec in stack.install):
            links = [(spec, name_page(name)) for spec, name in zip(stack.install, names, strict=True)]
            shown.append((stack.name, stack.description, links, _commands(site, stack.name, stack.install)))
    return shown


def _is_listed(site: Site, spec: str) -> bool:
    from rattler import BuildString, MatchSpec, PackageRecord  # noqa: PLC0415 - slow to import, and only stacks need it

    package = site.packages.get(spec.partition(" ")[0])
    wanted = MatchSpec(spec)
    return package is not None and any(
        build.hidden is None
        and wanted.matches(
            PackageRecord(
                name=package.name,
                version=build.version,
                build=BuildString(build.build),
                build_number=int(str(build.record["build_number"])),
                subdir=build.subdir,
            )
        )
        for build in package.builds
    )


def _commands(site: Site, environment: str, specs: Sequence[str]) -> list[tuple[str, str]]:
    """For each client, the command that makes an environment with ``specs`` from the channel."""
    address = site.settings.address or ADDRESS
    foundation = site.foundation
    others = [] if foundation.kind == "registry" else [without_credentials(foundation.address or "conda-forge")]
    channels = " ".join(f"-c {shlex.quote(one)}" for one in (address, *others))
    wanted = shlex.join(specs)
    name = shlex.quote(environment)
    return [
        ("conda", f"conda create -n {name} --override-channels {channels} {wanted}"),
        ("mamba", f"mamba create -n {name} --override-channels {channels} {wanted}"),
        ("pixi", f"pixi init {channels} {name} && cd {name} && pixi add {wanted}"),
    ]
