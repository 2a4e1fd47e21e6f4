# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools list`` and ``plan``: the stacks, what would be built, what is skipped, and why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import (
    confirmed,
    handled,
    print_gap,
    print_json,
    print_line,
    print_note,
    print_table,
)
from channel_tools.cli.options import asks
from channel_tools.cli.progress import shown_progress
from channel_tools.requests.plan import PlanRequest
from channel_tools.system.counting import counted

if TYPE_CHECKING:
    from channel_tools.matrix import RenderedPackage
    from channel_tools.plan import Plan, PlannedPackage
    from channel_tools.plan.model import UnsatisfiablePackage
    from channel_tools.system.settings import Settings
    from channel_tools.workflow.plan import ListedStack

_REASONS_IN_SHORT = 3
_OFFER = "There is no registry foundation yet, which a plan needs. Make it now, from PyPI and Debian?"
Named = tuple[str, Mapping[str, object]]
_TOOLCHAIN = re.compile(r"\w+_compiler(_version)?|\w+_stdlib(_version)?|\w+_platform|channel_targets")


@handled
@asks(PlanRequest)
def plan(
    request: PlanRequest,
    *,
    why: Annotated[bool, typer.Option("--why", help="Show for every package why it is built or skipped.")] = False,
    make_foundation: Annotated[
        bool,
        typer.Option(
            "--make-foundation", help="First make the registry foundation if there is none, which a plan needs."
        ),
    ] = False,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Show what `build` would do; nothing is built."""
    from channel_tools.workflow.plan import lacks_foundation

    settings = options.settings_from(root, output)
    if lacks_foundation(settings, request) and (make_foundation or confirmed(_OFFER)):
        from channel_tools.workflow.foundation import make_needed_foundation

        with shown_progress() as progress:
            make_needed_foundation(settings, request, progress=progress)
    show_plan(settings, request, why=why, as_json=as_json)


def show_plan(settings: Settings, request: PlanRequest, *, why: bool, as_json: bool) -> None:
    """Plan, and print a table of packages, then the reasons and the variants that the foundation cannot serve.

    If one stack is named, each variant that cannot be built has its own line, else each reason.
    """
    from channel_tools.conda.platforms import current_platform
    from channel_tools.plan import plan_to_json
    from channel_tools.workflow.plan import choose_foundation, plan_request

    planned = plan_request(settings, request, note=print_note)
    foundation = choose_foundation(settings, request)
    runs_on = foundation.runs_on([current_platform()])
    if as_json:
        base = foundation.release if foundation.is_made_here else None
        print_json({**plan_to_json(planned), "base": base, "runs_on": runs_on})
        return
    print_table(
        ("package", "version", "build", "subdir", "status"),
        [
            (package.name, package.version, package.build_string, package.subdir, package.status)
            for package in planned.packages
        ],
    )
    if why:
        print_gap()
        for package in planned.packages:
            print_line(f"{package.folder_name}: {package.status}, because")
            for reason in package.reasons or ("a package with this digest is in the channel",):
                print_line(f"  {reason}")
        _print_lock(planned)
    if planned.unsatisfiable:
        if why:
            print_line("")
        else:
            print_gap()
        if request.stack is not None and not request.every_stack:
            _print_unsatisfiable(planned)
        else:
            variants = counted(len(planned.unsatisfiable), "variant")
            print_line(f"{variants} that this foundation cannot serve; --variant NAME shows each:")
            for line in unsatisfiable_in_short(planned.unsatisfiable):
                print_line(f"  {line}")
    if runs_on is not None:
        print_gap()
        print_line(f"base {foundation.base_in_words}: what is built runs on {runs_on}")
    elif by_glibc := glibc_of([(package.name, package.rendered.variant) for package in planned.packages]):
        print_gap()
        print_line(f"what is built runs on {by_glibc}")


def glibc_of(packages: Iterable[Named]) -> str:
    """The glibc that packages are built with, and which want more than the others; "" if none is compiled.

    >>> glibc_of([("a", {"c_stdlib_version": "2.17"}), ("b", {"c_stdlib_version": "2.28"})])
    'glibc 2.17 or later, and b on 2.28 or later (its c_stdlib_version)'
    """
    names: dict[str, list[str]] = {}
    for name, variant in packages:
        if (version := str(variant.get("c_stdlib_version", ""))) and name not in names.setdefault(version, []):
            names[version].append(name)
    versions = sorted(names, key=lambda version: tuple(map(int, version.split("."))))
    more = [f"and {', '.join(names[version])} on {version} or later (its c_stdlib_version)" for version in versions[1:]]
    return ", ".join([f"glibc {versions[0]} or later", *more]) if versions else ""


def _print_unsatisfiable(planned: Plan) -> None:
    variants = variant_texts([(item.rendered.name, item.rendered.variant) for item in planned.unsatisfiable])
    print_table(
        ("package", "version", "variant", "reason"),
        [
            (item.rendered.name, item.rendered.version, text, item.reason)
            for item, text in zip(planned.unsatisfiable, variants, strict=True)
        ],
        title="Variants that this foundation cannot serve:",
    )


def unsatisfiable_in_short(variants: Iterable[UnsatisfiablePackage]) -> list[str]:
    """A line per reason why variants cannot be built: how many, of which packages."""
    by_reason: dict[str, list[str]] = {}
    for item in variants:
        by_reason.setdefault(item.reason, []).append(item.rendered.name)
    return [
        f"{', '.join(dict.fromkeys(names))} ({len(names)}): {reason}" for reason, names in sorted(by_reason.items())
    ]


def _print_lock(planned: Plan) -> None:
    """What the plan took from the foundation lock, and what the lock lacks."""
    if planned.lock is None or planned.lock_file is None:
        return
    new, total = len(planned.locks), len(planned.lock.environments) + len(planned.lock.unserved)
    print_line(f"foundation lock {planned.lock_file}: {total - new} of {counted(total, 'environment')} in it")
    if new:
        print_line(f"  {new} are new: solved with the foundation as it is now; build and foundation lock add them")


def reasons_in_short(package: PlannedPackage) -> str:
    """The first reasons in one line; the plan command shows them all."""
    shown = "; ".join(package.reasons[:_REASONS_IN_SHORT])
    more = len(package.reasons) - _REASONS_IN_SHORT
    return f"{shown}; and {more} more (channel_tools plan --why)" if more > 0 else shown


@handled
def list_stacks(
    *,
    stack: options.Stack = None,
    foundation: options.Foundation = None,
    base: options.Base = None,
    root: options.Root = None,
    as_json: options.Json = False,
) -> None:
    """Show the stacks and their purpose; with --variant, the packages of one stack in every variant."""
    from channel_tools.conda.platforms import current_platform
    from channel_tools.workflow.plan import list_stacks as listed_stacks
    from channel_tools.workflow.plan import listed_foundation

    settings = options.settings_from(root, None)
    chosen = listed_foundation(settings, foundation, base)
    runs_on = chosen.runs_on([current_platform()])
    listed = listed_stacks(settings, stack=stack, foundation=chosen, note=print_note)
    packages = [package for item in listed for package in item.packages]
    unserved = {item.stack.name: reason for item in listed if (reason := item.unserved)}
    if as_json:
        print_json(
            {
                "schema": 1,
                "base": chosen.release if chosen.is_made_here else None,
                "runs_on": runs_on,
                "unserved": unserved,
                "packages": [_package_json(*item) for item in _with_default(listed)],
            }
        )
    elif stack is None:
        rows = [
            (
                item.stack.name,
                str(len(_names(item.packages))),
                str(len(item.default)),
                str(len(item.packages)),
                item.stack.description,
            )
            for item in listed
        ]
        print_table(("stack", "packages", "default", "variants", "for"), rows)
        print_line(
            f"{counted(len(listed), 'stack')}, {counted(len(_names(packages)), 'package')}, "
            f"{counted(len(packages), 'variant')}; build builds "
            "the default ones, or all with --all-variants; channel_tools list --variant NAME shows those of a stack"
        )
    else:
        variants = variant_texts([(package.name, package.variant) for package in packages])
        print_table(
            ("stack", "package", "version", "subdir", "default", "variant"),
            [
                (package.stack, package.name, package.version, package.subdir, "yes" if is_default else "", text)
                for (package, is_default), text in zip(_with_default(listed), variants, strict=True)
            ],
        )
    if as_json:
        return
    for name, reason in unserved.items():
        print_line(f"{name} is not served on base {chosen.release}: {reason}")
    if runs_on is not None:
        print_line(f"base {chosen.base_in_words}: runs on {runs_on}")


def _names(packages: Iterable[RenderedPackage]) -> set[str]:
    return {package.name for package in packages}


def _with_default(listed: Iterable[ListedStack]) -> list[tuple[RenderedPackage, bool]]:
    """The packages, and whether each belongs to its stack's default variant."""
    return [(package, index in item.default) for item in listed for index, package in enumerate(item.packages)]


def _package_json(package: RenderedPackage, is_default: bool) -> dict[str, object]:  # noqa: FBT001
    return {
        "stack": package.stack,
        "package": package.name,
        "version": package.version,
        "subdir": package.subdir,
        "variant": dict(package.variant),
        "default": is_default,
    }


def variant_texts(packages: Sequence[Named]) -> list[str]:
    """The variant of each package as ``key=value`` words, in the order of the keys."""
    values: dict[tuple[str, str], set[object]] = {}
    for name, variant in packages:
        for key, value in variant.items():
            values.setdefault((name, key), set()).add(value)
    return [
        " ".join(
            f"{key}={value}"
            for key, value in sorted(variant.items())
            if len(values[name, key]) > 1 or not _TOOLCHAIN.fullmatch(key)
        )
        for name, variant in packages
    ]
