# SPDX-License-Identifier: BSD-3-Clause
"""The audit of an environment, on prefixes laid out by hand as clients do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from channel_tools.audit.model import AuditReport, Rule
from channel_tools.audit.prefix import audit_prefix, is_prefix
from channel_tools.audit.reading import Reader
from channel_tools.system.errors import IntegrityError
from channel_tools.system.progress import SilentProgress
from tests.unit.audit.packages import BUILD_FOLDER, HOST_PREFIX
from tests.unit.audit.spoiled import library


class Prefix:
    """An environment under construction."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "conda-meta").mkdir(parents=True)

    def install(self, name: str, files: dict[str, bytes | str], **record: object) -> None:
        """Files (a text that begins with ``-> `` is a link) of a package, with its record."""
        for path, content in files.items():
            file = self.path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                file.symlink_to(content.removeprefix("-> "))
            else:
                file.write_bytes(content)
        row = {"name": name, "fn": f"{name}-1.0-0.conda", "subdir": "linux-64", "files": sorted(files), **record}
        (self.path / "conda-meta" / f"{name}-1.0-0.json").write_text(json.dumps(row))

    def audit(self) -> AuditReport:
        reader = Reader(build_paths=(BUILD_FOLDER, str(self.path.parent)))
        return audit_prefix(self.path, reader, jobs=1, progress=SilentProgress())

    def broken(self) -> list[tuple[str, Rule, str]]:
        return [(finding.package, finding.rule, finding.file) for finding in self.audit().findings]


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path / "env")


@pytest.mark.usefixtures("in_this_process")
def test_a_sound_environment_has_no_finding(prefix: Prefix) -> None:
    assert is_prefix(prefix.path)
    assert not is_prefix(prefix.path.parent)
    prefix.install(
        "lower", {"lib/liblower.so.1.0": library(rpath="$ORIGIN"), "lib/liblower.so.1": "-> liblower.so.1.0"}
    )
    upper = library(needed=["liblower.so.1", "libc.so.6"], rpath="$ORIGIN/../lib")
    prefix.install("upper", {"bin/upper": upper, "lib/liblower.so": "-> liblower.so.1"})
    prefix.install("texts", {"etc/where": f"{prefix.path}/share".encode()})
    report = prefix.audit()
    assert report.findings == []
    assert [(one.package, one.files, one.elf_files) for one in report.packages] == [
        ("(files that belong to no package)", 0, 0),
        ("lower-1.0-0.conda", 2, 1),
        ("texts-1.0-0.conda", 1, 0),
        ("upper-1.0-0.conda", 2, 1),
    ]


def test_each_fault_is_found_in_its_package(prefix: Prefix) -> None:
    prefix.install("rpath", {"lib/librpath.so": library(rpath="/opt/site/lib")})
    prefix.install("needed", {"lib/libneeded.so": library(needed=["libgone.so.1"], rpath="$ORIGIN")})
    prefix.install("foreign", {"etc/foreign": f"\n{BUILD_FOLDER}/x".encode()})
    prefix.install("beside", {"etc/beside": f"{prefix.path.parent}/other".encode()})
    prefix.install("left", {"etc/left": HOST_PREFIX.encode()})
    prefix.install("link", {"lib/liblink.so": "-> /usr/lib/liblink.so"})
    prefix.install("missing", {"etc/missing": b"x"})
    (prefix.path / "etc/missing").unlink()
    (prefix.path / "etc/own").symlink_to("nowhere")
    assert sorted({(package.partition("-")[0], rule) for package, rule, _file in prefix.broken()}) == [
        ("(files that belong to no package)", Rule.LINK),
        ("beside", Rule.BUILD_PATH),
        ("foreign", Rule.BUILD_PATH),
        ("left", Rule.BUILD_PATH),
        ("left", Rule.PLACEHOLDER),
        ("link", Rule.LINK),
        ("missing", Rule.PACKAGE),
        ("needed", Rule.NEEDED),
        ("rpath", Rule.RPATH),
    ]


@pytest.mark.usefixtures("in_this_process")
def test_what_the_recipe_declares_holds_once_installed(prefix: Prefix, tmp_path: Path) -> None:
    unpacked = tmp_path / "pkgs" / "site-1.0-0"
    (unpacked / "info").mkdir(parents=True)
    rows = [{"rule": "needed", "files": ["lib/libsite.so"], "reason": "XRT is the site's"}]
    (unpacked / "info" / "about.json").write_text(json.dumps({"extra": {"audit": {"allow": rows}}}))
    files: dict[str, bytes | str] = {"lib/libsite.so": library(needed=["libxrt_core.so.2"], rpath="$ORIGIN")}
    prefix.install("site", files, extracted_package_dir=str(unpacked))
    report = prefix.audit()
    assert report.findings == []
    assert [row.reason for row in report.excused] == ["XRT is the site's"]


@pytest.mark.usefixtures("in_this_process")
def test_a_damaged_record_is_named(prefix: Prefix) -> None:
    (prefix.path / "conda-meta" / "toy-1.0-0.json").write_text("{")
    with pytest.raises(IntegrityError, match=r"toy-1\.0-0\.json: not valid JSON"):
        prefix.audit()
