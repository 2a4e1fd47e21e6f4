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
from typing import Literal

from channel_tools.system.errors import VerificationError
from tests.corpus import counting
from tests.corpus.counting import PLATFORM
from tests.support.command_line import run_tool

Verdict = Literal["read", "refused", "crashed", "differs"]
_DEFECT = 70
_HEAD_BYTES = 1 << 16
_VARIANT_NAMES = ("conda_build_config.yaml", "variants.yaml", "variants.yml", "variant_config.yaml")
_STACK = "corpus"


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """A command tried on a part of a file, such as one environment of a lock on one platform.

    ``entries`` is what the second reader counts and ``taken`` what the command took; None where that is not known.
    ``reason`` is the first line of the error, empty if there is none.
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
    attempts: Callable[[Path], Iterator[Attempt]]


def kind_of(path: Path) -> Kind | None:
    """The kind of a file, None for one that no command reads."""
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES).decode("utf-8", errors="replace")
    return next((kind for kind in KINDS if kind.matches(path, head)), None)


def _judge(
    kind: str,
    path: Path,
    run: CompletedProcess[str],
    *,
    part: str = "",
    entries: int | None = None,
    taken: Callable[[str], int | None] = lambda _output: None,
) -> Attempt:
    count = None
    if run.returncode == 0:
        count = taken(run.stdout)
        same = entries is None or count is None or entries == count
        verdict: Verdict = "read" if same else "differs"
    else:
        crashed = run.returncode < 0 or run.returncode >= _DEFECT or "Traceback" in run.stderr
        verdict = "crashed" if crashed else "refused"
    lines = [line for line in run.stderr.splitlines() if line.strip()]
    reason = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
    return Attempt(
        kind=kind, path=path, part=part, verdict=verdict, entries=entries, taken=count, reason=reason if lines else ""
    )


def _components(output: str) -> int:
    return len(json.loads(output).get("components", ()))


def _try_locks(path: Path) -> Iterator[Attempt]:
    """``sbom`` of every environment and platform of a pixi.lock."""
    parts = list(counting.pixi_lock_parts(path)) or [("default", PLATFORM, 0)]
    for environment, platform, entries in parts:
        run = run_tool("sbom", path, "--environment", environment, "--platform", platform, cwd=path.parent)
        yield _judge("pixi.lock", path, run, part=f"{environment} {platform}", entries=entries, taken=_components)


def _try_conda_lock(path: Path) -> Iterator[Attempt]:
    """``sbom`` of every platform of a conda-lock.yml with all of its categories."""
    parts = list(counting.conda_lock_parts(path))
    for platform in sorted({platform for _, platform, _ in parts}) or [PLATFORM]:
        here = [(category, count) for category, on, count in parts if on == platform]
        categories = [word for category, _ in here for word in ("--category", category)]
        run = run_tool("sbom", path, "--platform", platform, *categories, cwd=path.parent)
        entries = sum(count for _, count in here)
        yield _judge("conda-lock.yml", path, run, part=platform, entries=entries, taken=_components)


def _try_explicit(path: Path) -> Iterator[Attempt]:
    """``sbom`` of an explicit list, for the platform that most of its addresses name."""
    text = path.read_text(encoding="utf-8", errors="replace")
    platforms = ("linux-64", "osx-64", "osx-arm64", "linux-aarch64", "win-64")
    platform = max(platforms, key=lambda name: text.count(f"/{name}/"))
    run = run_tool("sbom", path, "--platform", platform, cwd=path.parent)
    entries = counting.explicit_entries(path)
    yield _judge("explicit list", path, run, part=platform, entries=entries, taken=_components)


def _try_environment(path: Path) -> Iterator[Attempt]:
    """``env create`` of an environment.yml, without installing."""
    with tempfile.TemporaryDirectory() as folder:
        run = run_tool("env", "create", "--lock", path, "--dry-run", Path(folder) / "prefix", cwd=path.parent)
    yield _judge("environment.yml", path, run)


def _try_recipe(path: Path) -> Iterator[Attempt]:
    """``list`` of a tree whose only recipe it is, with the variant files beside it."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        shutil.copytree(path.parent, tree / "recipes" / "toy", symlinks=True, ignore=shutil.ignore_patterns("*.tar*"))
        found = [path.parent / name for name in _VARIANT_NAMES if (path.parent / name).is_file()]
        _write_tree(tree, ["toy"], found[:1])
        run = _list(tree)
    kind = "recipe (v1)" if path.name == "recipe.yaml" else "recipe (v0)"
    yield _judge(kind, path, run, entries=counting.recipe_outputs(path), taken=_output_names)


def _output_names(output: str) -> int:
    return len({package["package"] for package in json.loads(output)["packages"]})


def _try_variants(path: Path) -> Iterator[Attempt]:
    """``list`` of a tree with the file and one recipe per key, which uses that key alone."""
    counts = counting.variant_values(path)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        names = []
        for index, key in enumerate(counts or {}):
            name = f"uses-{index}"
            (tree / "recipes" / name).mkdir(parents=True)
            recipe = {
                "package": {"name": name, "version": "1"},
                "build": {"variant": {"use_keys": [key]}},
            }
            (tree / "recipes" / name / "recipe.yaml").write_text(json.dumps(recipe))
            names.append(name)
        if not names:
            (tree / "recipes" / "toy").mkdir(parents=True)
            (tree / "recipes" / "toy" / "recipe.yaml").write_text("package: {name: toy, version: '1'}\n")
        _write_tree(tree, names or ["toy"], [path])
        run = _list(tree)
    entries = None if counts is None else sum(counts.values())
    yield _judge("variant file", path, run, entries=entries, taken=_variant_values)


def _variant_values(output: str) -> int:
    return len(json.loads(output)["packages"])


def _write_tree(tree: Path, packages: list[str], variants: list[Path]) -> None:
    (tree / "variants").mkdir()
    for file in variants:
        shutil.copy(file, tree / "variants" / file.name)
    stacks = {
        "default_stack": _STACK,
        "stacks": {
            _STACK: {
                "description": "a file of others",
                "variants": [file.name for file in variants],
                "packages": packages,
                "install": packages[:1],
            }
        },
    }
    (tree / "variants" / "stacks.yaml").write_text(json.dumps(stacks))


def _list(tree: Path) -> CompletedProcess[str]:
    return run_tool("list", "--variant", _STACK, "--foundation", "conda-forge", "--json", "--root", tree, cwd=tree)


def _try_repodata(path: Path) -> Iterator[Attempt]:
    """``channel index --adopt`` of a channel that has nothing but this index."""
    subdir = path.parent.name if "-" in path.parent.name or path.parent.name == "noarch" else PLATFORM
    with tempfile.TemporaryDirectory() as folder:
        channel = Path(folder) / "channel"
        (channel / subdir).mkdir(parents=True)
        shutil.copy(path, channel / subdir / path.name)
        run = run_tool("mirror", "list", "-c", channel, "--json", cwd=Path(folder))
    yield _judge("repodata", path, run, entries=counting.repodata_entries(path))


def _try_package(path: Path) -> Iterator[Attempt]:
    """``audit`` and ``sbom`` of a package."""
    run = run_tool("audit", "--json", path, cwd=path.parent)
    entries = counting.package_files(path)
    if run.returncode == VerificationError.exit_code and run.stdout:  # findings are an answer, not a refusal
        run = CompletedProcess(run.args, 0, run.stdout, run.stderr)
    yield _judge("package (audit)", path, run, entries=entries, taken=_audited_files)
    yield _judge("package (sbom)", path, run_tool("sbom", path, cwd=path.parent))


def _audited_files(output: str) -> int:
    return sum(int(package["files"]) for package in json.loads(output)["packages"])


def _named(*names: str) -> Callable[[Path, str], bool]:
    return lambda path, _head: path.name in names


KINDS = (
    Kind(
        name="pixi.lock",
        matches=lambda path, head: path.suffix == ".lock" and "\nenvironments:" in head,
        attempts=_try_locks,
    ),
    Kind(
        name="conda-lock.yml",
        matches=lambda path, head: (
            path.suffix in {".yml", ".yaml"} and "\nmetadata:" in f"\n{head}" and "\npackage:" in head
        ),
        attempts=_try_conda_lock,
    ),
    Kind(
        name="explicit list",
        matches=lambda path, head: path.suffix in {".txt", ".lock", ""} and "\n@EXPLICIT" in f"\n{head}",
        attempts=_try_explicit,
    ),
    Kind(name="recipe (v1)", matches=_named("recipe.yaml"), attempts=_try_recipe),
    Kind(name="recipe (v0)", matches=_named("meta.yaml"), attempts=_try_recipe),
    Kind(
        name="variant file",
        matches=lambda path, _head: path.name in _VARIANT_NAMES or path.parent.name == ".ci_support",
        attempts=_try_variants,
    ),
    Kind(
        name="environment.yml",
        matches=lambda path, head: path.suffix in {".yml", ".yaml"} and "\ndependencies:" in f"\n{head}",
        attempts=_try_environment,
    ),
    Kind(
        name="repodata",
        matches=lambda path, _head: path.name.startswith("repodata") and ".json" in path.name,
        attempts=_try_repodata,
    ),
    Kind(
        name="package",
        matches=lambda path, _head: path.name.endswith((".conda", ".tar.bz2")),
        attempts=_try_package,
    ),
)
