# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.channel import add_set, channel_writer, create_channel, open_channel
from channel_tools.plan import Plan
from channel_tools.publish.target import open_target
from channel_tools.requests.plan import PlanRequest
from channel_tools.system.errors import ChannelError
from channel_tools.system.settings import Settings, make_settings
from channel_tools.workflow.plan import plan_request
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


def build(settings: Settings, plan: Plan, folder: Path) -> None:
    """Put packages into the local channel that are named and recorded as the plan says."""
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


def test_what_is_not_built_is_named_with_the_command_that_builds_it(settings: Settings) -> None:
    with pytest.raises(ChannelError, match=r"stack udp: not in the local channel yet: libtoy-1\.2\.0-udp_h") as caught:
        package_set(settings, PlanRequest(stack="udp", packages=("libtoy",)))
    assert caught.value.hint == "build first: channel_tools build --variant udp --package libtoy"


def test_the_set_is_what_the_plan_names_and_the_foundation_in_force(settings: Settings, tmp_path: Path) -> None:
    plan = plan_request(settings, REQUEST)
    build(settings, plan, tmp_path / "made")
    old, new = make_conda(tmp_path / "f", "zlib", build="h1_0"), make_conda(tmp_path / "f", "zlib", build="h2_0")
    with channel_writer(open_channel(settings.channel)) as writer:
        add_set(writer, [make_conda(tmp_path / "made", "of-another-stack", about=own("d"), variant={})])
        add_set(writer, (), [old])
        add_set(writer, (), [new])
    found = package_set(settings, REQUEST)
    wanted = {f"{package.subdir}/{package.file_name}": False for package in plan.packages}
    assert {str(file.key): file.foundation for file in found.files} == wanted | {"linux-64/zlib-1.0-h2_0.conda": True}
    assert (found.name, found.foundation) == ("stack udp", REGISTRY)
    assert all(file.path == settings.channel / str(file.key) for file in found.files)
    assert all(file.size_bytes == file.path.stat().st_size for file in found.files)


def test_packages_of_a_stack_come_with_what_the_plan_says_they_need(settings: Settings, tmp_path: Path) -> None:
    build(settings, plan_request(settings, REQUEST), tmp_path / "made")
    found = package_set(settings, PlanRequest(stack="udp", packages=("libtoy",)))
    assert {file.file_name.partition("-")[0] for file in found.files} == {"libtoy"}
    assert found.name == "libtoy of stack udp"


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
