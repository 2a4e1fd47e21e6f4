# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import asyncio
import json
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel_tools.matrix import expand_stacks, find_stack, load_tree
from channel_tools.plan import make_plan, open_foundation, plan_to_json
from channel_tools.plan.planner import CycleFoundError, topological_order
from channel_tools.system.errors import ChannelError, ConfigError, FoundationError, NetworkError
from tests.support.damage import bounded, damage
from tests.support.golden import assert_golden
from tests.unit.matrix.toytree import FILES, FOUNDATION, PLATFORM, write_foundation
from tests.unit.plan.conftest import VIRTUAL_PACKAGES, by_name, publish

if TYPE_CHECKING:
    from channel_tools.plan import Plan
    from tests.unit.plan.conftest import Toy

GOLDEN = Path(__file__).parent / "golden"
PLUGIN = "recipes/toy-plugin/recipe.yaml"
TOY = "recipes/libtoy/recipe.yaml"
META = "recipes/toy-meta/recipe.yaml"


def _reasons(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {package.name: package.reasons for package in plan.to_build}


def test_the_plan_of_an_empty_channel(toy: Toy) -> None:
    assert_golden(GOLDEN / "plan.json", json.dumps(plan_to_json(toy.plan()), indent=1) + "\n")


def test_planning_twice_gives_the_same(toy: Toy) -> None:
    assert plan_to_json(toy.plan()) == plan_to_json(toy.plan())


def test_the_place_of_the_tree_does_not_matter(toy: Toy, tmp_path: Path) -> None:
    first = toy.plan()
    toy.tree_root.rename(tmp_path / "elsewhere")
    moved = type(toy)(root=tmp_path / "deeper")
    assert [item.digest for item in moved.plan().packages] == [item.digest for item in first.packages]


def test_a_build_that_is_not_to_be_chosen_by_itself_is_not(toy: Toy) -> None:
    recipe = """\
schema_version: 1
package: {name: libwire, version: "1.51.9"}
build:
  string: external_h${{ hash }}_0
  variant: {down_prioritize_variant: 1}
"""
    stacks = FILES["variants/stacks.yaml"].replace("packages: [", "packages: [libwire, ")
    changes = {"recipes/libwire/recipe.yaml": recipe, "variants/stacks.yaml": stacks}
    plain = by_name(toy.plan(changes))
    assert plain["libtoy"].inputs["foundation:host/libwire"].startswith("1.51.1 h1_0")
    asking = FILES["recipes/libtoy/recipe.yaml"].replace("- libwire", "- libwire * external*")
    asked = by_name(toy.plan(changes | {"recipes/libtoy/recipe.yaml": asking}))
    assert "foundation:host/libwire" not in asked["libtoy"].inputs
    assert asked["libtoy"].waits_for == (asked["libwire"].file_name,)


def test_a_package_made_only_when_asked_for_is_named_with_the_way_to_get_it(toy: Toy) -> None:
    tree = load_tree(toy.tree())
    lacking = write_foundation(toy.root / "lacking", [record for record in FOUNDATION if record[0] != "torch"])
    plan = asyncio.run(
        make_plan(
            expand_stacks(tree, [tree.stacks["udp"]], foundation_kind="registry", platform=PLATFORM, packages=()),
            root=toy.tree_root,
            foundation=open_foundation(lacking, kind="registry", platform=PLATFORM, optional=frozenset({"torch"})),
            published={},
            virtual_packages=VIRTUAL_PACKAGES,
        )
    )
    reasons = [item.reason for item in plan.unsatisfiable if item.reason.startswith("torch: ")]
    assert reasons[0].startswith("torch: the registry foundation makes it only on request")
    assert "channel_tools foundation build --with torch" in reasons[0]


def test_packages_stand_in_an_order_that_can_be_built(toy: Toy) -> None:
    plan = toy.plan()
    done: set[str] = set()
    for package in plan.packages:
        assert done.issuperset(package.waits_for)
        done.add(package.file_name)
    waiting = {name: package.waits_for for name, package in by_name(plan).items()}
    names = {name: {re.sub(r"-[0-9].*", "", item) for item in items} for name, items in waiting.items()}
    assert names == {
        "libtoy": set(),
        "toy-switch": {"libtoy"},
        "toy-plugin": {"libtoy", "toy-switch"},
        "toy-meta": {"libtoy", "toy-plugin"},
    }


def test_the_digest_is_in_the_name(toy: Toy) -> None:
    packages = by_name(toy.plan())
    libtoy = packages["libtoy"]
    assert libtoy.file_name == f"libtoy-1.2.0-udp_h{libtoy.digest[:7]}_0.conda"
    plugin = packages["toy-plugin"]
    assert plugin.build_string == f"py311h{plugin.digest[:7]}_2"


def test_the_variant_decides_what_a_bare_requirement_gets(toy: Toy) -> None:
    assert by_name(toy.plan())["libtoy"].inputs["foundation:host/libwire"].startswith("1.51.1 ")


def test_strong_run_exports_of_the_compiler_reach_the_host(toy: Toy) -> None:
    assert "foundation:host/libgcc" in by_name(toy.plan())["libtoy"].inputs


def test_what_is_in_the_channel_is_skipped(toy: Toy) -> None:
    plan = toy.plan(published=publish(toy.plan()))
    assert {package.status for package in plan.packages} == {"skip"}
    assert plan.to_build == ()


def test_force_builds_all_the_same(toy: Toy) -> None:
    plan = toy.plan(published=publish(toy.plan()), force=True)
    assert {package.reasons for package in plan.packages} == {("--force",)}
    assert len(plan.to_build) == 4


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {"recipes/libtoy/src/toy.c": "int toy(void) { return 2; }\n"},
            {
                "libtoy": ("changed: src/toy.c",),
                "toy-plugin": ("rebuilt dependency libtoy",),
            },
            id="source",
        ),
        pytest.param(
            {"recipes/libtoy/src/proto/toy.proto": "message Toy { }\n"},
            {
                "libtoy": ("changed: src/proto/toy.proto",),
                "toy-switch": ("changed: ../libtoy/src/proto/toy.proto",),
                "toy-plugin": ("rebuilt dependency libtoy",),
            },
            id="source shared by two recipes",
        ),
        pytest.param(
            {"patches/libtoy/0001-louder.patch": "--- a/toy.c\n"},
            {
                "libtoy": ("changed: ../../patches/libtoy/0001-louder.patch",),
                "toy-plugin": ("rebuilt dependency libtoy",),
            },
            id="patch",
        ),
        pytest.param({"recipes/toy-switch/extra.sh": "true\n"}, {"toy-switch": ("added: extra.sh",)}, id="new file"),
        pytest.param(
            {PLUGIN: FILES[PLUGIN].replace("imports: [toy]", "imports: [toy, os]")},
            {"toy-plugin": ("changed: recipe section tests",)},
            id="test",
        ),
        pytest.param(
            {"variants/foundation-registry.yaml": "c_compiler_version: ['15']\nlibwire: ['1.51']\n"},
            {
                name: (
                    "changed: foundation build/gcc_linux-64 12.2.0-h1_0 -> 15.1.0-h1_0",
                    *extra,
                    "changed: recipe section requirements",
                    "changed: variant c_compiler_version 12 -> 15",
                )
                for name, extra in (
                    ("libtoy", ("removed: foundation host/libgcc",)),
                    ("toy-switch", ("removed: foundation host/libgcc",)),
                    ("toy-plugin", ("rebuilt dependency libtoy",)),
                )
            },
            id="variant",
        ),
        pytest.param({"recipes/libtoy/README.md": "New words.\n"}, {}, id="words about it"),
    ],
)
def test_why_names_what_changed(toy: Toy, changes: dict[str, str | None], expected: dict[str, tuple[str, ...]]) -> None:
    published = publish(toy.plan())
    reasons = _reasons(toy.plan(changes, published=published))
    assert set(reasons) == set(expected)
    for name, wanted in expected.items():
        assert set(wanted) <= set(reasons[name])
        assert all("sha256" not in reason and len(reason) < 100 for reason in reasons[name])


def test_a_new_package_of_the_foundation_is_a_reason(toy: Toy) -> None:
    published = publish(toy.plan())
    newer = tuple(("libwire", "1.51.2", "h2_0", ()) if item[1] == "1.51.1" else item for item in FOUNDATION)
    reasons = _reasons(toy.plan(published=published, foundation=newer))
    assert reasons["libtoy"] == ("changed: foundation host/libwire 1.51.1-h1_0 -> 1.51.2-h2_0",)
    assert "toy-switch" not in reasons


def test_another_variant_is_new_and_not_a_change_of_its_neighbour(toy: Toy) -> None:
    published = publish(toy.plan())
    both = (*FOUNDATION, ("python", "3.12.1", "h1_0", ()), ("torch", "2.13.0", "cpu312_0", ("python 3.12.*",)))
    plan = toy.plan(published=published, foundation=both)
    reasons = {
        package.rendered.variant["python"]: package.reasons
        for package in plan.to_build
        if package.rendered.variant.get("python")
    }
    assert reasons == {"3.12.*": ("new",)}
    assert plan.unsatisfiable == ()


def test_a_variant_that_was_never_built_is_new_even_if_its_neighbour_is_not_in_the_plan(toy: Toy) -> None:
    stacks = FILES["variants/stacks.yaml"] + (
        "  rdma:\n    description: Sums over verbs\n    variants: [rdma.yaml]\n    packages: [libtoy]\n"
        "    install: [libtoy]\n    validate: {method: switchml, num_threads: 2}\n"
    )
    changes = {"variants/stacks.yaml": stacks, "variants/rdma.yaml": "transport: [rdma]\n"}
    published = publish(toy.plan(changes))
    assert _reasons(toy.plan(changes, stacks=["rdma"], published=published)) == {"libtoy": ("new",)}


def test_a_value_that_is_gone_from_the_tree_was_changed(toy: Toy) -> None:
    published = publish(toy.plan())
    reasons = _reasons(toy.plan({"variants/udp.yaml": "transport: [sockets]\n"}, published=published))
    assert "changed: variant transport udp -> sockets" in reasons["libtoy"]


def test_a_served_name_with_another_digest_is_not_skipped(toy: Toy) -> None:
    plan = toy.plan()
    published = {name: item for name, item in publish(plan).items() if item.name != "libtoy"}
    assert set(_reasons(toy.plan(published=published))) == {"libtoy"}


@pytest.mark.parametrize(
    ("changes", "package", "reason"),
    [
        pytest.param({}, "toy-plugin", "python 3.12.*: the registry foundation has only 3.11.2", id="another python"),
        pytest.param(
            {PLUGIN: FILES[PLUGIN].replace("torch, libtoy", "torch, libtoy, cudnn")},
            "toy-plugin",
            "cudnn: the registry foundation has no package of this name",
            id="missing name",
        ),
        pytest.param(
            {PLUGIN: FILES[PLUGIN].replace("    - python\n", "    - python\n    - __cuda >=12,<11\n")},
            "toy-plugin",
            "__cuda >=12,<11: this machine does not have __cuda",
            id="virtual package that no machine has",
        ),
        pytest.param(
            {PLUGIN: FILES[PLUGIN].replace("torch, libtoy", "torch, libtoy, __cuda")},
            "toy-plugin",
            "__cuda: this machine does not have __cuda",
            id="virtual package",
        ),
        pytest.param(
            {PLUGIN: FILES[PLUGIN].replace("torch, libtoy", "torch, libtoy >=9")},
            "toy-plugin",
            "libtoy >=9: this channel has only 1.2.0",
            id="own package of another version",
        ),
        pytest.param(
            {PLUGIN: FILES[PLUGIN].replace("torch, libtoy", '"torch * cuda*", libtoy')},
            "toy-plugin",
            "torch * cuda*: the registry foundation has only 2.13.0 cpu_0",
            id="another build string",
        ),
        pytest.param(
            {"variants/foundation-registry.yaml": "c_compiler_version: ['12']\nlibwire: ['1.82']\n"},
            "toy-plugin",
            "libwire =1.82: the registry foundation has only 1.52.0, 1.51.1",
            id="dependency of an own package",
        ),
    ],
)
def test_what_the_foundation_cannot_serve_is_listed_with_the_reason(
    toy: Toy, changes: dict[str, str | None], package: str, reason: str
) -> None:
    unsatisfiable = [item.reason for item in toy.plan(changes).unsatisfiable if item.rendered.name == package]
    assert any(reason in text for text in unsatisfiable), unsatisfiable
    assert all("\n" not in text for text in unsatisfiable)


def test_what_depends_on_the_unserved_is_unserved_too(toy: Toy) -> None:
    plan = toy.plan({"variants/foundation-registry.yaml": "c_compiler_version: ['12']\nlibwire: ['1.82']\n"})
    assert [package.name for package in plan.packages] == []
    assert {item.rendered.name for item in plan.unsatisfiable} == {"libtoy", "toy-switch", "toy-plugin", "toy-meta"}


def test_a_cycle_names_its_packages_and_files(toy: Toy) -> None:
    recipe = FILES[TOY].replace("tests:\n", "tests:\n  - script: [toy-run]\n    requirements:\n      run: [toy-meta]\n")
    with pytest.raises(ConfigError, match="libtoy -> toy-meta -> toy-plugin -> libtoy") as caught:
        toy.plan({TOY: recipe})
    assert caught.value.path == toy.tree_root / TOY
    assert str(toy.tree_root / PLUGIN) in str(caught.value)


def test_pin_compatible_needs_its_package_in_the_host(toy: Toy) -> None:
    recipe = FILES[PLUGIN].replace("host: [python, torch, libtoy]", "host: [python, libtoy]")
    with pytest.raises(
        ConfigError, match=r"pin_compatible\('torch'\), but its build and host environments lack torch"
    ) as caught:
        toy.plan({PLUGIN: recipe})
    assert (caught.value.path, caught.value.line) == (toy.tree_root / PLUGIN, 10)


def test_two_stacks_share_equal_packages_and_keep_different_ones(toy: Toy) -> None:
    stacks = FILES["variants/stacks.yaml"] + (
        "  rdma:\n    description: Sums over verbs\n    variants: [rdma.yaml]\n    packages: [libtoy, toy-switch]\n"
        "    install: [libtoy]\n    validate: {method: switchml}\n"
    )
    changes = {"variants/stacks.yaml": stacks, "variants/rdma.yaml": "transport: [rdma]\n"}
    alone = toy.plan(changes)
    both = toy.plan(changes, stacks=("udp", "rdma"))
    builds = sorted(package.build_string.split("_")[0] for package in both.packages if package.name == "libtoy")
    assert builds == ["rdma", "udp"]
    assert [package.name for package in both.packages].count("toy-switch") == 1
    assert {item.digest for item in alone.packages} <= {item.digest for item in both.packages}


def test_a_variant_that_two_stacks_cannot_have_is_told_once(toy: Toy) -> None:
    stacks = FILES["variants/stacks.yaml"] + (
        "  again:\n    description: The same\n    variants: [udp.yaml]\n"
        "    packages: [libtoy, toy-switch, toy-plugin]\n"
        "    install: [libtoy]\n    validate: {method: switchml}\n"
    )
    changes = {"variants/stacks.yaml": stacks}
    alone = [(item.rendered.name, item.reason) for item in toy.plan(changes).unsatisfiable]
    both = [(item.rendered.name, item.reason) for item in toy.plan(changes, stacks=("udp", "again")).unsatisfiable]
    assert alone
    assert both == alone


def test_outputs_of_one_recipe_pin_each_other_by_our_names(toy: Toy) -> None:
    recipe = """\
recipe: {name: multi, version: "1.0"}
outputs:
  - package: {name: libmulti}
    requirements: {host: [libwire]}
  - package: {name: libmulti-devel}
    requirements:
      run: ["${{ pin_subpackage('libmulti', exact=True) }}"]
"""
    packages = by_name(toy.plan({META: recipe}))
    library, devel = packages["libmulti"], packages["libmulti-devel"]
    assert list(devel.sibling_specs.values()) == [f"libmulti ==1.0 {library.build_string}"]
    assert devel.inputs["package:libmulti"] == library.digest
    assert devel.waits_for == (library.file_name,)


def test_another_version_of_a_sibling_is_another_pin(toy: Toy) -> None:
    recipe = """\
recipe: {name: multi, version: "1.0"}
outputs:
  - package: {name: libmulti, version: "1.1"}
  - package: {name: libmulti-devel}
    requirements:
      run: ["${{ pin_subpackage('libmulti', upper_bound='x.x') }}"]
"""
    published = publish(toy.plan({META: recipe}))
    reasons = _reasons(toy.plan({META: recipe.replace("1.1", "1.2")}, published=published))
    assert reasons["libmulti-devel"] == ("changed: output libmulti 1.1 -> 1.2",)


_REPOSITORY = "{{git: https://x.example/x, rev: {:040}}}"


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        pytest.param((3, 2), "changed: source https://x.example/x", id="one of two commits of a repository"),
        pytest.param((2, 1), "changed: source https://x.example/x", id="the order of the two"),
    ],
)
def test_every_source_of_an_address_counts(toy: Toy, after: tuple[int, int], reason: str) -> None:
    published = publish(toy.plan({META: _with_sources(*map(_REPOSITORY.format, (1, 2)))}))
    reasons = _reasons(toy.plan({META: _with_sources(*map(_REPOSITORY.format, after))}, published=published))
    assert reasons["toy-meta"] == (reason,)


def test_the_order_in_which_sources_overwrite_each_other_counts(toy: Toy) -> None:
    sources = [_REPOSITORY.format(1), f"{{url: https://x.example/y.tar.gz, sha256: {0:064}}}"]
    published = publish(toy.plan({META: _with_sources(*sources)}))
    reasons = _reasons(toy.plan({META: _with_sources(*reversed(sources))}, published=published))
    assert reasons["toy-meta"] == ("changed: recipe section source",)


def _with_sources(*sources: str) -> str:
    package = "package: {name: toy-meta, version: '1.0'}\nbuild: {noarch: generic}\n"
    return f"schema_version: 1\n{package}source: [{', '.join(sources)}]\n"


def test_a_build_string_without_a_hash_gets_one(toy: Toy) -> None:
    recipe = FILES[TOY].replace("${{ transport }}_h${{ hash }}_0", "external_0")
    libtoy = by_name(toy.plan({TOY: recipe, "variants/udp.yaml": ""}))["libtoy"]
    assert libtoy.build_string == f"external_h{libtoy.digest[:7]}_0"


def test_a_foundation_without_an_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(FoundationError, match=r"linux-64/repodata\.json: the registry foundation has no index"):
        open_foundation(tmp_path, kind="registry", platform=PLATFORM)


def test_a_foundation_out_of_reach_is_named(toy: Toy) -> None:
    loaded = load_tree(toy.tree())
    rendered = expand_stacks(loaded, [find_stack(loaded, None)], foundation_kind="conda-forge", platform=PLATFORM)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/channel"
    with pytest.raises(NetworkError, match="index of the conda-forge foundation cannot be read") as caught:
        asyncio.run(
            make_plan(
                rendered,
                root=toy.tree_root,
                foundation=open_foundation(address, kind="conda-forge", platform=PLATFORM),
                published={},
                virtual_packages=VIRTUAL_PACKAGES,
            )
        )
    assert address in str(caught.value)
    assert caught.value.hint is not None
    assert "--foundation registry" in caught.value.hint


@pytest.mark.parametrize(
    ("location", "sources"),
    [
        pytest.param("{folder}", 2, id="path as text"),
        pytest.param("{uri}", 2, id="file address"),
        pytest.param("https://channels.example/private", 1, id="address"),
    ],
)
def test_a_foundation_may_be_a_folder_or_an_address(tmp_path: Path, location: str, sources: int) -> None:
    folder = write_foundation(tmp_path / "with space")
    text = location.format(folder=folder, uri=folder.as_uri())
    assert len(open_foundation(text, kind="conda-forge", platform=PLATFORM).sources) == sources


def test_a_damaged_index_is_named(tmp_path: Path) -> None:
    (tmp_path / PLATFORM).mkdir()
    (tmp_path / PLATFORM / "repodata.json").write_text("{", encoding="utf-8")
    with pytest.raises(FoundationError, match="the index cannot be read"):
        open_foundation(tmp_path, kind="registry", platform=PLATFORM)


def test_needs_come_first_and_the_given_order_decides_the_rest() -> None:
    needs = {"app": ["lib", "tool"], "free": [], "tool": ["lib"], "lib": ["gcc"]}
    assert topological_order(needs) == ["lib", "tool", "app", "free"]


def test_names_from_outside_and_of_itself_are_ignored() -> None:
    assert topological_order({"a": ["a", "python"]}) == ["a"]


@pytest.mark.parametrize(
    ("needs", "cycle"),
    [
        ({"a": ["b"], "b": ["a"]}, ("a", "b", "a")),
        ({"start": ["a"], "a": ["b"], "b": ["c"], "c": ["a"]}, ("a", "b", "c", "a")),
    ],
)
def test_a_cycle_is_named_without_what_only_leads_to_it(needs: dict[str, list[str]], cycle: tuple[str, ...]) -> None:
    with pytest.raises(CycleFoundError) as caught:
        topological_order(needs)
    assert caught.value.cycle == cycle


@given(
    st.integers(1, 12).flatmap(lambda size: st.lists(st.frozensets(st.integers(0, size)), min_size=size, max_size=size))
)
def test_every_order_respects_every_need(raw: list[frozenset[int]]) -> None:
    needs = {str(index): [str(other) for other in others if other < index] for index, others in enumerate(raw)}
    order = topological_order(needs)
    assert sorted(order) == sorted(needs)
    assert all(order.index(need) < order.index(name) for name in needs for need in needs[name])


@pytest.mark.parametrize("subdir", ["linux-64", "noarch"])
@pytest.mark.parametrize("kind", ["folder", "pipe", "link to a device", "link to nothing"])
def test_an_index_that_is_no_file_is_not_taken_for_none(tmp_path: Path, subdir: str, kind: str) -> None:
    """A plan without the packages of that subdir would be another one."""
    for name in ("linux-64", "noarch"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "repodata.json").write_text('{"packages": {}, "packages.conda": {}}')
    damage(tmp_path, f"{subdir}/repodata.json", kind, tmp_path)
    with bounded(kind), pytest.raises(ChannelError, match=rf"{subdir}/repodata\.json: is a "):
        open_foundation(tmp_path, kind="conda-forge", platform="linux-64")
    with bounded(kind), pytest.raises(ChannelError, match=rf"{subdir}/repodata\.json: is a "):
        open_foundation("http://127.0.0.1:1/x", kind="conda-forge", platform="linux-64", further=[tmp_path.as_uri()])


@pytest.mark.parametrize(
    "requirement",
    [
        "__cuda",
        "__cuda >=12",
        "__cuda >12.4,<13",
        "__glibc >=2.99",
        "__osx",
        "__archspec * haswell",
        "__archspec =1 *v3",
    ],
)
def test_a_package_may_need_another_machine_than_the_one_that_builds_it(toy: Toy, requirement: str) -> None:
    changed = FILES[PLUGIN].replace("    - python\n", f"    - python\n    - '{requirement}'\n")
    tested = [item.reason for item in toy.plan({PLUGIN: changed}).unsatisfiable]
    assert any("a test of toy-plugin would run on this machine" in reason for reason in tested)
    untested, needing = (text.partition("  - script: [toy-run]")[0] for text in (FILES[PLUGIN], changed))
    before, plan = toy.plan({PLUGIN: untested}), toy.plan({PLUGIN: needing})
    assert [item.reason for item in plan.unsatisfiable] == [item.reason for item in before.unsatisfiable]
    assert [package.name for package in plan.packages] == [package.name for package in before.packages]
