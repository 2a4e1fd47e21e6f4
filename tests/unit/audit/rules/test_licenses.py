# SPDX-License-Identifier: BSD-3-Clause
"""What was compiled in from the host environment brings its licence texts, or the recipe says that nothing was."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from channel_tools.audit.model import Rule
from channel_tools.audit.run import Gate
from channel_tools.build.schedule import take_in
from channel_tools.channel import ChannelWriter, published_packages
from channel_tools.conda.archive import PackageInfo
from channel_tools.conda.compiled_in import what_can_be_compiled_in
from channel_tools.system.progress import SilentProgress
from tests.support.packages import new_channel
from tests.unit.audit.packages import BUILD, Toy
from tests.unit.audit.spoiled import library
from tests.unit.audit.test_run import audited

LIBRARY = {"lib/libtoy.so.1": library(rpath="$ORIGIN")}
TEXTS = {"licenses/compiled-in/lower/LICENSE": b"text"}
ALLOWED = {
    "rule": "license",
    "files": ["info/licenses/compiled-in/lower"],
    "reason": "a tool that is run while building",
}


def recorded(*names: str, subdir: str = "linux-64") -> dict[str, bytes]:
    """The rendered recipe of a build whose host environment had packages of these names."""
    rows = [
        {"name": name, "version": "1.0", "build": BUILD, "subdir": subdir, "fn": f"{name}-1.0-{BUILD}.conda"}
        for name in names
    ]
    rendered = {"finalized_dependencies": {"host": {"specs": [], "resolved": rows}}}
    return {"recipe/rendered_recipe.yaml": yaml.safe_dump(rendered).encode()}


@pytest.fixture
def lower(tmp_path: Path) -> Path:
    return Toy(name="lower", files={"lib/liblower.a": b"!<arch>\n", "include/lower.h": b""}).write(tmp_path)


def test_a_static_archive_of_the_host_environment_needs_its_texts(tmp_path: Path, lower: Path) -> None:
    package = Toy(files=LIBRARY, info=recorded("lower")).write(tmp_path)
    (finding,) = audited(package, lower).findings
    assert (finding.rule, finding.file, finding.subject) == (
        Rule.LICENSE,
        "info/licenses/compiled-in/lower",
        "lower",
    )
    assert finding.found == "no licence text of lower, which was in the host environment with lib/liblower.a"


@pytest.mark.parametrize(
    "twin",
    [
        Toy(files=LIBRARY, info=recorded("lower") | TEXTS),
        Toy(files=LIBRARY, info=recorded("lower"), depends=("lower",)),
        Toy(files=LIBRARY, info=recorded()),
        Toy(files=LIBRARY, info=recorded("unknown")),
        Toy(files={"share/text": b"x"}, info=recorded("lower")),
    ],
    ids=["has the texts", "needs it at run time", "without it", "one that is not known", "nothing compiled"],
)
def test_its_twins_have_no_finding(tmp_path: Path, lower: Path, twin: Toy) -> None:
    assert audited(twin.write(tmp_path), lower).findings == ()


def test_a_recipe_may_say_that_nothing_of_it_is_inside(tmp_path: Path, lower: Path) -> None:
    package = Toy(files=LIBRARY, info=recorded("lower"), extra={"audit": {"allow": [ALLOWED]}}).write(tmp_path)
    audit = audited(package, lower)
    assert audit.findings == ()
    assert [one.finding.subject for one in audit.excused] == ["lower"]


def test_a_package_without_the_texts_enters_the_channel_with_a_finding(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    gate = Gate(channel=channel.path, build_paths=())
    writer = ChannelWriter(channel=channel, clock=time.time)
    found: list[Rule] = []

    def admit(package: Path) -> PackageInfo | None:
        audit = gate.admit(package)
        found.extend(finding.rule for finding in audit.findings)
        return audit.info

    for toy in (
        Toy(name="lower", files={"include/lower.hpp": b""}),
        Toy(files=LIBRARY, info=recorded("lower")),
    ):
        take_in(writer, toy.write(tmp_path / "made"), admit=admit, progress=SilentProgress())
    assert found == [Rule.LICENSE]
    assert sorted(package.row.name for package in published_packages(channel)) == ["lower", "toy"]


@pytest.mark.parametrize(
    ("files", "what"),
    [
        (["lib/liba.a", "lib/libb.a", "include/a.h"], "lib/liba.a and 1 more archives"),
        (["lib/liba.a", "lib/liba.so"], "lib/liba.a"),
        (["include/a/a.hpp"], "headers, such as include/a/a.hpp"),
        (["lib/python3.12/site-packages/a/include/a.h"], "headers, such as lib/python3.12/site-packages/a/include/a.h"),
        (["include/a.h", "lib/liba.so.1"], ""),
        (["x86_64-conda-linux-gnu/sysroot/usr/lib/libc.a", "lib/gcc/x/12/libgcc.a"], ""),
        (["share/a.h", "bin/a"], ""),
    ],
)
def test_what_a_host_package_has_to_compile_in(files: list[str], what: str) -> None:
    assert what_can_be_compiled_in(files) == what
