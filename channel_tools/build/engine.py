# SPDX-License-Identifier: BSD-3-Clause
"""The one place that calls the build engine (py-rattler-build).

The engine holds the interpreter lock and ignores signals while it builds, so this runs in a worker process and is ended
from outside. Its log lines come through a callback and go to standard output as they come.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rattler_build
from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, ToolConfiguration, VariantConfig

from channel_tools.build.failures import kind_of
from channel_tools.build.model import RECIPE_FILE, VARIANTS_FILE, WorkerResult

if TYPE_CHECKING:
    from rattler_build import RenderedVariant
    from rattler_build.progress import (
        BuildStepEvent,
        DownloadCompleteEvent,
        DownloadProgressEvent,
        DownloadStartEvent,
        LogEvent,
    )

    from channel_tools.build.model import FailureKind, WorkerSpec


class _LogToOutput:
    """The engine's progress callback: every log line to standard output, at once."""

    def on_download_start(self, event: DownloadStartEvent) -> None:
        print(f"downloading {event.url}", flush=True)  # noqa: T201 - the worker's output is the build's log

    def on_download_progress(self, event: DownloadProgressEvent) -> None:
        """Too many to log."""

    def on_download_complete(self, event: DownloadCompleteEvent) -> None:
        """Its start is in the log."""

    def on_build_step(self, event: BuildStepEvent) -> None:
        print(f"{event.step_name}: {event.message}", flush=True)  # noqa: T201

    def on_log(self, event: LogEvent) -> None:
        prefix = "" if event.level == "info" else f"{event.level}: "
        print(prefix + event.message.strip("\n"), flush=True)  # noqa: T201


def run_engine(spec: WorkerSpec) -> WorkerResult:
    """Render the recipe folder, build it and run its tests; failures of the recipe come back as values."""
    try:
        config = RenderConfig(platform=PlatformConfig(target_platform=spec.platform))
        recipe = Stage0Recipe.from_file(Path(spec.recipe_folder, RECIPE_FILE))
        variants = list(recipe.render(_variant_config(Path(spec.recipe_folder, VARIANTS_FILE)), config))
    except rattler_build.RattlerBuildError as err:
        return _failed(err, kind="recipe")
    if len(variants) != 1:
        message = (
            f"{Path(spec.recipe_folder, RECIPE_FILE)}: renders to {len(variants)} packages; expected one per folder"
        )
        return WorkerResult(failure="recipe", message=message)
    return _build(variants[0], spec)


def _build(variant: RenderedVariant, spec: WorkerSpec) -> WorkerResult:
    tools = ToolConfiguration(
        test_strategy="native",
        error_prefix_in_binary=spec.error_prefix_in_binary,
        compression_threads=spec.compression_threads,
    )
    try:
        built = variant.run_build(
            tool_config=tools,
            output_dir=spec.output,
            channels=list(spec.channels),
            progress_callback=_LogToOutput(),
            no_build_id=True,
        )
    except rattler_build.RattlerBuildError as err:
        return _failed(err, kind=None)
    return WorkerResult(packages=tuple(str(package) for package in built.packages))


def _variant_config(path: Path) -> VariantConfig:
    return VariantConfig.from_files([path]) if path.is_file() else VariantConfig()


def _failed(err: rattler_build.RattlerBuildError, *, kind: FailureKind | None) -> WorkerResult:
    message = str(err).removeprefix("PyRattlerBuildError: ")
    print(f"error: {message}", flush=True)  # noqa: T201 - as above
    return WorkerResult(failure=kind or kind_of(message), message=message)
