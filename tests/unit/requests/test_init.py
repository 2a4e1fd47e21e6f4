# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path
from typing import get_args

from channel_tools.requests.init import CiService, InitRequest
from channel_tools.workflow import init


def test_a_tree_is_started_without_an_upstream_or_workflow_unless_asked() -> None:
    request = InitRequest(folder=Path("mysite"))
    assert (request.upstream, request.ci) == (None, None)


def test_there_is_a_template_for_every_service() -> None:
    templates = {path.name for path in (Path(init.__file__).parent / "site").glob("ci_*")}
    assert templates == {f"ci_{name}" for name in get_args(CiService)}
