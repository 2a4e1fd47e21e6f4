# SPDX-License-Identifier: BSD-3-Clause
"""recipes/fabric-profile: what is a profile, and what each sets on a machine with its NIC, by shell and job."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from channel_tools.doctor.profile import read_profile
from tests.support.fabric_profile import (
    NET,
    RECIPE,
    add_nic,
    installed_activation,
    profiles,
    variables_set,
    written_profile,
)
from tests.support.golden import assert_golden
from tests.support.programs import program

LIFECYCLE = RECIPE / "tests" / "activation.sh"
GOLDEN = Path(__file__).parent / "fabric-profiles"
ALWAYS = {
    "NCCL_CROSS_NIC": "1",
    "NCCL_SOCKET_IFNAME": "hsn",
    "FI_CXI_DEFAULT_CQ_SIZE": "131072",
    "FI_CXI_DISABLE_HOST_REGISTER": "1",
    "FI_MR_CACHE_MONITOR": "userfaultfd",
}
SHELLS = ("bash", "sh", "zsh")


def shell_command(name: str) -> list[str]:
    """``sh`` is the machine's own, on Debian dash; zsh without the user's settings."""
    return [program("zsh"), "-f"] if name == "zsh" else [f"/bin/{name}"]


@pytest.mark.parametrize("shell", SHELLS)
def test_activating_and_deactivating_leaves_what_was_there(tmp_path: Path, shell: str) -> None:
    prefix = installed_activation(tmp_path)
    (prefix / "share/fabric-profile/variables").write_bytes((RECIPE / "tests" / "variables").read_bytes())
    (tmp_path / "none/sys/class/cxi").mkdir(parents=True)
    (tmp_path / "nic/sys/class/cxi/cxi0").mkdir(parents=True)
    done = subprocess.run(
        [*shell_command(shell), "-eu", str(LIFECYCLE)],
        env={"CONDA_PREFIX": str(prefix), "WORK": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("job", "is_of_several_nodes"),
    [
        pytest.param({}, False, id="no job"),
        pytest.param({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1"}, False, id="slurm, 1"),
        pytest.param({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}, True, id="slurm, 2"),
        pytest.param({"SLURM_JOB_ID": "7", "SLURM_NNODES": "16"}, True, id="slurm, old name"),
        pytest.param({"SLURM_JOB_ID": "7"}, False, id="slurm, no number"),
        pytest.param({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "two"}, False, id="slurm, not a number"),
        pytest.param({"SLURM_JOB_NUM_NODES": "2"}, False, id="slurm, option of a submitted job"),
        pytest.param(
            {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "8", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "1"},
            False,
            id="slurm, step on 1 of 8",
        ),
        pytest.param(
            {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "8", "SLURM_STEP_ID": "3", "SLURM_STEP_NUM_NODES": "8"},
            True,
            id="slurm, step on 8 of 8",
        ),
        pytest.param(
            {
                "SLURM_JOB_ID": "7",
                "SLURM_JOB_NUM_NODES": "8",
                "SLURM_STEP_ID": "4294967290",
                "SLURM_STEP_NUM_NODES": "1",
            },
            True,
            id="slurm, interactive shell",
        ),
        pytest.param({"PBS_NODEFILE": "nid1\nnid1\nnid1\n"}, False, id="pbs, 1"),
        pytest.param({"PBS_NODEFILE": "nid1\nnid1\nnid2\nnid2\n"}, True, id="pbs, 2"),
        pytest.param({"PBS_NODEFILE": "nid1\nnid2"}, True, id="pbs, no newline at the end"),
        pytest.param({"PBS_NODEFILE": ""}, False, id="pbs, empty"),
        pytest.param({"LSB_MCPU_HOSTS": "nid1 64 "}, False, id="lsf, 1"),
        pytest.param({"LSB_MCPU_HOSTS": "nid1 64 nid2 64 "}, True, id="lsf, 2"),
        pytest.param({"FLUX_JOB_NNODES": "1"}, False, id="flux, 1"),
        pytest.param({"FLUX_JOB_NNODES": "2"}, True, id="flux, 2"),
        pytest.param(
            {"FLUX_JOB_NNODES": "1", "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "8"}, False, id="flux, 1 of slurm's 8"
        ),
    ],
)
def test_the_plugin_is_named_where_the_job_has_several_nodes(
    tmp_path: Path, shell: str, job: dict[str, str], *, is_of_several_nodes: bool
) -> None:
    if (content := job.get("PBS_NODEFILE")) is not None:
        (tmp_path / "nodes").write_text(content)
        job = {**job, "PBS_NODEFILE": str(tmp_path / "nodes")}
    found = variables_set(installed_activation(tmp_path), shell_command(shell), job)
    assert found == (ALWAYS | {"NCCL_NET": NET} if is_of_several_nodes else ALWAYS)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_node_file_of_another_host_is_no_error(tmp_path: Path, shell: str) -> None:
    found = variables_set(installed_activation(tmp_path), shell_command(shell), {"PBS_NODEFILE": str(tmp_path / "no")})
    assert found == ALWAYS


@pytest.mark.parametrize("shell", SHELLS)
def test_what_the_user_has_set_wins(tmp_path: Path, shell: str) -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}
    own = {"NCCL_NET": "", "NCCL_SOCKET_IFNAME": "eth0", "NCCL_NET_GDR_LEVEL": "SYS"}
    found = variables_set(installed_activation(tmp_path), shell_command(shell), {**job, **own})
    assert found == {**ALWAYS, **own}


SEVERAL = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}
ALTERNATIVE = {**SEVERAL, "SLURM_NETWORK": "disable_rdzv_get"}
OWN = {"NCCL_NET": "Socket", "FI_CXI_RDZV_PROTO": "default", "NCCL_CROSS_NIC": "0"}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_driver_without_a_nic_is_no_fabric(tmp_path: Path, shell: str) -> None:
    prefix = installed_activation(tmp_path, "efa")
    assert variables_set(prefix, shell_command(shell), SEVERAL)["NCCL_NET"] == NET
    (tmp_path / "root/sys/bus/pci/drivers/efa/0000:00:1d.0").rmdir()
    assert variables_set(prefix, shell_command(shell), SEVERAL) == {}


@pytest.mark.parametrize("shell", SHELLS)
def test_an_environment_without_its_profiles_files_is_activated(tmp_path: Path, shell: str) -> None:
    prefix = installed_activation(tmp_path)
    for name in ("device", "variables"):
        (prefix / "share/fabric-profile" / name).unlink()
        assert variables_set(prefix, shell_command(shell), SEVERAL) == {}


@pytest.mark.parametrize("profile", profiles())
def test_what_a_profile_sets_is_as_the_table_says(tmp_path: Path, profile: str) -> None:
    prefix, shell = installed_activation(tmp_path, profile), shell_command("bash")
    one = variables_set(prefix, shell, {})
    lines = [f"{name}={value}" for name, value in sorted(one.items())]
    cases = {
        "2 nodes": SEVERAL,
        "2 nodes, alternative rendezvous": ALTERNATIVE,
        "2 nodes, the user's own": ALTERNATIVE | OWN,
    }
    for words, job in cases.items():
        set_here = variables_set(prefix, shell, job)
        more = sorted(set_here.items() - one.items())
        lines += [f"{words}: {name}={value}" for name, value in more]
        assert set_here.keys() >= one.keys()
    (tmp_path / "root/dev").mkdir()
    (tmp_path / "root/dev/kfd").touch()
    amd = variables_set(prefix, shell, {})
    lines += [f"an AMD GPU: {name}={value}" for name, value in sorted(amd.items() - one.items())]
    device = (prefix / "share/fabric-profile/device").read_text().strip()
    for folder in ("cxi/cxi0", "drivers/efa/0000:00:1d.0"):
        for nic in (tmp_path / "root/sys").glob(f"**/{folder}"):
            shutil.rmtree(nic)
    assert variables_set(prefix, shell, SEVERAL) == {}
    add_nic(tmp_path / "root/of another fabric", "efa" if device == "cxi" else "cxi")
    (tmp_path / "root/sys").rename(tmp_path / "root/sys without one")
    (tmp_path / "root/of another fabric/sys").rename(tmp_path / "root/sys")
    assert variables_set(prefix, shell, SEVERAL) == {}
    assert_golden(GOLDEN / f"{profile}.txt", "\n".join(lines) + "\n")


GOOD = (
    'name = "toy"\nsummary = "s"\nsource = ["https://host/page"]\nreviewed = 2026-11-29\ndevice = "cxi"\n'
    'variables = [{ name = "NCCL_NET", value = "x y" }]\n'
)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param("summary", "sumary", "unknown key 'sumary'; a profile has name, summary,", id="unknown key"),
        pytest.param('summary = "s"\n', "", "summary is None, expected str", id="missing key"),
        pytest.param("2026-11-29", '"today"', "reviewed is 'today', expected a date", id="no date"),
        pytest.param('"toy"', '"other"', "name is 'other', expected the file's own", id="another name"),
        pytest.param('"https://host/page"', "", "source names nothing", id="no source"),
        pytest.param('"cxi"', '"ib"', "device is 'ib', expected one of cxi, efa", id="unknown device"),
        pytest.param('"x y" }', '"x", node = "several" }', "variable 1: unknown key 'node'", id="unknown condition"),
        pytest.param(
            '"x y" }', '"x", nodes = "many" }', "nodes of NCCL_NET is 'many', expected several", id="condition"
        ),
        pytest.param(
            '"cxi"\nvariables = [{',
            '"efa"\nvariables = [{ rendezvous = "alternative",',
            "variable 1: rendezvous of NCCL_NET is Slingshot's, and the device is 'efa'",
            id="another fabric's condition",
        ),
        *(
            pytest.param(
                '"x y" }',
                f'"x", plugin = {plugin} }}',
                "plugin of NCCL_NET is",
                id=f"no version of a plugin: {plugin}",
            )
            for plugin in ('"1.7"', '">1.7"', '">=1.7.1"', '"<2"', "1.7", '">=1.7,plugin<2.0"')
        ),
        pytest.param("NCCL_NET", "PATH", "variable 1: name is 'PATH', expected NCCL_,", id="another's variable"),
        pytest.param("NCCL_NET", "NCCL_A B", "variable 1: name is 'NCCL_A B'", id="no name"),
        pytest.param('"x y"', '"x\\ny"', "the value of NCCL_NET is 'x\\ny', expected text in one line", id="two lines"),
        pytest.param('"x y"', '" x"', "the value of NCCL_NET is ' x'", id="a blank before it"),
        pytest.param('"x y"', '""', "the value of NCCL_NET is ''", id="empty"),
        pytest.param('"x y"', "1", "the value of NCCL_NET is 1", id="a number"),
        pytest.param(
            '"x y" }', '"x" }, { name = "NCCL_NET", value = "y" }', "NCCL_NET is in the profile twice", id="twice"
        ),
        pytest.param("[{", "{", "cannot be read: ", id="no TOML"),
        pytest.param("[{ name", "[1, { name", "variable 1 is 1, expected a table", id="no table"),
    ],
)
def test_a_file_that_is_no_profile_is_one_error(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "toy.toml"
    file.write_text(GOOD)
    assert written_profile(file, tmp_path / "good").returncode == 0
    assert (tmp_path / "good/variables").read_text() == "- NCCL_NET x y\n"
    assert old in GOOD
    file.write_text(GOOD.replace(old, new, 1))
    done = written_profile(file, tmp_path / "bad")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{file}: ")
    assert message in done.stderr
    assert not (tmp_path / "bad").exists()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (None, set()),
        ("nccl-ofi-1.6.0-generic_cuda13_static_h0_0.json", {"OLD"}),
        ("nccl-ofi-1.21.1-generic_cuda13_static_h0_0.json", {"NEW", "NEWER"}),
        ("aws-ofi-nccl-1.17.0-h0_0.json", {"NEW", "NEWER"}),
        ("aws-ofi-nccl-2.0-h0_0.json", {"NEW", "NEWER"}),
        ("nccl-ofi-1.9.2-h0_0.json", {"NEW"}),
        ("nccl-1.6.0-h0_0.json", set()),
        ("nccl-ofi-extra-1.6.0-h0_0.json", set()),
    ],
)
def test_a_variable_for_some_versions_of_the_plugin(
    tmp_path: Path, shell: str, file: str | None, expected: set[str]
) -> None:
    prefix = installed_activation(tmp_path)
    profile = tmp_path / "toy.toml"
    variables = ", ".join(
        f'{{ name = "NCCL_{name}", value = "1", plugin = "{plugin}", nodes = "several" }}'
        for name, plugin in (("OLD", "<1.7"), ("NEW", ">=1.7"), ("NEWER", ">=1.17"))
    )
    profile.write_text(GOOD.replace('{ name = "NCCL_NET", value = "x y" }', variables))
    assert written_profile(profile, prefix / "share/fabric-profile").stderr == ""
    if file is not None:
        (prefix / "conda-meta").mkdir()
        (prefix / "conda-meta" / file).touch()
    found = variables_set(prefix, shell_command(shell), SEVERAL)
    assert {name.removeprefix("NCCL_") for name in found} == expected
    assert variables_set(prefix, shell_command(shell), {}) == {}
    read = read_profile(prefix)
    assert read is not None
    assert {name.removeprefix("NCCL_") for name in read.of_several_nodes(prefix)} == expected


@pytest.mark.parametrize(
    "value", ["$(touch bad)", "`touch bad`", "a;b", "'q", '"q', "^LL128", "~", "*", "a  b", "\\n", "#"]
)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_value_is_literal_in_every_shell(tmp_path: Path, shell: str, value: str) -> None:
    prefix = installed_activation(tmp_path)
    (prefix / "share/fabric-profile/variables").write_text(f"- NCCL_PROTO {value}\n")
    assert variables_set(prefix, shell_command(shell), {}) == {"NCCL_PROTO": value}
    assert not Path("bad").exists()
