# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from channel_tools.system.errors import ConfigError
from channel_tools.system.yamlfile import load_plain_yaml, parse_yaml, read_yaml

PATH = Path("variants/x.yaml")


def test_values_and_lines() -> None:
    document = parse_yaml("a: 1\nb:\n  - x\n  - y: [true, null]\n", PATH)
    assert document.value == {"a": 1, "b": ["x", {"y": [True, None]}]}
    assert document.line_of("b", 1, "y") == 4
    assert document.line_of("b", 7, "absent") == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\nb: 2\n", r"x\.yaml:2: this is not valid YAML"),
        ("a: 1\nb: 2\na: 3\n", r"x\.yaml:3: duplicate key 'a', first in line 1"),
        ("x:\n  k: 1\n  k: 2\n", r"x\.yaml:3: duplicate key 'k', first in line 2"),
        ("? [1, 2]\n: 3\n", r"x\.yaml:1: a key must be plain text"),
        ("a: 1\n---\nb: 2\n", r"x\.yaml:2: this is not valid YAML"),
        ("a: !!python/object:os.system x\n", r"x\.yaml:1: "),
    ],
    ids=["syntax", "duplicate", "nested-duplicate", "list-key", "two-documents", "tag"],
)
def test_errors_name_file_and_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_yaml(text, PATH)


def test_missing_file_and_no_utf8(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        read_yaml(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_bytes(b"a: \xff\n")
    with pytest.raises(ConfigError, match="byte 3 is not valid UTF-8"):
        read_yaml(tmp_path / "bad.yaml")


def test_a_byte_order_mark_is_named(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_bytes(b"\xef\xbb\xbfpackage: {name: toy}\n")
    with pytest.raises(ConfigError, match=r"recipe\.yaml:1: begins with a byte order mark") as caught:
        read_yaml(path)
    command = str(caught.value.hint).partition(": ")[2]
    subprocess.run(["/bin/sh", "-c", command], check=True)
    assert read_yaml(path).value == {"package": {"name": "toy"}}


_SCALARS = st.none() | st.booleans() | st.integers(-10, 10) | st.text(alphabet="abc -:#'\"", max_size=6)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3)
)


@given(_VALUES)
def test_reads_what_pyyaml_writes(value: object) -> None:
    assert parse_yaml(yaml.safe_dump(value), PATH).value == value


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(x)}: &{chr(x)} [{', '.join(['*' + chr(x - 1)] * 9)}]\n" for x in range(98, 110)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: " + "[" * 100_000, r"x\.yaml:2: lists and mappings are nested more than 100 deep"),
        ("\n".join("  " * depth + "a:" for depth in range(200)), r"x\.yaml:\d+: lists and mappings are nested more"),
        ("- " * 50_000 + "x", r"x\.yaml:1: lists and mappings are nested more"),
        (BOMB, r"x\.yaml:7: it has more than 1,000,000 values, with aliases expanded"),
        ("a: 1\nb: &b\n  c: *b\n", r"x\.yaml:3: the alias \*b is inside its own anchor"),
        ("a: &a x\nb: *c\n", r"x\.yaml:2: this is not valid YAML: found undefined alias"),
    ],
    ids=["flow", "block", "compact", "bomb", "cycle", "unknown-alias"],
)
def test_yaml_without_measure_is_refused_by_file_and_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_yaml(text, PATH)
    with pytest.raises(yaml.YAMLError):
        load_plain_yaml(text.encode())


def test_aliases_that_stand_for_little_are_read() -> None:
    document = parse_yaml("a: &a [1, 2]\nb: [*a, *a]\nc: &c x\nd: *c\n", PATH)
    assert document.value == {"a": [1, 2], "b": [[1, 2], [1, 2]], "c": "x", "d": "x"}
    deep = "[" * 100 + "]" * 100
    parse_yaml(deep, PATH)
    load_plain_yaml(deep.encode())


@pytest.mark.parametrize(
    "text", ["2001-99-99", "!!int x", "!!float []", "{[1]: 2}", "{{a: 1}: 2}", "!!timestamp x", "9" * 5000]
)
def test_values_that_are_none_are_errors_of_yaml(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load_plain_yaml(text.encode())


def test_a_pipe_in_the_place_of_a_file_is_an_error_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "recipe.yaml")
    with pytest.raises(ConfigError, match=r"recipe\.yaml"):
        read_yaml(tmp_path / "recipe.yaml")
