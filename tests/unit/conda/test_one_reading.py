# SPDX-License-Identifier: BSD-3-Clause
"""No module takes a MatchSpec, a file name, an address or a virtual package's name apart: conda/ has the functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import channel_tools

PACKAGE = Path(channel_tools.__file__).parent
SPECS, FILES, ADDRESSES = "conda/specs.py", "conda/package.py", "conda/addresses.py"
ALLOWED = {  # how many places, and of which format
    "audit/rules/files.py": (1, "a shebang line"),
    "conda/specs.py": (1, "the functions for MatchSpecs and names"),
    "doctor/model.py": (1, "VERSION BUILD, as installed_builds writes them"),
    "foundation/plan.py": (1, "Debian's version"),
    "ranks/launchers.py": (1, "VERSION BUILD, as installed_builds writes them"),
    "ranks/supervisor.py": (1, "the state of a process, as the kernel writes it"),
    "validate/switchml/method.py": (1, "VERSION BUILD, as installed_builds writes them"),
    "matrix/engine.py": (1, "the names of markers that the engine is given"),
    "mirror/data/bootstrap.py": (1, "Python's own version, in a script without any dependency"),
    "page/content.py": (1, "a variant's value"),
    "plan/further_channels.py": (1, "the foundation lock's own list"),
    "provenance/components.py": (1, "the plan's own record of a file"),
    "sources/git.py": (1, "git's output"),
    "environments/history.py": (1, "words of a command: --channel=ADDRESS"),
    "environments/transaction.py": (1, "VERSION BUILD, as installed_builds writes them"),
    "build/recorded.py": (1, "the plan's own record of a file"),
}

ALLOWED_ADDRESSES = {
    "sources/releases.py": (2, "the links of a folder's page, which are relative to it"),
    "audit/package.py": (1, "any text in metadata that names a folder of the build machine"),
    "page/content.py": (1, "a link to any site"),
    "provenance/components.py": (2, "the plan's name of a file"),
    "publish/bucket.py": (1, "a bucket's prefix"),
    "publish/third_party.py": (1, "counts the names in the form of an address"),
    "serve/addresses.py": (1, "the path of a request"),
    "sources/git.py": (3, "a git submodule's address, relative to git's, which has forms of its own"),
    "system/http/client.py": (2, "any site's address, a redirect, a proxy; knows nothing of conda"),
    "build/recorded.py": (2, "the plan's name of a file"),
}
TAKE_APART = {"urlsplit", "urlparse", "urlunsplit", "urlunparse", "urljoin", "unquote"}
SCHEMES = ("file:", "http:", "https:", "s3:", "oci:", "gcs:", "://")


def is_first_word(node: ast.AST) -> bool:
    """``X.split()[0]``, ``X.split(" ", 1)[0]``, ``X.partition(" ")``, also with ``=`` or ``::``."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == 0:
        return isinstance(node.value, ast.Call) and is_call(node.value, {"split", "rsplit"}, {"", " ", "=", "::"})
    return is_call(node, {"partition", "rpartition"}, {" ", "::"})


def is_call(node: ast.AST, names: set[str], separators: set[str]) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names):
        return False
    first = node.args[0] if node.args else ast.Constant("")
    return isinstance(first, ast.Constant) and first.value in separators


def is_hand_made(node: ast.AST) -> bool:
    if is_first_word(node) or is_call(node, {"rsplit", "rpartition"}, {"-"}):
        return True
    if is_call(node, {"startswith", "removeprefix"}, {"__"}):
        return True
    called = node.func if isinstance(node, ast.Call) else None
    return (isinstance(called, ast.Attribute) and called.attr == "MatchSpec") or (
        isinstance(called, ast.Name) and called.id == "MatchSpec"
    )


def is_address_by_hand(node: ast.AST) -> bool:
    """An import or use of what takes an address apart, or a text that is searched for or cut at a scheme."""
    if isinstance(node, ast.ImportFrom) and node.module == "urllib.parse":
        return bool(TAKE_APART & {alias.name for alias in node.names})
    if isinstance(node, ast.Attribute) and node.attr in TAKE_APART:
        return True
    if isinstance(node, ast.Compare) and any(isinstance(one, ast.In | ast.NotIn) for one in node.ops):
        return has_scheme(node.left)
    methods = {"partition", "rpartition", "split", "rsplit", "startswith", "removeprefix", "find", "index"}
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods
    return is_method and isinstance(node, ast.Call) and any(map(has_scheme, node.args))


def has_scheme(node: ast.AST) -> bool:
    """Whether it is a text that ends as a scheme does, or a tuple of such texts."""
    if isinstance(node, ast.Tuple):
        return any(map(has_scheme, node.elts))
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(SCHEMES)


def addresses_by_hand(module: ast.Module) -> list[int]:
    return [int(getattr(node, "lineno", 0)) for node in ast.walk(module) if is_address_by_hand(node)]


def hand_made(module: ast.Module) -> Iterator[int]:
    return (node.lineno for node in ast.walk(module) if is_hand_made(node) and isinstance(node, ast.expr))


@pytest.fixture(scope="module")
def modules() -> Mapping[str, ast.Module]:
    """Those of the program, by their paths; to parse them takes seconds."""
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in PACKAGE.rglob("*.py")
    }


@pytest.mark.parametrize(
    "source",
    [
        "spec.split()[0]",
        "names = {text.split(' ')[0] for text in depends}",
        "text.split(' ', 1)[0]",
        "spec.partition(' ')[0]",
        "spec.rpartition('::')",
        "stem.rsplit('-', 2)",
        "text.startswith('__')",
        "rattler.MatchSpec(text)",
    ],
)
def test_what_is_taken_apart_by_hand_is_found(source: str) -> None:
    assert list(hand_made(ast.parse(source))) == [1]


@pytest.mark.parametrize(
    "source",
    [
        "from urllib.parse import quote, urlsplit",
        "urllib.parse.unquote(text)",
        "'://' in channel",
        "address.partition('://')[0]",
        "address.startswith('file:')",
        "address.startswith(('http://', 'https://'))",
        "address.removeprefix('s3://')",
    ],
)
def test_an_address_that_is_taken_apart_by_hand_is_found(source: str) -> None:
    assert addresses_by_hand(ast.parse(source)) == [1]


def test_nothing_else_takes_an_address_apart(modules: Mapping[str, ast.Module]) -> None:
    found = {name: sorted(addresses_by_hand(module)) for name, module in modules.items()}
    del found[ADDRESSES]
    other = {name: lines for name, lines in found.items() if len(lines) != ALLOWED_ADDRESSES.get(name, (0, ""))[0]}
    assert other == {}, f"use the functions of {ADDRESSES}; ALLOWED_ADDRESSES is for others, and counts the places"


def test_nothing_else_takes_a_matchspec_or_file_name_apart(modules: Mapping[str, ast.Module]) -> None:
    found = {name: sorted(hand_made(module)) for name, module in modules.items()}
    other = {name: lines for name, lines in found.items() if len(lines) != ALLOWED.get(name, (0, ""))[0]}
    assert other == {}, f"use the functions of {SPECS} and {FILES}; ALLOWED is for other formats, and counts the places"
