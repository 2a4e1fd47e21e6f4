# SPDX-License-Identifier: BSD-3-Clause
"""The locations of the tree, its output, and the user's cache. Only this module reads our environment variables.

A tree is any folder with ``recipes/`` and ``variants/stacks.yaml``; nothing else in the package depends on where
this project's own clone is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import platformdirs

from channel_tools.system.errors import UsageError
from channel_tools.system.files import absolute_path
from channel_tools.system.work_folder import choose_work_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RECIPE_FILE = "recipe.yaml"
ROOT_VARIABLE = "CHANNEL_TOOLS_ROOT"
OUTPUT_VARIABLE = "CHANNEL_TOOLS_OUTPUT"
CACHE_VARIABLE = "CHANNEL_TOOLS_CACHE"
SIGNING_KEY_VARIABLE = "CHANNEL_TOOLS_SIGNING_KEY"
COMPILER_CACHE_VARIABLE = "CHANNEL_TOOLS_COMPILER_CACHE"
MKSQUASHFS_VARIABLE = "CHANNEL_TOOLS_MKSQUASHFS"
UNSQUASHFS_VARIABLE = "CHANNEL_TOOLS_UNSQUASHFS"
PYTORCH_INDEX_VARIABLE = "CHANNEL_TOOLS_PYTORCH_INDEX"
_PYTORCH_INDEX = "https://download.pytorch.org/whl/cpu"
STACKS_PACKAGE = "channel_tools-stacks"
"""The package with the stacks of the channel that it is in (recipes/channel_tools-stacks)."""
INSTALLED_STACKS = "share/channel_tools"
"""The folder in an environment where that package has ``variants/stacks.yaml``."""
USER_SETTINGS_VARIABLE = "CHANNEL_TOOLS_USER_SETTINGS"
_NODES = "nodes"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tree:
    """A folder of recipes and variants."""

    root: Path
    recipe: Path | None = None
    """A recipe.yaml that alone is built, in the folder ``root``; there is no stacks.yaml then."""
    has_recipes: bool = True
    """False for what the package channel_tools-stacks installs: stacks.yaml, without the recipes that it names."""

    @property
    def recipes(self) -> Path:
        """``recipes/<package>/recipe.yaml``."""
        return self.root / "recipes"

    @property
    def variants(self) -> Path:
        """The folder of variant configuration files."""
        return self.root / "variants"

    @property
    def stacks_file(self) -> Path:
        """The file that says what each stack builds and how it is validated."""
        return self.variants / "stacks.yaml"

    @property
    def locks(self) -> Path:
        """The foundation locks, one per kind of foundation and platform."""
        return self.root / "locks"

    @property
    def site_file(self) -> Path:
        """The file that names the trees that this one builds on; it may be missing."""
        return self.root / "site.yaml"

    @property
    def upstreams(self) -> Path:
        """Copies of these trees, each in a folder of its name."""
        return self.root / "upstreams"

    @property
    def patches(self) -> Path:
        """``patches/<package>/<version>/NNNN-slug.patch``."""
        return self.root / "patches"

    @property
    def profiles(self) -> Path:
        """``profiles/NAME.toml``: what the site's fabrics want set; it may be missing."""
        return self.root / "profiles"


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """All locations that commands use; ``output`` is per tree, ``cache`` is per user and shared by trees."""

    tree: Tree
    output: Path
    cache: Path
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The environment variables with the HTTP client's proxies and the user's credentials."""

    @property
    def channel(self) -> Path:
        """The local channel."""
        return self.output / "channel"

    @property
    def foundation(self) -> Path:
        """The registry foundation, a separate channel."""
        return self.output / "foundation"

    @property
    def work(self) -> Path:
        """Build folders, removed after success; not in ``output`` if that has an unsuitable path."""
        return choose_work_folder(output=self.output, cache=self.cache, environ=self.environ)

    @property
    def nodes(self) -> Path:
        """The folder in which the builds of a cluster's jobs run."""
        return self.work / _NODES

    @property
    def rendered(self) -> Path:
        """The rendered recipe folders that builds use."""
        return self.output / "recipes"

    @property
    def reports(self) -> Path:
        """One validation report per stack."""
        return self.output / "report"

    @property
    def logs(self) -> Path:
        """One log per build, kept."""
        return self.output / "logs"

    @property
    def signing_keys(self) -> Path:
        """The key that signs attestations of builds: a file, or a folder with one; it is made if missing."""
        return _path_of(self.environ, SIGNING_KEY_VARIABLE) or self.output / "keys"

    @property
    def compiler_cache(self) -> Literal["ccache", "sccache"] | None:
        """The compiler cache that builds use. Raises UsageError for an unknown one."""
        name = self.environ.get(COMPILER_CACHE_VARIABLE, "")
        known: dict[str, Literal["ccache", "sccache"]] = {"ccache": "ccache", "sccache": "sccache"}
        if name and name not in known:
            raise UsageError(f"{COMPILER_CACHE_VARIABLE}={name}: expected ccache or sccache", hint="or unset it")
        return known.get(name)

    @property
    def pytorch_index(self) -> str | None:
        """The address of PyTorch's own index of wheels for the CPU, as it is given; None if it is not asked."""
        address = self.environ.get(PYTORCH_INDEX_VARIABLE, "") or _PYTORCH_INDEX
        return None if address == "no" else address

    @property
    def downloads(self) -> Path:
        """Wheels and .debs by sha256."""
        return self.cache / "downloads"

    @property
    def sources(self) -> Path:
        """The source store: upstream's sources by sha256 and by commit."""
        return self.cache / "sources"

    @property
    def package_cache(self) -> Path:
        """Unpacked conda packages, to which environments are linked."""
        return package_cache_in(self.cache)


def make_settings(*, root: Path | None, output: Path | None, environ: Mapping[str, str], cwd: Path) -> Settings:
    """Settings from the command line's options, else the environment, else by searching upwards from ``cwd``.

    Raises UsageError if no tree is found, or the given folder is not one.
    """
    chosen_root = root or _path_of(environ, ROOT_VARIABLE)
    tree = Tree(root=_checked_root(chosen_root) if chosen_root else _find_root(cwd))
    chosen_output = output or _path_of(environ, OUTPUT_VARIABLE) or tree.root / "output"
    return Settings(tree=tree, output=absolute_path(chosen_output), cache=find_cache(environ), environ=dict(environ))


def make_stacks_settings(folder: Path, *, output: Path | None, environ: Mapping[str, str], cwd: Path) -> Settings:
    """Settings for commands on installed stacks: ``folder`` is as INSTALLED_STACKS in an environment.

    Results are written to ``output`` (None: ``output`` in ``cwd``).
    """
    chosen_output = output or _path_of(environ, OUTPUT_VARIABLE) or cwd / "output"
    tree = Tree(root=absolute_path(folder), has_recipes=False)
    return Settings(tree=tree, output=absolute_path(chosen_output), cache=find_cache(environ), environ=dict(environ))


def active_prefix(environ: Mapping[str, str]) -> Path | None:
    """The environment that a client has activated in a shell, by its CONDA_PREFIX; None if there is none."""
    prefix = environ.get("CONDA_PREFIX", "")
    return Path(prefix) if prefix else None


def installed_settings(
    prefixes: Iterable[Path], *, output: Path | None, environ: Mapping[str, str], cwd: Path
) -> Settings | None:
    """Settings for the stacks that the first of these environments with any has; None if none has any."""
    folders = (prefix / INSTALLED_STACKS for prefix in prefixes)
    folder = next((candidate for candidate in folders if has_stacks(candidate)), None)
    return None if folder is None else make_stacks_settings(folder, output=output, environ=environ, cwd=cwd)


def make_recipe_settings(path: Path, *, output: Path | None, environ: Mapping[str, str], cwd: Path) -> Settings:
    """Settings for building one recipe, given by its file or folder, into ``output`` (None: ``output`` in ``cwd``).

    Raises UsageError if there is no recipe.
    """
    file = path / RECIPE_FILE if path.is_dir() else path
    if not file.is_file() or file.name != RECIPE_FILE:
        message = f"{path}: not a {RECIPE_FILE}, nor a folder with one"
        raise UsageError(message, hint="build PATH/recipe.yaml takes one recipe; a package of a tree is --package NAME")
    recipe = file.resolve()
    if recipe.parent.parent.name == "recipes" and _is_tree(recipe.parents[2]):
        message = f"{recipe} belongs to the tree {recipe.parents[2]}, whose variants and stacks it is built with"
        raise UsageError(message, hint=f"channel_tools build --root {recipe.parents[2]} --package {recipe.parent.name}")
    chosen_output = output or _path_of(environ, OUTPUT_VARIABLE) or cwd / "output"
    tree = Tree(root=recipe.parent, recipe=recipe)
    return Settings(tree=tree, output=absolute_path(chosen_output), cache=find_cache(environ), environ=dict(environ))


def wants_user_settings(environ: Mapping[str, str]) -> bool:
    """Whether the files in which conda, rattler and pixi keep a user's settings are read. Raises UsageError."""
    value = environ.get(USER_SETTINGS_VARIABLE, "")
    if value not in {"", "no"}:
        raise UsageError(f"{USER_SETTINGS_VARIABLE}={value}: expected no", hint="or unset it")
    return not value


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


def find_cache(environ: Mapping[str, str]) -> Path:
    """The user's cache folder, also for commands that need no tree."""
    return absolute_path(_path_of(environ, CACHE_VARIABLE) or user_folder("cache"))


def user_folder(kind: Literal["cache", "config", "state"]) -> Path:
    """The user's folder for what the program keeps, by the platform's convention.

    Raises UsageError for a user without a home folder: HOME is not set, and the system's user list has no entry.
    """
    find = {
        "cache": platformdirs.user_cache_path,
        "config": platformdirs.user_config_path,
        "state": platformdirs.user_state_path,
    }[kind]
    try:
        folder = Path(find("channel_tools", appauthor=False))
    except RuntimeError:
        folder = Path()
    if not folder.is_absolute():
        message = f"this user has no home folder, so there is no place for the program's {kind} files"
        hint = f"set HOME, or XDG_{kind.upper()}_HOME" + (f", or {CACHE_VARIABLE}" if kind == "cache" else "")
        raise UsageError(message, hint=hint)
    return folder


def user_path(text: str) -> Path:
    """A path given by a user: ``~`` and ``~NAME`` are home folders. Raises UsageError if the user does not exist."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        message = f"{text}: there is no such home folder"
        raise UsageError(message, hint="write the whole path, or ./~ for a file of that name") from None


def package_cache_in(cache: Path) -> Path:
    """The folder of unpacked packages in a cache folder."""
    return cache / "pkgs"


def has_stacks(folder: Path) -> bool:
    """Whether the folder has ``variants/stacks.yaml``."""
    return Tree(root=folder).stacks_file.is_file()


def _path_of(environ: Mapping[str, str], variable: str) -> Path | None:
    value = environ.get(variable, "")
    return user_path(value) if value else None


def _is_tree(folder: Path) -> bool:
    return (folder / "recipes").is_dir() and has_stacks(folder)


def _checked_root(folder: Path) -> Path:
    if not _is_tree(folder):
        message = f"{folder}: not a tree of recipes; expected recipes/ and variants/stacks.yaml in it"
        raise UsageError(message, hint=f"give --root FOLDER or set {ROOT_VARIABLE} to a folder that has both")
    return folder.resolve()


def _find_root(cwd: Path) -> Path:
    for folder in (cwd, *cwd.parents):
        if _is_tree(folder):
            return folder.resolve()
    message = f"{cwd}: neither this folder nor any above it has recipes/ and variants/stacks.yaml"
    raise UsageError(message, hint=f"change to a clone of the recipes, give --root FOLDER or set {ROOT_VARIABLE}")
