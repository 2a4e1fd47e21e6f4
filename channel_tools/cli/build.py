# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools build``: builds packages into the local channel.

``channel_tools debug``: a shell in a failed build.

``channel_tools rebuild``: builds a published package again from its own recipe, and compares it.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_json, print_line, print_note, print_state, print_table
from channel_tools.cli.options import asks
from channel_tools.cli.plan import reasons_in_short, show_plan, unsatisfiable_in_short
from channel_tools.cli.progress import shown_progress
from channel_tools.requests.build import BuildRequest, RebuildRequest
from channel_tools.system.counting import counted
from channel_tools.system.errors import UsageError
from channel_tools.system.settings import available_cores, make_recipe_settings

if TYPE_CHECKING:
    from channel_tools.build.model import BuildResult
    from channel_tools.plan import Plan
    from channel_tools.system.settings import Settings
    from channel_tools.workflow.build import BuildOutcome
    from channel_tools.workflow.rebuild import RebuildComparison, Rebuilt

_MB = 1e6


_Package = Annotated[str, typer.Argument(help="The package's name, or the name of its folder in output/work.")]
_Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- COMMAND...]", help="The command to run instead of a shell.", show_default=False),
]


_IN_WORDS = {
    "same": "the same bytes",
    "packing": "the same files, packed differently",
    "metadata": "the same installed files; metadata differs",
    "different": "installed files differ",
}


def _settings_of(request: BuildRequest, root: Path | None, output: Path | None) -> Settings:
    """The locations of the command. Raises UsageError for a recipe with options of a tree or of a cluster."""
    if request.recipe is None:
        return options.settings_from(root, output)
    flags = {
        "--variant": request.plan.stack,
        "--all": request.plan.every_stack,
        "--package": request.plan.packages,
        "--root": root,
        "--on": request.cluster.on,
        "--emit": request.cluster.emit,
    }
    if named := [name for name, value in flags.items() if value]:
        message = f"build {request.recipe} with {' and '.join(named)}: one recipe has no stack and is built here"
        raise UsageError(message, hint="leave one out, or put the recipe into a tree: channel_tools init mysite")
    return make_recipe_settings(request.recipe, output=output, environ=os.environ, cwd=Path.cwd())


@handled
@asks(BuildRequest)
def build(
    request: BuildRequest, *, root: options.Root = None, output: options.Output = None, as_json: options.Json = False
) -> None:
    """Build a stack into the local channel; what has not changed is skipped."""
    from channel_tools.workflow.build import build_stacks, check_build

    settings = _settings_of(request, root, output)
    if request.dry_run:
        check_build(settings, request)
        show_plan(settings, request.plan, why=True, as_json=as_json)
        return
    with shown_progress() as progress:
        outcome = build_stacks(settings, request, progress=progress, on_plan=_announce, on_result=_report)
    if request.cluster.destination is not None:
        _print_workflow(request.cluster.destination, outcome, as_json=as_json)
        return
    _print_outcome(outcome, settings.channel, as_json=as_json)


def _announce(plan: Plan) -> None:
    skipped = len(plan.packages) - len(plan.to_build)
    print_note(
        f"{len(plan.to_build)} to build, {skipped} in the channel already, "
        f"{counted(len(plan.unsatisfiable), 'variant')} that cannot be built"
    )
    for package in plan.to_build:
        print_note(f"  {package.folder_name}: {reasons_in_short(package)}")
    for line in unsatisfiable_in_short(plan.unsatisfiable):
        print_note(f"  cannot be built: {line}")


def _report(result: BuildResult) -> None:
    built = result.status == "built"  # its log is in output/logs; the whole path would take a line more for each
    where = "" if built or result.log is None else f" (log: {result.log})"
    print_state(result.status.replace("_", " "), f"{result.job.stem} after {result.seconds:.1f} s{where}")


def _print_outcome(outcome: BuildOutcome, channel: Path, *, as_json: bool) -> None:
    seconds = {result.job.file_name: result.seconds for result in outcome.results}
    paths = [(package, channel / package.subdir / package.file_name) for package in outcome.plan.packages]
    if as_json:
        packages = [
            {
                "name": package.name,
                "path": str(path),
                "size_bytes": path.stat().st_size,
                "seconds": seconds.get(package.file_name),
            }
            for package, path in paths
        ]
        print_json({"schema": 1, "channel": str(channel), "packages": packages})
        return
    rows = [
        (path.name, f"{path.stat().st_size / _MB:.2f} MB", _seconds_text(seconds.get(package.file_name)))
        for package, path in paths
    ]
    print_table(("package", "size", "built"), rows, title=f"In the channel {channel}:")


def _print_workflow(folder: Path, outcome: BuildOutcome, *, as_json: bool) -> None:
    snakefile = folder.absolute() / "Snakefile"
    if as_json:
        stems = [package.folder_name for package in outcome.plan.to_build]
        print_json({"schema": 1, "snakefile": str(snakefile), "packages": stems})
        return
    print_note(
        f"{counted(len(outcome.plan.to_build), 'package')}; run: snakemake --snakefile {snakefile} --keep-going ..."
    )
    print_line(str(snakefile))


def _seconds_text(seconds: float | None) -> str:
    return "before" if seconds is None else f"in {seconds:.1f} s"


@handled
def debug(
    package: _Package,
    command: _Command = None,
    *,
    root: options.Root = None,
    output: options.Output = None,
) -> None:
    """Open a shell in a failed build: in its work folder, with its environments and variables."""
    if command and command[0].startswith("-"):
        message = f"{command[0]}: stands after the package, where the command begins"
        raise UsageError(message, hint=f"give options before the package: channel_tools debug [OPTIONS] {package}")
    from channel_tools.workflow.debug import debug_build

    status = debug_build(
        options.settings_from(root, output),
        package,
        command or [],
        cores=available_cores(),
        environ=os.environ,
        on_found=_say_where,
    )
    raise typer.Exit(status)


def _say_where(folder: Path) -> None:
    print_note(f"in {folder}; bash conda_build.sh runs the build script again, on the existing files")


@handled
@asks(RebuildRequest)
def rebuild(
    request: RebuildRequest, *, root: options.Root = None, output: options.Output = None, as_json: options.Json = False
) -> None:
    """Build a published package again from its own recipe; with --compare, list what differs. No channel is changed."""
    from channel_tools.workflow.rebuild import compare_packages, rebuild_package

    with shown_progress() as progress:
        rebuilt = rebuild_package(options.settings_from(root, output), request, progress=progress)
    for note in rebuilt.notes:
        print_note(f"{rebuilt.published.name}: {note}")
    if request.compare:
        _report_rebuilt(rebuilt, compare_packages(rebuilt), as_json=as_json)
    elif as_json:
        print_json({"schema": 1, **_packages(rebuilt)})
    else:
        print_line(str(rebuilt.rebuilt))


def _packages(rebuilt: Rebuilt) -> dict[str, object]:
    return {
        "published": {"path": str(rebuilt.published), "sha256": rebuilt.published_sha256},
        "rebuilt": {"path": str(rebuilt.rebuilt), "sha256": rebuilt.rebuilt_sha256},
        "notes": list(rebuilt.notes),
    }


def _report_rebuilt(rebuilt: Rebuilt, comparison: RebuildComparison, *, as_json: bool) -> None:
    """Print what differs; raises VerificationError if the package is not the same."""
    from channel_tools.system.errors import VerificationError

    differences, verdict = comparison.differences, comparison.verdict
    if as_json:
        rows = [asdict(difference) for difference in differences]
        print_json({"schema": 1, **_packages(rebuilt), "verdict": verdict, "differences": rows})
    elif differences:
        print_table(
            ("file", "difference", "published, rebuilt"),
            [(difference.file, difference.kind, difference.detail) for difference in differences],
        )
    if verdict != "same":
        message = f"{rebuilt.published.name}: built again, {_IN_WORDS[verdict]} ({counted(len(differences), 'file')})"
        raise VerificationError(message, hint=f"the new package is {rebuilt.rebuilt}")
    if not as_json:
        print_line(f"{rebuilt.published.name}: built again, {_IN_WORDS[verdict]} (sha256 {rebuilt.rebuilt_sha256})")
