# SPDX-License-Identifier: BSD-3-Clause
"""The values of the matrix stage: the content of a tree, and its recipes rendered for a stack.

An evaluated recipe is kept as the engine's own mapping (a recipe.yaml without templates): each later stage needs
different parts of it, and its bytes determine the digest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from channel_tools.conda.specs import spec_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.system.schedulers import BuildResources
    from channel_tools.system.settings import Tree
    from channel_tools.system.yamlfile import YamlDocument, YamlValue

VariantScalar = str | int | bool
PinFunction = Literal["pin_compatible", "pin_subpackage"]
SourceKind = Literal["url", "git", "path"]


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantFile:
    """One variant configuration file, for one platform: keys with their values, and the groups that move together."""

    document: YamlDocument
    values: Mapping[str, tuple[VariantScalar, ...]]
    zip_keys: tuple[tuple[str, ...], ...] | None
    others: Mapping[str, VariantFile] = field(default_factory=dict)
    """What the same file says for each platform, if it has selectors or conditions."""
    is_base: bool = False
    """Whether it is not the tree's own: the tree's files stand over it key by key, also over its groups."""

    def as_base(self) -> VariantFile:
        """The same file as one that the tree's own stand over."""
        return replace(self, is_base=True, others={name: other.as_base() for name, other in self.others.items()})

    def on(self, platform: str) -> VariantFile:
        """What the file says for a platform."""
        return self.others[platform] if self.others else self

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.document.path


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantMatrix:
    """Variant files merged in order: for a key in several files, the last file's values count."""

    files: tuple[VariantFile, ...]
    values: Mapping[str, tuple[VariantScalar, ...]]
    zip_keys: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeFile:
    """A recipe as it was written, and the variant keys that its text can use."""

    name: str
    """The recipe's folder under ``recipes/``."""
    path: Path
    document: YamlDocument
    used_keys: frozenset[str]
    text: str | None = None
    """What to read in place of the file's text; None: the file."""

    @property
    def folder(self) -> Path:
        """The folder that relative paths in the recipe start from."""
        return self.path.parent


@dataclass(frozen=True, kw_only=True, slots=True)
class Override:
    """What a stack changes in a recipe without a copy of it; ``key_path`` is its place in ``document``."""

    document: YamlDocument
    key_path: tuple[str, ...]
    recipe: str
    """The recipe's folder."""
    patches: Path | None = None
    """A folder of further patches (``*.patch``) or, in it, a folder of them for each version."""
    version: str | None = None
    sha256: str | None = None
    """Of the source of that version."""
    variants: VariantFile | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that activating an environment with the package sets, and deactivating it undoes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """A stack, which ``--variant NAME`` names."""

    name: str
    description: str
    variants: tuple[str, ...]
    """Files under ``variants/``, applied in this order after the shared pins and the foundation's file."""
    packages: tuple[str, ...]
    """Names of recipe folders."""
    install: tuple[str, ...]
    """MatchSpecs of the environment that users install, with spaces between their parts."""
    validation: Mapping[str, YamlValue]
    """``method`` and its own settings, which the validate stage checks; empty if there is nothing to run."""
    extends: str | None = None
    """The stack whose parts it has as well."""
    overrides: Mapping[str, Override] = field(default_factory=dict)
    """By recipe folder."""
    upstream: str | None = None
    """The upstream that it is defined in; None: the tree itself."""
    unserved: Mapping[str, str] = field(default_factory=dict)
    """Why it is not built on a Debian release, by the release, or with Debian's own PyTorch (``debian-pytorch``)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StacksFile:
    """stacks.yaml, read and checked; ``resources`` by the names of recipe folders.

    A stack that extends another has its own parts only.
    """

    document: YamlDocument
    stacks: Mapping[str, Stack]
    default_stack: str
    resources: Mapping[str, BuildResources]
    with_every_stack: tuple[str, ...] = ()
    """Recipes that every stack builds besides its own packages."""
    pinning: str | None = None
    """The path of conda-forge's pinning, relative to the tree."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedTree:
    """Every file of a tree that determines what is built, read and checked."""

    tree: Tree
    stacks: Mapping[str, Stack]
    default_stack: str
    resources: Mapping[str, BuildResources]
    """The resources of builds, by recipe."""
    recipes: Mapping[str, RecipeFile]
    variant_files: Mapping[str, tuple[VariantFile, ...]]
    """By name; those that apply to every stack are upstreams' first, over which the tree's own stand."""
    pinning: VariantFile | None = None
    """conda-forge's pinning, restricted to the keys of the tree's recipes: below all variant files there."""
    profiles: Mapping[str, Path] = field(default_factory=dict)
    """Profiles of fabrics beside those of recipes, by name: the tree's own and its upstreams'."""
    default_profile: str | None = None
    """The one that users get unless they name another; None: as variant files say."""
    notes: tuple[str, ...] = ()
    """A line for each part of the variant files that has no effect."""

    @property
    def own_stacks(self) -> tuple[Stack, ...]:
        """The stacks of the tree itself, without its upstreams'."""
        return tuple(stack for stack in self.stacks.values() if stack.upstream is None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pin:
    """A requirement that depends on a solved environment: ``pin_compatible`` or ``pin_subpackage``.

    Bounds are ``x.x`` expressions or versions, None for no bound.
    """

    function: PinFunction
    name: str
    lower_bound: str | None
    upper_bound: str | None
    exact: bool
    build: str | None


Requirement = str | Pin


@dataclass(frozen=True, kw_only=True, slots=True)
class TestRequirements:
    """The requirements of a recipe's test: its own tools, and packages installed with the one under test."""

    build: tuple[Requirement, ...]
    run: tuple[Requirement, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeSource:
    """A source of a recipe: ``location`` is the first address of a tarball or repository, or a path."""

    kind: SourceKind
    location: str
    mirrors: tuple[str, ...]
    sha256: str | None
    revision: str | None
    """The full commit of a git source."""
    patches: tuple[str, ...]
    target_directory: str | None
    entry: Mapping[str, YamlValue]
    """The recipe's own mapping."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderedPackage:
    """One package of one stack for one combination of the variant keys it uses."""

    stack: str
    name: str
    version: str
    build_number: int
    engine_build_string: str
    """The build string of conda-build and rattler-build, whose hash covers only the used variant."""
    engine_hash: str
    subdir: str
    """``noarch``, or the platform of the rendering."""
    platform: str
    recipe: Mapping[str, YamlValue]
    recipe_file: RecipeFile
    variant: Mapping[str, VariantScalar]
    """The used keys and their values."""
    siblings: Mapping[str, str]
    """Engine build strings of other outputs of the recipe that this one pins exactly, by name."""
    sources: tuple[RecipeSource, ...]
    build: tuple[Requirement, ...]
    host: tuple[Requirement, ...]
    run: tuple[Requirement, ...]
    tests: tuple[TestRequirements, ...]
    """The tests that have their own requirements."""

    def requirement_names(self) -> frozenset[str]:
        """The packages named by any of its environments."""
        tests = [group for test in self.tests for group in (test.build, test.run)]
        return frozenset(
            requirement_name(item) for group in (self.build, self.host, self.run, *tests) for item in group
        )


def requirement_name(requirement: Requirement) -> str:
    """The package that a requirement names, in lower case. Raises InvalidSpecError.

    >>> requirement_name("NumPy >=2")
    'numpy'
    """
    return requirement.name.lower() if isinstance(requirement, Pin) else spec_name(requirement)
