# SPDX-License-Identifier: BSD-3-Clause
"""The plugin's decisions that need no group; one process each, since hooks and sessions are per process."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from rank_server import RankServer
from ranks import Launcher

SOURCES = Path(__file__).resolve().parent.parent

PREAMBLE = """
import warnings
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
import torch
import torch.distributed as dist
from datetime import timedelta
from torch_switchml import _C, pytorch
from torch_switchml.agreement import Agreement
from torch_switchml.errors import SwitchMLError
from torch_switchml.membership import GroupMembership
from torch_switchml.plugin import Plugin, _job_timeout_ms, _settle_workers
from torch_switchml.settings import Transport, read_settings

def membership(size=2, timeout=None):
    return GroupMembership(rank=0, size=size, timeout=timeout)

def gloo(store):
    return dist.ProcessGroupGloo(store, 0, 1, timeout=timedelta(seconds=7))
"""


@pytest.fixture
def process(tmp_path: Path, rank_server: RankServer) -> Launcher:
    return Launcher(folder=tmp_path, server=rank_server)


def test_refuses_more_ranks_than_a_switch_serves(process: Launcher) -> None:
    process.run_code(
        PREAMBLE
        + """
agreement = Agreement(store=dist.HashStore(), rank=0, size=33, generation=1)
settings = read_settings({"SWITCHML_HOST_REDUCTION": "off"})
try:
    _settle_workers(settings, agreement, timedelta(seconds=1))
except SwitchMLError as err:
    assert str(err) == "the group's 33 ranks would be 33 workers, a switch serves 32", err
else:
    raise AssertionError
"""
    )


def test_job_timeout_is_the_environments_or_the_groups(process: Launcher) -> None:
    process.run_code(
        PREAMBLE
        + """
minutes = timedelta(minutes=30)
def timeout(timeout, environ={}):
    return _job_timeout_ms(read_settings(environ), Transport(job_timeout_ms=90_000), membership(timeout=timeout))

assert timeout(None) == 90_000
assert timeout(minutes) == 1_800_000
assert timeout(timedelta(seconds=2)) == 2_000
assert timeout(timedelta(microseconds=1)) == 1
assert timeout(timedelta.max) == 24 * 3600 * 1000
assert timeout(timedelta(seconds=2), {"SWITCHML_JOB_TIMEOUT_MS": "90000"}) == 90_000
"""
    )


def test_reads_what_pytorch_keeps_private(process: Launcher) -> None:
    process.run_code(
        PREAMBLE
        + """
store = dist.HashStore()
group = dist.ProcessGroup(dist.PrefixStore("here", store), 0, 1)
pytorch.store_of(group).set("key", "1")
_C.group_store(group).set("other", "2")  # how PyTorch before 2.9 is asked
assert store.get("here/key") == b"1" and store.get("here/other") == b"2"
backend = gloo(store)
assert pytorch.is_gloo(backend) and not pytorch.is_gloo(group)
assert pytorch.group_timeout(backend) == timedelta(seconds=7)
assert pytorch.group_timeout(group) is None
assert not pytorch.has_default_group()
"""
    )


def test_a_wrapped_backend_still_is_what_it_wraps(process: Launcher) -> None:
    process.run_code(
        PREAMBLE
        + """
inner = gloo(dist.HashStore())
backend = _C.SwitchMLBackend(inner=inner, counters=_C.Counters(print), named=False)
assert backend.name() == inner.name() == "gloo"
assert (backend.rank(), backend.size()) == (0, 1)
assert backend.options._timeout == timedelta(seconds=7)
assert isinstance(backend.wrapped, dist.ProcessGroupGloo)
assert backend.supports_splitting == inner.supports_splitting
"""
    )


def test_every_virtual_function_of_a_backend_is_forwarded(process: Launcher) -> None:
    """A function that a new PyTorch adds, and that is not handed on, would answer for gloo with its default."""
    folders = process.run_code(
        "from torch.utils.cpp_extension import include_paths; print(*include_paths(), sep=chr(10))"
    )
    (header,) = {
        path.resolve()
        for folder in folders.split()
        if (path := Path(folder, "torch/csrc/distributed/c10d/Backend.hpp")).is_file()
    }
    declared = set(re.findall(r"\bvirtual [^({;]*?(\w+)\(", header.read_text()))
    unguarded = re.sub(r"^#.*", "", (SOURCES / "csrc" / "backend.h").read_text(), flags=re.MULTILINE)
    forwarded = set(re.findall(r"(\w+)\([^;{]*\boverride;", unguarded))
    assert {"allreduce", "getBackendName"} <= declared
    assert declared <= forwarded, declared - forwarded


def test_a_pytorch_without_the_hook_is_logged_and_left_alone(
    process: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")  # it is loaded here, once the hook is gone
    process.run_code(
        PREAMBLE
        + """
import logging, os, torch_switchml
from torch._C import _distributed_c10d as c10d
records = []
handler = logging.Handler()
handler.emit = records.append
logging.getLogger("torch_switchml").addHandler(handler)
del c10d.ProcessGroup._register_backend
os.environ["SWITCHML_CONTROLLER"] = "x"
torch_switchml.autoload()
assert [record.levelname for record in records] == ["ERROR"], records
assert torch_switchml.stats()["active"] is False
"""
    )


def test_the_extension_names_no_folder_of_the_machine() -> None:
    """It finds PyTorch's libraries and libswitchml relative to where it is installed."""
    found = importlib.util.find_spec("torch_switchml._C")
    assert found is not None
    assert found.origin is not None
    content = Path(found.origin).read_bytes()
    assert b"$ORIGIN/" in content
    for folder in (sys.prefix, str(Path.home()), str(SOURCES)):
        assert folder.encode() not in content
