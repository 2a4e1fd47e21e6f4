# SPDX-License-Identifier: BSD-3-Clause
"""A site's tree and the trees that it builds on: ``site.yaml``, and the copies in ``upstreams/`` with their record.

``site.yaml`` names upstreams; ``channel_tools upstream update`` copies each to ``upstreams/NAME`` and records its
commit and the sha256 of every file in ``locks/upstreams.json``. Only these copies are read, and only as they are
recorded: a tree is the same on every machine and without a network.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from channel_tools.conda.addresses import has_credentials, has_secret, scheme_of, shown_address, without_credentials
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ConfigError, nearest_names_hint
from channel_tools.system.files import located
from channel_tools.system.settings import RECIPE_FILE, Tree
from channel_tools.system.source_files import ignored_among, list_source_files, source_digest
from channel_tools.system.yamlfile import load_plain_yaml, read_yaml

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from channel_tools.system.yamlfile import YamlDocument

RECORD_NAME = "upstreams.json"
CREDENTIALS_OF_GIT = "store them in ~/.netrc or git's credential store of those who update"
UPDATE_HINT = "run channel_tools upstream update"
_COPIED_FOLDERS = ("patches", "recipes", "variants", "profiles")
_COPIED_FILES = re.compile(r"(LICEN[CS]E|NOTICE|COPYING)[^/]*")
_ALL = "."
"""The path of a tree's root, for a recipe that builds the repository that it is in."""
_NAMING_KEYS = frozenset({"path", "patches", "license_file"})
_BRANCHES = frozenset({"if", "then", "else"})
_LEFT_OUT = frozenset({"__pycache__", ".git", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
_Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]


class _UpstreamModel(BaseModel):
    """A tree that this one builds on: ``git`` and ``rev``, or ``path``."""

    model_config = ConfigDict(title="Upstream", extra="forbid", strict=True, frozen=True, defer_build=True)

    name: _Name = Field(description="Its folder in upstreams/.")
    git: str | None = Field(default=None, description="The address of a git repository, or a folder with one.")
    rev: str | None = Field(default=None, description="A tag, branch or commit of it.")
    path: str | None = Field(default=None, description="A folder, relative to this file.")


class _SiteModel(BaseModel):
    """A site's tree (site.yaml): the trees that it builds on, where it gets sources, and its fabric's profile."""

    model_config = ConfigDict(title="Site", extra="forbid", strict=True, frozen=True, defer_build=True)

    upstreams: list[_UpstreamModel] = Field(
        default=[],
        description="Trees whose recipes, variants, patches and stacks can be used by name; earlier ones first.",
    )
    source_mirrors: dict[str, str] = Field(
        default={},
        description="Where sources are looked for first: a mirror's address or folder in place of the beginning of "
        "their addresses; both end with a slash.",
    )
    profile: str | None = Field(
        default=None,
        description="The profile of a fabric that users get unless they name another: of profiles/ or an upstream's.",
    )


def site_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of site.yaml, for editors."""
    return _SiteModel.model_json_schema()


@dataclass(frozen=True, kw_only=True, slots=True)
class Upstream:
    """A tree that a site builds on: ``address`` is that of a git repository, with ``rev``, or a folder without one."""

    name: str
    address: str
    rev: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedUpstream:
    """What ``upstream update`` copied: from where, the commit if it came from git, and each file's sha256."""

    name: str
    address: str
    rev: str | None
    commit: str | None
    files: dict[str, Annotated[str, msgspec.Meta(pattern=r"^((x:)?[0-9a-f]{64}|-> .+)$")]]
    """By path below ``upstreams/NAME``; ``x:`` marks executable files, ``-> `` the text of a link."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _UpstreamRecord:
    schema: Literal[1]
    upstreams: tuple[RecordedUpstream, ...]


def read_site(tree: Tree) -> tuple[Upstream, ...]:
    """The upstreams in the tree's ``site.yaml``, none without that file. Raises ConfigError (file, line)."""
    if (read := _read_model(tree)) is None:
        return ()
    document, model = read
    upstreams: dict[str, Upstream] = {}
    for index, item in enumerate(model.upstreams):
        key_path = ("upstreams", index)
        if item.name in upstreams:
            raise document.error(f"two upstreams are named {item.name!r}", *key_path, hint="give each its own name")
        upstreams[item.name] = _upstream(document, item, key_path)
    return tuple(upstreams.values())


def read_source_mirrors(tree: Tree) -> tuple[tuple[str, str], ...]:
    """The ``source_mirrors`` of the tree's ``site.yaml``, in its order, as addresses: of what, and the mirror's.

    Raises ConfigError (file, line) for one that is no address, does not end with a slash or contains a password.
    """
    if (read := _read_model(tree)) is None:
        return ()
    document, model = read
    mirrors = []
    for of, mirror in model.source_mirrors.items():
        key_path = ("source_mirrors", of)
        for text in (of, mirror):
            if not text.endswith("/"):
                message = f"{without_credentials(text)!r} is the beginning of addresses, but does not end with a slash"
                raise document.error(message, *key_path, hint="write it as https://HOST/FOLDER/")
            if has_credentials(text):
                message = f"{without_credentials(text)} is given with credentials, which everyone reads in this file"
                raise document.error(message, *key_path, hint="store them in ~/.netrc of the machines that build")
        if not scheme_of(of):
            message = f"{of!r} is not the beginning of an address"
            raise document.error(message, *key_path, hint="name what stands in recipes: https://github.com/")
        mirrors.append((of, mirror if scheme_of(mirror) else f"{located(tree.root, mirror).as_uri()}/"))
    return tuple(mirrors)


def read_default_profile(tree: Tree) -> tuple[YamlDocument, str] | None:
    """The ``profile`` of the tree's ``site.yaml``, None if it names none. Raises ConfigError (file, line)."""
    read = _read_model(tree)
    return None if read is None or read[1].profile is None else (read[0], read[1].profile)


def _read_model(tree: Tree) -> tuple[YamlDocument, _SiteModel] | None:
    path = tree.site_file
    if not path.is_file():
        return None
    document = read_yaml(path)
    try:
        return document, _SiteModel.model_validate(document.value if document.value is not None else {})
    except ValidationError as err:
        raise document.shape_error(err.errors()[0], hint="docs/how-to/start-a-tree.md describes this file") from None


def _upstream(document: YamlDocument, item: _UpstreamModel, key_path: tuple[str, int]) -> Upstream:
    if (item.git is None) == (item.path is None):
        message = f"the upstream {item.name!r} needs either git and rev, or path"
        raise document.error(message, *key_path, hint="for example  git: https://HOST/REPOSITORY  and  rev: v1.0")
    if item.git is None:
        if item.rev is not None:
            raise document.error(
                f"the upstream {item.name!r} has rev without git", *key_path, hint="name it by git: FOLDER"
            )
        return Upstream(name=item.name, address=item.path or "", rev=None)
    if has_secret(item.git):
        shown = without_credentials(item.git)
        message = f"the upstream {item.name!r} ({shown}) is given with credentials, which everyone reads in this file"
        raise document.error(message, *key_path, hint=f"write it without them, and {CREDENTIALS_OF_GIT}")
    if item.rev is None:
        message = f"the upstream {item.name!r} has no rev"
        raise document.error(message, *key_path, hint="name a tag, branch or commit; its commit is recorded")
    return Upstream(name=item.name, address=item.git, rev=item.rev)


def upstream_tree(tree: Tree, name: str) -> Tree:
    """The copy of an upstream in the tree."""
    return Tree(root=tree.upstreams / name)


def upstream_trees(tree: Tree) -> dict[str, Tree]:
    """The copies of the tree's upstreams by name, in the order of ``site.yaml``.

    Raises ConfigError for an upstream that was not copied yet, or whose copy is not as it was recorded.
    """
    upstreams = read_site(tree)
    if not upstreams:
        return {}
    recorded = read_upstream_record(tree)
    for upstream in upstreams:
        _check_copy(tree, upstream, recorded.get(upstream.name))
    return {upstream.name: upstream_tree(tree, upstream.name) for upstream in upstreams}


def read_upstream_record(tree: Tree) -> dict[str, RecordedUpstream]:
    """``locks/upstreams.json`` by name, empty if there is none. Raises ConfigError for one that cannot be read."""
    path = tree.locks / RECORD_NAME
    if not path.is_file():
        return {}
    try:
        record = decode_json(path.read_bytes(), _UpstreamRecord)
    except msgspec.DecodeError as err:
        raise ConfigError(f"not a record of upstreams: {err}", path=path, hint=f"remove it and {UPDATE_HINT}") from None
    return {item.name: item for item in record.upstreams}


def upstream_record_text(recorded: Mapping[str, RecordedUpstream]) -> str:
    """The text of ``locks/upstreams.json``."""
    items = [msgspec.to_builtins(recorded[name]) for name in sorted(recorded)]
    return json.dumps({"schema": 1, "upstreams": items}, indent=1, sort_keys=True) + "\n"


def files_to_copy(folder: Path) -> list[str]:
    """The files and links of an upstream's folder that a copy has, but for what git ignores there.

    They are paths below it: recipes, variants, patches, licences beside them, and what the recipes name elsewhere.
    """
    return _files_of_tree(folder, frozenset())


def all_files(folder: Path) -> Iterator[str]:
    """All files and links of a folder that is made of files_to_copy, without caches."""
    return _files_below(folder, None)


def is_copied(path: str, named: Collection[str]) -> bool:
    """Whether a copy has the file of this path in an upstream's folder or repository, whose recipes name ``named``.

    >>> is_copied("patches/toy/1.0/0001-a.patch", ()), is_copied("src/toy.c", ()), is_copied("src/toy.c", {"src"})
    (True, False, True)
    """
    top, _, below = path.partition("/")
    if _LEFT_OUT.intersection(path.split("/")):
        return False
    if (below and top in _COPIED_FOLDERS) or (not below and _COPIED_FILES.fullmatch(path)):
        return True
    return any(path == name or path.startswith(f"{name}/") or name == _ALL for name in named)


def is_recipe(path: str) -> bool:
    """Whether this is the path of a recipe in a tree.

    >>> is_recipe("recipes/toy/recipe.yaml"), is_recipe("recipes/toy/tests/recipe.yaml")
    (True, False)
    """
    top, _, name = path.partition("/")
    return top == _COPIED_FOLDERS[1] and name.count("/") == 1 and name.endswith(f"/{RECIPE_FILE}")


def named_elsewhere(recipes: Mapping[str, bytes]) -> frozenset[str]:
    r"""What recipes, by their paths, name outside recipes/, patches/ and variants/: paths of files and folders.

    A path with a template in it counts up to there. What cannot be read names nothing: reading the tree says why.

    >>> named_elsewhere({"recipes/toy/recipe.yaml": b"source:\n  - path: ../../src/toy\n  - path: files\n"})
    frozenset({'src/toy'})
    """
    named = set()
    for path, content in recipes.items():
        try:
            value = load_plain_yaml(content)
        except (yaml.YAMLError, RecursionError):
            continue
        for text in _named_in(value, ""):
            before, template, _ = text.partition("${{")
            name = posixpath.normpath(f"{posixpath.dirname(path)}/{before.rpartition('/')[0] if template else before}")
            if name.partition("/")[0] not in {"..", "", *_COPIED_FOLDERS}:
                named.add(name)
    return frozenset(named)


def _named_in(value: object, key: str) -> Iterator[str]:
    """The paths that a recipe names as its sources, patches and licences."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield from _named_in(below, key if name in _BRANCHES else str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _named_in(item, key)
    elif isinstance(value, str) and key in _NAMING_KEYS and not value.startswith("/"):
        yield value


def files_to_export(tree: Tree) -> list[str]:
    """The paths below the tree's root that another site needs to plan and build what the tree does."""
    return _files_of_tree(tree.root, frozenset({tree.site_file.name, tree.locks.name, tree.upstreams.name}))


def _files_of_tree(folder: Path, more: Collection[str]) -> list[str]:
    """The files to copy of a tree, and those at and below ``more``, but for what git ignores."""
    paths = sorted((folder / _COPIED_FOLDERS[1]).glob(f"*/{RECIPE_FILE}"))
    recipes = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths if path.is_file()}
    named = {*more, *named_elsewhere(recipes)}
    tops = None if _ALL in named else {*_COPIED_FOLDERS, *(name.partition("/")[0] for name in named)}
    listed = [path for path in _files_below(folder, tops) if is_copied(path, named)]
    ignored: set[str] = set()
    for above in {*_COPIED_FOLDERS, *named} - {*more}:
        below = [folder / name for name in listed if above == _ALL or name.startswith(f"{above}/")]
        ignored |= {path.relative_to(folder).as_posix() for path in ignored_among(below, folder / above)}
    return [name for name in listed if name not in ignored or name in named]


def _files_below(folder: Path, tops: Collection[str] | None) -> Iterator[str]:
    """The files and links of a folder by relative path, sorted: beside and below ``tops`` (None: all); no caches."""
    start = str(folder)
    listed = list_source_files(
        folder,
        without_folder=lambda parent, name: (
            name in _LEFT_OUT or (tops is not None and parent == start and name not in tops)
        ),
        without_file=lambda _name: False,
    )
    return (path.relative_to(folder).as_posix() for path in listed)


def path_named_by(tree: Tree, recipe_folder: Path, name: str) -> Path:
    """The file or folder that a recipe of the tree names by a path.

    What the tree itself has not at the place outside the recipe's folder is that of the first upstream which has a
    recipe of this name: so a recipe that was copied from there finds its patches.
    """
    path = located(recipe_folder, name)
    is_own = recipe_folder.parent == tree.recipes and path.is_relative_to(tree.root)
    if not is_own or path.is_relative_to(recipe_folder) or os.path.lexists(path):
        return path
    inside = path.relative_to(tree.root)
    copies = (upstream_tree(tree, upstream.name) for upstream in read_site(tree))
    origins = (copy.root / inside for copy in copies if (copy.recipes / recipe_folder.name / RECIPE_FILE).is_file())
    return next(filter(os.path.lexists, origins), path)


def _check_copy(tree: Tree, upstream: Upstream, recorded: RecordedUpstream | None) -> None:
    path = tree.site_file
    hint = f"{UPDATE_HINT} {upstream.name}"
    copy = upstream_tree(tree, upstream.name).root
    if recorded is None or not copy.is_dir():
        raise ConfigError(f"the upstream {upstream.name!r} has not been copied to {copy}", path=path, hint=hint)
    if (recorded.address, recorded.rev) != (upstream.address, upstream.rev):
        was = " ".join(filter(None, (shown_address(recorded.address), recorded.rev)))
        message = f"the upstream {upstream.name!r} was copied from {was}, not from what this file names"
        raise ConfigError(message, path=path, hint=hint)
    tops = {*_COPIED_FOLDERS, *(name.partition("/")[0] for name in recorded.files)}
    listed = (name for name in _files_below(copy, tops) if name in recorded.files or "/" in name or is_copied(name, ()))
    digests = {name: source_digest(copy / name) for name in listed}
    if digests != recorded.files:
        changed = sorted(name for name in {*digests, *recorded.files} if digests.get(name) != recorded.files.get(name))
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""  # noqa: PLR2004 - a readable line
        message = f"{copy} is not as it was recorded: {', '.join(changed[:3])}{more}"
        hint = (
            "put what differs into recipes/ of the tree itself or into overrides of a stack; "
            f"channel_tools upstream update {upstream.name} copies it again"
        )
        raise ConfigError(message, path=tree.locks / RECORD_NAME, hint=hint)


def unknown_upstream(tree: Tree, name: str, known: Mapping[str, object]) -> ConfigError:
    """The error for a name that no upstream has."""
    message = f"no upstream is named {name!r}"
    return ConfigError(message, path=tree.site_file, hint=nearest_names_hint(name, known, noun="upstream"))
