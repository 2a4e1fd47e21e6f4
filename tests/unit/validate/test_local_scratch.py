# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
from pathlib import Path

import pytest

from channel_tools.ranks.hosts import Host, RankHosts
from channel_tools.system.errors import CommandError, UsageError
from channel_tools.validate.local_scratch import copy_to_hosts, local_scratch_of, scratch_folder


def hosts_named(*names: str) -> tuple[Host, ...]:
    return tuple(Host(name=name, ranks=1, is_local=name == names[0]) for name in names)


def hosts_of(folder: Path, srun: str) -> RankHosts:
    """Two nodes of a job; ``srun`` is what the program of this name does, in front of the command that it was given."""
    program = folder / "bin" / "srun"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\nwhile [ "$1" != sh ]; do shift; done\n{srun}\n')
    program.chmod(0o755)
    return RankHosts(
        hosts=hosts_named("n1", "n2"), address="10.0.0.1",
        is_slurm=True,
        variables={"PATH": f"{program.parent}:{os.environ['PATH']}"},
    )  # fmt: skip


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    made = tmp_path / "local disk" / "env"
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "python3.13").write_text("#!/bin/sh\n")
    (made / "bin" / "python3.13").chmod(0o755)
    (made / "bin" / "python").symlink_to("python3.13")
    return made


def test_the_other_nodes_get_the_environment_under_the_same_path(tmp_path: Path, prefix: Path) -> None:
    # one disk stands for both nodes': the second's has nothing yet when the first's is packed
    hosts = hosts_of(tmp_path, f'rm -rf "{prefix}"; exec "$@"')
    copy_to_hosts(prefix, hosts, tmp_path)
    assert (prefix / "bin" / "python").readlink() == Path("python3.13")
    assert os.access(prefix / "bin" / "python", os.X_OK)
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert "--nodelist=n2" in call
    assert not (tmp_path / "environment.tar").exists()


def test_a_node_without_room_is_named(tmp_path: Path, prefix: Path) -> None:
    hosts = hosts_of(
        tmp_path, '"$@"; code=$?; echo "srun: error: n2: task 0: Exited with exit code $code" >&2; exit $code'
    )
    tar = tmp_path / "bin" / "tar"
    lines = (
        "a: Wrote only 512 of 10240 bytes",
        "b: Cannot open: No space left on device",
        "Exiting with failure status",
    )
    tar.write_text("#!/bin/sh\n" + "".join(f"echo tar: {line} >&2\n" for line in lines) + "exit 2\n")
    tar.chmod(0o755)
    with pytest.raises(CommandError, match=r"unpacked on n2: tar: b: Cannot open: No space left on device$"):
        copy_to_hosts(prefix, hosts, tmp_path)


def test_the_folder_goes_from_every_node(tmp_path: Path) -> None:
    hosts = hosts_of(tmp_path, "exit 0")
    with scratch_folder(tmp_path, hosts, keep=False) as folder:
        assert folder.parent == tmp_path
        assert folder.is_dir()
    assert not folder.exists()
    assert f"rm -rf {folder}" in (tmp_path / "calls").read_text()


def test_a_folder_that_is_kept_stays(tmp_path: Path) -> None:
    hosts = hosts_of(tmp_path, "exit 0")
    with scratch_folder(tmp_path, hosts, keep=True) as folder:
        pass
    assert folder.is_dir()
    assert not (tmp_path / "calls").exists()


def test_a_node_without_the_folder_is_a_usage_error(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"--local-scratch .*/none: No such file or directory on the first node"),
        scratch_folder(tmp_path / "none", None, keep=False),
    ):
        pass


def test_other_nodes_of_pbs_are_reached_by_ssh() -> None:
    hosts = RankHosts(hosts=hosts_named("a", "b"), address="", variables={})
    words = hosts.shell_command("b", "rm -rf /x")
    assert (words[0], words[-3:]) == ("ssh", ("b", "--", "rm -rf /x"))


@pytest.mark.parametrize(
    ("text", "found"),
    [("/local", "/local"), ("$SLURM_TMPDIR", "/scratch/7"), ("${SLURM_TMPDIR}/conda", "/scratch/7/conda")],
)
def test_a_folder_may_be_a_variable_of_the_job(text: str, found: str) -> None:
    assert local_scratch_of(text, {"SLURM_TMPDIR": "/scratch/7"}) == Path(found)


@pytest.mark.parametrize(
    ("text", "words"),
    [("$SLURM_TMPDIR", "SLURM_TMPDIR is not set in this job"), ("local", "local is not an absolute path")],
)
def test_a_folder_that_nodes_do_not_have_in_common_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        local_scratch_of(text, {})
