# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.matrix.usage import find_used_keys

if TYPE_CHECKING:
    from channel_tools.yamlfile import YamlValue


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
