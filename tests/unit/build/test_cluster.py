# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.build.cluster import check_work_is_shared, command_for
from channel_tools.requests.build import ClusterRequest
from channel_tools.system.errors import UsageError
from channel_tools.system.settings import Settings, Tree


def settings_in(folder: Path) -> Settings:
    return Settings(tree=Tree(root=folder), output=folder / "output", cache=folder / "cache")


def test_builds_run_in_a_folder_that_other_machines_can_access(tmp_path: Path) -> None:
    check_work_is_shared(Settings(tree=Tree(root=tmp_path), output=Path("/o"), cache=tmp_path / "cache"))
    with pytest.raises(UsageError, match="other machines cannot access") as caught:
        check_work_is_shared(settings_in(tmp_path / "a folder with spaces in its name"))
    assert "--output" in str(caught.value.hint)


def test_a_workflow_that_is_only_written_has_no_command(tmp_path: Path) -> None:
    settings = Settings(tree=Tree(root=tmp_path), output=Path("/o"), cache=tmp_path / "cache")
    request = ClusterRequest(emit="snakemake", destination=tmp_path / "there")
    assert command_for(settings, request, jobs=None) == ()
    assert not (tmp_path / "there").exists()
