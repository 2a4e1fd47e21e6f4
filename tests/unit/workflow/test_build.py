# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from channel_tools.system.errors import FoundationError
from channel_tools.workflow import build, foundation

NEEDLESS = {
    "urllib3",
    "jinja2",
    "debian",
    "installer",
    "securesystemslib",
    "channel_tools.build.cluster",
    "channel_tools.foundation.build",
    "channel_tools.foundation.record",
    "channel_tools.foundation.repairs",
    "channel_tools.pins.lock",
    "channel_tools.provenance.statements",
    "channel_tools.sources.patches",
    "channel_tools.sources.transfer",
    "channel_tools.system.http.client",
}


@pytest.mark.parametrize(
    ("script", "needless"),
    [
        pytest.param("import channel_tools.workflow.build", NEEDLESS | {"elftools"}, id="the command"),
        pytest.param(
            "import channel_tools.build.worker, channel_tools.build.engine", NEEDLESS | {"rattler"}, id="a build"
        ),
        pytest.param(
            "import channel_tools.build.environment",
            {"msgspec", "yaml", "rattler_build"},
            id="before the builds' process",
        ),
    ],
)
def test_a_build_imports_only_what_every_build_needs(script: str, needless: set[str]) -> None:
    """Importing is most of a small build: what downloads, signs or makes a foundation is imported where it is used."""
    script = f"import sys; {script}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert needless.isdisjoint(result.stdout.split())


def test_versions_are_checked_before_a_python_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes minutes, and may be followed by an error that was there from the start."""

    def refuse(*_: object, **__: object) -> None:
        raise FoundationError("there is no PyTorch for the CPU")

    monkeypatch.setattr(build, "pythons_to_build", lambda *_: ["3.11"])
    monkeypatch.setattr(foundation, "with_needs", lambda *_: None)
    monkeypatch.setattr(foundation, "check_registry_versions", refuse)
    run: Any = SimpleNamespace(
        settings=None,
        request=SimpleNamespace(foundation=None),
        expansion=None,
        progress=None,
        _built_python=lambda _minor: pytest.fail("a Python is compiled"),
    )
    with pytest.raises(FoundationError, match="no PyTorch for the CPU"):
        build._Build.make_foundation(run)
