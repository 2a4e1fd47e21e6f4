# SPDX-License-Identifier: BSD-3-Clause
"""An environment's profile: read as the recipe writes it; what is applied, what is set otherwise, and what hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.doctor.model import Diagnosis, ExaminedStack
from channel_tools.doctor.profile import PROFILE_FILE, find_profile, has_alternative_rendezvous, read_profile
from channel_tools.system.errors import ConfigError
from tests.support.fabric_profile import add_nic, installed_activation, profiles, variables_set

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}


@pytest.mark.parametrize("name", profiles())
def test_every_profile_of_the_recipe_is_read(tmp_path: Path, name: str) -> None:
    prefix = installed_activation(tmp_path, name)
    profile = read_profile(prefix)
    assert profile is not None
    assert profile.name == name
    # what LUMI says names no plugin: RCCL takes the one that it finds
    assert profile.of_several_nodes(prefix).keys() == ({"NCCL_NET"} if name != "lumi" else set())
    assert profile.is_for(tmp_path / "root")
    assert not profile.is_for(tmp_path)


def test_an_environment_without_the_package_has_none(tmp_path: Path) -> None:
    assert read_profile(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"schema": 2}', b"\xff"])
def test_a_file_that_is_no_profile_is_one_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / PROFILE_FILE
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="not a profile of a fabric: ") as caught:
        read_profile(tmp_path)
    assert "fabric-profile" in (caught.value.hint or "")


def test_a_folder_in_its_place_is_one_error(tmp_path: Path) -> None:
    (tmp_path / PROFILE_FILE).mkdir(parents=True)
    with pytest.raises(ConfigError, match="not a profile of a fabric: "):
        read_profile(tmp_path)


@pytest.mark.parametrize(
    ("properties", "network", "holds"),
    [
        pytest.param([], "", False, id="no NIC"),
        pytest.param(["0"], "", True, id="the node's"),
        pytest.param(["0", "0\n"], "", True, id="both NICs"),
        pytest.param(["0", "1"], "", False, id="one NIC of two"),
        pytest.param(["0", None], "", False, id="one that does not say"),
        pytest.param(["1"], "disable_rdzv_get", True, id="the job's"),
        pytest.param([], "single_node_vni,disable_rdzv_get", True, id="among others"),
        pytest.param(["1"], "no_disable_rdzv_get", False, id="another word"),
    ],
)
def test_alternative_rendezvous_is_the_jobs_or_every_nics(
    tmp_path: Path, properties: list[str | None], network: str, *, holds: bool
) -> None:
    for number, value in enumerate(properties):
        folder = tmp_path / f"sys/class/cxi/cxi{number}/device/properties"
        folder.mkdir(parents=True)
        if value is not None:
            (folder / "rdzv_get_en").write_text(value)
    assert has_alternative_rendezvous(tmp_path, {"SLURM_NETWORK": network}) is holds


def found(prefix: Path | None, root: Path, variables: dict[str, str]) -> dict[str, Diagnosis]:
    subject = ExaminedStack(
        stack="nccl-ofi", backend="nccl", settings={}, prefix=prefix, variables=variables, installed={}, root=root
    )
    return {one.subject: one for one in find_profile(subject)}


def test_without_a_profile_nothing_is_said(tmp_path: Path) -> None:
    assert found(tmp_path, tmp_path, {}) == found(None, tmp_path, {}) == {}


def test_a_machine_without_the_fabric_is_named(tmp_path: Path) -> None:
    (one,) = found(installed_activation(tmp_path), tmp_path, {"FI_CXI_RDZV_PROTO": "alt_read"}).values()
    assert (one.level, one.found) == ("ok", "slingshot: sets nothing here, for the kernel lists no Slingshot NIC")


def test_what_the_activation_has_set_is_as_it_says(tmp_path: Path) -> None:
    prefix = installed_activation(tmp_path)
    for job in (JOB, {**JOB, "SLURM_NETWORK": "disable_rdzv_get"}):
        variables = job | variables_set(prefix, ["bash"], job)
        (one,) = found(prefix, tmp_path / "root", variables).values()
        assert (one.level, one.found) == ("ok", "slingshot, of 2026-11-29")


@pytest.mark.parametrize(("name", "fabric"), [("slingshot", "Slingshot"), ("efa", "EFA")])
def test_a_machine_without_the_profiles_own_fabric_is_said_to_be_one(tmp_path: Path, name: str, fabric: str) -> None:
    prefix = installed_activation(tmp_path, name)
    add_nic(tmp_path / "other", "cxi" if name == "efa" else "efa")
    one = found(prefix, tmp_path / "other", {})["fabric profile"]
    assert (one.level, one.found) == ("ok", f"{name}: sets nothing here, for the kernel lists no {fabric} NIC")
    nic = next((tmp_path / "root/sys").glob("**/0000:00:1d.0" if name == "efa" else "**/cxi0"))
    assert "sets nothing" not in found(prefix, tmp_path / "root", {})["fabric profile"].found
    nic.rename(tmp_path / "unplugged")
    assert found(prefix, tmp_path / "root", {})["fabric profile"].found == one.found


def test_what_the_user_has_set_otherwise_is_named(tmp_path: Path) -> None:
    prefix = installed_activation(tmp_path)
    variables = variables_set(prefix, ["bash"], {**JOB, "NCCL_NET": "", "NCCL_CROSS_NIC": "2"})
    one = found(prefix, tmp_path / "root", variables)["fabric profile"]
    assert one.found == "slingshot, of 2026-11-29; set otherwise: NCCL_NET='', NCCL_CROSS_NIC='2'"


@pytest.mark.parametrize(
    ("name", "value", "subject", "fix"),
    [
        ("FI_CXI_RDZV_PROTO", "alt_read", "Slingshot's rendezvous", "give the job --network=disable_rdzv_get, or: "),
        ("FI_MR_CACHE_MONITOR", "memhooks", "libfabric's cache monitor", "export FI_MR_CACHE_MONITOR=userfaultfd"),
        ("MPICH_GPU_SUPPORT_ENABLED", "1", "MPI beside NCCL", "export MPICH_GPU_SUPPORT_ENABLED=0"),
    ],
)
def test_values_with_which_nccl_hangs_are_warnings(
    tmp_path: Path, name: str, value: str, subject: str, fix: str
) -> None:
    prefix = installed_activation(tmp_path)
    one = found(prefix, tmp_path / "root", {name: value})[subject]
    assert one.level == "warning"
    assert one.fix.startswith(fix)
    assert subject not in found(prefix, tmp_path / "root", {name: "other"})
