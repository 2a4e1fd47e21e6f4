# SPDX-License-Identifier: BSD-3-Clause
"""What a stack's page shows: which builds it installs, for which Python and PyTorch, and the validation results."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.channel.results import last_built
from channel_tools.conda.package import NOARCH, split_stem
from channel_tools.conda.specs import matches, name_or_none, read_spec, record_of, spec_name, specs_on, texts_of
from channel_tools.page.content import as_numbers, variant_value
from channel_tools.page.render import duration
from channel_tools.system.charts import Line, SizeFigure, bandwidth_charts, line_chart
from channel_tools.system.counting import counted
from channel_tools.system.pages import size_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from markupsafe import Markup

    from channel_tools.page.model import Build, ShownRun, ShownStack, Site

_PLOTTED_RUNS = 20
_FEWEST_PLOTTED = 2
_FAULTY = "\N{MULTIPLICATION SIGN}"


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
    installed = set(variant.run.packages) if variant.run is not None else set()
    newest: dict[str, tuple[str, object]] = {}
    for build in variant.builds:  # newest first
        if build.hidden is None and not _had_foundation_build(site, build.row.name, installed):
            newest.setdefault(build.row.name, _release(build))
    had = {(build.row.name, _release(build)) for build in variant.builds if build.stem in installed}
    return newest.items() <= had and not any(_was_replaced(site, stem) for stem in installed)


def _release(build: Build) -> tuple[str, object]:
    return build.version, build.record.get("build_number")


def _had_foundation_build(site: Site, name: str, installed: set[str]) -> bool:
    builds = site.packages[name].builds
    return any(build.foundation and build.hidden is None and build.stem in installed for build in builds)


def _was_replaced(site: Site, stem: str) -> bool:
    """Whether the channel has the package of NAME-VERSION-BUILD, but not this build."""
    package = site.packages.get(split_stem(stem)[0])
    return package is not None and all(build.stem != stem or build.hidden is not None for build in package.builds)


def validated_builds(site: Site, stack: ShownStack) -> tuple[Build, ...]:
    """What the stack's newest validation that passed had installed, by name: of one platform, and noarch.

    Nothing if the channel does not have all of it, as with a foundation elsewhere, or if some of it was yanked.
    """
    packages = next((run.packages for run in reversed(stack.runs) if run.passed), ())
    by_package = [_not_yanked(site, stem) for stem in packages]
    platforms = {build.subdir for builds in by_package for build in builds} - {NOARCH}
    for platform in sorted(platforms) or [NOARCH]:
        # a name may stand for a build of each platform, as _openmp_mutex-4.5-2_gnu does in conda-forge
        present = {build.stem: build for builds in by_package for build in builds if build.subdir in {platform, NOARCH}}
        if len(present) == len(packages):
            return tuple(present.values())
    return ()


def _not_yanked(site: Site, stem: str) -> list[Build]:
    package = site.packages.get(split_stem(stem)[0])
    builds = () if package is None else package.builds
    return [build for build in builds if build.stem == stem and build.yanked is None]


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
    return StackVariant(
        python=python,
        pytorch=pytorch,
        builds=tuple(_with_dependencies(site, stack, own, pair)),
        missing=tuple(spec_name(spec) for spec, builds in by_spec.items() if not builds),
        offered=all(any(build.hidden is None for build in builds) for builds in by_spec.values()),
        run=_last_run(stack, python, pytorch),
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
    yanked = [build for build in variant.builds if build.yanked is not None]
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
    earlier = run is not None and not any(
        variant.run is run and is_of_present_builds(site, variant) for variant in variants
    )
    if run is not None:
        state = ("validated", "good") if run.passed else ("validation failed", "bad")
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
    """For each size: the ratio to the baseline over the types in words, and whether it is below 1 for all of them."""
    by_size: dict[int, list[float]] = {}
    for row in run.bandwidth:
        by_size.setdefault(row.size_bytes, []).append(row.ratio)
    return tuple(
        (size_in_words(size), _range(sorted(ratios)), max(ratios) < 1) for size, ratios in sorted(by_size.items())
    )


def _range(ratios: Sequence[float]) -> str:
    least, most = f"{ratios[0]:.2g}", f"{ratios[-1]:.2g}"
    return least if least == most else f"{least} to {most}"


def _last_run(stack: ShownStack, python: str, pytorch: str) -> ShownRun | None:
    runs = [run for run in stack.runs if _is_of(run.python, python) and _is_of(run.pytorch, pytorch)]
    return max(runs, key=lambda run: run.started, default=None)


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


def size_charts(stack: ShownStack, run: ShownRun) -> Iterator[Markup]:
    """The bandwidths of a run by size beside the baseline's, and their ratio, with a line for each type."""
    figures = [
        SizeFigure(
            dtype=row.dtype,
            size_bytes=row.size_bytes,
            own=row.transport_mb_s,
            beside=row.baseline_mb_s,
            spread=row.transport_quartiles_mb_s,
        )
        for row in run.bandwidth
    ]
    yield from bandwidth_charts(stack.name, run.baseline, figures)


def slower_sizes(run: ShownRun) -> list[str]:
    """The tensors for which a run was slower than the baseline, in words with the ratio."""
    return [
        f"{row.dtype} of {size_in_words(row.size_bytes)} ({row.ratio:.2f})" for row in run.bandwidth if row.ratio < 1
    ]


def stack_charts(stack: ShownStack) -> Iterator[Markup]:
    """For each size on each kind of machine that measured it twice or more, its bandwidth over time."""
    machines = dict.fromkeys(_machine(run) for run in stack.runs if run.bandwidth)
    for number, machine in enumerate(machines):
        runs = [run for run in stack.runs if _machine(run) == machine and run.bandwidth][-_PLOTTED_RUNS:]
        if len(runs) >= _FEWEST_PLOTTED:
            yield from _charts_of(stack.name, runs, f"plot-{number}")


def _machine(run: ShownRun) -> tuple[object, ...]:
    return run.processor, run.cores, run.ranks, run.hosts, run.python, run.pytorch, run.baseline


def _charts_of(stack: str, runs: Sequence[ShownRun], name: str) -> Iterator[Markup]:
    sizes = dict.fromkeys((row.dtype, row.size_bytes) for row in runs[-1].bandwidth)
    setting = f"{runs[-1].ranks} ranks on {runs[-1].cores} cores of {runs[-1].processor or 'an unknown processor'}"
    for number, (dtype, size_bytes) in enumerate(sizes):
        rows = [
            (run, row) for run in runs for row in run.bandwidth if (row.dtype, row.size_bytes) == (dtype, size_bytes)
        ]
        listed = ", ".join(
            f"{run.started[:10]} {row.transport_mb_s:.0f} beside {row.baseline_mb_s:.0f}" for run, row in rows
        )
        yield line_chart(
            f"{name}-{number}",
            f"{dtype}, {size_in_words(size_bytes)}: {stack}, and {runs[-1].baseline} (dotted)",
            Line(
                figures=[row.transport_mb_s for _run, row in rows],
                others=[row.baseline_mb_s for _run, row in rows],
                unit="MB/s",
                first=rows[0][0].started[:10],
                last=rows[-1][0].started[:10],
            ),
            description=f"MB/s with {setting}, the baseline {runs[-1].baseline} beside it: {listed}.",
            styled=False,
        )
