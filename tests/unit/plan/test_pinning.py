# SPDX-License-Identifier: BSD-3-Clause
"""conda-forge's pinning by a version: fetched once, read from the tree alone, and moved on purpose."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from channel_tools.channel.store import create_channel
from channel_tools.conda.metadata import PLATFORMS
from channel_tools.matrix import load_tree
from channel_tools.matrix.pinning_lock import PACKAGE_MIGRATIONS, pinned_folder
from channel_tools.requests.foundation import LockRequest
from channel_tools.requests.plan import PlanRequest
from channel_tools.system.errors import (
    ChannelError,
    ChannelToolsError,
    ConfigError,
    FoundationError,
    IntegrityError,
    UsageError,
)
from channel_tools.system.http.client import basic_authorization
from channel_tools.system.settings import Tree, make_settings
from channel_tools.workflow.foundation_lock import LockChange, change_lock
from channel_tools.workflow.plan import plan_request
from tests.support.command_line import run_tool
from tests.support.conda_forge import conda_forge_folder
from tests.support.packages import REGISTRY, link, make_conda, old_format
from tests.support.pinning_packages import fetch_pinning, list_package, make_pinning, unlist_version
from tests.unit.environments.toychannel import served
from tests.unit.matrix.toytree import FILES, FOUNDATION, write_foundation, write_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from channel_tools.matrix.pinning_lock import PinnedPackage
    from channel_tools.plan import Plan

_OLD, _NEW, _FAR = "2026.05.01.00.00.00", "2026.08.12.18.05.35", "2026.09.01.00.00.00"
_STACKS = FILES["variants/stacks.yaml"]
_RECORDS = (
    *FOUNDATION,
    ("libwire", "1.82.0", "h1_0", ()),
    ("python", "3.12.1", "h1_0", ()),
    ("torch", "2.12.0", "cpu_0", ("python 3.11.*",)),
)
_PINS = {"variants/pins.yaml": 'c_compiler: [gcc]\npython: ["3.11.*"]\n'}
_MIGRATION = "migrator_ts: 1\n__migrator: {kind: version}\ntorch: ['2.13']\n"


class Site:
    """A tree that names a version of the pinning, and a channel that has some."""

    def __init__(self, folder: Path) -> None:
        self.channel = write_foundation(folder / "conda-forge", _RECORDS)
        self.settings = make_settings(
            root=write_tree(folder / "tree", _PINS).root, output=folder / "output", environ={}, cwd=folder
        )
        self.stacks = self.settings.tree.stacks_file
        self.name(f"pinning: {_OLD}  # of May\n")
        make_pinning(self.channel, _OLD, "torch: [2.12]\n", migrations={"torch213": _MIGRATION})
        make_pinning(self.channel, _NEW, "torch: [2.13]\n")

    def name(self, head: str) -> None:
        self.stacks.write_text(head + _STACKS, encoding="utf-8")

    @property
    def folder(self) -> Path:
        return pinned_folder(self.settings.tree.root, _OLD)

    def fetch(self, address: str | None = None, *, asked: str | None = None) -> PinnedPackage:
        """Change the pinning alone, without a plan."""
        return fetch_pinning(self.settings, address or self.channel.as_uri(), asked=asked).after

    def lock(self, *names: str, update: bool = False, dry_run: bool = False) -> LockChange:
        address = str(self.channel)
        return change_lock(self.settings, LockRequest(update=update, names=names, address=address, dry_run=dry_run))

    def plan(self, address: str) -> Plan:
        return plan_request(self.settings, PlanRequest(stack="udp", foundation="conda-forge", address=address))

    def content(self) -> dict[str, bytes]:
        root = self.settings.tree.root
        return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_the_same_is_fetched_from_a_folder_and_an_address_and_read_without_either(site: Site) -> None:
    site.fetch()
    there = site.content()
    assert sorted(name for name in there if name.startswith("locks/")) == [
        f"locks/conda-forge-pinning/{_OLD}/conda_build_config.yaml",
        f"locks/conda-forge-pinning/{_OLD}/record.json",
        f"locks/conda-forge-pinning/{_OLD}/{PACKAGE_MIGRATIONS}/torch213.yaml",
    ]
    for authorization, prefix in ((None, ""), ("Bearer tk-1", "/t/tk-1"), (basic_authorization("u", "pw"), "u:pw@")):
        shutil.rmtree(site.folder)
        with served(site.channel, authorization=authorization) as host:
            place = host.replace("//", f"//{prefix}") if prefix.endswith("@") else host + prefix
            site.fetch(place)
        assert site.content() == there
    site.lock()
    away = "http://127.0.0.1:9/out-of-reach"
    named = {package.file_name: package.inputs for package in site.plan(away).packages}
    site.name("pinning: ./pinned  # of May\n")
    shutil.copytree(site.folder, site.settings.tree.root / "pinned")
    assert {package.file_name: package.inputs for package in site.plan(away).packages} == named


def test_a_version_that_is_not_in_the_tree_says_how_to_fetch_it(site: Site) -> None:
    with pytest.raises(ConfigError, match=f"stacks.yaml:1: pinning names conda-forge-pinning {_OLD}, but") as caught:
        load_tree(site.settings.tree)
    assert "channel_tools foundation lock" in str(caught.value.hint)


def _append(name: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        with (folder / name).open("a", encoding="utf-8") as stream:
            stream.write("libwire: ['9']\n")

    return change


def _record(old: str, new: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        path = folder / "record.json"
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    return change


@pytest.mark.parametrize(
    ("spoil", "file", "words"),
    [
        (_append("conda_build_config.yaml"), "conda_build_config.yaml", "has sha256 .*record.json has sha256 "),
        (_append(f"{PACKAGE_MIGRATIONS}/torch213.yaml"), "torch213.yaml", "has sha256 .*record.json has sha256 "),
        (_append(f"{PACKAGE_MIGRATIONS}/own.yaml"), "own.yaml", "record.json has no such file"),
        (lambda folder: (folder / "conda_build_config.yaml").unlink(), "conda_build_config.yaml", "does not exist"),
        (lambda folder: (folder / PACKAGE_MIGRATIONS / "torch213.yaml").unlink(), "torch213.yaml", "does not exist"),
        (lambda folder: (folder / "record.json").unlink(), "record.json", "does not exist; expected the"),
        (_record('"schema": 1', '"schema": 1, "more": 1'), "record.json", "cannot be read as the record"),
        (_record("noarch/conda", "conda"), "record.json", "cannot be read as the record"),
        (_record(_OLD, _NEW), "record.json", f"of noarch/conda-forge-pinning-{_NEW}-hd8ed1ab_0.conda; expected"),
        (lambda folder: (folder / "record.json").write_text("<<<<<<< ours\n"), "record.json", "cannot be read as"),
    ],
)
def test_a_pinning_other_than_recorded_is_named_and_fetched_again(
    site: Site, spoil: Callable[[Path], object], file: str, words: str
) -> None:
    site.fetch()
    there = site.content()
    spoil(site.folder)
    with pytest.raises(ConfigError, match=words) as caught:
        load_tree(site.settings.tree)
    assert caught.value.path is not None
    assert caught.value.path.name == file
    assert "channel_tools foundation lock" in str(caught.value.hint)
    site.fetch()
    assert site.content() == there


def test_a_record_of_a_later_schema_is_not_replaced(site: Site) -> None:
    site.fetch()
    _record('"schema": 1', '"schema": 2')(site.folder)
    there = site.content()
    for use in (lambda: load_tree(site.settings.tree), site.fetch):
        with pytest.raises(ConfigError, match="has schema 2; this version reads 1"):
            use()
    assert site.content() == there


def test_what_is_recorded_does_not_move(site: Site) -> None:
    site.fetch()
    make_pinning(site.channel, _OLD, "torch: [2.13]\n", build="hd8ed1ab_1")
    (site.folder / "conda_build_config.yaml").unlink()
    assert site.fetch().build == "hd8ed1ab_0"
    assert site.fetch(asked=f"conda-forge-pinning=={_OLD}").build == "hd8ed1ab_1"
    (site.folder / "conda_build_config.yaml").unlink()
    there = site.content()
    shutil.rmtree(site.channel / "noarch")
    with pytest.raises(FoundationError, match="no longer has noarch/conda-forge-pinning-") as caught:
        site.fetch()
    assert "restore locks/conda-forge-pinning from version control" in str(caught.value.hint)
    assert site.content() == there


def test_of_several_builds_of_a_version_the_latest_is_taken(site: Site) -> None:
    unlist_version(site.channel, _OLD)
    for build in ("hd8ed1ab_2", "hd8ed1ab_10", "hd8ed1ab_3"):
        path = make_pinning(site.channel, _OLD, f"torch: [{build}]\n", build=build)
        unlist_version(site.channel, _OLD)
        list_package(site.channel, old_format(path), version=_OLD, build=build)
    assert site.fetch().ref.file_name == f"conda-forge-pinning-{_OLD}-hd8ed1ab_3.tar.bz2"
    index = site.channel / "noarch"
    list_package(
        site.channel, index / f"conda-forge-pinning-{_OLD}-hd8ed1ab_10.tar.bz2", version=_OLD, build="hd8ed1ab_10"
    )
    shutil.rmtree(site.folder)
    found = site.fetch()
    assert found.files["conda_build_config.yaml"] == b"torch: [hd8ed1ab_10]\n"


def _with(name: str, content: object) -> Callable[[Site], object]:
    return lambda site: make_pinning(site.channel, _OLD, "torch: [2.12]\n", more={name: content})  # type: ignore[dict-item]


def _listed(**changes: object) -> Callable[[Site], object]:
    return lambda site: list_package(
        site.channel, next(site.channel.glob(f"noarch/*{_OLD}*")), version=_OLD, build="hd8ed1ab_0", **changes
    )


_LINK = link("conda_build_config.yaml", "other.yaml")


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        pytest.param(_with("../outside", b"x"), IntegrityError, "outside the folder", id="leaves the prefix"),
        pytest.param(_with(_LINK.name, _LINK), IntegrityError, "is a link", id="a link"),
        pytest.param(
            _with(f"{PACKAGE_MIGRATIONS}/big.yaml", b" " * (4 << 20) + b"1"), IntegrityError, "larger than any"
        ),
        pytest.param(_listed(size=None), FoundationError, "no sha256 of noarch/conda-forge-pin", id="no size"),
        pytest.param(_listed(sha256=None), FoundationError, "no sha256 of noarch/conda-forge-pin", id="no sha256"),
        pytest.param(_listed(size=1 << 30), FoundationError, "no size up to 67108864 bytes", id="far too large"),
        pytest.param(
            _listed(sha256="0" * 64), IntegrityError, "is not the file in the channel's index", id="other bytes"
        ),
        pytest.param(
            lambda site: next(site.channel.glob(f"noarch/*{_OLD}*")).unlink(), ChannelError, "does not exist", id="gone"
        ),
        pytest.param(
            lambda site: site.name("pinning: 2026.1.1\n"), FoundationError, "has no conda-forge-pinning 2026.1.1"
        ),
    ],
)
def test_a_package_that_cannot_be_taken_changes_nothing(
    site: Site, spoil: Callable[[Site], object], error: type[ChannelToolsError], words: str
) -> None:
    spoil(site)
    there = site.content()
    with pytest.raises(error, match=words) as caught:
        site.fetch()
    assert caught.value.hint
    assert site.content() == there


def test_a_package_of_another_name_or_without_a_pinning_is_refused(site: Site) -> None:
    path = site.channel / "noarch" / f"conda-forge-pinning-{_OLD}-hd8ed1ab_0.conda"
    other = site.channel / "noarch" / f"conda-forge-pinning-{_NEW}-hd8ed1ab_0.conda"
    path.write_bytes(other.read_bytes())
    list_package(site.channel, path, version=_OLD, build="hd8ed1ab_0")
    with pytest.raises(IntegrityError, match=f"^{path.as_uri()}: .*expected parts named after the file"):
        site.fetch()
    make_conda(
        site.channel, "conda-forge-pinning", version=_OLD, build="hd8ed1ab_0", subdir="noarch", files={"share/x": b"x"}
    )
    list_package(site.channel, path, version=_OLD, build="hd8ed1ab_0")
    with pytest.raises(IntegrityError, match=f"^{path.as_uri()}: has no conda_build_config.yaml"):
        site.fetch()


def test_an_update_by_name_moves_the_version_and_says_what_that_builds_again(site: Site) -> None:
    first = site.lock()
    assert first.pinning is not None
    assert (first.pinning.before, first.pinning.after) == ((), (f"{_OLD} hd8ed1ab_0",))
    assert first.moved[0].name == "conda-forge-pinning"
    there = site.content()
    for change in (site.lock(), site.lock(update=True)):
        assert (change.moved, change.rebuilt) == ((), ())
    assert site.content() == there
    would = site.lock("conda-forge-pinning", update=True, dry_run=True)
    assert site.content() == there
    change = site.lock("conda-forge-pinning", update=True)
    assert change == would
    assert [one.name for one in change.moved] == ["conda-forge-pinning", "torch"]
    assert {one.name: one.reasons for one in change.rebuilt}["toy-plugin"] == (
        "changed: foundation host/torch 2.12.0-cpu_0 -> 2.13.0-cpu_0",
        "changed: variant torch 2.12 -> 2.13",
    )
    assert change.unserved == ()
    assert site.stacks.read_text(encoding="utf-8") == f'pinning: "{_NEW}"  # of May\n{_STACKS}'
    assert not site.folder.exists()
    back = site.lock(f"conda-forge-pinning=={_OLD}", update=True)
    assert [one.name for one in back.moved] == ["conda-forge-pinning", "torch"]
    assert site.content() == {**there, "variants/stacks.yaml": f'pinning: "{_OLD}"  # of May\n{_STACKS}'.encode()}


def test_the_command_says_what_moves_and_what_the_foundation_cannot_serve_then(site: Site, tmp_path: Path) -> None:
    # the variants for Python 3.12 cannot be served before either, for another reason
    write_tree(site.settings.tree.root, {"variants/stacks.yaml": site.stacks.read_text(encoding="utf-8")})
    site.lock()
    make_pinning(site.channel, _FAR, "torch: [2.14]\n")

    def update(*options: str) -> str:
        command = ("foundation", "update", "conda-forge-pinning", "--dry-run", *options)
        places = ("--root", site.settings.tree.root, "--output", tmp_path / "out", "--foundation-channel", site.channel)
        result = run_tool(*command, *places, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        return result.stdout

    lines = update().splitlines()
    assert lines[0] == f"conda-forge-pinning: {_OLD} hd8ed1ab_0 -> {_FAR} hd8ed1ab_0"
    assert "2 variants that conda-forge cannot serve after this:" in lines
    found = json.loads(update("--json"))
    assert found["moved"][0] == {
        "name": "conda-forge-pinning",
        "before": [f"{_OLD} hd8ed1ab_0"],
        "after": [f"{_FAR} hd8ed1ab_0"],
    }
    assert {one["package"] for one in found["unserved"]} == {"toy-plugin", "toy-meta"}


def test_an_update_without_a_version_never_goes_back(site: Site) -> None:
    site.name(f"pinning: {_NEW}\n")
    site.fetch()
    unlist_version(site.channel, _NEW)
    with pytest.raises(FoundationError, match=f"has nothing newer than conda-forge-pinning {_OLD}") as caught:
        site.fetch(asked="conda-forge-pinning")
    assert f"update conda-forge-pinning=={_OLD}" in str(caught.value.hint)


@pytest.mark.parametrize("line", [f'"pinning": {_OLD}\n', f"pinning:\n  {_OLD}\n", f"pinning: &one {_OLD}\n"])
def test_a_version_that_cannot_be_replaced_in_its_line_is_left_as_it_is(site: Site, line: str) -> None:
    site.name(line)
    site.fetch()
    there = site.content()
    with pytest.raises(ConfigError, match="the version cannot be replaced here") as caught:
        site.fetch(asked="conda-forge-pinning")
    assert caught.value.line == 1
    assert site.content() == there


@pytest.mark.parametrize("head", ["", "pinning: pinned\n"])
def test_without_a_named_version_there_is_nothing_to_move(site: Site, head: str) -> None:
    site.name(head)
    with pytest.raises(UsageError, match="names no version of conda-forge-pinning") as caught:
        site.lock("conda-forge-pinning", update=True)
    assert "pinning: VERSION" in str(caught.value.hint)


def test_the_pinning_is_given_once(site: Site) -> None:
    with pytest.raises(UsageError, match="a tree has one pinning"):
        site.lock("conda-forge-pinning", f"conda-forge-pinning=={_NEW}", update=True)


def test_migrations_are_those_of_the_package(site: Site) -> None:
    site.name(f"pinning: {_OLD}\nmigrations: [torch213]\n")
    site.fetch()
    loaded = load_tree(site.settings.tree)
    assert loaded.pinning is not None
    assert loaded.pinning.file.values["torch"] == ("2.13",)
    with pytest.raises(ConfigError, match=f"no migration 'torch213' in conda-forge-pinning {_NEW}; .* finished"):
        site.lock("conda-forge-pinning", update=True)
    assert site.folder.is_dir()


def test_the_local_channel_may_be_on_another_foundation(site: Site) -> None:
    create_channel(site.settings.channel, REGISTRY)
    assert site.lock().pinning is not None


def _pinned_values(tree: Tree) -> list[tuple[Mapping[str, object], object]]:
    """The values and groups of the pinning that our recipes use, on each platform."""
    pinning = load_tree(tree).pinning
    assert pinning is not None
    return [(file.values, file.zip_keys) for file in map(pinning.file.on, PLATFORMS)]


def test_our_tree_has_the_same_values_by_version_as_by_path(tmp_path: Path) -> None:
    root, records = Path(__file__).parents[3], conda_forge_folder()
    for name in ("recipes", "patches"):
        (tmp_path / name).symlink_to(root / name)
    shutil.copytree(root / "variants", tmp_path / "variants")
    stacks = tmp_path / "variants" / "stacks.yaml"
    own = stacks.read_text(encoding="utf-8")
    stacks.write_text(f"pinning: {records}\n{own}", encoding="utf-8")
    by_path = _pinned_values(Tree(root=tmp_path))
    assert all("libhwloc" in values for values, _groups in by_path)
    channel = write_foundation(tmp_path / "channel", ())
    make_pinning(channel, _NEW, (records / "conda_build_config.yaml").read_text(encoding="utf-8"))
    stacks.write_text(f"pinning: {_NEW}\n{own}", encoding="utf-8")
    settings = make_settings(root=tmp_path, output=tmp_path / "output", environ={}, cwd=tmp_path)
    assert fetch_pinning(settings, channel.as_uri()).is_new
    assert _pinned_values(Tree(root=tmp_path)) == by_path
