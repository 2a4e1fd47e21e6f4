# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rattler_build import VariantConfig

from channel_tools.matrix.variants import find_used_keys, merge_variant_files, notes_on_unused_keys, read_variant_file
from channel_tools.system.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.matrix.model import VariantFile
    from channel_tools.system.yamlfile import YamlValue


def _file(folder: Path, name: str, text: str) -> VariantFile:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_variant_file(path)


def test_reads_keys_values_and_groups(tmp_path: Path) -> None:
    file = _file(tmp_path, "a.yaml", "python: ['3.10', '3.11']\nnumpy: ['1', '2']\nzip_keys: [[python, numpy]]\n")
    assert file.values == {"python": ("3.10", "3.11"), "numpy": ("1", "2")}
    assert file.zip_keys == (("python", "numpy"),)


def test_numbers_and_truth_values_may_be_plain(tmp_path: Path) -> None:
    assert _file(tmp_path, "a.yaml", "a: [12, -3, true, False]\n").values == {"a": (12, -3, True, False)}


def test_an_empty_file_has_no_keys(tmp_path: Path) -> None:
    file = _file(tmp_path, "a.yaml", "# nothing yet\n")
    assert (file.values, file.zip_keys) == ({}, None)


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("a: [b\nc: d\n", 2, "this is not valid YAML", "correct the syntax"),
        ("python: ['3.11']\npython: ['3.12']\n", 2, "duplicate key 'python', first in line 1", "keep one"),
        ("# pins\npython: '3.11'\n", 2, "the value of 'python' must be a list, found the text '3.11'", "['3.11']"),
        ("python: {a: b}\n", 1, "must be a list, found a mapping", "write"),
        ("python:\n", 1, "must be a list, found a nothing", "write"),
        ("python: []\n", 1, "the list of 'python' is empty", "value"),
        ("- python\n", 1, "a variant file must be a mapping of keys to lists of values, found a list", "python:"),
        (
            "python:\n  - '3.9'\n  - 3.10\n",
            3,
            "'python' has 3.10, which some YAML parsers read as 3.1",
            "quote it: '3.10'",
        ),
        ("a: [b, 010]\n", 1, "'a' has 010, which some YAML parsers read as 8", "quote it: '010'"),
        ("a: [1:30]\n", 1, "'a' has 1:30, which some YAML parsers read as 90", "quote it"),
        ("a: [2023_08]\n", 1, "'a' has 2023_08, which some YAML parsers read as 202308", "quote it"),
        ("a: [yes]\n", 1, "'a' has yes, which some YAML parsers read as True", "quote it: 'yes'"),
        (f"a: [{2**63}]\n", 1, f"'a' has the number {2**63}, which is too large", "quote it"),
        ("python:\n  - {unix: gcc}\n", 2, "must be text, found a mapping", "a condition with the keys if and then"),
        ("pin_run_as_build: {python: x}\n", 1, "no meaning for v1 recipes", "remove"),
        ("zip_keys: [python]\n", 1, "zip_keys must be a list of groups", "zip_keys: [["),
        ("zip_keys:\n  - [a, b]\n  - [a]\n", 3, "group 2 of zip_keys must name two keys or more", "correct"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, line: int, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _file(tmp_path, "bad.yaml", text)
    assert caught.value.path == tmp_path / "bad.yaml"
    assert caught.value.line == line
    assert message in str(caught.value)
    assert caught.value.hint is not None
    assert hint in caught.value.hint


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: cannot be read"):
        read_variant_file(tmp_path / "absent.yaml")


def test_later_files_replace_values_and_groups(tmp_path: Path) -> None:
    first = _file(tmp_path, "1.yaml", "a: ['1', '2']\nb: ['1', '2']\nc: [x]\nzip_keys: [[a, b]]\n")
    second = _file(tmp_path, "2.yaml", "b: ['3', '4']\n")
    third = _file(tmp_path, "3.yaml", "c: [y, z]\nzip_keys: [[b, c]]\n")
    assert merge_variant_files([first, second]).zip_keys == (("a", "b"),)
    merged = merge_variant_files([first, second, third])
    assert merged.values == {"a": ("1", "2"), "b": ("3", "4"), "c": ("y", "z")}
    assert merged.zip_keys == (("b", "c"),)


def test_merging_agrees_with_the_engine(tmp_path: Path) -> None:
    files = [
        _file(tmp_path, "1.yaml", "a: ['1', '2']\nb: ['1', '2']\nc: [x]\nzip_keys: [[a, b]]\n"),
        _file(tmp_path, "2.yaml", "c: [y, z]\nb: ['3', '4']\n"),
    ]
    merged = merge_variant_files(files)
    engine = VariantConfig.from_files([file.path for file in files])
    assert {key: list(values) for key, values in merged.values.items()} == engine.to_dict()
    assert [list(group) for group in merged.zip_keys] == engine.zip_keys


def test_groups_of_unequal_length_name_both_keys_and_places(tmp_path: Path) -> None:
    first = _file(tmp_path, "1.yaml", "\na: ['1', '2']\nb: ['1', '2']\nzip_keys:\n  - [a, b]\n")
    second = _file(tmp_path, "2.yaml", "b: ['1', '2', '3']\n")
    with pytest.raises(ConfigError, match=r"a has 2 \(1\.yaml:2\), b has 3 \(2\.yaml:1\)") as caught:
        merge_variant_files([first, second])
    assert (caught.value.path, caught.value.line) == (first.path, 5)


def test_a_group_with_an_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    file = _file(tmp_path, "1.yaml", "python: ['1']\nnumpy: ['1']\nzip_keys: [[python, nmpy]]\n")
    with pytest.raises(ConfigError, match="zip_keys names 'nmpy', which has no values") as caught:
        merge_variant_files([file])
    assert caught.value.hint == "did you mean numpy?"


def test_a_key_that_no_recipe_uses_is_noted_with_its_line_and_the_nearest(tmp_path: Path) -> None:
    file = _file(tmp_path, "1.yaml", "target_platform: [linux-64]\npython: ['1']\nswichml_transport: [udp]\nzz: [1]\n")
    note = f"note: {file.path}:LINE: no recipe of this tree uses the key"
    assert list(notes_on_unused_keys([file], frozenset({"python", "switchml_transport"}))) == [
        f"{note} 'swichml_transport'; did you mean switchml_transport?".replace("LINE", "3"),
        f"{note} 'zz'".replace("LINE", "4"),
    ]


_KEYS = st.sampled_from(["a", "b", "c", "d"])


@given(sizes=st.dictionaries(_KEYS, st.integers(1, 3), min_size=1), zipped=st.lists(_KEYS, unique=True))
def test_the_matrix_multiplies_free_keys_and_zips_groups(sizes: dict[str, int], zipped: list[str]) -> None:
    group = [key for key in zipped if key in sizes]
    lengths = {sizes[key] for key in group}
    if len(group) < 2 or len(lengths) > 1:
        group = []
    values = {key: [f"{key}{number}" for number in range(count)] for key, count in sizes.items()}
    combinations = VariantConfig(values, zip_keys=[group] if group else None).combinations()
    free = [key for key in sizes if key not in group]
    expected = list(itertools.product(*(values[key] for key in free), range(sizes[group[0]] if group else 1)))
    assert len(combinations) == len(expected)
    for key in group:
        assert all(item[key][1:] == item[group[0]][1:] for item in combinations)


@pytest.mark.parametrize(
    ("recipe", "key"),
    [
        pytest.param({"build": {"string": "${{ transport }}_h${{ hash }}_0"}}, "transport", id="template"),
        pytest.param({"build": {"skip": ["match(python, '<3.11')"]}}, "python", id="skip"),
        pytest.param({"source": [{"if": "cuda == 'yes'", "then": {"path": "x"}}]}, "cuda", id="condition"),
        pytest.param({"requirements": {"host": ["lib-grpc"]}}, "lib_grpc", id="bare name in host"),
        pytest.param({"requirements": {"build": [{"if": "x", "then": ["cmake"]}]}}, "cmake", id="conditional"),
        pytest.param({"requirements": {"build": ["${{ compiler('cxx') }}"]}}, "cxx_compiler", id="compiler"),
        pytest.param({"requirements": {"build": ["${{ compiler('c') }}"]}}, "c_compiler_version", id="its version"),
        pytest.param({"requirements": {"build": ['${{ stdlib("c") }}']}}, "c_stdlib_version", id="stdlib"),
        pytest.param({"build": {"variant": {"use_keys": ["debug"]}}}, "debug", id="use_keys"),
        pytest.param({"outputs": [{"requirements": {"host": ["python"]}}]}, "python", id="output"),
    ],
)
def test_a_used_key_is_found(recipe: YamlValue, key: str) -> None:
    assert key in find_used_keys(recipe)


@pytest.mark.parametrize(
    ("recipe", "key"),
    [
        pytest.param({"requirements": {"run": ["numpy"]}}, "numpy", id="run requirements are not pinned"),
        pytest.param({"about": {"summary": "python and more"}}, "python", id="plain text"),
        pytest.param({"requirements": {"build": ["${{ compiler('c') }}"]}}, "cxx_compiler", id="another language"),
    ],
)
def test_what_only_looks_alike_is_not_used(recipe: YamlValue, key: str) -> None:
    assert key not in find_used_keys(recipe)
