# SPDX-License-Identifier: BSD-3-Clause
"""What the environment asks for."""

from pathlib import Path

import pytest

from torch_switchml.errors import SettingsError
from torch_switchml.settings import DEFAULT_SETTINGS, is_requested, read_settings


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
    ],
)
def test_is_requested_by_a_controller_unless_switched_off(environ: dict[str, str], *, expected: bool) -> None:
    assert is_requested(environ) is expected


def test_reads_every_variable() -> None:
    settings = read_settings(
        {
            "SWITCHML_CONTROLLER": " switch:50099 ",
            "SWITCHML_LIBRARY": "/site/libswitchml.so.1",
            "SWITCHML_STATS_FILE": "stats.{rank}.{other}.json",
            "SWITCHML_CONNECT_TIMEOUT_MS": "1",
            "SWITCHML_JOB_TIMEOUT_MS": "4294967295",
            "SWITCHML_NUM_THREADS": "2",
            "SWITCHML_WORKER_PORT": "5000",
            "SWITCHML_NEW_GROUPS": "1",
            "SWITCHML_HOST_REDUCTION": "off",
            "SWITCHML_HOST": "card 1",
        }
    )
    assert settings.controller == "switch:50099"
    assert settings.library == "/site/libswitchml.so.1"
    assert settings.stats_path(3) == Path("stats.3.{other}.json")
    assert settings.connect_timeout_ms == 1
    assert settings.job_timeout_ms == 2**32 - 1
    assert settings.job_timeout_set
    assert settings.common["SWITCHML_NUM_THREADS"] == "2"
    assert (settings.worker_port, settings.num_threads, settings.new_groups) == (5000, 2, True)
    assert (settings.host_reduction, settings.host) == (False, "card 1")
    assert settings.common["SWITCHML_HOST_REDUCTION"] == "off"


def test_defaults_are_the_librarys() -> None:
    assert DEFAULT_SETTINGS.library == "libswitchml.so.1"
    assert DEFAULT_SETTINGS.connect_timeout_ms == 10_000
    assert DEFAULT_SETTINGS.job_timeout_ms == 30_000
    assert not DEFAULT_SETTINGS.job_timeout_set
    assert (DEFAULT_SETTINGS.worker_port, DEFAULT_SETTINGS.num_threads, DEFAULT_SETTINGS.new_groups) == (4000, 1, False)
    assert (DEFAULT_SETTINGS.host_reduction, DEFAULT_SETTINGS.host) == (True, "")
    assert DEFAULT_SETTINGS.stats_path(0) is None


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "soon", "4294967296", "\u0663", " 1"])
@pytest.mark.parametrize("name", ["SWITCHML_CONNECT_TIMEOUT_MS", "SWITCHML_JOB_TIMEOUT_MS"])
def test_names_a_malformed_time(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}=.*expected a whole number of milliseconds above 0"):
        read_settings({name: text})


@pytest.mark.parametrize("name", ["SWITCHML_ENABLE", "SWITCHML_HOST_REDUCTION"])
def test_names_a_malformed_switch(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}='perhaps': expected 1 or 0; correct it, or unset it"):
        read_settings({name: "perhaps"})
