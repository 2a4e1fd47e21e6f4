# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools audit`` as a whole process: what it prints, with which exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import run_tool
from tests.unit.audit.packages import Entry, Toy
from tests.unit.audit.spoiled import library

SPOILED = Toy(name="spoiled", files={"lib/libtoy.so.1": library(rpath="/opt/site/lib")})


def test_a_sound_package_passes(tmp_path: Path) -> None:
    package = Toy(files={"share/toy": b"x"}).write(tmp_path)
    result = run_tool("audit", str(package), cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == f"{package}: 1 package, 0 findings"


def test_findings_are_printed_with_their_fixes_and_end_with_9(tmp_path: Path) -> None:
    package = SPOILED.write(tmp_path)
    result = run_tool("audit", str(package), cwd=tmp_path)
    assert result.returncode == 9
    lines = result.stdout.splitlines()
    assert lines[0] == f"{package.name}: lib/libtoy.so.1: rpath: has the rpath /opt/site/lib"
    assert lines[1].startswith("    expected: rpaths that begin with $ORIGIN")
    assert lines[2].startswith("    to fix: link with -Wl,-rpath")
    assert "1 finding, the first:" in result.stderr


def test_json_has_a_schema_and_every_part_of_a_finding(tmp_path: Path) -> None:
    rows = [{"rule": "link", "files": ["lib/libxrt.so"], "reason": "XRT is the site's"}]
    files = {**SPOILED.files, "lib/libxrt.so": Entry(link="libxrt.so.2")}
    package = Toy(name="spoiled", files=files, extra={"audit": {"allow": rows}}).write(tmp_path)
    result = run_tool("audit", str(package), "--json", cwd=tmp_path)
    assert result.returncode == 9
    report = json.loads(result.stdout)
    assert {key: report[key] for key in ("schema", "kind", "target", "findings", "excused")} == {
        "schema": 2,
        "kind": "package",
        "target": str(package),
        "findings": 1,
        "excused": 1,
    }
    (audited,) = report["packages"]
    assert (audited["package"], audited["subdir"], audited["files"], audited["elf_files"]) == (
        package.name,
        "linux-64",
        2,
        1,
    )
    (finding,) = audited["findings"]
    assert finding.keys() == {"package", "file", "rule", "where", "subject", "found", "expected", "fix"}
    assert (finding["rule"], finding["subject"]) == ("rpath", "/opt/site/lib")
    (excused,) = audited["excused"]
    assert (excused["rule"], excused["reason"]) == ("link", "XRT is the site's")


def test_a_channel_is_audited_package_by_package(tmp_path: Path) -> None:
    Toy(files={"share/toy": b"x"}).write(tmp_path / "channel")
    SPOILED.write(tmp_path / "channel")
    result = run_tool("audit", "channel", "--json", "--jobs", "2", cwd=tmp_path)
    assert result.returncode == 9
    report = json.loads(result.stdout)
    assert report["kind"] == "channel"
    assert {one["package"].partition("-")[0]: len(one["findings"]) for one in report["packages"]} == {
        "spoiled": 1,
        "toy": 0,
    }


def test_run_dependencies_are_looked_up_in_the_channels_named(tmp_path: Path) -> None:
    Toy(name="lower", files={"lib/liblower.so.1": library(rpath="$ORIGIN")}).write(tmp_path / "beside")
    needy = library(needed=["liblower.so.1"], rpath="$ORIGIN")
    package = Toy(files={"lib/libtoy.so.1": needy}, depends=("lower",)).write(tmp_path / "made")
    assert run_tool("audit", str(package), cwd=tmp_path).returncode == 9
    assert run_tool("audit", str(package), "--channel", "beside", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("target", ["nowhere", "empty"])
def test_what_cannot_be_audited_is_a_wrong_argument(tmp_path: Path, target: str) -> None:
    (tmp_path / "empty").mkdir()
    result = run_tool("audit", target, cwd=tmp_path)
    assert result.returncode == 2
    assert "name a .conda file, a channel's folder or an environment" in result.stderr
