# SPDX-License-Identifier: BSD-3-Clause
"""The JSON Schemas that editors check the YAML files with: they say what the readers of these files take."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from channel_tools import validate
from channel_tools.foundation.table import table_schema
from channel_tools.matrix.site import site_schema
from channel_tools.matrix.stacks import stacks_schema
from channel_tools.validate.model import ValidationMethod
from channel_tools.validate.runner import find_method
from tests.support.golden import assert_golden

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "docs" / "reference" / "schemas"
FILES = [ROOT / "variants" / "stacks.yaml", *sorted((ROOT / "channel_tools" / "foundation" / "data").glob("*.yaml"))]


def _validator_class() -> type[Draft202012Validator]:
    """The class, whose module takes two seconds to import: every worker imports this file, one runs it."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415

    return Draft202012Validator


@pytest.mark.parametrize(
    ("name", "make"),
    [("stacks", stacks_schema), ("site", site_schema), ("foundation-table", table_schema)],
    ids=["stacks", "site", "table"],
)
def test_a_schema_is_what_the_reader_takes(name: str, make: Callable[[], dict[str, Any]]) -> None:
    _validator_class().check_schema(make())
    assert_golden(SCHEMAS / f"{name}.json", json.dumps(make(), indent=2) + "\n")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_names_its_schema_and_keeps_to_it(path: Path) -> None:
    named = re.search(r"^# yaml-language-server: \$schema=(.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert named is not None
    validator = _validator_class()(json.loads((path.parent / named[1]).read_text(encoding="utf-8")))
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert [error.message for error in validator.iter_errors(content)] == []
    assert not validator.is_valid(content | {"unknown": 1})


def test_the_methods_that_a_stack_may_name_are_those_that_there_are() -> None:
    named = stacks_schema()["$defs"]["_ValidationModel"]["properties"]["method"]["enum"]
    assert sorted(named) == sorted(path.parent.name for path in Path(validate.__file__).parent.glob("*/method.py"))
    assert all(isinstance(find_method("stack", name), ValidationMethod) for name in named)
