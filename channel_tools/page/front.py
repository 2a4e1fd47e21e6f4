# SPDX-License-Identifier: BSD-3-Clause
"""Which files a page has, and the pages of the channel as a whole: index, stacks, package lists, search names."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from channel_tools.conda.package import NOARCH
from channel_tools.conda.specs import spec_name, texts_of
from channel_tools.page.content import as_numbers, machine_needs, versions_for
from channel_tools.page.feed import feed_file, newest_builds
from channel_tools.page.look import accent_style
from channel_tools.page.model import INDEX_PAGE, PAGE_FOLDER, name_page, stack_page, validated_list
from channel_tools.page.render import (
    HERE,
    exact_commands,
    install_commands,
    licence,
    list_page,
    lock_commands,
    logo_page,
    package_files,
    page_file,
    render_page,
    shared_parts,
)
from channel_tools.page.stacks import (
    is_installable,
    run_lines,
    size_charts,
    slower_sizes,
    stack_card,
    stack_charts,
    stack_table,
    stack_variants,
    validated_builds,
)
from channel_tools.system.charts import chart_style
from channel_tools.system.counting import counted
from channel_tools.system.pages import shared_style

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from channel_tools.page.model import Build, Package, PageSettings, PageStore, ShownStack, Site
    from channel_tools.page.render import PageFile
    from channel_tools.page.stacks import StackVariant

_NAMES_PER_PAGE = 500
_STYLE, _SCRIPT = f"{PAGE_FOLDER}/page.css", f"{PAGE_FOLDER}/page.js"
_SEARCH = f"{PAGE_FOLDER}/names.js"
_FRONT_NAMES = 150
_LICENCES_SHOWN = 20
_RUNS_SHOWN = 20


def page_files(site: Site, store: PageStore) -> list[PageFile]:
    """All files of the site, linked pages before those that link to them; ``store`` is where the package files are."""
    return [
        page_file(
            _STYLE,
            [site.settings.accent],
            lambda: shared_style() + chart_style() + _static("page.css") + accent_style(site.settings.accent),
        ),
        *_logo_file(site.settings),
        page_file(_SCRIPT, [], lambda: _static("page.js")),
        *package_files(site, store),
        *_front_files(site),
    ]


def _logo_file(settings: PageSettings) -> Iterator[PageFile]:
    logo, path = settings.logo, logo_page(settings)
    if logo is not None and path is not None:
        yield page_file(path, [logo], lambda: logo)


def _static(name: str) -> str:
    return (HERE / "static" / name).read_text(encoding="utf-8")


def _front_files(site: Site) -> Iterator[PageFile]:
    """In the order in which they are written: the index, which links to all others, is the last."""
    newest = newest_builds(site)
    stacks = [stack for stack in site.settings.stacks if is_installable(site, stack)]
    for stack in stacks:
        yield from _stack_files(site, stack)
    yield from _list_files(site)
    yield _search_file(site)
    yield feed_file(site, newest)
    yield _index_file(site, stacks, newest)


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageRow:
    """A package in a list; ``chips`` are (words, kind) that tell it apart from others."""

    name: str
    version: str
    licence: str
    summary: str
    foundation: bool
    chips: tuple[tuple[str, str], ...] = ()


def _row(site: Site, package: Package) -> PackageRow:
    shown = package.shown
    chips = []
    if not shown.foundation:
        chips += [("yanked", "bad")] if shown.yanked else [("superseded", "")] if shown.hidden else []
        chips += [("validated", "good")] if any(build.stem in site.validations for build in package.builds) else []
        chips += [("signed", "accent")] if shown.attested else []
    return PackageRow(
        name=package.name,
        version=shown.version,
        licence=licence(shown.record.get("license")),
        summary=site.summaries[package.name],
        foundation=shown.foundation,
        chips=tuple(chips),
    )


def _list_files(site: Site) -> Iterator[PageFile]:
    names = list(site.packages)
    chunks = [names[start : start + _NAMES_PER_PAGE] for start in range(0, len(names), _NAMES_PER_PAGE)] or [[]]
    ranges = [(list_page(number), chunk[0], chunk[-1]) for number, chunk in enumerate(chunks, 1) if chunk]
    for number, chunk in enumerate(chunks, 1):
        rows = [_row(site, site.packages[name]) for name in chunk]
        path = list_page(number)
        yield page_file(
            path,
            [rows, ranges, len(names), shared_parts(site.settings)],
            partial(
                render_page,
                "list.html.jinja",
                f"Packages of {site.settings.title}",
                f"What is in the conda channel {site.settings.title}: {counted(len(names), 'package')}",
                site,
                path,
                rows=rows,
                ranges=ranges,
                count=len(names),
                here=path,
            ),
        )


def _search_file(site: Site) -> PageFile:
    """The names to search, as a script and not JSON, since a page opened from a file can load only scripts."""
    rows = [
        [name, package.shown.version, site.summaries[name], int(not package.shown.foundation)]
        for name, package in site.packages.items()
    ]
    content = json.dumps(rows, separators=(",", ":"))  # ASCII alone
    return page_file(_SEARCH, [content], lambda: f"const packageNames = {content};\n")


def _stack_files(site: Site, stack: ShownStack) -> Iterator[PageFile]:
    validated = validated_builds(site, stack)
    address = (site.settings.address or "").rstrip("/")
    if validated and address:
        parts = [stack.name, address, [(build.page, build.row.sha256) for build in validated]]
        yield page_file(validated_list(stack.name), parts, partial(_explicit_list, stack.name, address, validated))
    yield _stack_file(site, stack, validated, f"{address}/{validated_list(stack.name)}" if address else "")


def _explicit_list(stack: str, channel: str, builds: Sequence[Build]) -> str:
    """The builds as an explicit list (CEP 23) with their addresses in the channel."""
    from channel_tools.pins.choice import package_of_address  # noqa: PLC0415 - only such a list needs the stage
    from channel_tools.pins.explicit import render_explicit  # noqa: PLC0415
    from channel_tools.pins.lock import Lock, PlatformLock, in_installation_order, repodata_record  # noqa: PLC0415

    packages = {}
    for build in builds:
        address = f"{channel}/{build.subdir}/{build.file_name}"
        package = package_of_address(address, sha256=build.row.sha256, md5=None)
        packages[package.name] = dataclasses.replace(package, depends=tuple(texts_of(build.record, "depends")))
    ordered = in_installation_order([repodata_record(package) for package in packages.values()])
    platform = PlatformLock(
        platform=next((build.subdir for build in builds if build.subdir != NOARCH), NOARCH),
        virtual_packages=(),
        packages=tuple(packages[record.name.normalized] for record in ordered),
    )
    return render_explicit(Lock(stack=stack, specs=(), channels=(channel,), platforms=(platform,)), platform)


def _stack_values(
    site: Site, stack: ShownStack, variants: list[StackVariant], builds: list[Build]
) -> dict[str, object]:
    """What the page of a stack shows of its variants and of their ``builds``."""
    offered = [build for variant in variants if variant.offered for build in variant.builds if build.hidden is None]
    return {
        "table": stack_table(site, variants),
        "machine": machine_needs(builds),
        "made_for": _made_for(site, offered) if variants[0].python else {},
        "subdirs": _counts([build.subdir for build in builds]),
        "installs": [(spec, name_page(spec_name(spec))) for spec in stack.install],
        "licences": sorted({licence(build.record["license"]) for build in builds if build.record.get("license")}),
        "commands": install_commands(site, stack.name, stack.install),
        "locks": lock_commands(stack.name),
        "run_lines": run_lines(stack),
        "card": stack_card(site, stack),
        "slower": slower_sizes(stack.runs[-1]) if stack.runs else [],
        "runs": list(reversed(stack.runs))[:_RUNS_SHOWN],
        "attested": sum(build.attested for build in builds),
    }


def _stack_file(site: Site, stack: ShownStack, validated: Sequence[Build], listed: str) -> PageFile:
    """The page of a stack; ``listed`` is the address of the list of what was ``validated``, "" if it has none."""
    variants = stack_variants(site, stack)
    builds = [build for variant in variants for build in variant.builds if build.hidden is None]
    values = _stack_values(site, stack, variants, builds)
    values["validated"] = (len(validated), sum(build.row.stamp.size_bytes for build in validated))
    values["exact"] = exact_commands(stack.name, listed) if validated and listed else []
    path = stack_page(stack.name)
    parts = [
        stack,
        [(build.page, build.row.sha256, build.hidden, build.attested) for build in builds],
        [
            (variant.python, variant.pytorch, [(build.page, build.hidden) for build in variant.builds])
            for variant in variants
        ],
        values,
        shared_parts(site.settings),
    ]
    return page_file(
        path,
        parts,
        lambda: render_page(
            "stack.html.jinja",
            f"Stack {stack.name}: {site.settings.title}",
            stack.description,
            site,
            path,
            stack=stack,
            variants=variants,
            builds=builds,
            charts=list(stack_charts(stack)),
            size_charts=list(size_charts(stack, stack.runs[-1])) if stack.runs else [],
            **values,
        ),
    )


def _index_file(site: Site, stacks: list[ShownStack], newest: list[Build]) -> PageFile:
    every = [build for package in site.packages.values() for build in package.builds]
    listed = [build for build in every if build.hidden is None]
    own = [build for build in listed if not build.foundation]
    names = sorted({build.row.name for build in own})
    third = sorted({build.row.name for build in listed} - set(names))
    main = next((stack for stack in stacks if stack.runs and stack.runs[-1].passed), next(iter(stacks), None))
    values: dict[str, object] = {
        "subdirs": _counts([build.subdir for build in own]),
        "machine": machine_needs(own),
        "made_for": _made_for(site, own),
        "rows": [_row(site, site.packages[name]) for name in names[:_FRONT_NAMES]],
        "more": max(0, len(names) - _FRONT_NAMES),
        "third": third[:_FRONT_NAMES],
        "third_count": len(third),
        "own_names": len(names),
        "packages": len(names) + len(third),
        "files": len(listed),
        "size_bytes": sum(build.row.stamp.size_bytes for build in listed),
        "licences": sorted({licence(build.record["license"]) for build in own if build.record.get("license")})[
            :_LICENCES_SHOWN
        ],
        "stacks": [stack_card(site, stack) for stack in stacks],
        "main_stack": None if main is None else main.name,
        "own": len(own),
        "tested": sum(build.file_name in site.settings.builds for build in own),
        "attested": sum(build.attested for build in own),
        "yanked": [(build.page, build.file_name, build.yanked) for build in every if build.yanked is not None],
        "updated": site.built(newest[0]) if newest else "",
        "commands": install_commands(site, "NAME", ["PACKAGE"])
        if main is None
        else install_commands(site, main.name, main.install),
    }
    settings = site.settings
    title, described = f"{settings.title}: a conda channel", settings.sentence or "Packages for conda, mamba and pixi"
    return page_file(
        INDEX_PAGE,
        [values, shared_parts(settings), settings.sentence, settings.address, site.foundation],
        lambda: render_page("index.html.jinja", title, described, site, INDEX_PAGE, **values),
    )


def _counts(subdirs: list[str]) -> list[tuple[str, int]]:
    return [(subdir, subdirs.count(subdir)) for subdir in sorted(set(subdirs))]


def _made_for(site: Site, own: list[Build]) -> dict[str, tuple[str, ...]]:
    """The versions of Python and PyTorch that the channel's own packages were made for, else those that it has."""
    made_for = {}
    for words, name in (("Python", "python"), ("PyTorch", "pytorch")):
        versions = versions_for(own, name)
        if not versions and name in site.packages:
            listed = {build.version for build in site.packages[name].builds if build.hidden is None}
            versions = tuple(sorted(listed, key=as_numbers))
        if versions:
            made_for[words] = versions
    return made_for
