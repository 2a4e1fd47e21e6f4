# SPDX-License-Identifier: BSD-3-Clause
"""What the environment asks for."""

from pathlib import Path

import pytest

from torch_switchml.errors import SettingsError
from torch_switchml.settings import (
    DEFAULT_LIBRARY,
    DEFAULT_SETTINGS,
    is_enabled,
    is_requested,
    library_name,
    read_settings,
)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"SWITCHML_CONTROLLER": "  "}, False),
        ({"SWITCHML_CONTROLLER": "switch"}, True),
        ({"SWITCHML_CONTROLLER": "switch", "SWITCHML_ENABLE": "1"}, True),
        ({"SWITCHML_CONTROLLER": "switch", "SWITCHML_ENABLE": " Off "}, False),
        ({"SWITCHML_CONTROLLER": "switch", "SWITCHML_ENABLE": "perhaps"}, True),
        ({"SWITCHML_ENABLE": "1"}, False),
        ({"SWITCHML_REQUIRE": "1"}, True),
        ({"SWITCHML_REQUIRE": "perhaps"}, True),
        ({"SWITCHML_REQUIRE": "0"}, False),
        ({"SWITCHML_REQUIRE": ""}, False),
        ({"SWITCHML_REQUIRE": "1", "SWITCHML_ENABLE": "0"}, False),
    ],
)
def test_is_requested_by_a_controller_or_as_required_unless_switched_off(
    environ: dict[str, str], *, expected: bool
) -> None:
    assert is_requested(environ) is expected


@pytest.mark.parametrize(
    ("value", "expected"), [("", True), ("1", True), ("perhaps", True), (" Off ", False), ("0", False)]
)
def test_is_enabled_unless_switched_off(value: str, *, expected: bool) -> None:
    assert is_enabled({"SWITCHML_ENABLE": value}) is expected


def test_reads_every_variable() -> None:
    settings = read_settings(
        {
            "SWITCHML_CONTROLLER": " switch:50099 ",
            "SWITCHML_STATS_FILE": "stats.{rank}.{other}.json",
            "SWITCHML_JOB_TIMEOUT_MS": "1",
            "SWITCHML_NEW_GROUPS": "1",
            "SWITCHML_HOST_REDUCTION": "off",
            "SWITCHML_HOST": "card 1",
        }
    )
    assert settings.controller == "switch:50099"
    assert settings.stats_path(3) == Path("stats.3.{other}.json")
    assert settings.job_timeout_set
    assert settings.new_groups
    assert (settings.host_reduction, settings.host) == (False, "card 1")


@pytest.mark.parametrize("environ", [{}, {"SWITCHML_REQUIRE": "0", "SWITCHML_HOST_REDUCTION": "ON"}])
def test_ranks_may_write_the_same_setting_in_different_words(environ: dict[str, str]) -> None:
    assert read_settings(environ).common == {
        "SWITCHML_HOST_REDUCTION": "1",
        "SWITCHML_NEW_GROUPS": "0",
        "SWITCHML_REQUIRE": "0",
    }


def test_defaults() -> None:
    assert not DEFAULT_SETTINGS.job_timeout_set
    assert not DEFAULT_SETTINGS.new_groups
    assert (DEFAULT_SETTINGS.host_reduction, DEFAULT_SETTINGS.host) == (True, "")
    assert DEFAULT_SETTINGS.stats_path(0) is None


def test_names_the_library() -> None:
    assert library_name({}) == DEFAULT_LIBRARY == "libswitchml.so.1"
    assert library_name({"SWITCHML_LIBRARY": "/site/libswitchml.so.1"}) == "/site/libswitchml.so.1"


@pytest.mark.parametrize("controller", [{}, {"SWITCHML_CONTROLLER": " "}])
def test_what_is_required_may_do_without_a_controller(controller: dict[str, str]) -> None:
    settings = read_settings({**controller, "SWITCHML_REQUIRE": "on"})
    assert (settings.require, settings.controller) == (True, "")


@pytest.mark.parametrize("name", ["SWITCHML_ENABLE", "SWITCHML_HOST_REDUCTION"])
def test_names_a_malformed_switch(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}='perhaps': expected 1 or 0; correct it, or unset it"):
        read_settings({name: "perhaps"})
