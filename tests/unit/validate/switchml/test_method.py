# SPDX-License-Identifier: BSD-3-Clause
"""What a user's script is started with: a software switch, if libswitchml can use one and no other is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from channel_tools.ranks.hosts import Host
from channel_tools.ranks.plan import Placement, StartSettings, placement_here, plan_ranks
from channel_tools.system.errors import UsageError
from channel_tools.validate.switchml.method import ACCOUNT, SwitchmlMethod, summary


@pytest.fixture
def place(tmp_path: Path) -> Placement:
    return replace(placement_here(tmp_path, 2, variables={}), installed={"libswitchml": "0.1 udp_h0_0"})


def settings_of(place: Placement, *, switch: bool = False) -> StartSettings:
    return SwitchmlMethod().start_settings(place, stack="udp", options={}, switch=switch)


REMOTE = Host(name="localhost", ranks=2, is_local=False)


def test_ranks_of_one_host_need_no_switch(place: Placement) -> None:
    """Nor host reduction to be set: it is the plugin's default, and several times as fast as gloo."""
    for asked in (place, replace(place, installed={"libswitchml": "0.1 rdma_h0_0"}), replace(place, hosts=(REMOTE,))):
        assert settings_of(asked) == StartSettings(account=ACCOUNT, variables={"SWITCHML_CONTROLLER": "none"})


def test_a_single_rank_has_nothing_to_reduce(place: Placement) -> None:
    assert settings_of(replace(place, ranks=1)) == StartSettings(account=ACCOUNT)


def test_a_switch_that_is_to_be_tried_runs_beside_the_ranks(place: Placement, tmp_path: Path) -> None:
    settings = settings_of(place, switch=True)
    (switch,) = settings.services
    controller = settings.variables["SWITCHML_CONTROLLER"]
    lines = [*plan_ranks(place, settings, stack="udp", words=["train.py"], folder=tmp_path).lines()]
    assert f"export SWITCHML_CONTROLLER={controller}" in lines
    address, port = controller.split(":")
    assert f"switchml-switch --address {address} --controller-port {port} &" in lines
    assert settings.variables["SWITCHML_HOST_REDUCTION"] == "off"
    assert switch.ready_line is not None
    assert switch.ready_line.search('{"event": "ready", "controller": "127.0.0.1:1"}')


def test_ranks_of_one_other_host_go_through_a_switch_that_is_to_be_tried(place: Placement) -> None:
    settings = settings_of(replace(place, hosts=(REMOTE,)), switch=True)
    assert {*settings.variables} == {"SWITCHML_CONTROLLER", "SWITCHML_HOST_REDUCTION"}


@pytest.mark.parametrize(
    ("switch", "variables", "message"),
    [
        (True, {"SWITCHML_CONTROLLER": "s:1"}, "SWITCHML_CONTROLLER=s:1 names another switch"),
        (True, {"SWITCHML_HOST_REDUCTION": "on"}, "SWITCHML_HOST_REDUCTION=on keeps the ranks of a host from using"),
        (True, {"SWITCHML_ENABLE": "0"}, "SWITCHML_ENABLE=0 switches the plugin off"),
        (False, {"SWITCHML_HOST_REDUCTION": "Off"}, "each rank would go through a switch, and SWITCHML_CONTROLLER"),
    ],
    ids=["another", "reduction on", "plugin off", "reduction off"],
)
@pytest.mark.parametrize("of_the_user", [True, False], ids=["the user's", "the environment's"])
def test_variables_that_contradict_the_switch_are_refused(
    place: Placement, variables: dict[str, str], message: str, *, switch: bool, of_the_user: bool
) -> None:
    environ = variables if of_the_user else {}
    with pytest.raises(UsageError, match=message):
        settings_of(replace(place, environ=environ, variables=variables), switch=switch)


def test_on_several_hosts_the_switch_has_an_address_that_the_others_reach(place: Placement) -> None:
    settings = settings_of(replace(place, hosts=(*place.hosts, REMOTE)))
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
    assert settings_of(asked) == StartSettings(account=ACCOUNT, variables=variables)


def test_a_transport_that_needs_a_switch_of_the_users_says_so(place: Placement) -> None:
    asked = replace(place, installed={"libswitchml": "0.1 rdma_h0_0"}, hosts=(*place.hosts, REMOTE))
    with pytest.raises(UsageError, match="no software switch can be started for libswitchml's rdma"):
        settings_of(asked)
    with pytest.raises(UsageError, match="no software switch can be started for libswitchml's dummy"):
        settings_of(replace(place, installed={"libswitchml": "0.1 dummy_h0_0"}), switch=True)


REPORT: dict[str, Any] = {
    "delegated": {"float32": {"jobs": 3, "elements": 1 << 20, "bytes": 4 << 20}, "int32": {"jobs": 0, "bytes": 0}},
    "fallbacks": {"dtype": 2, "reduce_op": 1, "group": 0},
    "failure": None,
    "library": {"transport": "udp"},
    "host": {"ranks": [0, 1], "workers": 0},
    "controller": "10.0.0.1:50099",
}
NOTHING = {"float32": {"jobs": 0, "elements": 0, "bytes": 0}}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "the memory of this host carried 3 allreduces of rank 0, 4 MiB; gloo carried 3 allreduces ("),
        ({"host": {"workers": 2}}, "SwitchML (udp, controller 10.0.0.1:50099) carried 3 allreduces of rank 0"),
        (
            {"host": {"workers": 2}, "library": {"transport": "dummy"}},
            "nothing carried, the transport dummy multiplied",
        ),
        ({"delegated": NOTHING}, "SwitchML carried nothing; gloo carried 3 allreduces ("),
        ({"delegated": NOTHING, "fallbacks": {}, "failure": "gone"}, "SwitchML carried nothing; SwitchML's session"),
    ],
    ids=["memory", "switch", "dummy", "gloo", "failed"],
)
def test_the_line_of_a_launch_says_what_carried(changes: dict[str, Any], line: str) -> None:
    assert summary({**REPORT, **changes}).startswith(line)


def test_a_launch_without_a_report_says_that_no_session_was_opened() -> None:
    assert "SwitchML opened no session on rank 0" in summary(None)
