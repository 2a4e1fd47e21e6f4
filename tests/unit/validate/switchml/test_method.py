# SPDX-License-Identifier: BSD-3-Clause
"""What a user's script is started with: a software switch, if libswitchml can use one and no other is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.ranks.hosts import Host
from channel_tools.ranks.plan import Placement, StartSettings, placement_here, plan_ranks
from channel_tools.system.errors import UsageError
from channel_tools.validate.switchml.method import SwitchmlMethod


@pytest.fixture
def place(tmp_path: Path) -> Placement:
    return replace(placement_here(tmp_path, 2, variables={}), installed={"libswitchml": "0.1 udp_h0_0"})


def settings_of(place: Placement) -> StartSettings:
    return SwitchmlMethod().start_settings(place, stack="udp", options={})


def test_a_software_switch_runs_beside_the_ranks(place: Placement, tmp_path: Path) -> None:
    settings = settings_of(place)
    (switch,) = settings.services
    controller = settings.variables["SWITCHML_CONTROLLER"]
    lines = [*plan_ranks(place, settings, stack="udp", words=["train.py"], folder=tmp_path).lines()]
    assert f"export SWITCHML_CONTROLLER={controller}" in lines
    address, port = controller.split(":")
    assert f"switchml-switch --address {address} --controller-port {port} &" in lines
    assert settings.variables["SWITCHML_HOST_REDUCTION"] == "off"
    assert switch.ready_line is not None
    assert switch.ready_line.search('{"event": "ready", "controller": "127.0.0.1:1"}')


def test_on_several_hosts_the_switch_has_an_address_that_the_others_reach(place: Placement) -> None:
    other = Host(name="localhost", ranks=1, is_local=False)
    settings = settings_of(replace(place, hosts=(*place.hosts, other)))
    assert len(settings.services) == 1
    assert {*settings.variables} == {"SWITCHML_CONTROLLER"}  # ranks of a host are one worker


@pytest.mark.parametrize(
    ("build", "environ", "variables"),
    [
        ("udp_h0_0", {"SWITCHML_CONTROLLER": "switch:1"}, {}),
        ("dummy_h0_0", {}, {"SWITCHML_CONTROLLER": "none"}),
    ],
    ids=["a switch of the user's", "dummy"],
)
def test_no_switch_is_started_that_is_not_needed(
    place: Placement, build: str, environ: dict[str, str], variables: dict[str, str]
) -> None:
    asked = replace(place, installed={"libswitchml": f"0.1 {build}"}, environ=environ)
    assert settings_of(asked) == StartSettings(variables=variables)


def test_a_transport_that_needs_a_switch_of_the_users_says_so(place: Placement) -> None:
    with pytest.raises(UsageError, match="no software switch can be started for libswitchml's rdma"):
        settings_of(replace(place, installed={"libswitchml": "0.1 rdma_h0_0"}))
