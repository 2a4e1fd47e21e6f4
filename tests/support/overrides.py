# SPDX-License-Identifier: BSD-3-Clause
"""Finds what the sources take from other packages beyond their public names: by reading the sources, not by running.

A name counts as another package's if it is imported from there, or if nothing in our sources defines it.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

DOCUMENTED = frozenset({"_exit", "_replace"})
"""Of ``os`` and of named tuples."""
ASSIGNABLE = frozenset(
    {
        *("os.environ", "sys.argv", "sys.excepthook", "sys.path", "sys.stderr", "sys.stdin", "sys.stdout"),
        "tempfile.tempdir",
    }
)
"""What Python's documentation says may be assigned to."""
_OWN = frozenset({"benchmarks", "channel_tools", "tests"})
_ROOT = Path(__file__).parents[2]
_CHANGES = frozenset({"clear", "pop", "setdefault", "update"})
_SETTERS = frozenset({"setattr", "delattr", "setitem", "delitem"})


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Override:
    """A name of another package, and the file that takes or replaces it."""

    name: str
    file: str


@dataclass(kw_only=True, slots=True)
class _Module:
    """A source file: what it takes, by reading its statements."""

    own: frozenset[str]
    """The packages that are ours."""
    defined: frozenset[str]
    """Names with an underscore that our sources define."""
    imported: dict[str, str] = field(default_factory=dict)
    """What each name in the file was imported as: ``c10d`` is ``torch._C._distributed_c10d``."""

    def names(self, nodes: Sequence[ast.AST]) -> Iterator[str]:
        for node in nodes:
            yield from self._imports(node)
        for node in nodes:
            if isinstance(node, ast.Attribute):
                yield from self._private_attribute(node)
            elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
                targets = [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else node.targets
                for target in targets:
                    yield from self._replaced(target)
            elif isinstance(node, ast.Call):
                yield from self._patched(node)
            elif isinstance(node, ast.ClassDef):
                yield from self._overridden(node)

    def _is_foreign(self, name: str) -> bool:
        return name.partition(".")[0] not in self.own

    def _imports(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            pairs = [(one.asname or one.name.partition(".")[0], one.name, one.asname) for one in node.names]
            for name, module, renamed in pairs:
                self.imported[name] = module if renamed else name
                yield from self._private(module)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for one in node.names:
                self.imported[one.asname or one.name] = f"{node.module}.{one.name}"
                yield from self._private(f"{node.module}.{one.name}")

    def _private(self, name: str) -> Iterator[str]:
        if self._is_foreign(name) and any(map(_is_private, name.split("."))):
            yield name

    def _private_attribute(self, node: ast.Attribute) -> Iterator[str]:
        if not _is_private(node.attr) or node.attr in DOCUMENTED:
            return
        whole = self._resolved(node)
        if whole is not None and self._is_foreign(whole):
            yield whole
        elif node.attr not in self.defined:
            yield node.attr

    def _replaced(self, target: ast.expr) -> Iterator[str]:
        if isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                yield from self._replaced(one)
        elif isinstance(target, ast.Attribute | ast.Subscript):
            yield from self._foreign_target(self._resolved(target))

    def _patched(self, node: ast.Call) -> Iterator[str]:
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if (
            function in _CHANGES
            and isinstance(node.func, ast.Attribute)
            and (changed := self._resolved(node.func.value))
        ):
            yield from self._foreign_target(f"{changed}[{_text_of(node.args[0]) if node.args else '...'}]")
        if function not in _SETTERS or not node.args:
            return
        first, *others = node.args
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield from self._foreign_target(_of_text(first.value, self.own))
            return
        holder = self._resolved(first)
        if holder is None:
            return
        name = _text_of(others[0]) if others else "..."
        yield from self._foreign_target(f"{holder}[{name}]" if function.endswith("item") else f"{holder}.{name}")

    def _overridden(self, node: ast.ClassDef) -> Iterator[str]:
        """Methods that a class of another package has and does not show."""
        methods = [one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
        bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
        for base in map(self._resolved, bases):
            if base is not None and self._is_foreign(base):
                yield from (f"{base}.{name}" for name in methods if _is_private(name) and _has(base, name))

    def _foreign_target(self, name: str | None) -> Iterator[str]:
        if name is None or not self._is_foreign(name) or "." not in name:
            return
        if not any(name == one or name.startswith((f"{one}.", f"{one}[")) for one in ASSIGNABLE):
            yield name

    def _resolved(self, node: ast.expr) -> str | None:
        """The full name of what an expression of names, attributes and items denotes, if it begins with an import."""
        if isinstance(node, ast.Name):
            return self.imported.get(node.id)
        if isinstance(node, ast.Attribute):
            holder = self._resolved(node.value)
            return None if holder is None else f"{holder}.{node.attr}"
        if isinstance(node, ast.Subscript):
            holder = self._resolved(node.value)
            return None if holder is None else f"{holder}[{_text_of(node.slice)}]"
        return None


def _has(kind: str, name: str) -> bool:
    """Whether a class, given by its full name, has an attribute; one that is not installed here counts as having it."""
    module, _, attribute = kind.rpartition(".")
    try:
        return hasattr(getattr(importlib.import_module(module), attribute), name)
    except ImportError:
        return True


def _text_of(node: ast.expr) -> str:
    """A text that is written out, else dots."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "..."


def _is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def _of_text(name: str, own: frozenset[str]) -> str:
    """What a dotted name denotes: of ``channel_tools.serve.metrics.os.write``, the function of Python's ``os``."""
    parts = name.split(".")
    modules = [Path(_ROOT, *parts[: count + 1]) for count in range(len(parts))]
    inside = [path.is_dir() or path.with_suffix(".py").is_file() for path in modules]
    rest = parts[inside.index(False) :] if parts[0] in own and False in inside else parts
    return ".".join(rest) if rest[0] in sys.stdlib_module_names and len(rest) > 1 else name


def find_overrides(sources: Mapping[Path, str]) -> set[Override]:
    """All overrides in files of this repository, given with their text; a recipe's own package is its own."""
    trees = {file: list(ast.walk(ast.parse(text))) for file, text in sources.items()}
    defined = frozenset(name for nodes in trees.values() for name in _definitions(nodes))
    return {
        Override(name=name, file=file.relative_to(_ROOT).as_posix())
        for file, nodes in trees.items()
        for name in _Module(own=_OWN | _beside(file), defined=defined).names(nodes)
    }


def _beside(file: Path) -> frozenset[str]:
    """The package that a file is in, and the modules beside it, which scripts import by their names alone."""
    return frozenset({file.parent.name, *(path.stem for path in file.parent.glob("*.py"))})


def _definitions(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in {"self", "cls", "made"}:
                yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_private(node.value):
            yield node.value  # of __slots__
