# SPDX-License-Identifier: BSD-3-Clause
"""A publishing that would leave listed packages uninstallable, or stacks untold, changes nothing."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from channel_tools.channel import add_set, channel_writer, open_channel, still_installable, verify_channel
from channel_tools.channel.store import create_channel
from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.maintenance import promoted_keys, yank
from channel_tools.publish.model import PackageSet
from channel_tools.system.errors import ChannelError
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import STACKS_PACKAGE
from tests.support.packages import CONDA_FORGE, make_conda
from tests.unit.publish.sets import make_set

STACKS_FILE = "share/channel_tools/variants/stacks.yaml"


@dataclass(frozen=True, kw_only=True)
class Toy:
    """A package to be made: ``name version build``, with a build number if the build ends with one."""

    text: str
    needs: Sequence[str] = ()
    subdir: str = "linux-64"
    stacks: Sequence[str] | None = None

    def make(self, folder: Path) -> Path:
        name, version, build = self.text.split()
        number = int(build.rpartition("_")[2]) if "_" in build else 0
        index = {"depends": list(self.needs), "build_number": number}
        files = None
        if self.stacks is not None:
            text = json.dumps({"default_stack": self.stacks[0], "stacks": {stack: {} for stack in self.stacks}})
            files = {STACKS_FILE: text.encode()}
        return make_conda(
            folder / build,
            name,
            version=version,
            build=build,
            subdir=self.subdir,
            index=index | ({"noarch": "generic"} if self.subdir == "noarch" else {}),
            about={"extra": {"channel_tools": {"digest": self.text}}},
            variant={},
            files=files,
        )


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """The packages that a tree publishes, those of its foundation beside them."""

    own: Sequence[Toy]
    foundation: Sequence[Toy] = ()

    def packages(self, folder: Path) -> PackageSet:
        return make_set([toy.make(folder) for toy in self.own], [toy.make(folder) for toy in self.foundation])


PYTHON = Toy(text="python 3.12.1 a_0")
TORCH = Toy(text="pytorch 2.11.0 a_0", needs=["python >=3.12", "__glibc >=2.28"])
PLUGIN = Toy(text="plugin 1.0 a_0", needs=["pytorch 2.11.*", "__cuda"])
SITE = Toy(text="site 1.0 a_0", needs=["plugin", "elsewhere >=1"])
FIRST = Checkout(own=[PLUGIN, SITE], foundation=[PYTHON, TORCH])
OTHER = Toy(text="other 1.0 a_0", needs=["python"])
TORCH_12 = Toy(text="pytorch 2.12.0 a_0", needs=["python >=3.12"])


@pytest.fixture
def target(tmp_path: Path) -> FolderTarget:
    return FolderTarget(root=tmp_path / "target")


def publish(target: FolderTarget, packages: PackageSet, label: str = "main") -> None:
    target.publish(target.plan(packages, label=label), progress=SilentProgress())


def content(target: FolderTarget) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in target.root.rglob("*") if path.is_file()}


def refused(target: FolderTarget, packages: PackageSet, label: str = "main") -> ChannelError:
    """The error; nothing is changed."""
    before = content(target)
    with pytest.raises(ChannelError, match=r"^nothing was published: ") as caught:
        publish(target, packages, label)
    assert content(target) == before
    return caught.value


@dataclass(frozen=True, kw_only=True)
class Case:
    second: Checkout
    lost: Sequence[str]
    needs: str
    first: Checkout = field(default=FIRST)


LOST = {
    "a version, needed directly and through others": Case(
        second=Checkout(own=[OTHER], foundation=[PYTHON, TORCH_12]),
        lost=["linux-64/plugin-1.0-a_0.conda", "linux-64/site-1.0-a_0.conda"],
        needs="linux-64/pytorch-2.11.0-a_0.conda",
    ),
    "its newer version needs what the foundation lacks": Case(
        second=Checkout(own=[OTHER], foundation=[PYTHON, Toy(text="pytorch 2.11.1 a_0", needs=["python >=3.13"])]),
        lost=["linux-64/plugin-1.0-a_0.conda", "linux-64/site-1.0-a_0.conda"],
        needs="linux-64/pytorch-2.11.0-a_0.conda",
    ),
    "no version at all": Case(
        second=Checkout(own=[OTHER], foundation=[PYTHON]),
        lost=["linux-64/plugin-1.0-a_0.conda", "linux-64/site-1.0-a_0.conda"],
        needs="linux-64/pytorch-2.11.0-a_0.conda",
    ),
    "a build number": Case(
        first=Checkout(own=[Toy(text="plugin 1.0 a_0", needs=["pytorch 2.11.0 a_0"])], foundation=[PYTHON, TORCH]),
        second=Checkout(own=[OTHER], foundation=[PYTHON, Toy(text="pytorch 2.11.0 a_1", needs=["python"])]),
        lost=["linux-64/plugin-1.0-a_0.conda"],
        needs="linux-64/pytorch-2.11.0-a_0.conda",
    ),
    "one of two stacks is built anew": Case(
        first=Checkout(own=[PLUGIN, Toy(text="second 1.0 a_0", needs=["pytorch 2.11.*"])], foundation=[PYTHON, TORCH]),
        second=Checkout(
            own=[Toy(text="plugin 1.0 b_0", needs=["pytorch 2.12.*"])],
            foundation=[PYTHON, TORCH_12],
        ),
        lost=["linux-64/second-1.0-a_0.conda"],
        needs="linux-64/pytorch-2.11.0-a_0.conda",
    ),
    "a newer version does not replace the older": Case(
        first=Checkout(own=[PLUGIN], foundation=[PYTHON, TORCH]),
        second=Checkout(own=[Toy(text="plugin 1.1 a_1", needs=["pytorch 2.12.*"])], foundation=[PYTHON, TORCH_12]),
        lost=["linux-64/plugin-1.0-a_0.conda"],
        needs="linux-64/pytorch-2.11.0-a_0.conda",
    ),
    "a noarch package": Case(
        first=Checkout(
            own=[Toy(text="pure 1.0 a_0", needs=["pytorch 2.11.*"], subdir="noarch")], foundation=[PYTHON, TORCH]
        ),
        second=Checkout(own=[OTHER], foundation=[PYTHON, TORCH_12]),
        lost=["noarch/pure-1.0-a_0.conda"],
        needs="linux-64/pytorch-2.11.0-a_0.conda",
    ),
    "an own package, by a newer build of its variant": Case(
        first=Checkout(own=[Toy(text="lib 1.0 a"), Toy(text="app 1.0 a", needs=["lib 1.0 a"])]),
        second=Checkout(own=[Toy(text="lib 1.0 b")]),
        lost=["linux-64/app-1.0-a.conda"],
        needs="linux-64/lib-1.0-a.conda",
    ),
}


@pytest.mark.parametrize("label", ["main", "testing"])
@pytest.mark.parametrize("case", LOST.values(), ids=LOST)
def test_what_hides_a_package_that_listed_ones_need_is_refused(
    target: FolderTarget, tmp_path: Path, case: Case, label: str
) -> None:
    publish(target, case.first.packages(tmp_path / "first"), label)
    error = refused(target, case.second.packages(tmp_path / "second"), label)
    listed = f"{len(case.lost)} listed package{'' if len(case.lost) == 1 else 's'} could no longer be installed"
    assert listed in error.message
    assert f"\n{', '.join(case.lost)}: needs {case.needs}" in error.message
    assert "--label NAME" in (error.hint or "")
    assert "channel_tools yank SPEC" in (error.hint or "")


KEPT = {
    "nothing needs it": Checkout(own=[OTHER], foundation=[PYTHON, TORCH, Toy(text="new 1.0 a_0")]),
    "another version serves, too": Checkout(
        own=[OTHER], foundation=[PYTHON, Toy(text="pytorch 2.11.1 a_0", needs=["python"])]
    ),
    "another build serves, too": Checkout(
        own=[OTHER], foundation=[PYTHON, Toy(text="pytorch 2.11.0 a_1", needs=["python"])]
    ),
    "python is another, and what needs it goes along": Checkout(
        own=[OTHER], foundation=[Toy(text="python 3.13.0 a_0"), TORCH]
    ),
    "all that needs it is built anew, with a greater build number": Checkout(
        own=[
            Toy(text="plugin 1.0 b_1", needs=["pytorch 2.12.*"]),
            Toy(text="site 1.0 b_0", needs=["plugin", "elsewhere >=1"]),
        ],
        foundation=[PYTHON, TORCH_12],
    ),
    "all that needs it is built anew": Checkout(
        own=[
            Toy(text="plugin 1.0 b_0", needs=["pytorch 2.12.*"]),
            Toy(text="site 1.0 b_0", needs=["plugin", "elsewhere >=1"]),
        ],
        foundation=[PYTHON, TORCH_12],
    ),
}


@pytest.mark.parametrize("second", KEPT.values(), ids=KEPT)
def test_what_leaves_all_listed_packages_installable_is_published(
    target: FolderTarget, tmp_path: Path, second: Checkout
) -> None:
    publish(target, FIRST.packages(tmp_path / "first"))
    publish(target, second.packages(tmp_path / "second"))


def test_what_could_not_be_installed_before_stops_no_publishing(target: FolderTarget, tmp_path: Path) -> None:
    broken = Toy(text="broken 1.0 a_0", needs=["pytorch 1.*"])
    publish(target, Checkout(own=[broken], foundation=[PYTHON, TORCH]).packages(tmp_path / "first"))
    publish(target, Checkout(own=[OTHER], foundation=[PYTHON, TORCH_12]).packages(tmp_path / "second"))


def test_yanked_packages_stop_no_publishing(target: FolderTarget, tmp_path: Path) -> None:
    """It is the way that the error names."""
    publish(target, FIRST.packages(tmp_path / "first"))
    second = Checkout(own=[OTHER], foundation=[PYTHON, TORCH_12]).packages(tmp_path / "second")
    refused(target, second)
    for spec in ("plugin", "site"):
        yank(target, spec, label="main", reason="replaced", dry_run=False)
    publish(target, second)


def test_a_promotion_that_hides_what_the_other_label_needs_is_refused(target: FolderTarget, tmp_path: Path) -> None:
    publish(target, FIRST.packages(tmp_path / "first"))
    publish(target, Checkout(own=[OTHER], foundation=[PYTHON, TORCH_12]).packages(tmp_path / "second"), "testing")
    keys = promoted_keys(target, "testing", [])
    before = content(target)
    with pytest.raises(ChannelError, match=r"^nothing was published: 2 listed packages could no longer"):
        target.promote(keys, source="testing", label="main", progress=SilentProgress())
    assert content(target) == before


def stacks(build: str, *names: str, version: str = "1.0.0") -> Toy:
    return Toy(text=f"{STACKS_PACKAGE} {version} {build}", subdir="noarch", stacks=names)


@pytest.mark.parametrize(
    "second", [stacks("b", "udp"), stacks("b_1", "udp"), stacks("a", "udp", version="1.1.0")], ids=lambda toy: toy.text
)
def test_a_publishing_that_drops_stacks_is_refused_and_names_them(
    target: FolderTarget, tmp_path: Path, second: Toy
) -> None:
    publish(target, Checkout(own=[stacks("a", "udp", "rdma", "ours")]).packages(tmp_path / "first"))
    packages = Checkout(own=[second, OTHER]).packages(tmp_path / "second")
    error = refused(target, packages)
    assert "lacks 2 stacks that noarch/channel_tools-stacks-1.0.0-a.conda tells users of: ours, rdma" in error.message
    assert "channel_tools yank channel_tools-stacks-1.0.0-a.conda --reason TEXT" in (error.hint or "")
    yank(target, "channel_tools-stacks-1.0.0-a.conda", label=None, reason="dropped", dry_run=False)
    publish(target, packages)


def test_the_first_of_two_trees_is_not_put_before_the_second_again(target: FolderTarget, tmp_path: Path) -> None:
    first = Checkout(own=[stacks("a", "udp")]).packages(tmp_path / "first")
    publish(target, first)
    publish(target, first)
    publish(target, Checkout(own=[stacks("b", "udp", "rdma")]).packages(tmp_path / "second"))
    assert "lacks 1 stack that noarch/channel_tools-stacks-1.0.0-b.conda" in refused(target, first).message


def test_an_older_version_of_the_stacks_drops_none(target: FolderTarget, tmp_path: Path) -> None:
    """A solver goes on to choose the newer."""
    publish(target, Checkout(own=[stacks("a", "udp", "rdma", version="1.1.0")]).packages(tmp_path / "first"))
    publish(target, Checkout(own=[stacks("a", "udp")]).packages(tmp_path / "second"))


def uninstallable(target: FolderTarget) -> dict[str, str]:
    """What verifying finds: the path in the channel, and why."""
    findings = verify_channel(open_channel(target.root))
    assert {finding.kind for finding in findings} <= {"uninstallable"}
    return {str(finding.path.relative_to(target.root)): finding.message for finding in findings}


NEEDED = {
    "a name": (PLUGIN, [PYTHON, Toy(text="cuda 1 a_0")]),
    "a version": (PLUGIN, [PYTHON, TORCH_12]),
    "what another one excludes": (Toy(text="plugin 1.0 a_0", needs=["python 3.13.*", "pytorch"]), [PYTHON, TORCH]),
    "a build, through a noarch package": (
        Toy(text="plugin 1.0 a_0", needs=["pytorch 2.11.0 b*"], subdir="noarch"),
        [PYTHON, TORCH],
    ),
}


@pytest.mark.parametrize(("package", "foundation"), NEEDED.values(), ids=NEEDED)
def test_a_listed_package_that_cannot_be_installed_is_found(
    target: FolderTarget, tmp_path: Path, package: Toy, foundation: Sequence[Toy]
) -> None:
    above = Toy(text="above 1.0 a_0", needs=["plugin"])
    packages = Checkout(own=[package, above, OTHER], foundation=foundation).packages(tmp_path / "first")
    publish(target, packages)
    found = uninstallable(target)
    assert found.keys() == {"linux-64/above-1.0-a_0.conda", f"{package.subdir}/plugin-1.0-a_0.conda"}
    assert "cannot be installed any more" in found["linux-64/above-1.0-a_0.conda"]
    for spec in ("plugin", "above"):
        yank(target, spec, label="main", reason="needs what is gone", dry_run=False)
    assert uninstallable(target) == {}


def test_what_virtual_packages_another_channel_or_a_newer_build_give_is_no_finding(
    target: FolderTarget, tmp_path: Path
) -> None:
    further = Toy(text="further 1.0 a_0", needs=["__cuda >=12", "__glibc >=2.99"])
    replaced = Toy(text="plugin 1.0 a_0", needs=["pytorch 2.10.*"])
    newer = Toy(text="plugin 1.0 b_1", needs=["pytorch 2.11.*"])
    publish(target, Checkout(own=[further, replaced, newer], foundation=[PYTHON, TORCH]).packages(tmp_path / "first"))
    assert uninstallable(target) == {}
    channel = open_channel(target.root)
    elsewhere = dataclasses.replace(CONDA_FORGE, address="https://channel.example/forge")
    beside = create_channel(tmp_path / "beside", elsewhere)
    with channel_writer(beside) as writer:
        add_set(writer, [SITE.make(tmp_path / "second"), PLUGIN.make(tmp_path / "second")])
    assert (verify_channel(beside), channel.foundation.is_made_here) == ([], True)


def test_a_solve_that_takes_too_long_is_said_and_does_not_hang(
    target: FolderTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [Toy(text=f"a{number} 1.0 a_0", needs=[f"a{number + 1}"] if number < 300 else []) for number in range(301)]
    publish(target, Checkout(own=[many[0]], foundation=many[1:]).packages(tmp_path / "first"))
    monkeypatch.setattr(still_installable, "_SOLVE_LIMIT", dt.timedelta(microseconds=1))
    (message,) = uninstallable(target).values()
    assert message.endswith("it was not decided within 0 s")
