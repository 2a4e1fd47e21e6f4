# SPDX-License-Identifier: BSD-3-Clause
"""Which pages a channel has: those of its builds, their logs and its names here, those of the whole in front.py."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from channel_tools.page.attested import read_claims
from channel_tools.page.commands import install_commands
from channel_tools.page.content import field_lines, machine_needs, texts
from channel_tools.page.details import Details, read_details, readable_log
from channel_tools.page.files import HERE, duration, page_file, render_page
from channel_tools.page.front import front_files
from channel_tools.page.model import PAGE_FOLDER, log_file, name_page
from channel_tools.page.variants import variant_table
from channel_tools.system.charts import chart_style
from channel_tools.system.errors import IntegrityError
from channel_tools.system.pages import shared_style

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from channel_tools.page.files import PageFile
    from channel_tools.page.model import Build, Package, Site
    from channel_tools.page.place import PagePlace

_log = logging.getLogger(__name__)
_STYLE, _SCRIPT = f"{PAGE_FOLDER}/page.css", f"{PAGE_FOLDER}/page.js"


def page_files(site: Site, place: PagePlace) -> list[PageFile]:
    """All files of the site, those that others lead to first; ``place`` is where the package files are."""
    builds = list(_build_files(site, place))
    return [
        page_file(_STYLE, [], lambda: shared_style() + chart_style() + _static("page.css")),
        page_file(_SCRIPT, [], lambda: _static("page.js")),
        *_log_files(site, place),
        *builds,
        *_name_files(site, {file.path: file.digest for file in builds}),
        *front_files(site),
    ]


def _static(name: str) -> str:
    return (HERE / "static" / name).read_text(encoding="utf-8")


def _log_files(site: Site, place: PagePlace) -> Iterator[PageFile]:
    for package in site.packages.values():
        for build in package.builds:
            if (sha256 := site.settings.logs.get(build.file_name)) is not None:
                parts = [sha256, site.settings.title]
                yield page_file(build.log_page, parts, partial(_render_log, site, build, place))


def _render_log(site: Site, build: Build, place: PagePlace) -> str:
    content = place.read(log_file(build.file_name))
    shown = None if content is None else readable_log(content)
    return render_page("log.html.jinja", site, build.log_page, build=build, log=shown)


def _build_files(site: Site, place: PagePlace) -> Iterator[PageFile]:
    for package in site.packages.values():
        for build in package.builds:
            yield page_file(
                build.page,
                [*_build_parts(site, build), site.settings.title],
                partial(_render_build, site, package, build, place),
            )


def _build_parts(site: Site, build: Build) -> list[object]:
    row, known = build.row, [name for name in build.needs if name in site.packages]
    patched = build.record if build.patched else None
    settings = site.settings
    history = (
        settings.builds.get(build.file_name),
        [(stack, run.started, run.ranks) for stack, run in site.validations.get(build.stem, ())],
        build.file_name in settings.logs,
    )
    return [row.record_json, row.about_json, row.origin_json, patched, (build.hidden, build.foundation, known), history]


def _render_build(site: Site, package: Package, build: Build, place: PagePlace) -> str:
    return render_page(
        "build.html.jinja",
        site,
        build.page,
        package=package,
        build=build,
        details=_details(place, build),
        built=site.settings.builds.get(build.file_name),
        validations=site.validations.get(build.stem, ()),
        claims=read_claims(place.read(f"{build.subdir}/{build.file_name}.sigs"), build) if build.attested else None,
        has_log=build.file_name in site.settings.logs,
        constrains=texts(build.record.get("constrains")),
        run_exports=field_lines(build.record.get("run_exports")),
        variant=sorted((build.row.origin.variant or {}).items()),
        needs=_linked_specs(site, build),
    )


def _details(place: PagePlace, build: Build) -> Details | None:
    try:
        with place.package(build) as path:
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
    settings = site.settings
    shared = repr((settings.title, settings.address, site.foundation))
    for package in site.packages.values():
        digests = [(build.page, builds[build.page]) for build in package.builds]
        yield page_file(package.page, [digests, package.needed_by, shared], partial(_render_name, site, package))


def _render_name(site: Site, package: Package) -> str:
    shown = package.shown
    versions = list(dict.fromkeys(build.version for build in package.builds))
    by_version = {version: [one for one in package.builds if one.version == version] for version in versions}
    return render_page(
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
        commands=install_commands(site, package.name, [package.name]),
        state_words=partial(_state_words, site),
    )


def _state_words(site: Site, build: Build) -> str:
    """Whether a build is offered, when it was built and with which stacks it was validated."""
    built = site.settings.builds.get(build.file_name)
    words = [] if build.hidden is None else [build.hidden]
    took = "" if built is None or built.seconds is None else f" in {duration(built.seconds)}"
    words.append("built" if built is None else f"built and tested {built.finished[:10]}{took}")
    words += [f"validated {run.started[:10]} in stack {name}" for name, run in site.validations.get(build.stem, ())]
    return ", ".join(words)
