# SPDX-License-Identifier: BSD-3-Clause
"""What the index of a registry foundation lists, and where its PyTorch comes from."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from channel_tools.channel import Channel, Foundation, ensure_channel
from channel_tools.conda.metadata import PackageMetadata
from channel_tools.conda.platforms import current_platform
from channel_tools.foundation.build import FoundationResult
from channel_tools.foundation.model import LockedArtifact
from channel_tools.foundation.pypi import NoPytorchError
from channel_tools.foundation.record import RECORD_NAME, FoundationRecord, RecordedPackage, write_record
from channel_tools.requests.foundation import FoundationRequest
from channel_tools.requests.plan import PlanRequest
from channel_tools.system.errors import UsageError
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import Settings, Tree
from channel_tools.workflow import foundation
from channel_tools.workflow.foundation import (
    check_registry_versions,
    has_pytorch_for_cpu,
    index_foundation,
    make_registry_foundation,
    with_needs,
)
from channel_tools.workflow.plan import expand_request, list_stacks, offered_versions
from tests.support.packages import write_files
from tests.unit.foundation.registries import NotedProgress
from tests.unit.matrix.toytree import FILES
from tests.unit.workflow.test_plan import settings_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel_tools.foundation.table import FoundationTable
    from channel_tools.requests.names import BaseName

SUBDIR = current_platform()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A tree with nothing in it."""
    return Settings(tree=Tree(root=tmp_path / "tree"), output=tmp_path / "output", cache=tmp_path / "cache")


@pytest.fixture
def channel(settings: Settings) -> Channel:
    """The channel of the foundation, before anything is made."""
    return ensure_channel(settings.foundation, Foundation(kind="registry"), subdirs=(SUBDIR,))


def make(settings: Settings, build: str) -> Path:
    """A complete package in the foundation's folder."""
    metadata = PackageMetadata(name="toy", version="1.0", build=build, subdir=SUBDIR, depends=())
    return write_files(settings.foundation / SUBDIR, metadata, {"share/toy": build})


def finish(settings: Settings, channel: Channel, packages: Sequence[Path], *, removed: Sequence[Path] = ()) -> None:
    """Record these packages as the foundation, and index it."""
    rows = [
        RecordedPackage(
            name="toy",
            version="1.0",
            build=path.stem.rpartition("-")[2],
            subdir=SUBDIR,
            file_name=path.name,
            size_bytes=path.stat().st_size,
            unpacked_bytes=0,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            digest="0" * 64,
            taken=(),
        )
        for path in packages
    ]
    record = FoundationRecord(
        digest="1" * 64, suite="toys", python="3.11", subdir=SUBDIR, requirements=(), packages=tuple(rows)
    )
    write_record(settings.foundation, record)
    gone = tuple(f"{SUBDIR}/{path.name}" for path in removed)
    index_foundation(settings, channel, FoundationResult(made=(), kept=(), removed=gone))


def listed(settings: Settings) -> set[str]:
    """The file names in the index."""
    return set(json.loads((settings.foundation / SUBDIR / "repodata.json").read_bytes())["packages.conda"])


def test_what_an_earlier_run_left_is_neither_listed_nor_kept(settings: Settings, channel: Channel) -> None:
    """A run of other code or other versions was ended before it wrote a record: nothing says that these are old."""
    left, wanted = make(settings, "hold_0"), make(settings, "hnew_0")
    finish(settings, channel, [wanted], removed=[left])
    assert listed(settings) == {wanted.name}
    assert not left.exists()


def test_what_was_listed_is_deleted_when_the_index_no_longer_lists_it(settings: Settings, channel: Channel) -> None:
    former, wanted = make(settings, "hold_0"), make(settings, "hnew_0")
    finish(settings, channel, [former], removed=[wanted])
    wanted = make(settings, "hnew_0")
    finish(settings, channel, [wanted], removed=[former])
    assert listed(settings) == {wanted.name}
    assert not former.exists()


WHEEL = LockedArtifact(
    kind="wheel", name="torch", version="2.13.0+cpu", file_name="torch.whl", sha256="0" * 64, size_bytes=1
)
DEB = LockedArtifact(
    kind="deb", name="python3-torch", version="2.6.0+dfsg-7", file_name="torch.deb", sha256="0" * 64, size_bytes=1
)


def record_of(pytorch: LockedArtifact) -> FoundationRecord:
    """The record of a foundation with this PyTorch."""
    package = RecordedPackage(
        name="pytorch",
        version="1",
        build="h0_0",
        subdir=SUBDIR,
        file_name="pytorch-1-h0_0.conda",
        size_bytes=1,
        unpacked_bytes=1,
        sha256="0" * 64,
        digest="0" * 64,
        taken=(pytorch,),
    )
    return FoundationRecord(
        digest="1" * 64, suite="trixie", python="3.13", subdir=SUBDIR, requirements=(), packages=(package,)
    )


class Asked:
    """Stands for the making of a foundation where no wheel of PyTorch for the CPU is found: notes what was tried."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tried: list[str] = []

    def __call__(self, table: FoundationTable, *_: object, **__: object) -> FoundationResult:
        """Make nothing; with Debian's PyTorch, a record of it."""
        row = table.entry("pytorch")
        assert row is not None
        self.tried.append("debian" if row.debs else "wheel")
        if row.wheels:
            raise NoPytorchError("there is no PyTorch for the CPU")
        write_record(self.settings.foundation, record_of(DEB))
        return FoundationResult(made=(), kept=(), removed=())


@pytest.fixture
def asked(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """On a machine that runs every base."""
    asked = Asked(settings)
    monkeypatch.setattr(foundation, "machine_glibc", lambda: (2, 41))
    monkeypatch.setattr(foundation, "build_foundation", asked)
    monkeypatch.setattr(foundation, "check_versions", asked)
    monkeypatch.setattr(foundation, "index_foundation", lambda *_: None)
    return asked


@pytest.mark.parametrize(
    ("recorded", "options", "tried"),
    [
        pytest.param(None, {}, ["wheel", "debian"], id="a new one"),
        pytest.param(None, {"debian_pytorch": True}, ["debian"], id="its version is asked for"),
        pytest.param(DEB, {}, ["debian"], id="what it has it keeps"),
        pytest.param(DEB, {"update": True}, ["wheel", "debian"], id="an update"),
        pytest.param(WHEEL, {"update": True}, ["wheel", "debian"], id="an update where the wheel is gone"),
    ],
)
def test_debians_own_pytorch_is_taken_where_no_wheel_for_the_cpu_is_found(
    settings: Settings, asked: Asked, recorded: LockedArtifact | None, options: dict[str, Any], tried: list[str]
) -> None:
    ensure_channel(settings.foundation, Foundation().on("debian-13"), subdirs=(SUBDIR,))
    if recorded is not None:
        write_record(settings.foundation, record_of(recorded))
    progress = NotedProgress()
    request = FoundationRequest(base="debian-13", **options)
    check_registry_versions(settings, request, progress=progress)
    asked.tried.clear()
    make_registry_foundation(settings, request, progress=progress)
    assert asked.tried == tried
    assert [note for note in progress.notes if note.endswith("PyTorch 2.6.0 of debian-13 itself is taken")] == (
        progress.notes if len(tried) > 1 else []
    )


@pytest.mark.parametrize(
    ("base", "recorded", "options"),
    [
        pytest.param("debian-12", None, {}, id="a release without one"),
        pytest.param("debian-13", None, {"cuda": True}, id="with CUDA"),
        pytest.param("debian-13", None, {"asked": frozenset({"python3.13-pytorch2.12"})}, id="another version"),
        pytest.param("debian-13", WHEEL, {}, id="what has a wheel keeps it"),
    ],
)
def test_what_only_wheels_have_is_not_taken_from_debian(
    settings: Settings, asked: Asked, base: BaseName, recorded: LockedArtifact | None, options: dict[str, Any]
) -> None:
    ensure_channel(settings.foundation, Foundation().on(base), subdirs=(SUBDIR,))
    if recorded is not None:
        write_record(settings.foundation, record_of(recorded))
    request = FoundationRequest(base=base, **options)
    for make_or_check in (make_registry_foundation, check_registry_versions):
        with pytest.raises(NoPytorchError):
            make_or_check(settings, request, progress=SilentProgress())
    assert asked.tried == ["wheel", "wheel"]


def test_debians_version_has_no_cuda(settings: Settings, asked: Asked) -> None:
    request = FoundationRequest(base="debian-13", debian_pytorch=True, cuda=True)
    with pytest.raises(UsageError, match=r"CUDA is asked for, but PyTorch 2\.6\.0 of debian-13 itself is for the CPU"):
        make_registry_foundation(settings, request, progress=SilentProgress())
    assert asked.tried == []


@pytest.mark.parametrize(("taken", "tried"), [(DEB, "debian"), (WHEEL, "wheel")])
def test_a_lock_says_where_pytorch_comes_from(
    tmp_path: Path, settings: Settings, asked: Asked, taken: LockedArtifact, tried: str
) -> None:
    write_record(tmp_path, record_of(taken))
    request = FoundationRequest(base="debian-13", locked=tmp_path / RECORD_NAME, dry_run=True)
    with contextlib.suppress(NoPytorchError):
        make_registry_foundation(settings, request, progress=SilentProgress())
    assert asked.tried == [tried]


def test_a_build_goes_on_with_the_version_of_pytorch_that_its_foundation_has(
    tmp_path: Path,
) -> None:
    """It was planned for that of the wheel, which is looked for first."""
    plugin = "recipes/toy-plugin/recipe.yaml"
    changes = {
        "variants/foundation-registry-debian-13.yaml": 'python: ["3.13.*"]\npytorch: ["2.6", "2.13"]\n',
        plugin: FILES[plugin].replace("torch", "pytorch"),
    }
    settings = settings_of(tmp_path, changes)
    foundation = Foundation().on("debian-13")
    new = expand_request(settings, PlanRequest(stack="udp"), foundation=foundation)
    asked = expand_request(settings, PlanRequest(stack="udp", pytorch="2.6"), foundation=foundation)
    assert [(expansion.pytorch, expansion.table.default.pytorch) for expansion in (new, asked)] == [
        ("wheel", "2.13.0"),
        ("debian", "2.6.0"),
    ]
    settings.foundation.mkdir(parents=True)
    write_record(settings.foundation, record_of(DEB))
    made = expand_request(settings, PlanRequest(stack="udp"), foundation=foundation)
    assert {item.variant["pytorch"] for item in made.packages if "pytorch" in item.variant} == {"2.6"}
    assert (made.pytorch, offered_versions(settings, foundation)) == (
        "debian",
        {"python": ("3.13",), "pytorch": ("2.6.0",)},
    )
    assert has_pytorch_for_cpu(settings)
    update = with_needs(settings, FoundationRequest(update=True), made)
    named = with_needs(settings, FoundationRequest(update=True), asked)
    assert (update.debian_pytorch, named.debian_pytorch) == (False, True)
    write_record(settings.foundation, record_of(WHEEL))
    assert expand_request(settings, PlanRequest(stack="udp"), foundation=Foundation()).pytorch == "wheel"


def test_a_stack_that_does_not_go_with_debians_pytorch_says_so(tmp_path: Path) -> None:
    stacks = "variants/stacks.yaml"
    reason = "    unserved: {debian-pytorch: it is linked with another MPI}\n    packages:"
    settings = settings_of(tmp_path, {stacks: FILES[stacks].replace("    packages:", reason, 1)})
    foundation = Foundation().on("debian-13")
    assert list_stacks(settings, stack=None, foundation=foundation)[0].unserved is None
    settings.foundation.mkdir(parents=True)
    write_record(settings.foundation, record_of(DEB))
    assert list_stacks(settings, stack=None, foundation=foundation)[0].unserved == "it is linked with another MPI"
    with pytest.raises(UsageError, match="not served on base debian-13: it is linked with another MPI") as caught:
        expand_request(settings, PlanRequest(stack="udp"), foundation=foundation)
    assert "channel_tools foundation build --update; or name another --base" in str(caught.value.hint)
    assert list_stacks(settings, stack=None, foundation=Foundation())[0].unserved is None
