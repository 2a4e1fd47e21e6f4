# SPDX-License-Identifier: BSD-3-Clause
"""Which files a page has, and the pages of the channel as a whole: index, stacks, package lists, search names."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from channel_tools.conda.specs import spec_name
from channel_tools.page.content import as_numbers, machine_needs, texts, versions_for
from channel_tools.page.model import INDEX_PAGE, PAGE_FOLDER, name_page, stack_page
from channel_tools.page.render import (
    HERE,
    install_commands,
    list_page,
    lock_commands,
    package_files,
    page_file,
    render_page,
)
from channel_tools.page.stacks import is_installable, is_of_present_builds, stack_charts, stack_table, stack_variants
from channel_tools.system.pages import chart_style, shared_style

if TYPE_CHECKING:
    from collections.abc import Iterator

    from channel_tools.page.model import Build, Package, ShownStack, Site
    from channel_tools.page.render import PageFile
    from channel_tools.page.write import PagePlace

_NAMES_PER_PAGE = 500
_STYLE, _SCRIPT = f"{PAGE_FOLDER}/page.css", f"{PAGE_FOLDER}/page.js"
_SEARCH = f"{PAGE_FOLDER}/names.js"
_LICENCES_SHOWN = 20
_RUNS_SHOWN = 20


def page_files(site: Site, place: PagePlace) -> list[PageFile]:
    """All files of the site, linked pages before those that link to them; ``place`` is where the package files are."""
    return [
        page_file(_STYLE, [], lambda: shared_style() + chart_style() + _static("page.css")),
        page_file(_SCRIPT, [], lambda: _static("page.js")),
        *package_files(site, place),
        *_front_files(site),
    ]


def _static(name: str) -> str:
    return (HERE / "static" / name).read_text(encoding="utf-8")


def _front_files(site: Site) -> Iterator[PageFile]:
    """In the order in which they are written: the index, which links to all others, is the last."""
    stacks = [stack for stack in site.settings.stacks if is_installable(site, stack)]
    yield from (_stack_file(site, stack) for stack in stacks)
    yield from _list_files(site)
    yield _search_file(site)
    yield _index_file(site, stacks)


def _list_files(site: Site) -> Iterator[PageFile]:
    names = list(site.packages)
    chunks = [names[start : start + _NAMES_PER_PAGE] for start in range(0, len(names), _NAMES_PER_PAGE)] or [[]]
    ranges = [(list_page(number), chunk[0], chunk[-1]) for number, chunk in enumerate(chunks, 1) if chunk]
    for number, chunk in enumerate(chunks, 1):
        rows = [_summary_row(site.packages[name]) for name in chunk]
        path = list_page(number)
        yield page_file(
            path,
            [rows, ranges, site.settings.title],
            partial(render_page, "list.html.jinja", site, path, rows=rows, ranges=ranges, count=len(names), here=path),
        )


def _summary_row(package: Package) -> tuple[str, str, str, str]:
    shown = package.shown
    licence = str(shown.record.get("license") or "")
    return package.name, shown.version, licence, _summary(shown)


def _summary(build: Build) -> str:
    return " ".join(texts(build.row.about.get("summary")))


def _search_file(site: Site) -> PageFile:
    """The names to search, as a script and not JSON, since a page opened from a file can load only scripts."""
    rows = [[name, package.shown.version, _summary(package.shown)] for name, package in site.packages.items()]
    content = json.dumps(rows, separators=(",", ":"))  # ASCII alone
    return page_file(_SEARCH, [content], lambda: f"const packageNames = {content};\n")


def _stack_file(site: Site, stack: ShownStack) -> PageFile:
    variants = stack_variants(site, stack)
    builds = [build for variant in variants for build in variant.builds if build.hidden is None]
    offered = [build for variant in variants if variant.offered for build in variant.builds if build.hidden is None]
    values: dict[str, object] = {
        "stack": stack,
        "variants": variants,
        "table": stack_table(site, variants),
        "machine": machine_needs(builds),
        "made_for": _made_for(site, offered) if variants[0].python else {},
        "subdirs": _counts([build.subdir for build in builds]),
        "installs": [(spec, name_page(spec_name(spec))) for spec in stack.install],
        "licences": sorted({str(one.record["license"]) for one in builds if one.record.get("license")}),
        "commands": install_commands(site, stack.name, stack.install),
        "locks": lock_commands(stack.name),
        "runs": list(reversed(stack.runs))[:_RUNS_SHOWN],
        "attested": sum(build.attested for build in builds),
        "builds": builds,
    }
    path = stack_page(stack.name)
    parts = [
        stack,
        [(build.page, build.row.sha256, build.hidden, build.attested) for build in builds],
        [(one.python, one.pytorch, [(build.page, build.hidden) for build in one.builds]) for one in variants],
        {name: value for name, value in values.items() if name not in {"stack", "variants", "builds"}},
        site.settings.title,
    ]
    return page_file(
        path, parts, lambda: render_page("stack.html.jinja", site, path, charts=list(stack_charts(stack)), **values)
    )


def _index_file(site: Site, stacks: list[ShownStack]) -> PageFile:
    every = [build for package in site.packages.values() for build in package.builds]
    listed = [build for build in every if build.hidden is None]
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
        "stacks": [_stack_row(site, stack) for stack in stacks],
        "own": len(own),
        "tested": sum(build.file_name in site.settings.builds for build in own),
        "attested": sum(build.attested for build in own),
        "yanked": [(build.page, build.file_name, build.yanked) for build in every if build.yanked is not None],
    }
    values["commands"] = install_commands(site, "NAME", ["PACKAGE"])
    return page_file(
        INDEX_PAGE,
        [values, site.settings.title, site.settings.address, site.foundation],
        lambda: render_page("index.html.jinja", site, INDEX_PAGE, **values),
    )


def _stack_row(site: Site, stack: ShownStack) -> tuple[str, str, str, str]:
    """Name, description, what it was built for, and the result of its last validation."""
    variants = stack_variants(site, stack)
    pairs = [f"Python {one.python} with PyTorch {one.pytorch}" for one in variants if one.offered and one.python]
    last = stack.runs[-1] if stack.runs else None
    if last is not None:
        present = any(one.run is last and is_of_present_builds(site, one) for one in variants)
        state = f"{'passed' if last.passed else 'failed'} validation on {last.started[:10]}"
        state += "" if present else ", with earlier builds"
    else:
        state = "not validated yet" if stack.validated else "nothing to validate"
    return stack.name, stack.description, ", ".join(pairs) or "any Python", state


def _counts(subdirs: list[str]) -> list[tuple[str, int]]:
    return [(subdir, subdirs.count(subdir)) for subdir in sorted(set(subdirs))]


def _made_for(site: Site, own: list[Build]) -> dict[str, tuple[str, ...]]:
    """The versions of Python and PyTorch that the channel's own packages were made for, else those that it has."""
    found = {}
    for words, name in (("Python", "python"), ("PyTorch", "pytorch")):
        versions = versions_for(own, name)
        if not versions and name in site.packages:
            listed = {build.version for build in site.packages[name].builds if build.hidden is None}
            versions = tuple(sorted(listed, key=as_numbers))
        if versions:
            found[words] = versions
    return found
