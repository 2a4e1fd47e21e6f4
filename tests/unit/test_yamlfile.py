# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from channel_tools.errors import ConfigError
from channel_tools.yamlfile import parse_yaml, read_yaml

PATH = Path("variants/x.yaml")


def test_values_and_lines() -> None:
    document = parse_yaml("a: 1\nb:\n  - x\n  - y: [true, null]\n", PATH)
    assert document.value == {"a": 1, "b": ["x", {"y": [True, None]}]}
    assert document.line_of("b", 1, "y") == 4
    assert document.line_of("b", 7, "absent") == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\nb: 2\n", r"x\.yaml:2: this is no YAML"),
        ("a: 1\nb: 2\na: 3\n", r"x\.yaml:3: key 'a' stands twice, first in line 1"),
        ("x:\n  k: 1\n  k: 2\n", r"x\.yaml:3: key 'k' stands twice, first in line 2"),
        ("? [1, 2]\n: 3\n", r"x\.yaml:1: a key must be plain text"),
        ("a: 1\n---\nb: 2\n", r"x\.yaml:2: this is no YAML"),
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
    with pytest.raises(ConfigError, match="byte 3 is no UTF-8"):
        read_yaml(tmp_path / "bad.yaml")


_SCALARS = st.none() | st.booleans() | st.integers(-10, 10) | st.text(alphabet="abc -:#'\"", max_size=6)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3)
)


@given(_VALUES)
def test_reads_what_pyyaml_writes(value: object) -> None:
    assert parse_yaml(yaml.safe_dump(value), PATH).value == value
