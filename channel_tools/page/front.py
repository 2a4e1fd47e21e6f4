# SPDX-License-Identifier: BSD-3-Clause
"""Which files a page has, and the pages of the channel as a whole: index, stacks, package lists, search names."""

from __future__ import annotations

import dataclasses
import json
import shlex
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from channel_tools.channel.results import last_built
from channel_tools.conda.package import NOARCH, split_stem
from channel_tools.conda.specs import matches, name_or_none, read_spec, record_of, spec_name, specs_on, texts_of
from channel_tools.page.content import as_numbers, machine_needs, variant_value, versions_for
from channel_tools.page.model import INDEX_PAGE, PAGE_FOLDER, name_page, stack_page, validated_list
from channel_tools.page.render import (
    HERE,
    duration,
    exact_commands,
    install_commands,
    licence,
    list_page,
    lock_commands,
    package_files,
    page_file,
    render_page,
    shared_parts,
    tool_commands,
    with_stacks,
)
from channel_tools.system.counting import counted
from channel_tools.system.pages import shared_style, size_in_words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from channel_tools.page.model import Build, Package, PageStore, ShownRun, ShownStack, Site
    from channel_tools.page.render import PageFile

_NAMES_PER_PAGE = 500
_STYLE, _SCRIPT = f"{PAGE_FOLDER}/page.css", f"{PAGE_FOLDER}/page.js"
_SEARCH = f"{PAGE_FOLDER}/names.js"
_FRONT_NAMES = 150
_LICENCES_SHOWN = 20
_RUNS_SHOWN = 20
_FAULTY = "\N{MULTIPLICATION SIGN}"


def newest_builds(site: Site) -> list[Build]:
    """The channel's own builds that new solves see, the newest first."""
    dated = [
        (site.built_s(build), build.file_name, build)
        for package in site.packages.values()
        for build in package.builds
        if build.hidden is None and not build.foundation
    ]
    return [build for _moment, _name, build in sorted(dated, key=itemgetter(0, 1), reverse=True)]


@dataclass(frozen=True, kw_only=True, slots=True)
class StackVariant:
    """A stack for one Python and PyTorch ("" if it depends on neither): the builds that it installs and its last run.

    ``missing`` are packages that it installs and that were not built; ``offered`` says whether solves find all builds.
    """

    python: str
    pytorch: str
    builds: tuple[Build, ...]
    missing: tuple[str, ...]
    offered: bool
    run: ShownRun | None


def is_of_present_builds(site: Site, variant: StackVariant) -> bool:
    """Whether the run tested what is installed now: the newest version of each spec, and nothing that was replaced.

    It may instead have the foundation's build of a package that we also build (such as our stand-in for the site's
    MPICH).
    """
    run = variant.run
    installed = {} if run is None else run.files
    unknown = () if run is None else set(run.packages) - set(installed.values())
    if any(split_stem(stem)[0] in site.packages for stem in unknown):
        return False
    newest: dict[str, tuple[str, object]] = {}
    for build in variant.builds:  # newest first
        if build.hidden is None and not _had_foundation_build(site, build.row.name, installed):
            newest.setdefault(build.row.name, _release(build))
    had = {(build.row.name, _release(build)) for build in variant.builds if build.row.sha256 in installed}
    return newest.items() <= had and not any(_was_replaced(site, *file) for file in installed.items())


def _release(build: Build) -> tuple[str, object]:
    return build.version, build.record.get("build_number")


def _had_foundation_build(site: Site, name: str, installed: Collection[str]) -> bool:
    builds = site.packages[name].builds
    return any(build.foundation and build.hidden is None and build.row.sha256 in installed for build in builds)


def _was_replaced(site: Site, sha256: str, stem: str) -> bool:
    """Whether the channel has the package of NAME-VERSION-BUILD, but does not list this file of it."""
    package = site.packages.get(split_stem(stem)[0])
    return package is not None and all(
        build.row.sha256 != sha256 or build.hidden is not None for build in package.builds
    )


def validated_builds(site: Site, stack: ShownStack) -> tuple[Build, ...]:
    """What the stack's newest validation that passed had installed, by name: of one platform, and noarch.

    Nothing if the channel does not have all of it, as with a foundation elsewhere, or if some of it was yanked.
    """
    run = next((run for run in reversed(stack.runs) if run.passed), None)
    if run is None or len(run.files) < len(run.packages):
        return ()
    by_package = [_not_yanked(site, *file) for file in run.files.items()]
    platforms = {build.subdir for builds in by_package for build in builds} - {NOARCH}
    for platform in sorted(platforms) or [NOARCH]:
        # a name may stand for a build of each platform, as _openmp_mutex-4.5-2_gnu does in conda-forge
        present = {build.stem: build for builds in by_package for build in builds if build.subdir in {platform, NOARCH}}
        if len(present) == len(run.packages):
            return tuple(present.values())
    return ()


def _not_yanked(site: Site, sha256: str, stem: str) -> list[Build]:
    package = site.packages.get(split_stem(stem)[0])
    builds = () if package is None else package.builds
    return [build for build in builds if build.row.sha256 == sha256 and build.yanked is None]


def is_installable(site: Site, stack: ShownStack) -> bool:
    """Whether the channel lists a build for each of the stack's MatchSpecs."""
    return all(any(build.hidden is None for build in builds_for(site, spec)) for spec in stack.install)


def builds_for(site: Site, spec: str) -> list[Build]:
    """The builds that match a MatchSpec, newest first, including hidden ones."""
    package = site.packages.get(name_or_none(spec) or "")
    if package is None:
        return []
    wanted = read_spec(spec)
    return [
        build
        for build in package.builds
        if matches(
            wanted,
            record_of(build.record, name=build.row.name, subdir=build.subdir),
            file_name=build.file_name,
        )
    ]


def stack_variants(site: Site, stack: ShownStack) -> list[StackVariant]:
    """The stack for each Python and PyTorch that it was built for, sorted; superseded builds are left out."""
    wanted = {spec: [build for build in builds_for(site, spec) if not build.earlier] for spec in stack.install}
    own = [build for builds in wanted.values() for build in builds if not build.foundation]
    distinct = {pair for build in own if all(pair := _pair(build))}
    pairs = sorted(distinct, key=lambda pair: [as_numbers(part) for part in pair])
    return [_variant(site, stack, wanted, pair) for pair in pairs or [("", "")]]


def _with_dependencies(
    site: Site, stack: ShownStack, builds: Sequence[Build], pair: tuple[str, str]
) -> Iterator[Build]:
    """The builds, and those that they depend on of what is built for the stack, for this Python and PyTorch."""
    seen, waiting = {build.page for build in builds}, list(builds)
    while waiting:
        build = waiting.pop(0)
        yield build
        for spec in specs_on({*stack.packages}, texts_of(build.record, "depends")):
            fitting = [
                build
                for build in builds_for(site, spec)
                if not (build.foundation or build.earlier or build.page in seen)
            ]
            alike = [build for build in fitting if _pair(build) == pair or not all(_pair(build))]
            seen.update(build.page for build in alike)
            waiting += alike


def _pair(build: Build) -> tuple[str, str]:
    return variant_value(build, "python"), variant_value(build, "pytorch")


def _variant(
    site: Site, stack: ShownStack, wanted: Mapping[str, Sequence[Build]], pair: tuple[str, str]
) -> StackVariant:
    """The variant for one pair; of the ``wanted`` builds of each MatchSpec, it has those for the pair or any pair."""
    by_spec = {
        spec: [build for build in builds if build.foundation or _pair(build) == pair or not all(_pair(build))]
        for spec, builds in wanted.items()
    }
    python, pytorch = pair
    own = [build for builds in by_spec.values() for build in builds if not build.foundation]
    runs = [run for run in stack.runs if _is_of(run.python, python) and _is_of(run.pytorch, pytorch)]
    return StackVariant(
        python=python,
        pytorch=pytorch,
        builds=tuple(_with_dependencies(site, stack, own, pair)),
        missing=tuple(spec_name(spec) for spec, builds in by_spec.items() if not builds),
        offered=all(any(build.hidden is None for build in builds) for builds in by_spec.values()),
        run=max(runs, key=lambda run: run.started, default=None),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class StackTable:
    """The variants as a matrix of Python by PyTorch versions; pairs that have no variant are absent."""

    pythons: tuple[str, ...]
    pytorches: tuple[str, ...]
    cells: dict[tuple[str, str], VariantState]


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantState:
    """A variant's state in words: its builds (``faulty`` if one was yanked) and its last validation.

    ``built_on`` and ``validated_on`` are in ISO 8601, "" if not known. ``mark`` is the whole in few words, the kind of
    chip that they are, and a sign for them.
    """

    built: str
    built_on: str
    took: str
    faulty: bool
    validated: str
    validated_on: str
    passed: bool | None
    mark: tuple[str, str, str]


def stack_table(site: Site, variants: Sequence[StackVariant]) -> StackTable:
    """The matrix of a stack's variants; a single cell if the stack depends on neither Python nor PyTorch."""
    return StackTable(
        pythons=tuple(dict.fromkeys(variant.python for variant in variants)),
        pytorches=tuple(sorted({variant.pytorch for variant in variants}, key=as_numbers)),
        cells={(variant.python, variant.pytorch): _state_of(site, variant) for variant in variants},
    )


def _state_of(site: Site, variant: StackVariant) -> VariantState:
    records = [site.settings.builds.get(build.file_name) for build in variant.builds]
    known = [record for record in records if record is not None]
    # an earlier build that was yanked says nothing of a stack whose packages are all offered again
    yanked = [] if variant.offered else [build for build in variant.builds if build.yanked is not None]
    built_on, took = "", ""
    if yanked:
        built = "; ".join(f"{build.stem} yanked: {build.yanked}" for build in yanked)
    elif variant.missing:
        built = f"not built: {', '.join(variant.missing)}"
    elif known and len(known) == len(records):
        built_on, seconds = last_built(known)
        built, took = "built and tested", "" if seconds is None else f", in {duration(seconds)}"
    else:
        built = "built, date not recorded" if variant.builds else "not built"
    run = variant.run
    earlier = run is not None and not is_of_present_builds(site, variant)
    passed = None if run is None else run.passed
    return VariantState(
        built=built,
        built_on=built_on,
        took=took,
        faulty=bool(yanked),
        validated="" if run is None else _run_in_words(run, earlier=earlier),
        validated_on="" if run is None else run.started,
        passed=passed,
        mark=_mark(variant, faulty=bool(yanked), passed=passed, earlier=earlier),
    )


def _mark(variant: StackVariant, *, faulty: bool, passed: bool | None, earlier: bool) -> tuple[str, str, str]:
    if faulty:
        return "yanked", "bad", _FAULTY
    if variant.missing or not variant.builds:
        return "not built", "", "·"
    if passed is False:
        return "validation failed", "bad", _FAULTY
    return ("validated", "good", "●") if passed and not earlier else ("built", "accent", "○")


def _run_in_words(run: ShownRun, *, earlier: bool) -> str:
    hosts = f" on {run.hosts} hosts" if run.hosts > 1 else ""
    took = f" in {duration(run.seconds)}" if run.seconds else ""
    return f"{counted(run.ranks, 'rank')}{hosts}{took}{', with earlier builds' if earlier else ''}"


@dataclass(frozen=True, kw_only=True, slots=True)
class StackCard:
    """A stack on the first page.

    ``state`` is a chip, ``table`` None if it works with any Python. ``last`` says when (``when``, ISO 8601) it was
    validated; ``speeds`` are (size, ratio to the baseline in words, whether it is slower) in its last run that passed.
    """

    name: str
    description: str
    state: tuple[str, str]
    table: StackTable | None
    speeds: tuple[tuple[str, str, bool], ...]
    baseline: str
    last: str
    when: str
    earlier: bool


def stack_card(site: Site, stack: ShownStack) -> StackCard:
    """What the first page says of a stack."""
    variants = stack_variants(site, stack)
    run = stack.runs[-1] if stack.runs else None
    tried = next((variant for variant in variants if variant.run is run), None)
    earlier = run is not None and (tried is None or not is_of_present_builds(site, tried))
    if run is not None:
        word, kind, _sign = ("built", "accent", "") if tried is None else _state_of(site, tried).mark
        state = (word, kind) if run.passed else ("validation failed", "bad")
        last = f"{'Passed' if run.passed else 'Failed'} validation with {counted(run.ranks, 'rank')} on"
    elif stack.validated:
        state, last = ("not validated", "warn"), "Not validated here"
    else:
        state, last = ("built", "accent"), "Nothing to validate: nothing in it carries data between ranks"
    offered = [variant for variant in variants if variant.offered]
    return StackCard(
        name=stack.name,
        description=stack.description,
        state=state,
        table=stack_table(site, offered) if offered and offered[0].python else None,
        speeds=() if run is None or not run.passed else speeds(run),
        baseline="" if run is None else run.baseline,
        last=last,
        when="" if run is None else run.started,
        earlier=earlier,
    )


def speeds(run: ShownRun) -> tuple[tuple[str, str, bool], ...]:
    """For each size: the ratio to the baseline over the types in words, and whether it is below 1 for all of them.

    Those that users get on one host, where they were measured.
    """
    by_size: dict[int, list[float]] = {}
    for row in run.bandwidth_here or run.bandwidth:
        by_size.setdefault(row.size_bytes, []).append(row.ratio)
    return tuple(
        (size_in_words(size), _range(sorted(ratios)), max(ratios) < 1) for size, ratios in sorted(by_size.items())
    )


def _range(ratios: Sequence[float]) -> str:
    least, most = f"{ratios[0]:.2g}", f"{ratios[-1]:.2g}"
    return least if least == most else f"{least} to {most}"


def _is_of(version: str, series: str) -> bool:
    """Whether ``3.11.2`` is of the series ``3.11``; every version is of the series ""."""
    return not series or f"{version}.".startswith(f"{series}.")


def run_lines(stack: ShownStack) -> list[str]:
    """The shell commands by which channel_tools runs a script on an installed stack, and proves what carries it."""
    name = shlex.quote(stack.name)
    return [
        f"channel_tools doctor --variant {name}   # what would carry the data here",
        f"channel_tools launch --stack {name} --ranks 4 train.py   # --dry-run: only show the commands",
        f"channel_tools validate --variant {name} --prefix $CONDA_PREFIX   # an allreduce, and what carried it",
    ]


def slower_sizes(run: ShownRun) -> list[str]:
    """The tensors for which a run was slower than the baseline, in words with the ratio."""
    return [
        f"{row.dtype} of {size_in_words(row.size_bytes)} ({row.ratio:.2f})" for row in run.bandwidth if row.ratio < 1
    ]


def page_files(site: Site, store: PageStore) -> list[PageFile]:
    """All files of the site, linked pages before those that link to them; ``store`` is where the package files are."""
    return [
        page_file(
            _STYLE,
            [],
            lambda: shared_style() + _static("page.css"),
        ),
        page_file(_SCRIPT, [], lambda: _static("page.js")),
        *package_files(site, store),
        *_front_files(site),
    ]


def _static(name: str) -> str:
    return (HERE / "static" / name).read_text(encoding="utf-8")


def _front_files(site: Site) -> Iterator[PageFile]:
    """In the order in which they are written: the index, which links to all others, is the last."""
    newest = newest_builds(site)
    stacks = [stack for stack in site.settings.stacks if is_installable(site, stack)]
    for stack in stacks:
        validated = validated_builds(site, stack)
        address = (site.settings.address or "").rstrip("/")
        if validated and address:
            parts = [stack.name, address, [(build.page, build.row.sha256) for build in validated]]
            yield page_file(validated_list(stack.name), parts, partial(_explicit_list, stack.name, address, validated))
        yield _stack_file(site, stack, validated, f"{address}/{validated_list(stack.name)}" if address else "")
    yield from _list_files(site)
    # a script and not JSON, since a page opened from a file can load only scripts
    rows = [
        [name, package.shown.version, site.summaries[name], int(not package.shown.foundation)]
        for name, package in site.packages.items()
    ]
    content = json.dumps(rows, separators=(",", ":"))  # ASCII alone
    yield page_file(_SEARCH, [content], lambda: f"const packageNames = {content};\n")
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
        chips += [("validated", "good")] if shown.row.sha256 in site.validations else []
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
        "commands": install_commands(site, stack.name, with_stacks(site, stack.install)),
        "tool": tool_commands(site),
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
        else install_commands(site, main.name, with_stacks(site, main.install)),
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
