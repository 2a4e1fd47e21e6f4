# SPDX-License-Identifier: BSD-3-Clause
"""The texts of a tree with another version of a recipe: where the version is written, and what follows it.

Files are edited as text, at the places of YAML's nodes: comments, quotes and the order of keys stay. Nothing here reads
a source; what the new texts mean is known by loading and expanding them as a tree.

A tree as it would be with some files changed, beside the real one: links, and the files that change.

So the tree's own reader says what is wrong with a change before anything is written.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import yaml

from channel_tools.conda.metadata import PLATFORMS
from channel_tools.matrix.expand import expand_stacks
from channel_tools.matrix.load import load_tree
from channel_tools.requests.names import FoundationKind
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.settings import Tree
from channel_tools.system.yamlfile import node_of, read_yaml_text, scalars_below, span_of, with_replaced

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from channel_tools.matrix.model import LoadedTree, RecipeFile, RenderedPackage, Stack

_PLACES = (("context", "version"), ("package", "version"), ("recipe", "version"))
_NUMBERS = (("context", "number"), ("build", "number"))
_TEMPLATE = re.compile(r"\$\{\{\s*(\w+)\s*\}\}")
_HASHES = frozenset({"sha256", "md5", "rev"})
_VERSION = re.compile(r"[0-9A-Za-z_.+!]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionPlace:
    """Where the version of a recipe is written.

    ``recipe``: in its text; ``variants``: as a value of the variant key ``key``; ``override``: the recipe is an
    upstream's, and the version is in the overrides of stacks.
    """

    kind: Literal["recipe", "variants", "override"]
    key: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedLine:
    """A line that changes: ``before`` is "" for a new one."""

    path: Path
    line: int
    before: str
    after: str


def check_version(version: str) -> None:
    """Raise UsageError for what cannot be a conda version in a file name."""
    if not _VERSION.fullmatch(version):
        hint = "a version has letters, digits, '.', '_', '+' and '!', as 1.2.3"
        raise UsageError(f"{version!r} is not a version", hint=hint)


def version_place(loaded: LoadedTree, recipe: RecipeFile) -> VersionPlace:
    """Where the recipe's version is written. Raises ConfigError (file, line) if it cannot be changed there."""
    text = read_yaml_text(recipe.path)
    is_upstreams = recipe.path.is_relative_to(loaded.tree.upstreams)
    for path in _PLACES:
        node = node_of(text, *path)
        if isinstance(node, yaml.ScalarNode):
            break
    else:
        raise recipe.document.error("the recipe has no version", hint="write it as context.version")
    if "${{" not in node.value:
        return VersionPlace(kind="override" if is_upstreams else "recipe")
    template = _TEMPLATE.fullmatch(node.value)
    if template is None or template[1] not in recipe.used_keys:
        message = f"the version is computed ({node.value}), so it cannot be changed by name"
        raise recipe.document.error(message, *path, hint="change by hand what it is computed from")
    if is_upstreams:
        message = f"the version is the variant key {template[1]!r}, whose sources are in a recipe of an upstream"
        hint = f"copy the recipe, and change it there: cp -R {recipe.folder.relative_to(loaded.tree.root)} recipes/"
        raise recipe.document.error(message, *path, hint=hint)
    return VersionPlace(kind="variants", key=template[1])


def overriding_stacks(loaded: LoadedTree, recipe: RecipeFile, wanted: str | None) -> tuple[Stack, ...]:
    """The tree's own stacks that build an upstream's recipe, or the one of them that is ``wanted``.

    Raises UsageError if there is none.
    """
    stacks = [stack for stack in loaded.own_stacks if recipe.name in stack.packages and wanted in {None, stack.name}]
    if not stacks:
        message = f"no stack of the tree builds {recipe.name}, a recipe of an upstream"
        if wanted is not None:
            message = f"{wanted!r} is not a stack of the tree that builds {recipe.name}"
        hint = "name it in packages of a stack of variants/stacks.yaml"
        building = [stack.name for stack in loaded.stacks.values() if recipe.name in stack.packages]
        if building and wanted in {None, *building}:
            name = wanted or building[0]
            line = f"{name}: {{extends: {name}}}"
            hint = f"of the upstream's, {', '.join(building)}; write below stacks in variants/stacks.yaml:  {line}"
        raise UsageError(message, hint=hint)
    return tuple(stacks)


def versions_to_replace(
    recipe: RecipeFile, location: VersionPlace, versions: Sequence[str], *, old: str | None, new: str
) -> tuple[str, ...]:
    """Those of a recipe's ``versions`` that ``new`` replaces: ``old``, or the one that there is; of overrides, all.

    Raises UsageError if that is not clear, and if the recipe has the new version already.
    """
    if not versions:
        message = f"no stack builds a variant of {recipe.name} here"
        raise UsageError(message, hint="name it in packages of a stack of variants/stacks.yaml")
    if old is not None and old not in versions:
        message = f"{recipe.name} has no version {old}: it has {', '.join(versions)}"
        raise UsageError(message, hint="give one of these to --from")
    if old is None and len(versions) > 1 and location.kind != "override":
        message = f"{recipe.name} has several versions: {', '.join(versions)}"
        raise UsageError(message, hint=f"say which one {new} replaces: --from {versions[-1]}")
    replaced = tuple(versions) if old is None else (old,)
    if new in (versions if location.kind == "variants" else replaced):
        message = f"{recipe.name} has the version {new} already"
        raise UsageError(message, hint="channel_tools list --variant STACK shows the versions")
    return replaced


def renamed(text: str, old: str, new: str) -> str:
    """A path or address with the new version wherever it has the old one as a whole.

    >>> renamed("patches/toy/1.0/0001.patch", "1.0", "1.1")
    'patches/toy/1.1/0001.patch'
    """
    return re.compile(rf"(?<![\d.]){re.escape(old)}(?!\d|\.\d)").sub(lambda _match: new, text)


def texts_of_recipe(recipe: RecipeFile, location: VersionPlace, old: str, new: str) -> dict[Path, str]:
    """The recipe's text with the new version: its own, in its sources' addresses and patches, and in conditions."""
    text = read_yaml_text(recipe.path)
    spans: dict[tuple[int, int], str] = {}
    if location.kind == "recipe":
        node = next(node for path in _PLACES if isinstance(node := node_of(text, *path), yaml.ScalarNode))
        spans[span_of(node)] = json.dumps(new)
        for path in _NUMBERS:
            number = node_of(text, *path)
            if isinstance(number, yaml.ScalarNode) and number.value.isdecimal() and number.value != "0":
                spans[span_of(number)] = "0"
    outputs = node_of(text, "outputs")
    items = outputs.value if isinstance(outputs, yaml.SequenceNode) else []
    pairs = [pair for item in items if isinstance(item, yaml.MappingNode) for pair in item.value]
    nodes = [node_of(text, "source"), *(value for name, value in pairs if name.value == "source")]
    sources = [span_of(node) for node in nodes if node is not None]
    for key, node in scalars_below(node_of(text)):
        span = span_of(node)
        raw = text[slice(*span)]
        changed = raw
        if location.key is not None:
            changed = re.compile(rf"""(\b{re.escape(location.key)}\s*[!=]=\s*["']){re.escape(old)}(["'])""").sub(
                lambda match: f"{match[1]}{new}{match[2]}", changed
            )
        if key not in _HASHES and any(start <= span[0] and span[1] <= end for start, end in sources):
            changed = renamed(changed, old, new)
        if changed != raw and span not in spans:
            spans[span] = changed
    return {recipe.path: with_replaced(text, spans)}


def texts_of_variants(loaded: LoadedTree, key: str, old: str, new: str) -> dict[Path, str]:
    """The tree's variant files and stacks.yaml with the new value of the key; the groups of zip_keys stay aligned.

    Raises ConfigError (file, line) if the key has the new value already, or if an upstream's file has the old one.
    """
    texts: dict[Path, str] = {}
    for file in {file.path: file for files in loaded.variant_files.values() for file in files}.values():
        values = [str(value) for value in file.values.get(key, ())]
        if old not in values:
            continue
        if new in values:
            message = f"{key} has {new} already, beside {old}"
            raise file.document.error(message, key, hint=f"take {old} out of the file, and what is zipped with it")
        if not file.path.is_relative_to(loaded.tree.variants):
            message = f"{key} has the value {old} in a file of an upstream"
            hint = f"copy the file, and change it there: cp {file.path.relative_to(loaded.tree.root)} variants/"
            raise file.document.error(message, key, hint=hint)
        text = read_yaml_text(file.path)
        texts[file.path] = with_replaced(text, _values(node_of(text, key), old, new))
    stacks = loaded.tree.stacks_file
    text = read_yaml_text(stacks)
    spans: dict[tuple[int, int], str] = {}
    for stack in loaded.own_stacks:
        for recipe in stack.overrides:
            node = node_of(text, "stacks", stack.name, "overrides", recipe, "variants", key)
            spans |= _values(node, old, new)
    if spans:
        texts[stacks] = with_replaced(text, spans)
    return texts


def texts_of_overrides(
    loaded: LoadedTree, recipe: RecipeFile, stacks: Sequence[Stack], new: str, sha256: str
) -> dict[Path, str]:
    """stacks.yaml with the version and sha256 in the override of each of these stacks of the tree."""
    path = loaded.tree.stacks_file
    text = read_yaml_text(path)
    for stack in stacks:
        key_path = ("stacks", stack.name)
        override = node_of(text, *key_path, "overrides", recipe.name)
        for key, value in (("version", new), ("sha256", sha256)):
            override = node_of(text, *key_path, "overrides", recipe.name)
            node = node_of(text, *key_path, "overrides", recipe.name, key)
            if node is not None:
                text = with_replaced(text, {span_of(node): json.dumps(value)})
            elif override is not None:
                text = _with_entry(text, override, key, json.dumps(value))
            elif (overrides := node_of(text, *key_path, "overrides")) is not None:
                text = _with_entry(text, overrides, recipe.name, f"{{{key}: {json.dumps(value)}}}")
            else:
                entry = f"{{{json.dumps(recipe.name)}: {{{key}: {json.dumps(value)}}}}}"
                text = _with_entry(text, node_of(text, *key_path), "overrides", entry)
    return {path: text}


def changed_lines(path: Path, before: str, after: str) -> list[ChangedLine]:
    """Each line of ``after`` that is not in ``before``, both texts of the file at ``path``."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) == len(new):
        pairs = zip(old, new, strict=True)
        changed = [(number, *pair) for number, pair in enumerate(pairs, start=1) if pair[0] != pair[1]]
    else:
        known = set(old)
        changed = [(number, "", line) for number, line in enumerate(new, start=1) if line not in known]
    return [
        ChangedLine(path=path, line=number, before=line.strip(), after=new_line.strip())
        for number, line, new_line in changed
    ]


def _values(node: yaml.Node | None, old: str, new: str) -> dict[tuple[int, int], str]:
    """The places of a value in a list, with the new one."""
    return {span_of(item): json.dumps(new) for _key, item in scalars_below(node) if item.value == old}


def _with_entry(text: str, mapping: yaml.Node | None, key: str, value: str) -> str:
    """The text with one more entry at the end of a mapping, in the style that the mapping has."""
    assert isinstance(mapping, yaml.MappingNode)  # noqa: S101 - the file was read and checked before
    if mapping.flow_style:
        end = mapping.end_mark.index - 1
        before = text[:end].rstrip()
        comma = "" if before.endswith(("{", ",")) else ","
        return f"{before}{comma} {key}: {value}{text[end:]}" if mapping.value else f"{before}{key}: {value}{text[end:]}"
    indent = " " * mapping.value[0][0].start_mark.column
    end = text.rfind("\n", 0, _end_of(mapping)) if text[: _end_of(mapping)].endswith("\n") else _end_of(mapping)
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    return f"{text[:line_end]}\n{indent}{key}: {value}{text[line_end:]}"


def _end_of(node: yaml.Node) -> int:
    """Where the text of a node ends: a block's own mark is where the next thing begins."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return _end_of(node.value[-1][1])
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        return _end_of(node.value[-1])
    return int(node.end_mark.index)


def with_hashes(texts: Mapping[Path, str], hashes: Mapping[str, str]) -> dict[Path, str]:
    """The texts with each old hash (or commit) replaced by its new one; they are unique, whatever they are in."""
    changed = dict(texts)
    for path, text in texts.items():
        for old, new in hashes.items():
            text = text.replace(old, new)  # noqa: PLW2901 - one after the other
        changed[path] = text
    return changed


class ChangedTree:
    """The tree ``loaded`` in the empty folder ``root``, with some files of other content, by their real paths."""

    def __init__(
        self, loaded: LoadedTree, environ: Mapping[str, str], root: Path, contents: Mapping[Path, bytes]
    ) -> None:
        self.root = root
        self._real = loaded.tree.root
        self._environ = environ
        _link(self._real, root, {path.relative_to(self._real): content for path, content in contents.items()})

    def loaded(self) -> LoadedTree:
        """The tree as it would be. Raises ConfigError as load_tree does."""
        return load_tree(Tree(root=self.root), self._environ)

    @contextlib.contextmanager
    def real_names(self, before: str) -> Iterator[None]:
        """Raise the block's ConfigError with the real tree's paths in it, and with ``before`` in front."""
        try:
            yield
        except ConfigError as err:
            message = before + str(err).replace(str(self.root), str(self._real))
            hint = err.hint.replace(str(self.root), str(self._real)) if err.hint else None
            raise ConfigError(message, hint=hint) from None


def every_variant(loaded: LoadedTree, name: str) -> list[RenderedPackage]:
    """Every variant of a recipe, over all stacks, kinds of foundation and platforms."""
    stacks = [stack for stack in loaded.stacks.values() if name in stack.packages]
    only = [replace(stack, packages=(name,)) for stack in stacks]
    return [
        package
        for kind in get_args(FoundationKind)
        for platform in PLATFORMS
        for package in expand_stacks(loaded, only, foundation_kind=kind, platform=platform)
    ]


def _link(root: Path, target: Path, contents: Mapping[Path, bytes]) -> None:
    """The tree ``root`` as links in ``target``, with some files (by relative path) of other content.

    A recipe's folder with such a file is copied, since files below links are not listed.
    """
    for path, content in contents.items():
        for parent in reversed(path.parents):
            folder = target / parent
            if folder.is_symlink():
                folder.unlink()
            if not folder.exists() or parent == Path():
                is_recipe = parent.parts[:1] == ("recipes",) and len(parent.parts) > 1
                if is_recipe and (root / parent).is_dir():
                    shutil.copytree(root / parent, folder, symlinks=True)
                    continue
                folder.mkdir(exist_ok=True)
                for item in sorted((root / parent).iterdir()) if (root / parent).is_dir() else []:
                    if not (folder / item.name).is_symlink() and not (folder / item.name).exists():
                        (folder / item.name).symlink_to(item)
        (target / path).unlink(missing_ok=True)
        (target / path).write_bytes(content)
