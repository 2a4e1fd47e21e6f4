# SPDX-License-Identifier: BSD-3-Clause
"""Below a folder that others can write to, files are named only to the one opener, system/beneath.py.

These are the modules that read and write channels, bundles, what a mirror's site has, and the package cache. A call
that opens, lists or changes by path is a fault in them, unless it is counted in ALLOWED with what it is about.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import channel_tools

PACKAGE = Path(channel_tools.__file__).parent
GUARDED = (
    "audit/dependencies.py",
    "audit/foundation.py",
    "audit/run.py",
    "build/usage.py",
    "channel",
    "conda/archive.py",
    "conda/fetch.py",
    "conda/index.py",
    "conda/package.py",
    "environments/package_cache.py",
    "mirror/exporting/create.py",
    "mirror/exporting/plan.py",
    "mirror/files.py",
    "mirror/importing",
    "mirror/records.py",
    "page/details.py",
    "page/write.py",
    "provenance/verify.py",
    "publish/folder.py",
    "serve/files.py",
    "serve/sending.py",
    "serve/uploads",
    "system/http/download.py",
    "validate/history.py",
    "validate/ranks.py",
    "workflow/adopt.py",
    "workflow/attest.py",
)
METHODS = frozenset(
    [
        "chmod",
        "glob",
        "hardlink_to",
        "iterdir",
        "mkdir",
        "open",
        "read_bytes",
        "read_text",
        "rename",
        "rglob",
        "rmdir",
        "symlink_to",
        "touch",
        "unlink",
        "write_bytes",
        "write_text",
    ]
)
MODULES = frozenset({"os", "shutil"})
FUNCTIONS = frozenset(
    [
        "access",
        "chmod",
        "copy",
        "copyfile",
        "copytree",
        "link",
        "listdir",
        "makedirs",
        "mkdir",
        "move",
        "open",
        "remove",
        "removedirs",
        "rename",
        "replace",
        "rmdir",
        "rmtree",
        "scandir",
        "symlink",
        "truncate",
        "unlink",
        "utime",
        "walk",
    ]
)
HELPERS = frozenset(
    [
        "atomic_path",
        "link_or_copy",
        "open",
        "open_regular",
        "read_regular",
        "replace_files",
        "remove_leftovers",
        "remove_tree",
        "sha256_of_file",
        "walk_entries",
        "write_bytes_atomically",
        "write_text_atomically",
    ]
)
ALLOWED = {  # how many calls, and about what
    "audit/dependencies.py": (3, "packages that a build's environments were solved from, in the user's cache"),
    "audit/foundation.py": (1, "the names of the foundation's packages"),
    "channel/listing.py": (1, "a file of hotfixes that the user names"),
    "channel/publish.py": (1, "packages from elsewhere that are published"),
    "channel/store.py": (5, "a channel that is made in a new folder of its own"),
    "channel/verify.py": (1, "whether the lock may be taken"),
    "conda/archive.py": (1, "a member of a zip archive"),
    "environments/package_cache.py": (10, "folders whose owner and permissions are checked"),
    "mirror/exporting/create.py": (8, "the bundle's own folder or file, and files of this machine that go into it"),
    "conda/fetch.py": (1, "the folder itself"),
    "mirror/exporting/plan.py": (1, "BundleReader.open"),
    "mirror/files.py": (2, "a bundle that is one file"),
    "mirror/importing/channels.py": (1, "the folder itself"),
    "mirror/importing/importer.py": (2, "folders that the import makes"),
    "mirror/importing/site.py": (3, "the folder itself, and BundleReader.open"),
    "page/write.py": (1, "a log in the output folder"),
    "serve/files.py": (1, "a file that is compared with the one that was opened beneath the channel"),
    "serve/uploads/api.py": (1, "JobStore.open"),
    "validate/ranks.py": (3, "the plan, the log and a folder, in a folder made for the job"),
}


def by_path(source: str) -> Iterator[tuple[int, str]]:
    """Where calls open, list or change files by path: the line, and what is called."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name(id=name) if name in HELPERS:
                yield node.lineno, name
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in MODULES:
                below = {"dir_fd", "src_dir_fd"} & {keyword.arg for keyword in node.keywords}
                if name in FUNCTIONS and not below:
                    yield node.lineno, f"{module}.{name}"
            case ast.Attribute(attr=name) if name in METHODS:
                yield node.lineno, f".{name}"


@pytest.mark.parametrize(
    "source",
    [
        "path.read_bytes()",
        "(folder / name).open('rb')",
        "open(path)",
        "sorted(path.rglob('*'))",
        "os.open(path, os.O_RDONLY)",
        "shutil.rmtree(path, ignore_errors=True)",
        "write_bytes_atomically(path, content)",
        "sha256_of_file(path)",
    ],
)
def test_what_goes_by_path_is_found(source: str) -> None:
    assert [line for line, _name in by_path(source)] == [1]


@pytest.mark.parametrize(
    "source", ["files.read(name, limit_bytes=1)", "os.unlink(name, dir_fd=folder)", "files.opened(name)"]
)
def test_what_goes_through_the_opener_is_not(source: str) -> None:
    assert list(by_path(source)) == []


def modules() -> Iterator[Path]:
    for name in GUARDED:
        place = PACKAGE / name
        assert place.exists(), f"{name} has moved: GUARDED names it"
        yield from sorted(place.rglob("*.py")) if place.is_dir() else [place]


def test_nothing_else_opens_what_others_can_write_to() -> None:
    found = {}
    for path in modules():
        calls = sorted(by_path(path.read_text(encoding="utf-8")))
        name = path.relative_to(PACKAGE).as_posix()
        if len(calls) != ALLOWED.get(name, (0, ""))[0]:
            found[name] = calls
    assert found == {}, "use system/beneath.py; ALLOWED is for other places, and counts the calls"
