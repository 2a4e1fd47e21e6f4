# SPDX-License-Identifier: BSD-3-Clause
"""The one place that calls the build engine (py-rattler-build), and what is done for a build while it runs.

The engine holds the interpreter lock and ignores signals while it builds, so this runs in a worker process that is
ended from outside. A callback writes each log line to standard output at once. By the engine's own lines it knows when
the script has ended, and what the prefix has that the package will not have; and when the files are about to be hashed,
and byte code that names the build's folders is to be compiled again.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import rattler_build
from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, ToolConfiguration, VariantConfig

from channel_tools.build.compiler_cache import CachedCompilers
from channel_tools.build.failures import kind_of
from channel_tools.build.model import RECIPE_FILE, VARIANTS_FILE, WorkerResult
from channel_tools.build.special_files import shown_name, special_file
from channel_tools.conda.engine_messages import explained, in_our_words
from channel_tools.foundation.bytecode import compile_modules
from channel_tools.system.counting import counted
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelToolsError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from rattler_build import RenderedVariant
    from rattler_build.progress import (
        BuildStepEvent,
        DownloadCompleteEvent,
        DownloadProgressEvent,
        DownloadStartEvent,
        LogEvent,
    )

    from channel_tools.build.model import FailureKind, WorkerSpec
    from channel_tools.sources.patches import RecipePatch


_ENVIRONMENTS_READY = "Successfully updated the host environment"
"""The engine's log line after it has installed the last environment and before it runs the script."""
_PREFIX_COPIED = "Copying done!"
"""Its log line after the script, when it has copied the prefix's files to where it packs them from."""
_PACKAGE_READY = "Post-processing done!"
"""Its log line when it has changed and compiled these files, and has not hashed them."""


class _LogToOutput:
    """The engine's progress callback, which writes every log line to standard output at once.

    ``on_environments`` is called once, when sources and environments are in place and the script has not started. When
    the script has ended, ``notes`` are those about the prefix in the engine's folder ``output``. The engine ignores
    exceptions from callbacks.
    """

    def __init__(self, on_environments: Callable[[], None], output: Path) -> None:
        self._on_environments = on_environments
        self._output = output
        self.environments_seen = False
        self.notes: tuple[str, ...] = ()

    def on_download_start(self, event: DownloadStartEvent) -> None:
        print(f"downloading {event.url}", flush=True)  # noqa: T201 - the worker's output is the build's log

    def on_download_progress(self, event: DownloadProgressEvent) -> None:
        """Ignored: there are too many of these events to log."""

    def on_download_complete(self, event: DownloadCompleteEvent) -> None:
        """Ignored: the start of the download is in the log."""

    def on_build_step(self, event: BuildStepEvent) -> None:
        print(f"{event.step_name}: {event.message}", flush=True)  # noqa: T201

    def on_log(self, event: LogEvent) -> None:
        prefix = "" if event.level == "info" else f"{event.level}: "
        print(prefix + in_our_words(event.message.strip("\n")), flush=True)  # noqa: T201
        if _ENVIRONMENTS_READY in event.message and not self.environments_seen:
            self.environments_seen = True
            self._on_environments()
        elif event.message.strip() == _PREFIX_COPIED:
            self.notes = dropped_notes(self._output)
        elif event.message.strip() == _PACKAGE_READY:
            try:
                self.notes += recompile_modules(self._output)
            except ChannelToolsError as err:  # byte code that names the build's folder is left out of the package
                print(f"warning: {err}", flush=True)  # noqa: T201


def run_engine(spec: WorkerSpec, *, end: Callable[[WorkerResult], NoReturn]) -> WorkerResult:
    """Render the recipe folder, build it and run its tests; failures of the recipe are returned as values.

    ``end`` ends the process with a result when the engine must not continue.
    """
    try:
        config = RenderConfig(platform=PlatformConfig(target_platform=spec.platform))
        recipe = Stage0Recipe.from_file(spec.recipe_folder / RECIPE_FILE)
        path = spec.recipe_folder / VARIANTS_FILE
        values = VariantConfig.from_files([path]) if path.is_file() else VariantConfig()
        variants = list(recipe.render(values, config))
    except rattler_build.RattlerBuildError as err:
        return _failed(err, kind="recipe")
    if len(variants) != 1:
        packages = counted(len(variants), "package")
        message = f"{spec.recipe_folder / RECIPE_FILE}: renders to {packages}; expected one per folder"
        return WorkerResult(failure="recipe", message=message)
    return _build(variants[0], spec, end)


def _build(variant: RenderedVariant, spec: WorkerSpec, end: Callable[[WorkerResult], NoReturn]) -> WorkerResult:
    preparation = _Preparation(spec, end)
    callback = _LogToOutput(preparation.prepare, spec.output)
    tools = ToolConfiguration(
        test_strategy="native" if spec.tests else "skip",
        error_prefix_in_binary=spec.error_prefix_in_binary,
        compression_threads=spec.compression_threads,
    )
    try:
        preparation.begin()
        built = variant.run_build(
            tool_config=tools,
            output_dir=spec.output,
            channels=list(spec.channels),
            progress_callback=callback,
            no_build_id=True,
            package_format="conda:min",  # settle_package packs it again
        )
    except rattler_build.RattlerBuildError as err:
        failed = _failed(err, kind=None)
        if failed.failure == "other" and (fault := special_file(spec.output)):
            print(f"error: {fault}", flush=True)  # noqa: T201 - as above
            return WorkerResult(failure="file", message=fault)
        return failed
    finally:
        preparation.conclude()
    if preparation.is_needed and not callback.environments_seen:
        return WorkerResult(failure="other", message=f"the engine did not log {_ENVIRONMENTS_READY!r}")
    return WorkerResult(packages=tuple(map(Path, built.packages)), notes=callback.notes)


class _Preparation:
    """Actions before a build's script, when its environments are installed, and after the script.

    The recipe's patches are applied then by git, as they were checked; until then, the engine sees empty ones in their
    place. py-rattler-build 0.73 takes a patch for applied, and skips it, where the lines that it would leave are found
    nearly so anywhere in the file; it drops modes, takes a link for the file that it leads to, and does not read names
    that git writes in quotes.
    """

    def __init__(self, spec: WorkerSpec, end: Callable[[WorkerResult], NoReturn]) -> None:
        self._spec = spec
        self._end = end
        self._compilers: CachedCompilers | None = None
        self._patches: list[RecipePatch] = []
        self._texts: dict[Path, bytes] = {}

    @property
    def is_needed(self) -> bool:
        """Whether a build without this preparation would not be what the user requested."""
        return self._spec.compiler_cache is not None or bool(self._patches)

    def begin(self) -> None:
        """Take the patches of the recipe from the engine."""
        from channel_tools.sources.patches import patches_of_recipe  # noqa: PLC0415 - not for its start

        self._patches = list(patches_of_recipe(self._spec.recipe_folder / RECIPE_FILE))
        self._texts = {patch.path: patch.path.read_bytes() for patch in self._patches}
        for path in self._texts:
            path.write_bytes(b"")

    def prepare(self) -> None:
        """Prepare the build; if that fails, the build ends here."""
        if not self.is_needed:
            return
        try:
            (build_folder,) = (self._spec.output / "bld").iterdir()
            self._give_back()
            for patch in self._patches:
                from channel_tools.sources.patches import apply_patch  # noqa: PLC0415 - not for its start

                print(f"Applying with git: {patch.path}", flush=True)  # noqa: T201 - as above
                apply_patch(patch.path, build_folder / "work" / patch.folder, source=f"the source of {patch.path.name}")
            if (cache := self._spec.compiler_cache) is not None:
                self._compilers = CachedCompilers(cache, build_folder / "build_env", self._spec.output.parent)
                self._compilers.wrap()
        except (ChannelToolsError, OSError, ValueError) as err:
            print(f"error: {err}", flush=True)  # noqa: T201 - as above
            self._end(WorkerResult(failure="other", message=str(err)))

    def _give_back(self) -> None:
        """Write the patches that were taken from the engine; the package has them with its recipe."""
        for path, content in self._texts.items():
            path.write_bytes(content)

    def conclude(self) -> None:
        """Log the statistics of the compiler cache."""
        self._give_back()
        if self._compilers is not None:
            try:
                print(self._compilers.statistics(), flush=True)  # noqa: T201 - as above
            except ChannelToolsError as err:
                print(f"warning: no statistics of the compiler cache: {err}", flush=True)  # noqa: T201


def _failed(err: rattler_build.RattlerBuildError, *, kind: FailureKind | None) -> WorkerResult:
    explanation = explained(str(err).removeprefix("PyRattlerBuildError: "))
    print(f"error: {explanation.message}", flush=True)  # noqa: T201 - as above
    return WorkerResult(
        failure=kind or kind_of(explanation.message), message=explanation.message, hint=explanation.hint
    )


_PREFIXES = "bld/*/host_env*"
_TEMPORARY = "tmp"


def recompile_modules(output: Path) -> tuple[str, ...]:
    """Compile the modules of the package that the engine packs, if byte code of one names the build's folder.

    ``output`` is the engine's output folder, beside the folder of its temporary files. To be called between the
    engine's own compilation and its list of hashes. Returns a note on what was done. Raises FoundationError if the
    Python of the host environment does not run on this machine.
    """
    work, notes = output.parent, []
    for prefix in sorted(output.glob(_PREFIXES)):
        for folder in sorted((work / _TEMPORARY).glob("*/lib/python3.*")):
            if (prefix / "bin" / folder.name).is_file() and (count := _count_naming(work, folder)):
                compile_modules(folder.parent.parent, prefix, python=folder.name.removeprefix("python"))
                notes.append(f"byte code that named the build's folder was compiled again (files: {count})")
    return tuple(notes)


def _count_naming(work: Path, folder: Path) -> int:
    """How many files of byte code below ``folder`` name the folder ``work``."""
    text = os.fsencode(work)
    return sum(path.is_file() and text in path.read_bytes() for path in folder.rglob("*.pyc"))


_META = "conda-meta"
_PACKED = (0o644, 0o755)
_WRITE = 0o222
"""Bits that may be missing: installers protect files that way, and clients have to replace prefixes in them."""
_SHOWN = 5


def dropped_notes(output: Path) -> tuple[str, ...]:
    """Sentences on what the prefix in the engine's ``output`` folder has and the package will not have.

    To be called when the script has ended and the prefix still exists. Files of the host environment do not count.
    """
    notes: list[str] = []
    for prefix in sorted(output.glob(_PREFIXES)):
        owned: set[str] = set()
        for record in (prefix / _META).glob("*.json"):
            content = decode_json(record.read_bytes())
            owned.update(map(str, (content.get("files") or ()) if isinstance(content, dict) else ()))
        if folders := sorted(_empty_folders(prefix)):
            notes.append(
                f"its package has no empty folders, so these are left out: {_shown(folders)}; "
                "put a file into each, or have the program make them"
            )
        if modes := sorted(_other_modes(prefix, owned, granted=_granted_to_all())):
            notes.append(f"its package has only the modes 0644 and 0755, so these are changed: {_shown(modes)}")
    return tuple(notes)


def _empty_folders(prefix: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(prefix):
        if not folders and not files and Path(folder) != prefix:
            yield shown_name(folder, prefix)


def _other_modes(prefix: Path, owned: Collection[str], *, granted: int) -> Iterator[str]:
    for folder, _folders, files in os.walk(prefix):
        for path in (Path(folder, name) for name in files):
            name, mode = path.relative_to(prefix).as_posix(), path.lstat().st_mode
            if name in owned or name.startswith(f"{_META}/") or not stat.S_ISREG(mode):
                continue
            mode = stat.S_IMODE(mode)
            packed = _PACKED[bool(mode & 0o111)]
            if mode & ~packed & ~granted or packed & ~mode & ~_WRITE:
                yield f"{shown_name(path, prefix)} ({mode:04o})"


def _granted_to_all() -> int:
    """The permissions that every new file has here because of the umask, such as the group's to write."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    umask = next(line.split()[1] for line in status.splitlines() if line.startswith("Umask:"))
    return 0o022 & ~int(umask, 8)


def _shown(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
