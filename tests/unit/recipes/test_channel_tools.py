# SPDX-License-Identifier: BSD-3-Clause
"""The recipe of this program says what pyproject.toml says, and its files pass the audit that they hold."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import channel_tools
from channel_tools.audit.reading import _BUILD_FOLDERS, _PREFIX_MARK
from channel_tools.conda.specs import read_spec, spec_name
from channel_tools.foundation.table import load_table
from channel_tools.system.settings import STACKS_PACKAGE
from channel_tools.system.yamlfile import read_yaml

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "channel_tools"


def _in_recipe(*keys: str) -> object:
    value: object = read_yaml(ROOT / "recipes" / "channel_tools" / "recipe.yaml").value
    for key in keys:
        assert isinstance(value, dict)
        value = value[key]
    return value


def test_its_dependencies_and_version_are_those_of_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = dict(load_table(subdir="linux-64").conda_names)
    wanted = {f"python {project['requires-python']}", STACKS_PACKAGE}
    extras = project["optional-dependencies"]
    for text in (*project["dependencies"], *extras["pack"], *extras["sbom"]):
        found = Requirement(text)
        if found.marker is not None and not found.marker.evaluate({"platform_machine": "x86_64"}):
            continue
        wanted.add(f"{names.get(found.name, found.name)} {found.specifier}")
    required = _in_recipe("requirements", "run")
    assert isinstance(required, list)
    assert {_normal(str(text)) for text in required} == {_normal(text) for text in wanted}
    assert _in_recipe("context", "version") == channel_tools.__version__


def _normal(text: str) -> tuple[str, SpecifierSet]:
    return spec_name(text), SpecifierSet(str(read_spec(text).version or ""))


@pytest.mark.parametrize("mark", [*_BUILD_FOLDERS, _PREFIX_MARK])
def test_its_files_have_no_mark_of_a_build_that_the_audit_searches_for(mark: bytes) -> None:
    files = [path for path in PROGRAM.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert [path for path in files if mark in path.read_bytes()] == []
