# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from channel_tools.requests.attest import AttestRequest
from channel_tools.requests.build import BuildRequest, ClusterRequest
from channel_tools.requests.plan import PlanRequest
from channel_tools.system.errors import UsageError
from channel_tools.system.settings import Settings, Tree


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"emit": "snakemake"}, "--emit snakemake and --output-dir FOLDER go together"),
        ({"destination": Path("there")}, "--emit snakemake and --output-dir FOLDER go together"),
        ({"on": "slurm", "emit": "snakemake", "destination": Path("there")}, "--on and --emit together"),
    ],
    ids=["no folder", "only a folder", "both"],
)
def test_a_workflow_is_either_run_or_written_to_a_folder(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ClusterRequest(**options)


def test_recipes_of_a_written_workflow_stand_in_its_own_folder(tmp_path: Path) -> None:
    settings = Settings(tree=Tree(root=tmp_path), output=tmp_path / "output", cache=tmp_path / "cache")
    assert ClusterRequest().is_here
    assert ClusterRequest().rendered(settings) == settings.rendered
    assert not ClusterRequest(on="slurm").is_here
    assert ClusterRequest(on="slurm").rendered(settings) == settings.rendered
    written = ClusterRequest(emit="snakemake", destination=tmp_path / "there")
    assert not written.is_here
    assert written.rendered(settings) == tmp_path / "there" / "recipes"


def test_packages_are_signed_with_the_command_that_built_them_unless_they_are_not_to_be() -> None:
    request = BuildRequest(plan=PlanRequest(stack="udp"), attest=AttestRequest(signing_key=Path("keys")))
    expected = AttestRequest(signing_key=Path("keys"), command=("channel_tools", "build", "--variant", "udp"))
    assert request.signing == expected
    assert BuildRequest(unattested=True).signing is None
    assert BuildRequest(recipe=Path("toy")).signing == AttestRequest()  # "channel_tools build" would be another build
