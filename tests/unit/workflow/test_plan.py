# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from channel_tools.channel import Foundation
from channel_tools.cli.plan import unsatisfiable_in_short
from channel_tools.foundation.record import FoundationRecord, write_record
from channel_tools.plan import PublishedPackage, judge_again
from channel_tools.requests.plan import PlanRequest
from channel_tools.system.errors import SolveError, UsageError
from channel_tools.system.settings import Settings, make_settings
from channel_tools.workflow.plan import (
    check_served,
    expand_request,
    list_stacks,
    plan_request,
    required_names,
)
from channel_tools.workflow.render import render_stacks
from tests.unit.matrix.toytree import FILES, FOUNDATION, write_foundation, write_tree

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[3]
_STACKS, _RECIPE = "variants/stacks.yaml", "recipes/libtoy/recipe.yaml"
_SKIPPED = {
    _STACKS: FILES[_STACKS].replace("[libtoy, toy-switch, toy-plugin, toy-meta]", "[libtoy]"),
    _RECIPE: FILES[_RECIPE].replace("  number: 0\n", "  number: 0\n  skip: [true]\n"),
}


def settings_of(folder: Path, changes: Mapping[str, str | None] | None = None) -> Settings:
    root = write_tree(folder / "tree", changes).root
    return make_settings(root=root, output=folder / "output", environ={}, cwd=folder)


def test_a_stack_without_any_package_for_this_platform_is_an_error(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, _SKIPPED)
    with pytest.raises(UsageError, match="the stack 'udp' has no package for linux-") as caught:
        expand_request(settings, PlanRequest(stack="udp"))
    assert caught.value.hint is not None
    assert "build.skip" in caught.value.hint
    assert expand_request(settings, PlanRequest(every_stack=True)).packages == ()


def test_a_stack_that_a_base_does_not_serve_is_one_error_with_the_reason(tmp_path: Path) -> None:
    reason = "    unserved: {debian-11: its compiler is too old}\n    packages:"
    settings = settings_of(tmp_path, {_STACKS: FILES[_STACKS].replace("    packages:", reason, 1)})
    old, first = Foundation().on("debian-11"), Foundation()
    with pytest.raises(UsageError, match=r"the stack 'udp' is not served on base debian-11: its compiler is too old"):
        expand_request(settings, PlanRequest(stack="udp"), foundation=old)
    notes: list[str] = []
    assert expand_request(settings, PlanRequest(every_stack=True), foundation=old, note=notes.append).packages == ()
    assert notes == ["udp is left out: base debian-11 does not serve it: its compiler is too old"]
    assert expand_request(settings, PlanRequest(stack="udp"), foundation=first).packages
    (listed,) = list_stacks(settings, stack=None, foundation=old)
    assert listed.unserved == "its compiler is too old"
    assert list_stacks(settings, stack=None, foundation=first)[0].unserved is None
    assert list_stacks(settings, stack=None, foundation=Foundation(kind="conda-forge"))[0].unserved is None


def test_stacks_are_listed_with_their_packages(tmp_path: Path) -> None:
    (listed,) = list_stacks(settings_of(tmp_path), stack=None, foundation=Foundation())
    assert listed.stack.description == "Sums over sockets"
    assert {package.name for package in listed.packages} == {"libtoy", "toy-switch", "toy-plugin", "toy-meta"}


def test_what_is_not_servable_is_counted_by_reason(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    write_foundation(settings.foundation, [record for record in FOUNDATION if record[0] != "python"])
    plan = plan_request(settings, PlanRequest(stack="udp"))
    lines = unsatisfiable_in_short(plan.unsatisfiable)
    assert len(lines) == len({item.reason for item in plan.unsatisfiable})
    assert len(lines) < len(plan.unsatisfiable)
    assert lines[0].startswith("toy-plugin")


def test_a_package_without_a_servable_variant_is_an_error_unless_all_stacks_were_asked_for(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    one, every = PlanRequest(stack="udp"), PlanRequest(every_stack=True)
    write_foundation(settings.foundation, [record for record in FOUNDATION if record[0] != "torch"])
    plan = plan_request(settings, one)
    assert {package.name for package in plan.packages} == {"libtoy", "toy-switch"}
    with pytest.raises(SolveError, match=r"stack udp: cannot be built .*: toy-plugin \(torch: .*; toy-meta \("):
        check_served(plan, one)
    check_served(plan, every)
    write_foundation(settings.foundation, [])
    with pytest.raises(SolveError, match="all stacks: cannot be built in any requested variant"):
        check_served(plan_request(settings, every), every)


def test_what_the_foundation_cannot_serve_is_not_rendered_in_part(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    write_foundation(settings.foundation, [record for record in FOUNDATION if record[0] != "torch"])
    destination = tmp_path / "rendered"
    with pytest.raises(SolveError, match="stack udp: cannot be built in any requested variant: toy-plugin"):
        render_stacks(settings, PlanRequest(stack="udp"), destination=destination)
    assert not destination.exists()
    write_foundation(settings.foundation, FOUNDATION)
    _plan, folders = render_stacks(settings, PlanRequest(stack="udp"), destination=destination)
    assert any("toy-plugin" in folder.name for folder in folders)


def test_a_plan_tells_of_a_foundation_that_a_build_makes_again(tmp_path: Path) -> None:
    settings, notes = settings_of(tmp_path), list[str]()
    write_foundation(settings.foundation)
    plan_request(settings, PlanRequest(stack="udp"), note=notes.append)
    assert not any("was made by another version" in note for note in notes)
    record = FoundationRecord(
        digest="0" * 64, suite="bookworm", python="3.11", subdir="linux-64", requirements=(), packages=()
    )
    write_record(settings.foundation, record)
    plan_request(settings, PlanRequest(stack="udp"), note=notes.append)
    assert any("was made by another version of channel_tools: build makes it again" in note for note in notes)


def test_a_plan_is_judged_again_by_what_is_in_the_channel_now(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    write_foundation(settings.foundation)
    plan = plan_request(settings, PlanRequest(stack="udp"))
    published = {
        package.file_name: PublishedPackage(
            name=package.name, file_name=package.file_name, digest=package.digest, inputs=package.inputs
        )
        for package in plan.packages
    }
    assert plan.to_build == plan.packages
    assert judge_again(plan, published).to_build == ()
    assert {package.reasons for package in judge_again(plan, published, force=True).to_build} == {("--force",)}
    assert judge_again(judge_again(plan, published), {}) == plan


def test_a_variant_for_what_the_foundation_makes_only_when_asked_says_so(tmp_path: Path) -> None:
    plugin = "recipes/toy-plugin/recipe.yaml"
    changes = {
        plugin: FILES[plugin].replace("torch", "pytorch"),
        "variants/pins.yaml": FILES["variants/pins.yaml"] + 'pytorch: ["2.12"]\n',
    }
    settings = settings_of(tmp_path, changes)
    write_foundation(settings.foundation, [*FOUNDATION, ("pytorch", "2.13.0", "cpu_0", ())])
    plan = plan_request(settings, PlanRequest(stack="udp", all_variants=True))
    reasons = {
        str(item.rendered.variant["python"]): item.reason
        for item in plan.unsatisfiable
        if "python" in item.rendered.variant
    }
    assert "channel_tools foundation build --with python3.11-pytorch2.12" in reasons["3.11.*"]
    assert reasons["3.12.*"] == "python 3.12.*: the registry foundation has only 3.11.2"


@pytest.mark.parametrize(
    ("stack", "wants"), [("udp", False), ("accl", False), ("accl-cuda", True), ("nccl-ofi", True), (None, False)]
)
def test_a_stack_says_whether_it_wants_pytorch_with_cuda(tmp_path: Path, *, stack: str | None, wants: bool) -> None:
    settings = make_settings(root=ROOT, output=tmp_path / "output", environ={}, cwd=ROOT)
    request = PlanRequest(stack=stack, every_stack=stack is None, foundation="registry")
    assert expand_request(settings, request).wants_cuda is wants


def test_the_foundation_has_what_a_stack_is_validated_with_where_there_is_no_gpu(tmp_path: Path) -> None:
    settings = make_settings(root=ROOT, output=tmp_path / "output", environ={}, cwd=ROOT)
    expansion = expand_request(settings, PlanRequest(stack="nccl-ofi", foundation="registry"))
    assert "nccl" in required_names(expansion.packages, expansion.stacks)
