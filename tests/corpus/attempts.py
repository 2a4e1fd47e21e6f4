# SPDX-License-Identifier: BSD-3-Clause
"""What is tried on a file: the command that reads its kind, what that took, and what the second reader counts.

Each kind is recognised by name and content. A command may read a file or refuse it with one of the documented exit
codes; anything else is a crash. Where both readers count, the counts must be equal.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Literal, Protocol

from channel_tools.system.errors import VerificationError
from tests.corpus import counting, trees
from tests.corpus.channels import write_channel, write_channel_for
from tests.corpus.counting import PLATFORM

Verdict = Literal["read", "refused", "crashed", "differs"]
_DEFECT = 70
_HEAD_BYTES = 1 << 16
_PLATFORMS = ("linux-64", "linux-aarch64", "osx-64", "osx-arm64", "win-64")
_SHARDS = "repodata_shards.msgpack.zst"
_REPODATA = ("repodata.json", "repodata.json.zst", "repodata_from_packages.json", _SHARDS)
_YAML = (".yml", ".yaml")


class Command(Protocol):
    """Runs ``channel_tools ARGUMENTS`` in a folder, as tests.support.command_line.run_tool does."""

    def __call__(self, *arguments: str | Path, cwd: Path) -> CompletedProcess[str]:
        """The exit code and both streams."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """A command tried on a part of a file, such as one environment of a lock on one platform.

    ``entries`` is what the second reader counts and ``taken`` what the command took; None where that is not known.
    ``reason`` is the error with its hint, empty if there is none.
    """

    kind: str
    path: Path
    part: str
    verdict: Verdict
    entries: int | None
    taken: int | None
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A kind of files: how it is recognised (by path and the first bytes), and what is tried on one."""

    name: str
    matches: Callable[[Path, str], bool]
    attempts: Callable[[Command, Path], Iterator[Attempt]]


def kind_of(path: Path) -> Kind | None:
    """The kind of a file, None for one that no command reads."""
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES).decode("utf-8", errors="replace")
    return next((kind for kind in KINDS if kind.matches(path, head)), None)


def judge(
    kind: str,
    path: Path,
    run: CompletedProcess[str],
    *,
    part: str = "",
    entries: int | None = None,
    taken: Callable[[str], int] | None = None,
) -> Attempt:
    """The verdict on a run; ``taken`` counts in what it printed. Raises ValueError for a wrong use of the command."""
    if "\nTry 'channel_tools" in run.stderr:
        raise ValueError(run.stderr)
    count = None
    if run.returncode < 0 or run.returncode >= _DEFECT or "Traceback (most recent" in run.stderr:
        verdict: Verdict = "crashed"
    elif run.returncode != 0:
        verdict = "refused"
    else:
        count = None if taken is None else taken(run.stdout)
        verdict = "read" if None in {entries, count} or entries == count else "differs"
    return Attempt(
        kind=kind, path=path, part=part, verdict=verdict, entries=entries, taken=count, reason=_reason(run.stderr)
    )


def _reason(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.strip()]
    starts = [index for index, line in enumerate(lines) if line.startswith("error")]
    return "\n    ".join(lines[starts[0] :] if starts else lines)


def _components(output: str) -> int:
    return len(json.loads(output).get("components", ()))


def _try_pixi_lock(command: Command, path: Path) -> Iterator[Attempt]:
    """``sbom`` of every environment and platform."""
    for environment, platform, entries in list(counting.pixi_lock_parts(path)) or [("default", PLATFORM, 0)]:
        run = command("sbom", path, "--environment", environment, "--platform", platform, cwd=path.parent)
        yield judge("pixi.lock", path, run, part=f"{environment} {platform}", entries=entries, taken=_components)


def _try_conda_lock(command: Command, path: Path) -> Iterator[Attempt]:
    """``sbom`` of every platform, with every category added to main in turn, and with main alone."""
    parts = list(counting.conda_lock_parts(path)) or [("main", PLATFORM, 0)]
    for category, platform, entries in parts:
        more = [] if category == "main" else ["--category", category]
        run = command("sbom", path, "--platform", platform, *more, cwd=path.parent)
        yield judge("conda-lock.yml", path, run, part=f"{category} {platform}", entries=entries, taken=_components)


def _try_explicit(command: Command, path: Path) -> Iterator[Attempt]:
    """``sbom`` for the platform that most addresses name, with a channel that lists what has only an md5."""
    text = path.read_text(encoding="utf-8", errors="replace")
    platform = max(_PLATFORMS, key=lambda name: text.count(f"/{name}/"))
    records = counting.explicit_records(path)
    with tempfile.TemporaryDirectory() as folder:
        channel = Path(folder) / "channel"
        write_channel(records, channel)
        channels: list[str | Path] = ["-c", channel] if records else []
        run = command("sbom", path, "--platform", platform, *channels, cwd=path.parent)
    entries = counting.explicit_entries(path)
    yield judge("explicit list", path, run, part=platform, entries=entries, taken=_components)


def _try_environment(command: Command, path: Path) -> Iterator[Attempt]:
    """``sbom`` with a channel that has what it asks for, and packages that depend on nothing."""
    wanted = counting.environment_specs(path)
    with tempfile.TemporaryDirectory() as folder:
        channel = Path(folder) / "channel"
        write_channel_for(wanted, channel)
        run = command("sbom", path, "--platform", PLATFORM, "-c", channel, cwd=path.parent)
    yield judge("environment.yml", path, run, entries=len(wanted), taken=_components)


def _try_recipe(command: Command, path: Path) -> Iterator[Attempt]:
    """``list`` of a tree whose only recipe it is, with the variant file beside it."""
    with tempfile.TemporaryDirectory() as folder:
        run = trees.list_recipe(command, path, Path(folder))
    yield judge("recipe (v1)", path, run, entries=counting.recipe_outputs(path), taken=trees.count_outputs)


def _try_meta(command: Command, path: Path) -> Iterator[Attempt]:
    """``list`` of a tree whose only recipe it is."""
    with tempfile.TemporaryDirectory() as folder:
        run = trees.list_recipe(command, path, Path(folder))
    yield judge("recipe (v0)", path, run)


def _try_variants(command: Command, path: Path) -> Iterator[Attempt]:
    """``list`` of a tree with the file and a recipe for each of its keys, which uses that key alone."""
    counts = counting.variant_values(path)
    with tempfile.TemporaryDirectory() as folder:
        run = trees.list_variants(command, path, sorted(counts or {}), Path(folder))
    entries = None if counts is None else sum(counts.values()) if counts else 1
    yield judge("variant file", path, run, entries=entries, taken=trees.count_variants)


def _try_repodata(command: Command, path: Path) -> Iterator[Attempt]:
    """``channel index --adopt --dry-run`` of a channel that has this index and none of the packages."""
    subdir = path.parent.name if path.parent.name in {*_PLATFORMS, "noarch"} else PLATFORM
    with tempfile.TemporaryDirectory() as folder:
        channel = Path(folder) / "channel"
        (channel / subdir).mkdir(parents=True)
        name = path.name.replace("_from_packages", "")
        shutil.copy(path, channel / subdir / name)
        if name == _SHARDS:
            shutil.copytree(path.parent, channel / subdir, dirs_exist_ok=True, ignore=_all_but_shards)
        adopt = ("channel", "index", "--adopt", "--dry-run", "--foundation", "conda-forge", "--json")
        run = command(*adopt, "--at", channel, cwd=Path(folder))
    count = counting.shard_entries if name == _SHARDS else counting.repodata_entries
    yield judge("repodata", path, run, entries=count(path), taken=_adopted)


def _all_but_shards(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if not (Path(folder, name).is_dir() or name.endswith(".msgpack.zst"))}


def _adopted(output: str) -> int:
    """The entries that were taken or named."""
    (channel,) = json.loads(output)["channels"]
    removed = {f"{subdir}/{name}" for subdir, names in channel["removed"].items() for name in names}
    named = {remark["path"] for remark in channel["remarks"] if remark["path"].endswith((".conda", ".tar.bz2"))}
    return len({*channel["packages"], *removed, *named})


def _try_package(command: Command, path: Path) -> Iterator[Attempt]:
    """``audit`` and ``sbom``."""
    run = command("audit", "--json", path, cwd=path.parent)
    if run.returncode == VerificationError.exit_code and run.stdout:  # findings are an answer, not a refusal
        run = CompletedProcess(run.args, 0, run.stdout, run.stderr)
    yield judge("package (audit)", path, run, entries=counting.package_files(path), taken=_audited_files)
    yield judge("package (sbom)", path, command("sbom", path, cwd=path.parent))


def _audited_files(output: str) -> int:
    return sum(int(package["files"]) for package in json.loads(output)["packages"])


def _named(*names: str) -> Callable[[Path, str], bool]:
    return lambda path, _head: path.name in names


def _yaml_with(*keys: str) -> Callable[[Path, str], bool]:
    return lambda path, head: path.suffix in _YAML and all(f"\n{key}:" in f"\n{head}" for key in keys)


def _is_pixi_lock(path: Path, head: str) -> bool:
    """Format 3 has the keys of conda-lock.yml and one environment without a name."""
    return path.suffix in {".lock", *_YAML} and ("\nenvironments:" in head or "\nversion: 3\n" in f"\n{head}")


KINDS = (
    Kind(name="pixi.lock", matches=_is_pixi_lock, attempts=_try_pixi_lock),
    Kind(name="conda-lock.yml", matches=_yaml_with("metadata", "package"), attempts=_try_conda_lock),
    Kind(
        name="explicit list",
        matches=lambda path, head: path.suffix in {".txt", ".lock", ""} and "\n@EXPLICIT" in f"\n{head}",
        attempts=_try_explicit,
    ),
    Kind(name="recipe (v1)", matches=_named("recipe.yaml"), attempts=_try_recipe),
    Kind(name="recipe (v0)", matches=_named("meta.yaml"), attempts=_try_meta),
    Kind(
        name="variant file",
        matches=lambda path, _head: (
            path.name in trees.VARIANT_NAMES or (path.parent.name, path.suffix) == (".ci_support", ".yaml")
        ),
        attempts=_try_variants,
    ),
    Kind(name="environment.yml", matches=_yaml_with("dependencies"), attempts=_try_environment),
    Kind(name="repodata", matches=_named(*_REPODATA), attempts=_try_repodata),
    Kind(
        name="package",
        matches=lambda path, _head: path.name.endswith((".conda", ".tar.bz2")),
        attempts=_try_package,
    ),
)
