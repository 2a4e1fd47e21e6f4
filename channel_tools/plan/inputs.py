# SPDX-License-Identifier: BSD-3-Clause
"""Everything that determines a package's content, as one flat mapping; its digest; and what changed in it.

Keys are ``kind:name``: ``recipe:tests``, ``file:src/udp.cc``, ``source:<address>``, ``variant:python``,
``package:libswitchml``, ``output:libfabric`` and ``foundation:host/libgrpc``. Values are a hash, or text short enough
to show. The mapping is stored in the package's metadata, so that a later plan can name what changed.

One rule decides which files belong to a build, for both the digest and the rendered folder, so a build cannot use a
file that is not hashed. What git ignores and does not track is no part of it, unless a source says
``use_gitignore: false``: a tree has the same digest as an archive and as a clone.

Links below a source that is a folder stay links, as they are for the engine. Elsewhere, what leads out of the recipe's
folder is replaced by what it leads to, which must be in the tree.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
import shlex
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from channel_tools.matrix.site import UPDATE_HINT, path_named_by
from channel_tools.plan.model import SCHEMA_VERSION, BuildFile
from channel_tools.system.errors import ConfigError
from channel_tools.system.files import sha256_of_file
from channel_tools.system.settings import Tree
from channel_tools.system.source_files import (
    LINK_MARK,
    gitignore_of,
    ignored_among,
    is_program,
    link_target,
    list_source_files,
    work_tree_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from channel_tools.matrix.model import RecipeFile, RenderedPackage
    from channel_tools.plan.model import EnvironmentName, PublishedPackage
    from channel_tools.plan.own import Resolved
    from channel_tools.system.yamlfile import YamlValue

HASH_DIGITS = 7
_HASH_PLACE = "{hash}"
OUTSIDE_FOLDER = "_tree"
"""The folder for files from outside the recipe's folder in a rendered folder, by their path in the tree."""
_SKIPPED_FOLDERS = re.compile(
    r"__pycache__|\..*_cache|\.git|\.hg|\.svn|\.idea|\.vscode|\.venv|.*\.egg-info|_?build|cmake-build-.*|build-.*|output"
)
_SKIPPED_FILES = re.compile(r".*\.py[co]|.*~|\.#.*|#.*#|.*\.sw[op]|.*\.orig|.*\.rej|\.DS_Store|\.tmp-.*")
_OUTSIDE_HINT = "move it into the tree: a rendered recipe contains everything it needs"
_GENERATED = frozenset({"recipe.yaml", "variants.yaml", "conda_build_config.yaml"})
_SCRIPT_SUFFIXES = frozenset({".sh", ".bash", ".bat", ".py"})
_SHELL_SUFFIXES = frozenset({".sh", ".bash"})
_OUTSIDE_OF_RECIPE_DIR = re.compile(rb"\$\{?RECIPE_DIR\}?['\"]?/\.\./?|%RECIPE_DIR%\\\.\.")
_HASHED_KINDS = frozenset({"recipe", "file", "source", "package"})
_SHOWN_SHA256 = 12
_DATA = frozenset({"ca-certificates", "certifi", "tzdata"})
"""Packages of data that change often, and that no compiler, linker or installer reads."""


def build_string_template(rendered: RenderedPackage) -> str:
    """The engine's build string with ``{hash}`` in place of the hash.

    A build string without a hash gets one before its build number, since a file name must identify the content:
    ``external_0`` becomes ``external_h{hash}_0``.
    """
    text, engine_hash = rendered.engine_build_string, rendered.engine_hash
    before, separator, after = text.rpartition(engine_hash) if engine_hash else ("", "", text)
    if separator:
        return f"{before}{_HASH_PLACE}{after}"
    number = f"_{rendered.build_number}"
    return f"{text.removesuffix(number)}_h{_HASH_PLACE}{number if text.endswith(number) else ''}"


def final_build_string(rendered: RenderedPackage, digest: str) -> str:
    """The build string with the first digits of our digest in place of the engine's hash."""
    return build_string_template(rendered).replace(_HASH_PLACE, digest[:HASH_DIGITS])


def variant_name(rendered: RenderedPackage) -> str:
    """``name-version-build string`` with the engine's hash, common to all digests of a variant; "" without a hash."""
    if not rendered.engine_hash:
        return ""
    build_string = build_string_template(rendered).replace(_HASH_PLACE, rendered.engine_hash)
    return f"{rendered.name}-{rendered.version}-{build_string}"


def recipe_inputs(rendered: RenderedPackage) -> dict[str, str]:
    """The evaluated recipe by section, its variant and its sources."""
    sections = {key: value for key, value in rendered.recipe.items() if key != "source"}
    build = sections["build"]
    if isinstance(build, dict):
        sections["build"] = {**build, "string": build_string_template(rendered)}
    if len(rendered.sources) > 1:  # a file that is in several comes from the last of them
        sections["source"] = [source.location for source in rendered.sources]
    entries: dict[str, list[dict[str, YamlValue]]] = {}
    for source in rendered.sources:
        entries.setdefault(source.location, []).append(dict(source.entry))
    return {
        **{f"recipe:{key}": _hash_of(value) for key, value in sections.items()},
        **{f"variant:{key}": str(value) for key, value in rendered.variant.items()},
        **{f"source:{name}": _hash_of(hashes[0] if len(hashes) == 1 else hashes) for name, hashes in entries.items()},
    }


def file_inputs(files: Iterable[BuildFile]) -> dict[str, str]:
    """The files that belong to the build: the text of a link; a hash of others, and whether the owner may run them."""
    return {
        f"file:{file.name}": (
            LINK_MARK + file.link if file.link is not None else file.sha256 + (" executable" if file.executable else "")
        )
        for file in files
    }


def influences(environment: EnvironmentName, record: Resolved) -> bool:
    """Whether a package of an environment can have an effect on what is built in it.

    Everything counts but what is not itself a requirement, and is either data that no compiler, linker or installer
    reads, or a Python library of a tool in the build environment, for every Python and so without compiled code. See
    docs/explanation/foundations.md for the reasons.
    """
    if record.is_required or record.digest is not None:
        return True
    return record.name not in _DATA and not (environment == "build" and record.is_noarch_python)


def environment_inputs(
    environment: EnvironmentName, records: Iterable[Resolved], *, all_records: bool = True
) -> dict[str, str]:
    """What an environment resolves to: own packages by digest, those of the foundation by build and sha256.

    Unless ``all_records``, packages of the foundation that cannot have an effect are left out.
    """
    inputs = {}
    for record in records:
        if not all_records and not influences(environment, record):
            continue
        if record.digest is not None:
            inputs[f"package:{record.name}"] = record.digest
        else:
            inputs[f"foundation:{environment}/{record.name}"] = f"{record.version} {record.build} {record.sha256}"
    return inputs


def digest_of(inputs: Mapping[str, str]) -> str:
    """The sha256 over the inputs in canonical form; the same everywhere for the same content.

    >>> digest_of({"a": "1", "b": "2"}) == digest_of({"b": "2", "a": "1"})
    True
    """
    return _hash_of({"schema": SCHEMA_VERSION, "inputs": dict(inputs)})


def _hash_of(value: YamlValue | Sequence[Mapping[str, YamlValue]] | Mapping[str, object]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


class TreeFiles:
    """The files of a tree for one command: listed, checked and hashed once for all variants.

    ``real_root`` is the tree that links in ``root`` lead to, if that is made of links (matrix/bump.py).
    """

    def __init__(self, root: Path, *, real_root: Path | None = None) -> None:
        self.root = root
        self._tree = Tree(root=root)
        self._real_roots = [each.resolve() for each in (root, real_root or root)]
        self._of_builds: dict[tuple[object, ...], tuple[BuildFile, ...]] = {}
        self._listed: dict[Path, list[Path]] = {}
        self._ignored: dict[Path, frozenset[Path]] = {}
        self._ignored_in_recipes: Callable[[Path], bool] | None = None
        self._hashes: dict[Path, str] = {}

    def of_build(self, rendered: RenderedPackage) -> tuple[BuildFile, ...]:
        """The files of a build by target; README files beside the recipe count only if the recipe names them.

        Raises ConfigError (file, line) if the recipe names a file that does not exist or is outside the tree, by itself
        or by a link, or if a script accesses files outside the recipe's folder.
        """
        sources = {
            (source.location, source.entry.get("use_gitignore") is False)
            for source in rendered.sources
            if source.kind == "path"
        }
        patches = {name for source in rendered.sources for name in source.patches}
        licenses = license_files(rendered.recipe)
        build_key = (rendered.recipe_file.path, frozenset(sources), frozenset(patches), tuple(licenses))
        if build_key not in self._of_builds:
            self._of_builds[build_key] = self._collect(rendered.recipe_file, sources, patches, licenses)
        return self._of_builds[build_key]

    def _collect(
        self,
        recipe_file: RecipeFile,
        sources: Collection[tuple[str, bool]],
        patches: Iterable[str],
        licenses: Iterable[str],
    ) -> tuple[BuildFile, ...]:
        folder = recipe_file.folder
        files: dict[Path, BuildFile] = {}
        for name in licenses:
            path = self.path_of(recipe_file, name)
            if ".." in PurePosixPath(name).parts or (path.parent == folder and path.is_file()):
                path = self._named(recipe_file, name, key_path=("about", "license_file"))
                for below in self._list(path) if path.is_dir() else [path]:
                    files[below] = self._build_file(below, folder)
        for name in patches:
            path = self._named(recipe_file, name, key_path=("source",))
            files[path] = self._build_file(path, folder)
        folders = []
        for name, is_whole in sorted(sources, key=lambda source: source[1]):  # those without ignored files first
            path = self._named(recipe_file, name, key_path=("source",))
            if not path.is_dir():
                files[path] = self._build_file(path, folder)
                continue
            folders.append(path)
            ignored = self._ignored_below(path)
            for below in self._list(path):
                if below not in files and (is_whole or below not in ignored):
                    files[below] = self._build_file(below, folder, stays_link=True, is_ignored=below in ignored)
        ignored = self._ignored_below(folder)
        for path in self._list(folder):
            if (
                path in files
                or path in ignored
                or ((path.name in _GENERATED or path.name.upper().startswith("README")) and path.parent == folder)
                or any(path == folder or path.is_relative_to(folder) for folder in folders)
            ):
                continue
            files |= {below: file for below, file in self._beside(recipe_file, path) if below not in files}
        for path in (recipe_file.path, *files):
            if path not in files or files[path].link is None:
                if path.is_relative_to(folder):
                    _check_stays_inside(path)
                _check_shell_script(path)
        return tuple(sorted(files.values(), key=lambda file: file.target))

    def _beside(self, recipe_file: RecipeFile, path: Path) -> Iterator[tuple[Path, BuildFile]]:
        """The file beside a recipe at ``path``, or what a link there leads to if that is not beside the recipe, too."""
        folder = recipe_file.folder
        led = path.resolve() if path.is_symlink() else path
        if led.is_relative_to(folder.resolve()) or not led.exists():
            yield path, self._build_file(path, folder, stays_link=True)
            return
        self._check_inside(recipe_file, path, path.relative_to(folder).as_posix())
        for below in self._list(path) if path.is_dir() else [path]:
            yield below, self._build_file(below, folder, stays_link=below != path)

    def _build_file(self, path: Path, folder: Path, *, stays_link: bool = False, is_ignored: bool = False) -> BuildFile:
        link = link_target(path) if stays_link else None
        sha256 = "" if link is not None else self._hashes.get(path)
        if sha256 is None:
            sha256 = self._hashes[path] = sha256_of_file(path)
        text, start = str(path), f"{folder}{os.sep}"
        inside = text.removeprefix(start) if text.startswith(start) else None  # most are, and paths are slow
        return BuildFile(
            path=path,
            name=inside or os.path.relpath(path, folder),
            target=inside or target_of(path, folder, self.root),
            sha256=sha256,
            link=link,
            executable=link is None and is_program(path),
            is_ignored=is_ignored,
        )

    def _list(self, folder: Path) -> list[Path]:
        """All files and links below ``folder`` that the rule does not skip, sorted by path."""
        if folder not in self._listed:
            self._listed[folder] = list_source_files(
                folder, without_folder=_is_skipped, without_file=lambda name: _SKIPPED_FILES.fullmatch(name) is not None
            )
        return self._listed[folder]

    def _ignored_below(self, folder: Path) -> frozenset[Path]:
        """Those of _list that git ignores; none in a copy of an upstream, which is as its record says."""
        if folder not in self._ignored:
            files, tree = self._list(folder), self._tree
            if folder.is_relative_to(tree.recipes) and work_tree_of(folder) == work_tree_of(tree.recipes):
                if self._ignored_in_recipes is None:  # one process for all recipes
                    self._ignored_in_recipes = gitignore_of(tree.recipes)
                self._ignored[folder] = ignored_among(files, folder, is_ignored=self._ignored_in_recipes)
            elif folder.is_relative_to(tree.upstreams):
                self._ignored[folder] = frozenset()
            else:
                self._ignored[folder] = ignored_among(files, folder)
        return self._ignored[folder]

    def path_of(self, recipe_file: RecipeFile, name: str) -> Path:
        """The file or folder that the recipe names by a path, whether or not it exists."""
        return path_named_by(self._tree, recipe_file.folder, name)

    def _named(self, recipe_file: RecipeFile, name: str, *, key_path: tuple[str, ...]) -> Path:
        """The file or folder that the recipe names by a path."""
        path = self.path_of(recipe_file, name)
        if not path.is_relative_to(self.root):
            message = f"{name} is outside the tree {self.root}"
            raise recipe_file.document.error(message, *key_path, hint=_OUTSIDE_HINT)
        if path.is_dir() or path.is_file():
            self._check_inside(recipe_file, path, name, *key_path)
            return path
        message = f"the recipe names {name}, which does not exist"
        inside = path.relative_to(self.root)
        hint = f"correct the name or add {inside}"
        if path.is_relative_to(self._tree.upstreams):
            hint = f"{UPDATE_HINT} {inside.parts[1]}, which copies what its recipes name"
        raise recipe_file.document.error(message, *key_path, hint=hint)

    def _check_inside(self, recipe_file: RecipeFile, path: Path, name: str, *key_path: str) -> None:
        led = path.resolve()
        if not any(led.is_relative_to(root) for root in self._real_roots):
            message = f"{name} leads by a link to {led}, which is outside the tree {self.root}"
            raise recipe_file.document.error(message, *key_path, hint=_OUTSIDE_HINT)


def target_of(path: Path, folder: Path, root: Path) -> str:
    """The path of a file or folder of the tree in the rendered folder of the recipe in ``folder``."""
    if path.is_relative_to(folder):
        return path.relative_to(folder).as_posix()
    return str(PurePosixPath(OUTSIDE_FOLDER, path.relative_to(root).as_posix()))


def _is_skipped(parent: str, name: str) -> bool:
    """Whether a folder holds what builds, editors and caches write; a Python package of such a name is source."""
    return _SKIPPED_FOLDERS.fullmatch(name) is not None and not os.path.isfile(f"{parent}/{name}/__init__.py")  # noqa: PTH113 - paths are slow


def license_files(recipe: YamlValue | object) -> Sequence[str]:
    """``about.license_file`` of an evaluated recipe as a list."""
    about = recipe.get("about") if isinstance(recipe, dict) else None
    value = about.get("license_file") if isinstance(about, dict) else None
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]


def _check_stays_inside(path: Path) -> None:
    if path.suffix not in _SCRIPT_SUFFIXES and path.name != "recipe.yaml":
        return
    content = path.read_bytes()
    if (match := _OUTSIDE_OF_RECIPE_DIR.search(content)) is not None:
        message = "the script uses files outside the recipe's folder through RECIPE_DIR"
        hint = "name the files as a source of the recipe (`source: - path: ../other/src`), so that they are rendered"
        line = len(content[: match.end()].splitlines())
        raise ConfigError(message, path=path, line=line, hint=hint)


def _check_shell_script(path: Path) -> None:
    """Raise ConfigError for a shell script that an editor for Windows saved, which fails only when it is run."""
    if path.suffix not in _SHELL_SUFFIXES:
        return
    content = path.read_bytes()
    before, newline, _after = content.partition(b"\r\n")
    if content.startswith(codecs.BOM_UTF8):
        line, defect = 1, "a byte order mark (BOM), which the shell takes for a part of the first command"
        hint = f"save it as UTF-8 without BOM: sed -i '1s/^\\xef\\xbb\\xbf//' {shlex.quote(str(path))}"
    elif newline:
        line, defect = (
            before.count(b"\n") + 1,
            "line endings of Windows (CRLF), which shells take for parts of words",
        )
        hint = f"save it with the line endings of Unix (LF): sed -i 's/\\r$//' {shlex.quote(str(path))}"
    else:
        return
    raise ConfigError(f"the script has {defect}", path=path, line=line, hint=hint)


def find_predecessor(
    name: str,
    inputs: Mapping[str, str],
    published: Iterable[PublishedPackage],
    *,
    current: Collection[str],
    choices: Mapping[str, Collection[str]],
) -> PublishedPackage | None:
    """The published package that this one replaces: the most similar earlier build of the same variant.

    ``current`` are the digests of the plan: a package that is still needed is not replaced. ``choices`` are the values
    that the tree has for variant keys: a package with another of these is another variant, which the tree still has,
    while one with a value that is gone from the tree had the same key moved.
    """
    candidates = [
        item
        for item in published
        if item.name == name
        and item.digest not in current
        and not (
            any(
                (former := item.inputs.get(key)) is not None
                and former != value
                and former in choices.get(key.partition(":")[2], ())
                for key, value in inputs.items()
                if key.startswith("variant:")
            )
        )
    ]
    return max(candidates, key=lambda item: (*_likeness(inputs, item.inputs), item.file_name), default=None)


def _likeness(new: Mapping[str, str], old: Mapping[str, str]) -> tuple[int, int]:
    equal = [key for key, value in new.items() if old.get(key) == value]
    return sum(key.startswith("variant:") for key in equal), len(equal)


def reasons_for(inputs: Mapping[str, str], predecessor: PublishedPackage | None) -> tuple[str, ...]:
    """``new``, or one line per input that differs, in the inputs' order."""
    if predecessor is None:
        return ("new",)
    old = predecessor.inputs
    keys = [*inputs, *(key for key in sorted(old) if key not in inputs)]
    changed = [_describe(key, old.get(key), inputs.get(key)) for key in keys if old.get(key) != inputs.get(key)]
    return tuple(changed) or ("changed: how digests are computed",)


def _describe(key: str, old: str | None, new: str | None) -> str:
    kind, _, name = key.partition(":")
    if kind == "package" and old is not None and new is not None:
        return f"rebuilt dependency {name}"
    subject = name if kind == "file" else f"{_words(kind)} {name}"
    if old is None or new is None:
        return f"{'added' if old is None else 'removed'}: {subject}"
    return f"changed: {subject}" if kind in _HASHED_KINDS else f"changed: {subject}{_from_to(kind, old, new)}"


def _words(kind: str) -> str:
    return {"recipe": "recipe section", "package": "dependency"}.get(kind, kind)


def _from_to(kind: str, old: str, new: str) -> str:
    if kind != "foundation":
        return f" {old} -> {new}"
    before, after = old.split(" "), new.split(" ")
    if before[:2] == after[:2]:
        return f" {'-'.join(before[:2])} (same name, other bytes: {_short(before)} -> {_short(after)})"
    return f" {'-'.join(before[:2])} -> {'-'.join(after[:2])}"


def _short(words: list[str]) -> str:
    return words[-1][:_SHOWN_SHA256]
