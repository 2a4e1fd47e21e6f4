# SPDX-License-Identifier: BSD-3-Clause
"""The default stack as users get it: ``pytorch-switchml``, by conda clients, from each place that they can read.

``pytorch-cray-mpich`` too, from a folder by conda, and beside mpi4py.

rattler's engine, which pixi has as well, is always at hand; conda where a variable names it. rattler's way from a
bundle is in test_whole_path.py.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from channel_tools.system.processes import run_command
from channel_tools.system.settings import Settings
from tests.integration.conftest import ROOT, build_into_output, only_writer_of_output
from tests.integration.serve.test_clients import drive, naming
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.programs import has, program
from tests.support.s3 import Bucket
from tests.support.serving import make_token, nginx_before, running

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CLIENTS = ("rattler", "conda")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the stack is: its address as users write it, what has to be in the environment and before a command."""

    address: str
    token: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    inside: tuple[str, ...] = ()


@pytest.fixture(scope="module")
def channels(stack_channel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a server, with the stack in it."""
    root = tmp_path_factory.mktemp("channels")
    (root / "ours").symlink_to(stack_channel)
    return root


@contextmanager
def a_server(channels: Path, work: Path, *options: str) -> Iterator[Place]:
    token = make_token(channels, "ours")
    with running(channels, *options, work=work, workers=2) as server:
        yield Place(address=f"http://127.0.0.1:{server.port}/t/{token}/ours", token=token)
        assert {row["token"] for row in server.log() if row["status"] == 200} == {token[3:11]}
        assert token not in server.log_file.read_text()


@contextmanager
def behind_nginx(channels: Path, work: Path, program: str) -> Iterator[Place]:
    token = make_token(channels, "ours")
    with (
        running(channels, "--proxy", "127.0.0.1", work=work, workers=2) as server,
        nginx_before(server, program, work) as front,
    ):
        yield Place(address=f"{front.server.address}/t/{token}/ours", token=token)
        assert token not in front.log_file.read_text()


@pytest.mark.parametrize("client", CLIENTS)
def test_the_stack_is_installed_from_a_server_with_a_token(channels: Path, tmp_path: Path, client: str) -> None:
    can_run(client)
    with a_server(channels, tmp_path) as place:
        install(client, place, tmp_path)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_stack_is_installed_through_nginx_with_a_token(
    channels: Path, nginx: str, tmp_path: Path, client: str
) -> None:
    can_run(client)
    with behind_nginx(channels, tmp_path, nginx) as place:
        install(client, place, tmp_path)


@pytest.mark.usefixtures("stack_channel")
def test_the_stack_is_installed_from_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    """By rattler with the reader's own credentials, and by conda, which knows no s3 addresses here, over HTTP."""
    with only_writer_of_output():
        tool("publish", "--root", ROOT, "--to", bucket.address)
    private = {"AWS_ENDPOINT_URL": bucket.server.endpoint, "AWS_REGION": "us-east-1"}
    install("rattler", Place(address=f"s3://{bucket.name}/chan", environ=private), tmp_path / "rattler")
    if has("conda"):
        bucket.make_public()
        install("conda", Place(address=f"{bucket.server.endpoint}/{bucket.name}/chan"), tmp_path / "conda")


def test_conda_installs_the_stack_from_an_imported_bundle_without_a_network(
    stack_channel: Path, tmp_path: Path, without_network: tuple[str, ...]
) -> None:
    program("conda")
    keys, bundle, far = tmp_path / "keys", tmp_path / "bundle", tmp_path / "far"
    fingerprint = json.loads(tool("mirror", "keys", "create", "--keys", keys, "--json"))["fingerprint"]
    tool("mirror", "create", "--root", ROOT, "-c", stack_channel, "--keys", keys, "--to", bundle, "--without-tool")
    said = tool("mirror", "import", bundle, "--to", far, "--root-sha256", fingerprint, "--json", inside=without_network)
    (address,) = json.loads(said)["addresses"].values()
    install("conda", Place(address=address, inside=without_network), tmp_path)


@pytest.mark.parametrize("solver", ["rattler", "classic"])
def test_the_first_command_of_the_readme_works_in_conda_as_it_stands(
    stack_channel: Path, tmp_path: Path, solver: str
) -> None:
    """In a new environment that is active, and with shards, which are conda's default; only the channel is here."""
    conda = program("conda")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pattern = r"^    conda (install -c) file:///srv/ourchannel (pytorch-switchml switchml-switch)$"
    command = re.search(pattern, readme, re.MULTILINE)
    assert command is not None
    prefix = tmp_path / "env"
    environ = {"CONDA_PKGS_DIRS": str(tmp_path / "pkgs"), "CONDA_ALWAYS_YES": "true", "CONDA_SOLVER": solver}
    run_command([conda, "create", "--prefix", prefix], env=os.environ | environ, timeout_s=TEST_TIMEOUT_S)
    active = {"CONDA_PREFIX": str(prefix), "CONDA_DEFAULT_ENV": str(prefix), "CONDA_SHLVL": "1"}
    words = [conda, *shlex.split(command[1]), stack_channel.as_uri(), *shlex.split(command[2])]
    run_command(words, env=os.environ | environ | active, timeout_s=TEST_TIMEOUT_S)
    assert_imports(prefix)


def test_ranks_reduce_beside_mpi4py_in_an_environment_of_conda(own_settings: Settings, tmp_path: Path) -> None:
    """Whichever of the two starts MPI; the other takes it as it is."""
    program("conda")
    result = build_into_output("build", "--variant", "cray-mpich")
    assert result.returncode == 0, result.stderr
    prefix = tmp_path / "env"
    place = Place(address=own_settings.channel.as_uri())
    with_conda(place, prefix, tmp_path / "cache", "pytorch-cray-mpich", "pip", "numpy")
    python, mpiexec = prefix / "bin" / "python", prefix / "bin" / "mpiexec"
    done = run_command([python, "-m", "pip", "install", "--quiet", "mpi4py"], check=False, timeout_s=TEST_TIMEOUT_S)
    if done.returncode != 0:
        pytest.skip(f"mpi4py cannot be installed into the environment: {done.tail()}")
    script = ROOT / "tests" / "support" / "beside_mpi4py.py"
    for first in ("mpi4py", "torch"):
        done = run_command([mpiexec, "-n", "2", python, script, first], timeout_s=TEST_TIMEOUT_S)
        assert done.stdout == f"{first} first: 2 ranks, 2 allreduces by torch_mpi\n"


def can_run(client: str) -> None:
    """Skip, before anything is started, without the client."""
    if client == "conda":
        program("conda")


def tool(*arguments: object, inside: tuple[str, ...] = ()) -> str:
    command = [*inside, sys.executable, "-m", "channel_tools", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def install(client: str, place: Place, work: Path) -> None:
    """Make an environment with ``pytorch-switchml`` and import it there."""
    prefix, cache = work / "env", work / "cache"
    work.mkdir(exist_ok=True)
    if client == "conda":
        with_conda(place, prefix, cache, "pytorch-switchml")
        assert [path.name for path in (prefix / "conda-meta").glob("torch-switchml-*.json")]
    else:
        driver = ("tests.integration.conda.clients", "create", place.address, cache, prefix)
        done = drive(*driver, "pytorch-switchml", environ=dict(place.environ))
        assert done.returncode == 0, done.stderr
        assert any(name.startswith("torch-switchml-") for name in json.loads(done.stdout))
        assert place.token is None or naming(place.token, prefix / "conda-meta") == []
    assert_imports(prefix)


def assert_imports(prefix: Path) -> None:
    """Python there imports torch and torch_switchml."""
    found = subprocess.run(
        [prefix / "bin" / "python", "-c", "import torch, torch_switchml; print(torch_switchml.stats()['active'])"],
        capture_output=True,
        text=True,
        check=False,
        timeout=TEST_TIMEOUT_S,
    )
    assert found.stdout == "False\n", found.stderr


def with_conda(place: Place, prefix: Path, cache: Path, *specs: str) -> None:
    create = (program("conda"), "create", "--yes", "--quiet", "--override-channels", "--prefix", str(prefix))
    environ = {**os.environ, **place.environ, "CONDA_PKGS_DIRS": str(cache)}
    done = subprocess.run(
        [*place.inside, *create, "--channel", place.address, *specs],
        env=environ, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
