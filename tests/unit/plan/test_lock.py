# SPDX-License-Identifier: BSD-3-Clause
"""Plans with a foundation lock change when the tree changes or the lock is moved, and never by the day."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from typing import TYPE_CHECKING

import pytest

from channel_tools.plan.further_channels import find_locked, write_view
from channel_tools.plan.lock import FoundationLock, encode_lock, lock_path, read_lock
from channel_tools.requests.foundation import LockRequest
from channel_tools.requests.plan import PlanRequest
from channel_tools.system.errors import ChannelToolsError, ConfigError, FoundationError, UsageError
from channel_tools.system.settings import Settings, make_settings
from channel_tools.workflow.foundation_lock import change_lock
from channel_tools.workflow.plan import expand_request, open_index, plan_request
from tests.unit.matrix.toytree import FILES, PLATFORM, write_tree

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.plan import Plan

Record = tuple[str, str, tuple[str, ...], dict[str, object]]
_COMPILER = {"strong": ["libgcc >=15"]}
_WIRE = {"weak": ["libwire >=1.82.0,<1.83.0a0"]}
RECORDS: tuple[Record, ...] = (
    ("gcc_linux-64", "15.1.0", ("binutils", "sysroot_linux-64", "meson-lib"), {"run_exports": _COMPILER}),
    ("binutils", "2.45", (), {}),
    ("sysroot_linux-64", "2.17", ("tzdata",), {"subdir": "noarch", "noarch": "generic"}),
    ("meson-lib", "1.0", (), {"subdir": "noarch", "noarch": "python"}),
    ("libgcc", "15.1.0", (), {}),
    ("libwire", "1.82.0", ("zlib", "ca-certificates"), {"run_exports": _WIRE}),
    ("wire-headers", "1.0", (), {"subdir": "noarch", "noarch": "generic"}),
    ("zlib", "1.3.1", (), {}),
    ("python", "3.11.2", ("tzdata",), {}),
    ("torch", "2.13.0", ("python 3.11.*", "certifi", "wire-headers"), {}),
    ("tzdata", "2026a", (), {"subdir": "noarch", "noarch": "generic"}),
    ("ca-certificates", "2026.1.1", (), {"subdir": "noarch", "noarch": "generic"}),
    ("certifi", "2026.1.1", (), {"subdir": "noarch", "noarch": "python"}),
)


def _write(folder: Path, records: tuple[Record, ...]) -> Path:
    entries: dict[str, dict[str, object]] = {PLATFORM: {}, "noarch": {}}
    for name, version, depends, more in records:
        file_name = f"{name}-{version}-h1_0.conda"
        record = {"name": name, "version": version, "build": "h1_0", "build_number": 0, "depends": list(depends)}
        record |= {"subdir": PLATFORM, "size": 1, "sha256": hashlib.sha256(file_name.encode()).hexdigest()} | more
        entries[str(record["subdir"])][file_name] = record
    for subdir, found in entries.items():
        (folder / subdir).mkdir(parents=True, exist_ok=True)
        index = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": found, "repodata_version": 1}
        (folder / subdir / "repodata.json").write_text(json.dumps(index))
    return folder


def _newer(name: str, version: str) -> tuple[Record, ...]:
    """The records with a newer one of a name beside the old one."""
    old = next(record for record in RECORDS if record[0] == name)
    return (*RECORDS, (name, version, *old[2:]))


class Tree:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.foundation = folder / "conda-forge"
        self.write()
        self.settings: Settings = make_settings(root=folder / "tree", output=folder / "output", environ={}, cwd=folder)
        self.offer(RECORDS)

    def write(self, changes: Mapping[str, str | None] | None = None) -> None:
        write_tree(
            self.folder / "tree", {"variants/pins.yaml": 'c_compiler: [gcc]\npython: ["3.11.*"]\n', **(changes or {})}
        )

    def offer(self, records: tuple[Record, ...]) -> None:
        """What the foundation has from now on."""
        _write(self.foundation, records)

    def plan(self, address: str | None = None) -> Plan:
        request = PlanRequest(stack="udp", foundation="conda-forge", address=address or str(self.foundation))
        return plan_request(self.settings, request)

    def names(self) -> list[str]:
        return [package.file_name for package in self.plan().packages]

    def lock(self, *names: str, update: bool = False, dry_run: bool = False) -> list[str]:
        """Change the lock, and return the names that moved."""
        request = LockRequest(
            update=update, names=names, foundation="conda-forge", address=str(self.foundation), dry_run=dry_run
        )
        return [one.name for one in change_lock(self.settings, request).moved]

    def read(self) -> FoundationLock:
        return read_lock(self.settings.tree.root, "conda-forge", PLATFORM)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tree, list[str]]:
    """A tree with a lock, for tests that change what the foundation has; with the names that it plans."""
    tree = Tree(tmp_path_factory.mktemp("planned"))
    unlocked = tree.names()
    tree.lock()
    names = tree.names()
    assert names == unlocked
    return tree, names


@pytest.fixture
def locked(planned: tuple[Tree, list[str]], tmp_path: Path) -> Tree:
    """A copy of it."""
    shutil.copytree(planned[0].folder, tmp_path, dirs_exist_ok=True)
    return Tree(tmp_path)


_EACH_RECORD = pytest.mark.parametrize(
    "record", [record[:2] for record in RECORDS], ids=[record[0] for record in RECORDS]
)


@_EACH_RECORD
def test_with_a_lock_nothing_newer_in_the_foundation_changes_a_plan(
    planned: tuple[Tree, list[str]], record: tuple[str, str]
) -> None:
    tree, names = planned
    tree.offer(_newer(record[0], record[1] + ".9"))
    plan = tree.plan()
    assert [package.file_name for package in plan.packages] == names
    assert plan.locks == ()


def test_a_locked_plan_needs_no_foundation(tree: Tree) -> None:
    tree.lock()
    with pytest.raises(ChannelToolsError):
        Tree(tree.folder / "other").plan("http://127.0.0.1:9/none")
    assert [package.file_name for package in tree.plan("http://127.0.0.1:9/none").packages] == tree.names()


_LEFT_OUT = frozenset({"tzdata", "ca-certificates", "certifi", "meson-lib"})
"""Data, and a Python library of a tool of the build environment."""


@_EACH_RECORD
def test_an_update_renames_what_it_can_influence_and_nothing_else(
    locked: Tree, planned: tuple[Tree, list[str]], record: tuple[str, str]
) -> None:
    name, version = record
    tree, before = locked, planned[1]
    tree.offer(_newer(name, version + ".9"))
    assert tree.lock(update=True, dry_run=True) == [name]
    assert tree.names() == before
    assert tree.lock(update=True) == [name]
    assert (tree.names() == before) == (name in _LEFT_OUT)


def test_an_update_by_name_leaves_the_others(tree: Tree) -> None:
    tree.lock()
    tree.offer((*_newer("zlib", "1.3.9"), *_newer("torch", "2.13.9")))
    request = LockRequest(update=True, names=("zlib",), foundation="conda-forge", address=str(tree.foundation))
    change = change_lock(tree.settings, request)
    assert [(one.name, one.before, one.after) for one in change.moved] == [("zlib", ("1.3.1 h1_0",), ("1.3.9 h1_0",))]
    reasons = {package.name: package.reasons for package in change.rebuilt}
    assert reasons["libtoy"] == ("changed: foundation host/zlib 1.3.1-h1_0 -> 1.3.9-h1_0",)
    assert "toy-switch" not in reasons
    with pytest.raises(UsageError, match="has no package 'zlb'") as caught:
        tree.lock("zlb", update=True)
    assert caught.value.hint is not None
    assert "zlib" in caught.value.hint


def test_a_new_recipe_takes_what_is_locked_and_adds_what_is_missing(tree: Tree) -> None:
    tree.lock()
    before = dict.fromkeys(tree.names())
    tree.offer((*_newer("zlib", "1.3.9"), ("extra", "1.0", ("zlib",), {}), ("extra", "2.0", ("zlib >=1.3.9",), {})))
    recipe = FILES["recipes/toy-switch/recipe.yaml"].replace("tests:", "  host: [extra, zlib]\ntests:")
    tree.write({"recipes/toy-switch/recipe.yaml": recipe})
    plan = tree.plan()
    assert len(plan.locks) > 0
    inputs = {package.name: package.inputs for package in plan.packages}
    assert inputs["toy-switch"]["foundation:host/zlib"].startswith("1.3.1 ")
    assert inputs["toy-switch"]["foundation:host/extra"].startswith("1.0 ")
    assert {name for name in before if "toy-switch" not in name} <= {package.file_name for package in plan.packages}
    assert tree.lock() == ["extra"]
    assert tree.plan().locks == ()


def test_what_no_recipe_needs_any_more_is_left_out(tree: Tree) -> None:
    tree.lock()
    recipe = FILES["recipes/toy-plugin/recipe.yaml"]
    changed = recipe.replace("[python, torch, libtoy]", "[python, libtoy]").replace(
        "    - ${{ pin_compatible('torch', upper_bound='x.x') }}\n", ""
    )
    tree.write({"recipes/toy-plugin/recipe.yaml": changed})
    assert {"torch", "certifi", "wire-headers"} <= set(tree.lock())


def test_locking_again_and_updating_to_the_same_change_nothing(tree: Tree) -> None:
    tree.lock()
    path = lock_path(tree.settings.tree.root, "conda-forge", PLATFORM)
    content = path.read_bytes()
    assert tree.lock() == tree.lock(update=True) == []
    assert path.read_bytes() == content == encode_lock("conda-forge", PLATFORM, tree.read())


def test_a_variant_that_could_not_be_served_stays_so_until_an_update(tree: Tree) -> None:
    without = tuple(record for record in RECORDS if record[0] != "libwire")
    tree.offer(without)
    tree.lock()
    reasons = [item.reason for item in tree.plan().unsatisfiable]
    assert "libwire" in reasons[0]
    tree.offer(RECORDS)
    assert [item.reason for item in tree.plan().unsatisfiable] == reasons
    tree.lock(update=True)
    assert tree.plan().unsatisfiable == ()


def test_the_registry_foundation_has_none(tree: Tree) -> None:
    with pytest.raises(UsageError, match="the registry foundation has no lock") as caught:
        change_lock(tree.settings, LockRequest(update=False, foundation="registry"))
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"schema": 1', '"schema": 9', "has schema 9; this version reads 1"),
        ('"foundation": "conda-forge"', '"foundation": "other"', "is for other on linux-64"),
        ('"environments"', '"surroundings"', "not a foundation lock"),
        ('"name":"zlib",', '"name":"zlib","depends":7,', "not a foundation lock|zlib-1.3.1-h1_0.conda cannot be read"),
        ('"version":"1.3.1"', '"version":"!!"', "zlib-1.3.1-h1_0.conda cannot be read"),
        ('"linux-64/zlib-1.3.1-h1_0.conda": ', '"linux-64/other-1.3.1-h1_0.conda": ', "of which there is no record"),
        ("{", "<<<<<<< ours\n{", "not a foundation lock"),
    ],
)
def test_a_lock_that_cannot_be_used_is_named(tree: Tree, old: str, new: str, message: str) -> None:
    tree.lock()
    path = lock_path(tree.settings.tree.root, "conda-forge", PLATFORM)
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ConfigError, match=message) as caught:
        tree.plan()
    assert str(path) in str(caught.value)
    assert caught.value.hint is not None


def test_a_build_sees_the_locked_packages_alone_at_the_foundations_address(tree: Tree) -> None:
    plan = tree.plan()
    assert plan.lock is not None
    package = next(item for item in plan.packages if item.name == "libtoy")
    index = open_index(tree.settings, expand_request(tree.settings, _request(tree)).foundation)
    places = asyncio.run(find_locked(index, plan.lock, package.foundation, PLATFORM))
    address = tree.foundation.as_uri()
    view = write_view(
        tree.folder / "view", plan.lock, package.foundation, places=places, address=address, platform=PLATFORM
    )
    content = json.loads((view / PLATFORM / "repodata.json").read_bytes())
    assert content["info"]["base_url"] == f"{address}/{PLATFORM}/"
    assert {f"{PLATFORM}/{name}" for name in content["packages.conda"]} == {
        key for key in package.foundation if key.startswith(PLATFORM)
    }


def test_locked_packages_that_are_gone_are_one_error(tree: Tree) -> None:
    tree.lock()
    other = tuple((*one[:3], one[3] | {"sha256": "0" * 64}) if one[0] == "zlib" else one for one in RECORDS)
    tree.offer(tuple(record for record in other if record[0] != "libwire"))
    plan = tree.plan()
    assert plan.lock is not None
    keys = {key for package in plan.packages for key in package.foundation}
    index = open_index(tree.settings, expand_request(tree.settings, _request(tree)).foundation)
    with pytest.raises(
        FoundationError, match=r"(?s)libwire-1.82.0-h1_0.conda is no longer there\n.*zlib.*other bytes"
    ) as caught:
        asyncio.run(find_locked(index, plan.lock, keys, PLATFORM))
    assert caught.value.hint is not None
    assert "foundation update libwire zlib" in caught.value.hint


def _request(tree: Tree) -> PlanRequest:
    return PlanRequest(stack="udp", foundation="conda-forge", address=str(tree.foundation))
