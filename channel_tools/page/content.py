# SPDX-License-Identifier: BSD-3-Clause
"""From a channel's records to the values of its pages; pure, and from the records alone, so that it takes no time.

The variants of one version are a table: Python by PyTorch where builds differ by them, else by the keys they have.
"""

from __future__ import annotations

import re
import urllib.parse
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.channel.listing import not_listed
from channel_tools.conda.metadata import timestamp_ms
from channel_tools.conda.specs import condition_of, is_virtual, name_or_none, specs_on, texts_of
from channel_tools.foundation.summaries import summary_of
from channel_tools.matrix.choice import label
from channel_tools.page.model import Build, Package, Site

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from channel_tools.channel.listing import Listing
    from channel_tools.channel.model import Foundation
    from channel_tools.channel.records import CachedPackage
    from channel_tools.page.model import PageSettings, ShownRun

    Rows = Mapping[str, Mapping[str, CachedPackage]]


_AT_LEAST = re.compile(r">=\s*([0-9][0-9.]*)")
_FIRST_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)*")
_VIRTUAL = {
    "__glibc": "glibc",
    "__linux": "Linux",
    "__cuda": "CUDA driver",
    "__archspec": "processor",
    "__unix": "Unix",
}
_FIRST_KEYS = ("python", "pytorch")
_DIGEST = re.compile(r"_?h[0-9a-f]{7,}_[0-9]+(?=_|\Z)")
"""The part of a build string that differs from one build of a variant to the next: the hash and the build number."""
_NONE = "-"


def read_site(settings: PageSettings, foundation: Foundation, listing: Listing, rows: Rows) -> Site:
    """The channel as its pages show it, from the page's settings and everything that the channel lists or keeps."""
    packages = read_packages(listing, rows)
    return Site(
        settings=settings,
        foundation=foundation,
        packages=packages,
        validations=passed_runs(settings),
        summaries={name: _summary(package.shown) for name, package in packages.items()},
    )


def _summary(build: Build) -> str:
    """What a package says that it is; of one of the registry foundation that says nothing, what this program says."""
    summary = " ".join(texts(build.row.about.get("summary")))
    return summary or (summary_of(build.row.name) if build.foundation else "")


def read_packages(listing: Listing, rows: Rows) -> dict[str, Package]:
    """The packages of a channel by name, sorted: everything in its record cache (``rows``), including hidden builds."""
    builds: defaultdict[str, list[Build]] = defaultdict(list)
    needed_by: defaultdict[str, set[str]] = defaultdict(set)
    for build in _builds(listing, rows):
        name = build.row.name
        builds[name].append(build)
        if build.hidden is None:
            for needed in build.needs:
                needed_by[needed].add(name)
    return {
        name: Package(name=name, builds=_newest_first(builds[name]), needed_by=tuple(sorted(needed_by[name] - {name})))
        for name in sorted(builds)
    }


def _builds(listing: Listing, rows: Rows) -> Iterator[Build]:
    hidden = not_listed(listing)
    foundation, incoming = {*listing.foundation, *listing.superseded}, {*listing.incoming}
    for subdir, packages in sorted(rows.items()):
        patch = listing.patches.get(subdir)
        changed = patch.names() if patch is not None else set()
        for file_name, row in sorted(packages.items()):
            key = f"{subdir}/{file_name}"
            if key in incoming:
                continue
            patched = file_name in changed
            record = patch.applied(file_name, row.record) if patch is not None and patched else row.record
            names = map(name_or_none, texts_of(record, "depends"))
            yield Build(
                subdir=subdir,
                file_name=file_name,
                row=row,
                record=record,
                patched=patched,
                needs=tuple(dict.fromkeys(name for name in names if name is not None)),
                foundation=key in foundation,
                hidden=hidden.get(key),
                yanked=listing.yanked.get(key),
            )


def passed_runs(settings: PageSettings) -> dict[str, tuple[tuple[str, ShownRun], ...]]:
    """By the sha256 of a file: the newest validation of each stack that passed with that file installed."""
    by_file: defaultdict[str, dict[str, ShownRun]] = defaultdict(dict)
    for stack in settings.stacks:
        for run in sorted(stack.runs, key=lambda run: run.started):
            if run.passed:
                for sha256 in run.files:
                    by_file[sha256][stack.name] = run
    return {sha256: tuple(sorted(runs.items(), key=lambda item: item[0])) for sha256, runs in by_file.items()}


def _newest_first(builds: list[Build]) -> tuple[Build, ...]:
    if len(builds) == 1:
        return tuple(builds)
    from rattler import Version  # noqa: PLC0415 - slow to import, and most names have one build

    versions = {build.version: Version(build.version) for build in builds}

    def age(build: Build) -> tuple[object, object, object]:
        return versions[build.version], build.record.get("build_number", 0), timestamp_ms(build.record.get("timestamp"))

    return tuple(sorted(builds, key=age, reverse=True))


def machine_needs(builds: Iterable[Build]) -> dict[str, tuple[str, ...]]:
    """What builds require of a machine, by the name of the virtual package (``glibc``): minimum versions, sorted."""
    needs: defaultdict[str, set[str]] = defaultdict(set)
    for spec in {spec for build in builds for spec in texts_of(build.record, "depends")}:
        if (name := name_or_none(spec)) is None or not is_virtual(name):
            continue
        condition = condition_of(spec)
        least = _AT_LEAST.search(condition)
        needs[_VIRTUAL.get(name, name)].add(f"{least[1]} or later" if least else condition or "any version")
    return {name: tuple(sorted(needs[name], key=as_numbers)) for name in sorted(needs)}


def versions_for(builds: Iterable[Build], name: str) -> tuple[str, ...]:
    """The versions of ``name`` (python, pytorch) that builds were made for, by their variants or else dependencies."""
    specs: set[str] = set()
    for build in builds:
        variant = build.row.origin.variant or {}
        if name in variant:
            specs.add(variant[name])
        elif name in build.needs:
            specs |= {condition_of(spec) for spec in specs_on({name}, texts_of(build.record, "depends"))}
    versions = {match[0] for spec in specs if (match := _FIRST_VERSION.search(spec))}
    return tuple(sorted(versions, key=as_numbers))


def as_numbers(text: str) -> tuple[list[int], str]:
    """A sort key that orders the numbers in versions by value."""
    return [int(part) for part in re.findall(r"[0-9]{1,9}", text)], text


def texts(value: object) -> list[str]:
    """The strings of a field that is one string or a list of them; anything else in it is ignored."""
    if isinstance(value, str):
        return [value] if value else []
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def field_lines(value: object) -> list[tuple[str, str]]:
    """The (kind, text) rows of a field like run_exports."""
    rows: Mapping[object, object] = value if isinstance(value, dict) else {}
    return [(str(kind), text) for kind, items in sorted(rows.items(), key=str) for text in texts(items)]


def builds_before(package: Package) -> dict[str, Build]:
    """By page, the build that each build of a package came after: for the same subdir and the same kind of variant.

    The kind is the build string without hash and build number (``udp``, ``plugin_py311``), and the Python and PyTorch,
    which not every build string names.
    """
    previous: dict[str, Build] = {}
    newest: dict[tuple[str, ...], Build] = {}
    for build in reversed(package.builds):
        versions = (variant_value(build, key) for key in _FIRST_KEYS)
        kind = (build.subdir, _DIGEST.sub("", build.build), *versions)
        if kind in newest:
            previous[build.page] = newest[kind]
        newest[kind] = build
    return previous


def changes_since(before: Build, build: Build) -> list[tuple[str, str, str]]:
    """What differs in the records of two builds of a package: (what, before, now), "" where there was or is none."""
    changes = []
    old, new = (_needs_by_name(side) for side in (before, build))
    changes += [(f"needs {name}", old.get(name, ""), new.get(name, "")) for name in sorted({*old, *new})]
    earlier, later = (side.row.origin.variant or {} for side in (before, build))
    changes += [(f"variant {key}", earlier.get(key, ""), later.get(key, "")) for key in sorted({*earlier, *later})]
    return [(subject, was, now) for subject, was, now in changes if was != now]


def _needs_by_name(build: Build) -> dict[str, str]:
    specs: defaultdict[str, list[str]] = defaultdict(list)
    for spec in texts_of(build.record, "depends"):
        specs[name_or_none(spec) or spec].append(spec)
    return {name: ", ".join(sorted(conditions)) for name, conditions in specs.items()}


def web_link(text: str) -> str | None:
    """``text`` if a page may link to it: a web address, and nothing that a browser would run."""
    try:
        parts = urllib.parse.urlsplit(text)
    except ValueError:
        return None
    return text if parts.scheme in {"http", "https"} and parts.netloc and text.isprintable() else None


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantTable:
    """Rows by the values of ``row_key``, columns by those of ``column_key`` (empty: there is one column).

    A cell has builds, each with a label that distinguishes it from the others in the cell.
    """

    row_key: str
    column_key: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: dict[tuple[str, str], tuple[tuple[str, Build], ...]]


def variant_table(builds: Sequence[Build]) -> VariantTable | None:
    """The table of one version's builds, without superseded ones; None if no build has recorded a variant."""
    shown = [build for build in builds if build.row.origin.variant and not build.earlier]
    keys = _keys(shown)
    if not keys:
        return None
    row_key, column_key, other_keys = keys[0], keys[1] if len(keys) > 1 else "", keys[2:]
    cells: defaultdict[tuple[str, str], list[tuple[str, Build]]] = defaultdict(list)
    for build in shown:
        label = ", ".join(f"{key} {_value(build, key)}" for key in other_keys) or build.build
        cells[_value(build, row_key), _value(build, column_key)].append((label, build))
    return VariantTable(
        row_key=row_key,
        column_key=column_key,
        rows=tuple(sorted({row for row, _column in cells})),
        columns=tuple(sorted({column for _row, column in cells})),
        cells={position: tuple(labelled) for position, labelled in cells.items()},
    )


def _keys(builds: Sequence[Build]) -> list[str]:
    """Python and PyTorch if builds have them, then all keys whose values differ among the builds."""
    values: defaultdict[str, set[str]] = defaultdict(set)
    for build in builds:
        for key in build.row.origin.variant or {}:
            values[key] |= {_value(other, key) for other in builds}
    first = [key for key in _FIRST_KEYS if key in values]
    return first + sorted(key for key, distinct in values.items() if len(distinct) > 1 and key not in first)


def variant_value(build: Build, key: str) -> str:
    """The value of a variant key, "" if the build has none; ``3.11.* *_cpython`` becomes 3.11."""
    value = (build.row.origin.variant or {}).get(key, "")
    if key == "python" and value:
        return label(value)
    return value.split(" ")[0].removesuffix(".*")


def _value(build: Build, key: str) -> str:
    return (variant_value(build, key) or _NONE) if key else ""
