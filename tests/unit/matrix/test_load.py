# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.matrix import find_stack, load_tree
from channel_tools.matrix.load import files_of_stack
from channel_tools.matrix.variants import merge_variant_files
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.schedulers import BuildResources
from tests.unit.matrix.toytree import FILES, write_tree

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.matrix import FoundationKind

STACKS = FILES["variants/stacks.yaml"]


def test_a_tree_is_read_whole(tmp_path: Path) -> None:
    loaded = load_tree(write_tree(tmp_path))
    assert list(loaded.recipes) == ["libtoy", "toy-meta", "toy-plugin", "toy-switch"]
    assert sorted(loaded.variant_files) == [
        "foundation-conda-forge.yaml",
        "foundation-registry-debian-11.yaml",
        "foundation-registry-debian-13.yaml",
        "foundation-registry.yaml",
        "pins.yaml",
        "udp.yaml",
    ]
    stack = find_stack(loaded, None)
    assert (stack.name, stack.description) == ("udp", "Sums over sockets")
    assert stack.packages == ("libtoy", "toy-switch", "toy-plugin", "toy-meta")
    assert stack.install == ("toy-meta", "libtoy * udp*")
    assert stack.validation == {"method": "switchml", "num_threads": 2}


def test_settings_of_a_method_may_be_lists_and_mappings_of_text(tmp_path: Path) -> None:
    block = "{method: distributed, backend: ccl, imports: [toy, toys], environment: {FI_PROVIDER: tcp}}"
    stacks = STACKS.replace("{method: switchml, num_threads: 2}", block)
    stack = find_stack(load_tree(write_tree(tmp_path, {"variants/stacks.yaml": stacks})), None)
    assert stack.validation == {
        "method": "distributed",
        "backend": "ccl",
        "imports": ["toy", "toys"],
        "environment": {"FI_PROVIDER": "tcp"},
    }


def test_settings_may_be_lists_of_mappings_that_stacks_share(tmp_path: Path) -> None:
    block = "{method: distributed, services: &server [{command: [server, start], wait: 5}], again: *server}"
    stacks = STACKS.replace("{method: switchml, num_threads: 2}", block)
    stack = find_stack(load_tree(write_tree(tmp_path, {"variants/stacks.yaml": stacks})), None)
    assert stack.validation["services"] == [{"command": ["server", "start"], "wait": 5}]
    assert stack.validation["again"] == stack.validation["services"]


def test_a_stack_may_have_nothing_to_validate(tmp_path: Path) -> None:
    stacks = STACKS.replace("    validate: {method: switchml, num_threads: 2}\n", "")
    assert "validate" not in stacks
    assert find_stack(load_tree(write_tree(tmp_path, {"variants/stacks.yaml": stacks})), None).validation == {}


def test_what_builds_may_use_is_read_by_recipe(tmp_path: Path) -> None:
    stacks = f"{STACKS}resources:\n  libtoy: {{cores: 8, memory_mib: 32768, minutes: 300}}\n  toy-meta: {{cores: 1}}\n"
    loaded = load_tree(write_tree(tmp_path, {"variants/stacks.yaml": stacks}))
    assert loaded.resources == {
        "libtoy": BuildResources(cores=8, memory_mib=32768, minutes=300),
        "toy-meta": BuildResources(cores=1),
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("libtoys: {cores: 1}", "resources names 'libtoys', but there is no recipes/libtoys/recipe.yaml"),
        ("libtoy: {cores: 0}", "resources.libtoy.cores: Input should be greater than or equal to 1, found 0"),
        ("libtoy: {memory: 8G}", "unknown key resources.libtoy.memory"),
    ],
    ids=["recipe", "none", "key"],
)
def test_resources_that_cannot_be_meant_are_an_error(tmp_path: Path, line: str, message: str) -> None:
    stacks = f"{STACKS}resources:\n  {line}\n"
    with pytest.raises(ConfigError) as caught:
        load_tree(write_tree(tmp_path, {"variants/stacks.yaml": stacks}))
    assert message in str(caught.value)
    assert caught.value.line == len(stacks.splitlines())


def test_shared_files_may_be_absent(tmp_path: Path) -> None:
    gone: dict[str, str | None] = {name: None for name in FILES if name.startswith("variants/foundation")}
    assert sorted(load_tree(write_tree(tmp_path, gone)).variant_files) == [
        "foundation-registry-debian-11.yaml",
        "foundation-registry-debian-13.yaml",
        "pins.yaml",
        "udp.yaml",
    ]


def test_a_file_beside_a_stacks_own_applies_on_its_foundation(tmp_path: Path) -> None:
    changes: dict[str, str | None] = {"variants/udp-conda-forge.yaml": 'libwire: ["1.99"]\n'}
    loaded = load_tree(write_tree(tmp_path, changes))
    stack = find_stack(loaded, None)
    kinds: tuple[FoundationKind, ...] = ("registry", "conda-forge")
    found = {
        kind: merge_variant_files(files_of_stack(loaded, stack, kind, "linux-64")).values["libwire"] for kind in kinds
    }
    assert found == {"registry": ("1.51",), "conda-forge": ("1.99",)}


def test_a_base_has_its_own_compilers_and_glibc_in_every_tree(tmp_path: Path) -> None:
    loaded = load_tree(write_tree(tmp_path, {"variants/foundation-registry.yaml": 'c_stdlib_version: ["2.36"]\n'}))
    stack = find_stack(loaded, None)
    first, later = (
        merge_variant_files(files_of_stack(loaded, stack, "registry", "linux-64", base=base)).values
        for base in (None, "debian-13")
    )
    assert first["c_stdlib_version"] == ("2.36",)
    assert (later["c_stdlib_version"], later["c_compiler_version"]) == (("2.41",), ("14",))


def test_a_tree_has_values_of_its_own_on_a_base(tmp_path: Path) -> None:
    own: dict[str, str | None] = {"variants/foundation-registry-debian-13.yaml": 'c_stdlib_version: ["2.42"]\n'}
    loaded = load_tree(write_tree(tmp_path, own))
    files = files_of_stack(loaded, find_stack(loaded, None), "registry", "linux-64", base="debian-13")
    values = merge_variant_files(files).values
    assert (values["c_stdlib_version"], values["c_compiler_version"]) == (("2.42",), ("14",))


def test_keys_that_no_recipe_uses_are_noted(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, {"variants/udp.yaml": FILES["variants/udp.yaml"] + "pyhton: ['3.11.*']\n"})
    (note,) = load_tree(tree).notes
    assert "udp.yaml:" in note
    assert note.endswith("no recipe of this tree uses the key 'pyhton'; did you mean python?")


def test_a_recipe_of_the_format_before_v1_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"conda-build before v1; expected recipe\.yaml \(CEP 13 and 14\)") as caught:
        load_tree(write_tree(tmp_path, {"recipes/old/meta.yaml": "package: {name: old, version: '1'}\n"}))
    assert caught.value.path == tmp_path / "recipes/old/meta.yaml"


def test_a_recipe_in_both_formats_is_read_in_v1(tmp_path: Path) -> None:
    loaded = load_tree(write_tree(tmp_path, {"recipes/toy-meta/meta.yaml": "package: {name: old}\n"}))
    assert "toy-meta" in loaded.recipes


def test_an_unknown_stack_names_the_nearest(tmp_path: Path) -> None:
    loaded = load_tree(write_tree(tmp_path))
    with pytest.raises(UsageError, match=r"'upd' is not a stack of .*stacks\.yaml") as caught:
        find_stack(loaded, "upd")
    assert caught.value.hint == "did you mean udp?"


@pytest.mark.parametrize(
    ("name", "text", "line", "message", "hint"),
    [
        pytest.param(
            "variants/stacks.yaml",
            STACKS.replace("toy-switch,", "toy-swich,"),
            6,
            "stack 'udp' names the package 'toy-swich', but there is no recipes/toy-swich/recipe.yaml",
            "did you mean toy-switch?",
            id="missing recipe",
        ),
        pytest.param(
            "variants/stacks.yaml",
            STACKS.replace("[udp.yaml]", "[upd.yaml]"),
            5,
            "names the variant file 'upd.yaml', which does not exist",
            "did you mean udp.yaml",
            id="missing variant file",
        ),
        pytest.param(
            "variants/stacks.yaml",
            STACKS.replace("default_stack: udp", "default_stack: rdma"),
            1,
            "default_stack names 'rdma', which is not a stack of this file",
            "known: udp",
            id="unknown default",
        ),
        pytest.param(
            "variants/stacks.yaml",
            STACKS.replace("description:", "descripton:"),
            4,
            "unknown key stacks.udp.descripton",
            "docs/reference/variants.md",
            id="missing key",
        ),
        pytest.param(
            "variants/stacks.yaml",
            STACKS + "    colour: red\n",
            9,
            "unknown key stacks.udp.colour",
            "docs/reference/variants.md",
            id="unknown key",
        ),
        pytest.param(
            "variants/stacks.yaml",
            STACKS.replace("method: switchml", "method: telepathy"),
            8,
            "Input should be 'distributed', 'nccl' or 'switchml', found 'telepathy'",
            "docs/reference/variants.md",
            id="unknown method",
        ),
        pytest.param(
            "variants/stacks.yaml",
            STACKS.replace("num_threads: 2}", "num_threads: [2]}"),
            8,
            "stacks.udp.validate.num_threads",
            "docs/reference/variants.md",
            id="a setting that is a list of numbers",
        ),
        pytest.param(
            "variants/stacks.yaml",
            STACKS.replace('"libtoy=*=udp*"', '"libtoy >=>1"'),
            7,
            "'libtoy >=>1' is not a valid MatchSpec",
            "write for example",
            id="bad MatchSpec",
        ),
        pytest.param("variants/stacks.yaml", "", 1, "default_stack is missing", "docs/", id="empty stacks file"),
        pytest.param(
            "variants/foundation-conda-forge.yaml",
            "libwire: ['1', '2']\nc_compiler_version: ['1']\nzip_keys: [[libwire, c_compiler_version]]\n",
            3,
            "libwire has 2",
            "the same number of values",
            id="zip_keys of a foundation that is not in use",
        ),
        pytest.param(
            "recipes/toy-meta/recipe.yaml",
            "package: {name: a}\npackage: {name: b}\n",
            2,
            "duplicate key 'package'",
            "keep one",
            id="recipe with a key twice",
        ),
        pytest.param(
            "recipes/toy-meta/recipe.yaml",
            "- a\n",
            1,
            "a recipe must be a mapping",
            "other recipes",
            id="recipe is a list",
        ),
    ],
)
def test_each_mistake_has_one_clear_error(
    tmp_path: Path, name: str, text: str, line: int, message: str, hint: str
) -> None:
    tree = write_tree(tmp_path, {name: text})
    with pytest.raises(ConfigError) as caught:
        load_tree(tree)
    assert (caught.value.path, caught.value.line) == (tmp_path / name, line)
    assert message in str(caught.value)
    assert hint in (caught.value.hint or "")
