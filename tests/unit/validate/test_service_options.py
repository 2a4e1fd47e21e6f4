# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from channel_tools.errors import ConfigError
from channel_tools.validate.distributed_options import read_distributed_options
from channel_tools.validate.service_options import ServiceOptions, filled

GOOD: dict[str, object] = {"command": ["server", "--port", "{port}"], "ready_port": "{port}"}


def read(**changes: object) -> ServiceOptions:
    values = {"backend": "toy", "services": [{**GOOD, **changes}]}
    (service,) = read_distributed_options("toy", values).services
    return service


def test_a_command_and_a_sign_of_readiness_are_enough() -> None:
    service = read(command=["sbin/server"])
    assert (service.name, service.ready_timeout_s, service.carried_line) == ("server", 60.0, None)


def test_placeholders_are_filled() -> None:
    assert filled("{prefix}/{port}:{port}", {"prefix": "/env", "port": "7"}) == "/env/7:7"
    service = read(ready_port="", ready_line=r"at (?P<where>\S+)", rank_environment={"WHERE": "{where}"})
    assert service.rank_environment == {"WHERE": "{where}"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"command": []}, "services.0.command: ", id="no command"),
        pytest.param({"ready_port": ""}, "one of ready_line and ready_port", id="no readiness"),
        pytest.param({"ready_line": "ready"}, "one of ready_line and ready_port", id="two readinesses"),
        pytest.param({"ready_port": "http"}, "services.0.ready_port: String should match", id="port"),
        pytest.param({"ready_port": "", "ready_line": "("}, "services.0.ready_line: ", id="expression"),
        pytest.param({"carried_line": "call"}, "carried_line needs a group (?P<rank>...)", id="no rank"),
        pytest.param({"carried_bytes": 64}, "how much one carried_line stands for", id="bytes of nothing"),
        pytest.param({"command": ["server", "{rank}"]}, "{rank} stands for nothing; known are port, pre", id="word"),
        pytest.param({"rank_environment": {"A": "{a}"}}, "{a} stands for nothing", id="variable"),
        pytest.param({"wait": 1}, "services.0.wait: ", id="unknown"),
    ],
)
def test_what_cannot_be_used_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match="stack toy: validate: ") as caught:
        read(**changes)
    assert message in str(caught.value)
