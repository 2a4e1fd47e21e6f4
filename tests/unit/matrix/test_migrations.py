# SPDX-License-Identifier: BSD-3-Clause
"""Migrations, by the results of conda-smithy's own algebra (``tests/test_variant_algebra.py`` there has the cases)."""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.matrix.migrations import apply_migrations, read_migration
from channel_tools.matrix.selectors import Selectors
from channel_tools.matrix.variants import read_conda_build_config
from channel_tools.system.errors import ConfigError

_PYTHONS = "python: [3.12.* *_cpython, 3.13.* *_cp313]\nis_python_min: [true, false]\nother: [1]\n"
_ZIPPED = _PYTHONS + "zip_keys:\n  -\n    - python\n    - is_python_min\n"
_ORDER = "  ordering: {python: [3.12.* *_cpython, 3.13.* *_cp313, 3.13.* *_cp313t, 3.14.* *_cp314, 3.14.* *_cp314t]}\n"
_ADD = "__migrator:\n  operation: key_add\n  primary_key: python\n"
_REMOVE = "__migrator:\n  operation: key_remove\n  primary_key: python\n"
_VERSION = "__migrator: {kind: version, migration_number: 1}\n"
_FREETHREADED = (
    "migrator_ts: 2\n" + _ADD + "  additional_zip_keys: [other]\n" + _ORDER + "python: [3.14.* *_cp314t]\n"
    "is_python_min: [false]\nother: [2]\n"
)


def migrate(pinning: str, *migrations: str, platform: str = "linux-64") -> dict[str, object]:
    """The values and groups after the migrations, which are named m0, m1 ..."""
    selectors = Selectors(platform, {})
    whole = read_conda_build_config(pinning, Path("conda_build_config.yaml"), selectors)
    read = [read_migration(text, Path(f"m{place}.yaml"), selectors) for place, text in enumerate(migrations)]
    found = apply_migrations(whole, read)
    return {**{key: list(values) for key, values in found.values.items()}, "zip": found.zip_keys}


@pytest.mark.parametrize(
    ("pinning", "migrations", "expected"),
    [
        pytest.param("a: [1.9]", [_VERSION + "a: ['1.10']"], {"a": ["1.10"]}, id="the higher version"),
        pytest.param("a: ['2']", [_VERSION + "a: ['1']"], {"a": ["2"]}, id="not the lower version"),
        pytest.param("a: [1, 3]", [_VERSION + "a: [2]"], {"a": ["2", "3"]}, id="place by place"),
        pytest.param("a: [1]", [_VERSION + "a: [2, '1.14']"], {"a": ["2", "1.14"]}, id="longer than the pinning"),
        pytest.param("a: [1]", [_VERSION + "b: [2]"], {"a": ["1"], "b": ["2"]}, id="a new key"),
        pytest.param("a: [1]", [_VERSION + "a: [2]  # [osx]"], {"a": ["1"]}, id="of another platform"),
        pytest.param(
            "a: [gcc, clang]", [_VERSION + "a: [toolchain_c, x]"], {"a": ["toolchain_c", "x"]}, id="words compare, too"
        ),
        pytest.param(
            "a: [y, x]",
            ["__migrator: {ordering: {a: [x, y, z]}}\na: [z]"],
            {"a": ["y", "z"]},
            id="an ordering takes the last of all",
        ),
        pytest.param(
            "a: [x]", ["__migrator: {ordering: {a: [y, x]}}\na: [y]"], {"a": ["x"]}, id="an ordering, not text order"
        ),
        pytest.param(
            "a: [1, 2]\nb: [p, q]\nzip_keys: [[a, b]]",
            ["__migrator: {primary_key: a, ordering: {a: [1, 2, 3]}}\na: [3]\nb: [r]"],
            {"a": ["2", "3"], "b": ["q", "r"], "zip": (("a", "b"),)},
            id="zipped keys follow a primary key",
        ),
        pytest.param(
            "a: [1]\nb: [2]\nc: [3]\nzip_keys: [[a, b]]",
            [_VERSION + "a: [1]\nb: [2]\nc: [3]\nzip_keys: [[a, b, c]]"],
            {"zip": (("a", "b", "c"),)},
            id="a group grows",
        ),
        pytest.param(
            _ZIPPED,
            [_ADD + _ORDER + "python: [3.14.* *_cp314]\nis_python_min: [false]"],
            {
                "python": ["3.12.* *_cpython", "3.13.* *_cp313", "3.14.* *_cp314"],
                "is_python_min": [True, False, False],
            },
            id="key_add",
        ),
        pytest.param(
            _ZIPPED,
            [_ADD + _ORDER + "python: [3.13.* *_cp313]\nis_python_min: [false]"],
            {"python": ["3.12.* *_cpython", "3.13.* *_cp313"], "is_python_min": [True, False]},
            id="key_add of what is there",
        ),
        pytest.param(
            "a: ['2', '10']",
            ["__migrator: {operation: key_add, primary_key: a}\na: ['9']"],
            {"a": ["2", "9", "10"]},
            id="key_add by version",
        ),
        pytest.param(
            "a: [1]",
            ["__migrator: {operation: key_add, primary_key: b}\na: [2]"],
            {"a": ["1"]},
            id="key_add without its key on this platform",
        ),
        pytest.param(
            _ZIPPED,
            [_FREETHREADED, "migrator_ts: 1\n" + _ADD + _ORDER + "python: [3.14.* *_cp314]\nis_python_min: [false]"],
            {
                "python": ["3.12.* *_cpython", "3.13.* *_cp313", "3.14.* *_cp314", "3.14.* *_cp314t"],
                "is_python_min": [True, False, False, False],
                "other": ["1", "1", "1", "2"],
                "zip": (("python", "is_python_min", "other"),),
            },
            id="the oldest is first, and a key joins the group",
        ),
        pytest.param(
            "a: [1]\nb: [x]",
            ["__migrator: {operation: key_add, primary_key: a, additional_zip_keys: [b]}\na: [2]\nb: [y]"],
            {"a": ["1", "2"], "b": ["x", "y"], "zip": (("a", "b"),)},
            id="a new group",
        ),
        pytest.param(
            _ZIPPED,
            [_REMOVE + _ORDER + "python: [3.12.* *_cpython]"],
            {"python": ["3.13.* *_cp313"], "is_python_min": [False]},
            id="key_remove",
        ),
        pytest.param(
            _ZIPPED,
            [_REMOVE + _ORDER + "python: [3.14.* *_cp314]"],
            {"python": ["3.12.* *_cpython", "3.13.* *_cp313"]},
            id="key_remove of what is not there",
        ),
    ],
)
def test_values_are_those_of_conda_smithy(pinning: str, migrations: list[str], expected: dict[str, object]) -> None:
    found = migrate(pinning, *migrations)
    assert {key: found[key] for key in expected} == expected


def test_a_selector_in_a_message_is_text() -> None:
    message = "__migrator:\n  commit_message: |\n    for example\n    as in  # [unknown != 'None']\n"
    assert migrate("a: [1]", message + "a: [2]\n")["a"] == ["2"]
    with pytest.raises(ConfigError, match=r"the selector .unknown. cannot be evaluated") as caught:
        migrate("a: [1]", message + "a: [2]  # [unknown]\n")
    assert caught.value.line == 5


def test_migrations_of_one_time_are_applied_by_name() -> None:
    first, second = (
        f"__migrator: {{ordering: {{a: {order}}}}}\na: [{value}]"
        for order, value in (("[x, y, z]", "y"), ("[z, y, x]", "z"))
    )
    assert migrate("a: [x]", first, second)["a"] == ["y"]


@pytest.mark.parametrize(
    ("pinning", "migration", "line", "words"),
    [
        pytest.param("a: [1]", "a: [2]", 1, "needs the mapping __migrator", id="no migration"),
        pytest.param("a: [1]", "__migrator:\n  operation: key_swap\n", 2, "operation 'key_swap'", id="operation"),
        pytest.param("a: [1]", "__migrator:\n  kind: split\n", 2, "kind 'split'", id="kind"),
        pytest.param("a: [1]", "__migrator:\n  bump: 1\n  orderings: {}\n", 2, "has 'bump'", id="setting"),
        pytest.param("a: [1]", "migrator_ts: new\n__migrator: {kind: version}\n", 1, "number of seconds", id="time"),
        pytest.param("a: [1]", "__migrator:\n  ordering: [a]\n", 2, "must be a mapping", id="ordering"),
        pytest.param("a: [1]", "__migrator:\n  operation: key_add\n", 2, "needs one primary_key", id="no primary key"),
        pytest.param(
            "a: [1]",
            "__migrator: {operation: key_add, primary_key: b}\nb: [2]",
            2,
            "no values of its primary",
            id="new",
        ),
        pytest.param(_ZIPPED, _ADD + "python: [3.14.* *_cp314]", 4, "no values of 'is_python_min'", id="zipped"),
        pytest.param(
            "a: [1]\nb: [1, 2]",
            "__migrator: {operation: key_add, primary_key: a, additional_zip_keys: [b]}\na: [2]\nb: [3]",
            1,
            "the pinning has 2 values",
            id="broadcast",
        ),
        pytest.param(
            "a: [q]", "__migrator:\n  ordering: {a: [x, y]}\na: [x]", 2, "does not have the value 'q'", id="rank"
        ),
        pytest.param("a: [x, x, y]", "__migrator: {ordering: {a: [x, y]}}\na: [y]", 1, "there twice", id="ambiguous"),
        pytest.param("a: [1]", _VERSION + "a: ['b/c']", 2, "only one is a version", id="order"),
        pytest.param(
            "a: [1]\nb: [2]\nzip_keys: [[a, b]]", _VERSION + "a: [1, 2]", 2, "different numbers of values", id="lengths"
        ),
        pytest.param(
            "a: [1, 2]", "__migrator: {operation: key_remove, primary_key: a}\na: [1, 2]", 2, "removes one", id="remove"
        ),
    ],
)
def test_what_is_not_understood_names_file_and_line(pinning: str, migration: str, line: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        migrate(pinning, migration)
    assert (caught.value.path, caught.value.line) == (Path("m0.yaml"), line)
    assert caught.value.hint
