# SPDX-License-Identifier: BSD-3-Clause
"""From the environment to a session: all ranks or none, and without being asked only what cannot fail."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Transport
from rank_server import RankServer
from ranks import Launcher, RankResult, free_port, on_hosts, values

QUICK = {"SWITCHML_CONNECT_TIMEOUT_MS": "1500", "SWITCHML_JOB_TIMEOUT_MS": "1500"}
LOADED_BY_AUTOLOAD = ["torch_switchml", "torch_switchml.errors", "torch_switchml.settings", "torch_switchml.version"]
LEFT_TO_GLOO = "SwitchML carried nothing for these 2 ranks: "


@pytest.fixture
def unasked(launcher: Launcher) -> Launcher:
    """Starts ranks for which nothing asks for SwitchML."""
    environment = {**launcher.environment, "SWITCHML_CONTROLLER": "", "SWITCHML_HOST_REDUCTION": ""}
    return Launcher(folder=launcher.folder, environment=environment, server=launcher.server)


@pytest.mark.parametrize(
    "environment",
    [{}, {"SWITCHML_CONTROLLER": " "}, {"SWITCHML_REQUIRE": "1"}, {"SCENARIO_BACKEND": "sml"}],
    ids=["unset", "blank", "required", "by name"],
)
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_of_one_host_reduce_in_its_memory_without_a_controller(
    unasked: Launcher, environment: dict[str, str], ranks: int
) -> None:
    for result in unasked.run("one_allreduce", ranks=ranks, environment=environment):
        assert result.code == 0, result.stderr
        assert result.value["sum"] == ranks
        assert result.value["stats"]["host"] == {"ranks": list(range(ranks)), "workers": 0}
        assert result.value["stats"]["delegated"]["float32"]["jobs"] == 1
        assert "SwitchML carried" not in result.stderr


def assert_left_to_gloo(results: list[RankResult], reason: str) -> None:
    """All of them, in seconds, and rank 0 says once why."""
    for result in results:
        assert result.code == 0, result.stderr
        assert result.value["sum"] == 2
        assert result.stderr.count(LEFT_TO_GLOO) == (result.rank == 0)
    assert reason in results[0].stderr
    assert "asked for" not in results[0].stderr


def test_ranks_of_several_hosts_stay_with_gloo_without_a_controller(unasked: Launcher) -> None:
    results = unasked.run("one_allreduce", rank_environment=on_hosts("ab"))
    assert_left_to_gloo(results, "on 2 hosts, or in as many containers that share no memory, and SWITCHML_CONTROLLER")
    assert not results[0].value["stats"]["active"]


def test_ranks_whose_host_refuses_memory_stay_with_gloo(unasked: Launcher) -> None:
    results = unasked.run("no_memory_to_share")
    assert_left_to_gloo(results, "its ranks cannot share the memory of their host: each of ranks 0, 1 is a worker")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, "a rank has no torch-switchml that could share memory with it"),
        ({"SWITCHML_ENABLE": "0"}, "a rank has no torch-switchml that could share memory with it"),
        ({"SWITCHML_LIBRARY": "/nowhere/libswitchml.so"}, "rank 1: cannot load the SwitchML library /nowhere/"),
        ({"SWITCHML_JOB_TIMEOUT_MS": "perhaps"}, "SWITCHML_JOB_TIMEOUT_MS='perhaps'"),
        ({"SWITCHML_ENABLE": "perhaps"}, "rank 1: SWITCHML_ENABLE='perhaps'"),
    ],
    ids=["no plugin", "switched off", "no library", "malformed", "malformed switch"],
)
def test_a_rank_that_cannot_leaves_all_with_gloo(unasked: Launcher, changes: dict[str, str], reason: str) -> None:
    assert_left_to_gloo(unasked.run("one_allreduce", rank_environment={1: changes}), reason)


@pytest.mark.parametrize(
    "environment", [{"SWITCHML_REQUIRE": "1"}, {"SCENARIO_BACKEND": "sml"}], ids=["required", "by name"]
)
@pytest.mark.parametrize(
    ("rank_environment", "reason"),
    [
        (on_hosts("ab"), "its 2 ranks are on 2 hosts"),
        ({rank: {"SWITCHML_HOST_REDUCTION": "off"} for rank in range(2)}, "SWITCHML_HOST_REDUCTION is off"),
    ],
    ids=["hosts", "switched off"],
)
def test_what_is_asked_for_and_needs_a_controller_is_an_error_of_all_ranks(
    unasked: Launcher, environment: dict[str, str], rank_environment: dict[int, dict[str, str]], reason: str
) -> None:
    for result in unasked.run("one_allreduce", environment=environment, rank_environment=rank_environment):
        assert result.code != 0
        assert f"SwitchML was asked for but cannot be used: {reason}" in result.stderr
        assert "SWITCHML_CONTROLLER is not set: set it to host[:port]" in result.stderr


def test_does_nothing_where_it_is_switched_off(tmp_path: Path, rank_server: RankServer) -> None:
    environment = {"SWITCHML_CONTROLLER": "127.0.0.1:1", "SWITCHML_ENABLE": "0"}
    launcher = Launcher(folder=tmp_path, environment=environment, server=rank_server)
    for value in values(launcher.run("unconfigured")):
        assert value["modules"] == LOADED_BY_AUTOLOAD
        assert value["hook"] != "function", "wrapped"
        assert value["backend"] == "ProcessGroupGloo"
        assert value["maps"] is False
        assert value["sum"] == 2


def test_does_nothing_when_autoload_is_off(launcher: Launcher) -> None:
    for value in values(launcher.run("unconfigured", environment={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})):
        assert value["modules"] == []
        assert value["sum"] == 2


@pytest.mark.parametrize("backend", ["gloo", "cpu:gloo", ""], ids=["gloo", "cpu:gloo", "no argument"])
def test_delegates_however_gloo_is_asked_for(launcher: Launcher, backend: str) -> None:
    for value in values(launcher.run("one_allreduce", environment={"SCENARIO_BACKEND": backend})):
        assert value["sum"] == 2
        assert value["stats"]["delegated"]["float32"] == {"jobs": 1, "elements": 10, "bytes": 40}


def test_a_group_of_one_delegates_too(launcher: Launcher) -> None:
    (value,) = values(launcher.run("one_allreduce", ranks=1))
    assert value["sum"] == 1
    assert value["stats"]["delegated"]["float32"]["jobs"] == 1


def test_names_the_library_it_uses(launcher: Launcher, transport: Transport) -> None:
    for value in values(launcher.run("one_allreduce")):
        library = value["stats"]["library"]
        assert Path(library["path"]).is_absolute()
        assert library["abi_version"] == 1
        assert library["transport"] == ("fake" if transport.kind == "fake" else "udp")


def test_install_serves_a_script_that_configures_late(launcher: Launcher, transport: Transport) -> None:
    controller = transport.environment["SWITCHML_CONTROLLER"]
    environment = {"SCENARIO_CONTROLLER": controller, "SWITCHML_CONTROLLER": ""}
    for value in values(launcher.run("installed_late", environment=environment)):
        assert value["stats"]["delegated"]["float32"]["jobs"] == 1


def test_delegates_again_after_destroy(launcher: Launcher) -> None:
    for value in values(launcher.run("two_groups_in_turn")):
        assert value["jobs"] == [1, 2]


def test_delegates_under_pytorchs_debug_wrapper(launcher: Launcher) -> None:
    for value in values(launcher.run("debug_detail", environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})):
        assert value["debug"] == "DETAIL"
        assert value["stats"]["delegated"]["float32"]["jobs"] == 1


@pytest.mark.parametrize("level", ["OFF", "DETAIL"])
def test_ddp_logger_reads_gloos_own_object(launcher: Launcher, level: str) -> None:
    """It casts what the group has as gloo: with a delegating backend there, it read beyond it."""
    environment = {"TORCH_DISTRIBUTED_DEBUG": level}
    for rank, value in enumerate(values(launcher.run("ddp_logging_data", environment=environment))):
        assert value == {"backend_name": "gloo", "gloo_num_threads": 2, "world_size": 2, "rank": rank}


@pytest.mark.parametrize("fresh", [False, True], ids=["", "freed memory overwritten"])
def test_delegates_when_asked_for_by_name(launcher: Launcher, *, fresh: bool) -> None:
    """Also where Python overwrites what it frees: the options of gloo are read from an object that nobody else has."""
    environment = {"PYTHONMALLOC": "debug"} if fresh else {}
    for value in values(launcher.run("named_backend", environment=environment, fresh=fresh)):
        assert value["sum"] == 2
        assert value["backend"] == "switchml"
        assert value["events"] == ["switchml:all_reduce"]
        assert value["objects"] == [0, 1]
        assert value["stats"]["delegated"]["float32"]["jobs"] == 2
        assert value["stats"]["fallbacks"]["group"] == 0


def test_required_leaves_no_allreduce_to_gloo(launcher: Launcher) -> None:
    for value in values(launcher.run("required", environment={"SWITCHML_REQUIRE": "1"})):
        assert value["sum"] == 2
        assert "its dtype is none of float32, float16, bfloat16 and int32" in value["errors"]["dtype"][1]
        assert "its operation is not SUM" in value["errors"]["reduce_op"][1]
        assert "another group than the default one" in value["errors"]["group"][1]


def test_writes_the_report_file_of_each_rank(launcher: Launcher, tmp_path: Path) -> None:
    pattern = tmp_path / "report.{rank}.json"
    results = values(launcher.run("one_allreduce", environment={"SWITCHML_STATS_FILE": str(pattern)}))
    for rank, value in enumerate(results):
        report = json.loads((tmp_path / f"report.{rank}.json").read_text())
        assert report == value["stats"]
        assert report["rank"] == rank
    assert sorted(path.name for path in tmp_path.glob("*report*")) == ["report.0.json", "report.1.json"]


def test_a_report_that_cannot_be_written_fails_nothing(launcher: Launcher, tmp_path: Path) -> None:
    unwritable = tmp_path / "no such folder" / "report.json"
    results = launcher.run("one_allreduce", environment={"SWITCHML_STATS_FILE": str(unwritable)})
    values(results)
    assert all(f"cannot write SWITCHML_STATS_FILE {unwritable}" in result.stderr for result in results)


def errors(results: list[RankResult], *, within_s: float = 20) -> list[str]:
    """The texts of the errors of init_process_group, one per rank."""
    for value in values(results):
        assert value["type"] == "SwitchMLError"
        assert value["initialized"] is False
        assert value["seconds"] < within_s, value
    return [result.value["text"] for result in results]


def test_library_missing_on_one_rank_stops_all(launcher: Launcher) -> None:
    results = launcher.run("init_error", rank_environment={1: {"SWITCHML_LIBRARY": "libnone.so.1"}})
    for text in errors(results, within_s=5):
        assert "rank 1: cannot load the SwitchML library libnone.so.1" in text
        assert "rank 0" not in text


def test_other_abi_on_one_rank_stops_all(fake_launcher: Launcher) -> None:
    results = fake_launcher.run("init_error", rank_environment={0: {"SWITCHML_FAKE_ABI": "7"}})
    for text in errors(results, within_s=5):
        assert "rank 0: the SwitchML library" in text
        assert "has ABI version 7, this torch-switchml needs 1" in text


def test_refused_session_on_one_rank_stops_all(fake_launcher: Launcher) -> None:
    results = fake_launcher.run(
        "init_error", environment=QUICK, rank_environment={1: {"SWITCHML_FAKE_FAIL_OPEN": "no room for worker 1"}}
    )
    for text in errors(results):
        assert "rank 1: cannot open the SwitchML session" in text
        assert "no room for worker 1" in text


def test_a_rank_that_cannot_open_ends_the_wait_of_the_others(fake_launcher: Launcher) -> None:
    """Their own opening would take ten minutes; nothing of it is left that keeps the group from being made again."""
    waiting: dict[str, str | None] = {"SWITCHML_FAKE_OPEN_DELAY_MS": "600000"}
    failing: dict[str, str | None] = {"SWITCHML_FAKE_FAIL_OPEN": "its port is held"}
    results = fake_launcher.run("init_error", ranks=3, rank_environment={0: waiting, 1: failing, 2: waiting})
    for text in errors(results, within_s=5):
        assert "cannot be used: rank 1: cannot open the SwitchML session: " in text
        assert "its port is held" in text
        assert "rank 0" not in text


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("hosts", ["off", "on"])
def test_a_rank_whose_port_is_held_stops_all_and_they_begin_again(
    launcher: Launcher, transport: Transport, failing: int, hosts: str
) -> None:
    if transport.kind == "fake":
        pytest.skip("the stand-in has no ports of its own")
    environment = {"SCENARIO_FAILING": str(failing)}
    places = on_hosts("ab") if hosts == "on" else {}
    results = launcher.run("port_held_at_first", environment=environment, rank_environment=places)
    for value in values(results):
        kind, text, seconds = value["error"]
        assert kind == "SwitchMLError"
        assert f"cannot be used: rank {failing}: cannot open the SwitchML session: " in text
        assert "Address already in use" in text
        assert f"rank {1 - failing}" not in text
        assert seconds < 5
        assert value["sum"] == 2


NETWORKS = {
    "no route": "unreachable",
    "refused": "were refused for 3000 ms: nothing listens on that port",
    "silence": "did not answer within 3000 ms",
}
"""What another network than the others' makes of the controller, and what is to be said of it."""


def reasons_on_one_rank(tmp_path: Path) -> dict[str, tuple[dict[str, str | None], str]]:
    """What keeps one rank from opening its session, by what is wrong: its environment, and what is to be said."""
    missing = str(tmp_path / "no such folder" / "token")
    return {
        "address": ({"SWITCHML_LOCAL_ADDRESS": "198.51.100.1"}, "rank 1: .*198.51.100.1 is none"),
        "permission": ({"SWITCHML_TOKEN_FILE": missing}, f"rank 1: .*{missing}"),
        "certificate": ({"SWITCHML_TLS_CA": missing}, f"rank 1: .*{missing}"),
        "number": ({"SWITCHML_RETRANSMIT_TIMEOUT_US": "soon"}, "rank 1: .*SWITCHML_RETRANSMIT_TIMEOUT_US='soon'"),
        "controller": (
            {"SWITCHML_CONTROLLER": "no-such-host.invalid"},
            "SWITCHML_CONTROLLER must be the same on all ranks, but is .* 'no-such-host.invalid:50099' on rank 1",
        ),
        "version": ({"SCENARIO_FAILURE": "version"}, "the version of torch-switchml .* '0.0.1' on rank 1"),
        "compiled part": ({"SCENARIO_FAILURE": "compiled part"}, "rank 1: .*torch_switchml._C"),
        "memory": ({"SCENARIO_FAILURE": "memory"}, "rank 1: MemoryError: no more"),
        "threads": ({"SCENARIO_FAILURE": "threads"}, "rank 1: .*the system gives no thread .*ulimit -u"),
        "exit": ({"SCENARIO_FAILURE": "exit"}, "rank 1: SystemExit: 3"),
        **{kind: ({"SCENARIO_FAILURE": kind}, f"rank 1: .*{said}") for kind, said in NETWORKS.items()},
    }


@pytest.mark.parametrize("reason", reasons_on_one_rank(Path()))
def test_whatever_keeps_one_rank_from_opening_stops_all_at_once(
    launcher: Launcher, transport: Transport, tmp_path: Path, reason: str
) -> None:
    if transport.kind == "fake":
        pytest.skip("the stand-in knows none of these settings")
    if reason in NETWORKS and subprocess.run(["unshare", "--net", "true"], check=False).returncode != 0:
        pytest.skip("this user may not make a network")
    environment, said = reasons_on_one_rank(tmp_path)[reason]
    results = launcher.run("failure_of_one_rank", rank_environment={1: environment})
    for value in values(results):
        assert value["seconds"] < 5, value
    assert re.search(said, results[0].value["text"])
    assert "rank 0: " not in results[0].value["text"]


@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_killed_as_it_opens_is_named(launcher: Launcher, killed: int) -> None:
    """Whatever the time limits, and whether or not the controller has heard of it."""
    results = launcher.run("failure_of_one_rank", rank_environment={killed: {"SCENARIO_FAILURE": "killed"}})
    assert results[killed].code == -signal.SIGKILL
    told = results[1 - killed].value
    assert f"cannot be used: rank {killed}: its process ended while the ranks set SwitchML up" in told["text"]
    assert told["seconds"] < 5


def test_switch_not_there_stops_all(launcher: Launcher, transport: Transport) -> None:
    if transport.kind == "fake":
        pytest.skip("the stand-in's controller is rank 0 itself")
    results = launcher.run("init_error", environment={**QUICK, "SWITCHML_CONTROLLER": f"127.0.0.1:{free_port()}"})
    for text in errors(results):
        # ranks are named together where their words are the same
        assert re.search(
            r"ranks 0, 1: cannot open the SwitchML session|rank 0: cannot open[\s\S]*rank 1: cannot open", text
        ), text
        assert "were refused for 1500 ms" in text


def test_packets_that_do_not_pass_stop_all(deaf_switch_launcher: Launcher) -> None:
    """The first allreduce would wait for the group's time limit: leases are renewed through the controller."""
    for text in errors(deaf_switch_launcher.run("init_error"), within_s=8):
        assert re.search(
            r"cannot be used: rank \d: cannot open the SwitchML session: .*no packets \(UDP\) pass between", text
        )
        assert re.search(r"and the switch at \S+: none of \d+ was answered within 3000 ms", text)


def test_settings_that_differ_stop_all(launcher: Launcher, transport: Transport) -> None:
    if transport.kind == "fake":
        pytest.skip("the stand-in compares no settings")
    results = launcher.run("init_error", rank_environment={1: {"SWITCHML_PACKET_NUMEL": "64"}})
    for text in errors(results, within_s=5):
        assert "SWITCHML_PACKET_NUMEL must be the same on all ranks, but is '256' on rank 0, '64' on rank 1" in text


@pytest.mark.parametrize("name", ["SWITCHML_ENABLE", "SWITCHML_REQUIRE", "SWITCHML_JOB_TIMEOUT_MS"])
def test_malformed_setting_on_one_rank_stops_all(launcher: Launcher, name: str) -> None:
    results = launcher.run("init_error", rank_environment={1: {name: "perhaps"}})
    for text in errors(results, within_s=5):
        assert re.search(f"rank 1: .*{name}='perhaps'[:,] expected ", text)


def test_unconfigured_rank_is_named(launcher: Launcher, transport: Transport) -> None:
    """Whatever the time limits: it does not even begin."""
    results = launcher.run("failure_of_one_rank", rank_environment={1: {"SWITCHML_CONTROLLER": None}})
    reason = "rank 1: did not report" if transport.kind == "fake" else "rank 1 did not report within 3 s: is SwitchML"
    assert reason in results[0].value["text"]
    assert results[0].value["seconds"] < 5
    assert "RuntimeError" in results[1].stderr, "gloo must not have gone on alone"


def test_a_rank_that_takes_long_to_load_the_plugin_is_no_rank_without_it(launcher: Launcher) -> None:
    """As from a network file system: it says that it is there before it loads the compiled part."""
    for value in values(launcher.run("slow_to_load", rank_environment={1: {"SCENARIO_FAILURE": "slow"}})):
        assert value["sum"] == 2
        assert value["stats"]["delegated"]["float32"]["jobs"] == 1


def test_runs_under_torchrun(launcher: Launcher, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "tensor = torch.full((100,), dist.get_rank() + 1, dtype=torch.int32)\n"
        "dist.all_reduce(tensor)\n"
        "assert tensor.eq(3).all()\n"
        "dist.destroy_process_group()\n"
    )
    environment = {
        **os.environ,
        **launcher.environment,
        "SWITCHML_STATS_FILE": str(tmp_path / "{rank}.json"),
        "TMPDIR": str(tmp_path),  # torchrun leaves its folders behind
        "OMP_NUM_THREADS": "1",
    }
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script],
        env=environment,
        check=True,
        timeout=120,
    )
    for rank in range(2):
        report = json.loads((tmp_path / f"{rank}.json").read_text())
        assert report["delegated"]["int32"] == {"jobs": 1, "elements": 100, "bytes": 400}
