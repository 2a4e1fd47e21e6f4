# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.foundation.pypi import pip_error
from channel_tools.system.errors import ChannelToolsError, FoundationError, IntegrityError, NetworkError
from channel_tools.system.processes import CommandResult

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.foundation.registries import Registries


def test_the_closure_follows_requirements_for_the_foundations_python(registries: Registries) -> None:
    registries.add_wheel(
        "app",
        {"app.py": ""},
        requires=(
            "lib[fast]>=1",
            'old; python_version < "3.11"',
            'new; python_version >= "3.12"',
            'docs; extra == "docs"',
        ),
    )
    registries.add_wheel("lib", {"lib.py": ""}, version="1.5", requires=('speed; extra == "fast"',))
    registries.add_wheel("speed", {"speed.py": ""})
    found = {taken.name: taken for taken in registries.sources.pip.resolve(["app"])}
    assert sorted(found) == ["app", "lib", "speed"]
    assert found["app"].requires == ("lib>=1", "speed")
    assert found["lib"].version == "1.5"
    assert len(found["lib"].sha256) == 64


def test_constraints_of_an_active_environment_are_not_for_the_foundation(
    registries: Registries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registries.add_wheel("app", {"app.py": ""}, version="2.0")
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("app==1.0\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(constraints))
    (found,) = registries.sources.pip.resolve(["app"])
    assert found.version == "2.0"


def test_a_requirement_that_nothing_meets_is_named(registries: Registries) -> None:
    registries.add_wheel("app", {"app.py": ""})
    with pytest.raises(FoundationError, match=r"(?s)app>=2.*not found by pip") as caught:
        registries.sources.pip.resolve(["app>=2"])
    assert "--foundation conda-forge" in str(caught.value.hint)


def test_an_unreachable_index_is_a_network_error(registries: Registries) -> None:
    with pytest.raises(NetworkError, match="the package index could not be reached") as caught:
        registries.unreachable().pip.resolve(["app"])
    assert "--foundation conda-forge" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", IntegrityError),
        ("ERROR: Wheel 'x' located at y is invalid.", IntegrityError),
        ("WARNING: Retrying ... NewConnectionError\nERROR: No matching distribution found for x", NetworkError),
        ("WARNING: something of no import\nERROR: No matching distribution found for x", FoundationError),
    ],
    ids=["hash", "cut", "no-route", "none"],
)
def test_what_pip_says_becomes_the_error_that_a_user_can_act_on(stderr: str, expected: type[ChannelToolsError]) -> None:
    result = CommandResult(command=("pip",), returncode=1, stdout="", stderr=stderr)
    assert type(pip_error(result, "wheel x")) is expected
