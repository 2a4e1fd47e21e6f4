# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

from channel_tools.mirror.format import Received
from channel_tools.workflow.mirror import in_words
from tests.unit.mirror.bundles import exporting_site, toy_channel


def test_a_plan_says_what_it_has_and_what_the_other_site_has_already(tmp_path: Path) -> None:
    site = exporting_site(tmp_path, toy_channel(tmp_path))
    first = site.plan()
    assert in_words(first).startswith("2 packages, ")
    assert "already" not in in_words(first)
    one, other = sorted(first.packages, key=lambda file: file.path)
    for have, words in (((one, other), "2 packages"), ((one,), "1 package")):
        since = Received(version=1, root_sha256="", files={file.path: str(file.sha256) for file in have})
        said = in_words(site.plan(since=since))
        assert said.startswith(f"{2 - len(have)} package")
        assert said.endswith(f" MB; the importing site has {words} already")
