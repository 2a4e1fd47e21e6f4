# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.channel import add_set, channel_writer, create_channel, open_channel
from channel_tools.plan import Plan
from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.target import open_target
from channel_tools.requests.plan import PlanRequest
from channel_tools.system.errors import ChannelError, UsageError
from channel_tools.system.progress import ignore
from channel_tools.system.settings import Settings, make_settings
from channel_tools.workflow.build import _record_stacks
from channel_tools.workflow.plan import expand_request, plan_request
from channel_tools.workflow.publish import files_to_publish, package_set
from tests.support.packages import REGISTRY, make_conda, own
from tests.unit.matrix.toytree import write_foundation, write_tree

REQUEST = PlanRequest(stack="udp")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    root = write_tree(tmp_path / "tree").root
    made = make_settings(root=root, output=tmp_path / "output", environ={}, cwd=tmp_path)
    write_foundation(made.foundation)
    create_channel(made.channel, REGISTRY)
    return made


def build(settings: Settings, request: PlanRequest, folder: Path) -> Plan:
    """Put packages into the local channel that are named and recorded as the request's plan says."""
    plan = plan_request(settings, request)
    files = [
        make_conda(
            folder,
            package.name,
            version=package.version,
            build=package.build_string,
            subdir=package.subdir,
            about=own(package.digest, **package.inputs),
            variant={},
            index={"noarch": "generic"} if package.subdir == "noarch" else None,
        )
        for package in plan.packages
    ]
    with channel_writer(open_channel(settings.channel)) as writer:
        add_set(writer, files)
    record_of(settings, request, plan)
    return plan


def record_of(settings: Settings, request: PlanRequest, plan: Plan) -> None:
    expansion = expand_request(settings, request)
    _record_stacks(open_channel(settings.channel), request, expansion, plan)


def test_what_is_not_built_is_named_with_the_command_that_builds_it(settings: Settings) -> None:
    request = PlanRequest(stack="udp", packages=("libtoy",))
    record_of(settings, request, plan_request(settings, request))  # of a workflow that was written and has not run
    with pytest.raises(ChannelError, match=r"libtoy of stack udp: no build of it is recorded in ") as caught:
        package_set(settings, request, note=ignore)
    assert "build it first: channel_tools build --variant udp --package libtoy" in str(caught.value.hint)
    with pytest.raises(UsageError, match="'upd' is not a stack"):
        package_set(settings, PlanRequest(stack="upd"), note=ignore)


def test_the_set_is_what_the_build_named_and_the_foundation_in_force(settings: Settings, tmp_path: Path) -> None:
    plan = build(settings, REQUEST, tmp_path / "made")
    old, new = make_conda(tmp_path / "f", "zlib", build="h1_0"), make_conda(tmp_path / "f", "zlib", build="h2_0")
    with channel_writer(open_channel(settings.channel)) as writer:
        add_set(writer, [make_conda(tmp_path / "made", "of-another-stack", about=own("d"), variant={})])
        add_set(writer, (), [old])
        add_set(writer, (), [new])
    notes: list[str] = []
    found = package_set(settings, REQUEST, note=notes.append)
    wanted = {f"{package.subdir}/{package.file_name}": False for package in plan.packages}
    assert {str(file.key): file.foundation for file in found.files} == wanted | {"linux-64/zlib-1.0-h2_0.conda": True}
    assert (found.name, found.foundation) == ("stack udp", REGISTRY)
    assert all(file.path == settings.channel / str(file.key) for file in found.files)
    assert all(file.size_bytes == file.path.stat().st_size for file in found.files)
    assert [note.partition(" at ")[0] for note in notes] == ["stack udp: as built"]


def test_the_default_stack_is_the_one_that_was_built_by_its_name(settings: Settings, tmp_path: Path) -> None:
    name = expand_request(settings, PlanRequest()).stacks[0].name
    build(settings, PlanRequest(stack=name), tmp_path / "made")
    assert package_set(settings, PlanRequest(), note=ignore).files


def test_a_tree_that_has_changed_since_is_not_read(settings: Settings, tmp_path: Path) -> None:
    plan = build(settings, REQUEST, tmp_path / "made")
    recipe = next(settings.tree.recipes.glob("libtoy/recipe.yaml"))
    recipe.write_text(recipe.read_text().replace("1.2.0", "1.2.1"))
    assert plan_request(settings, REQUEST).to_build
    found = package_set(settings, REQUEST, note=ignore)
    assert {file.file_name for file in found.files} == {package.file_name for package in plan.packages}


def test_packages_of_a_stack_come_with_what_they_need(settings: Settings, tmp_path: Path) -> None:
    build(settings, REQUEST, tmp_path / "made")
    found = package_set(settings, PlanRequest(stack="udp", packages=("libtoy",)), note=ignore)
    assert {file.file_name.partition("-")[0] for file in found.files} == {"libtoy"}
    assert found.name == "libtoy of stack udp"
    with pytest.raises(UsageError, match="no package 'libtoi' was built"):
        package_set(settings, PlanRequest(stack="udp", packages=("libtoi",)), note=ignore)


@pytest.mark.parametrize("gone", ["deleted", "yanked"])
def test_what_was_built_and_is_gone_since_is_named(settings: Settings, tmp_path: Path, gone: str) -> None:
    plan = build(settings, REQUEST, tmp_path / "made")
    key = str(plan.packages[0].key)
    if gone == "yanked":
        FolderTarget(root=settings.channel).yank((key,), label="main", reason="wrong sums")
    else:
        (settings.channel / key).unlink()
    said = r"was yanked \(wrong sums\)" if gone == "yanked" else "is no longer there"
    with pytest.raises(ChannelError, match=rf"{key} {said} since the build of "):
        package_set(settings, REQUEST, note=ignore)


def test_files_of_several_channels_come_with_the_further_channels_of_all(tmp_path: Path) -> None:
    files: list[Path] = []
    for name in ("lab", "site"):
        on = REGISTRY.with_further([f"file:///{name}"])
        with channel_writer(create_channel(tmp_path / name, on)) as writer:
            add_set(writer, [make_conda(tmp_path / "made", f"of-{name}")])
        files.extend((tmp_path / name / "linux-64").glob("*.conda"))
    target = open_target(str(tmp_path / "target"), environ={})
    for foundation in (None, REGISTRY):
        packages = files_to_publish(files, foundation, settings=None, target=target)
        assert packages.foundation == REGISTRY
        assert packages.foundation.further == ("file:///lab", "file:///site")
