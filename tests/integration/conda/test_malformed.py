# SPDX-License-Identifier: BSD-3-Clause
"""Every kind of malformed package at the command line and at a running server: one answer, for the right reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from channel_tools.channel import create_channel
from tests.support.command_line import run_tool
from tests.support.malformed import FILE_NAME, KINDS, STEM, SUBDIR, sound
from tests.support.packages import REGISTRY
from tests.support.serving import Server, make_token, running

pytestmark = [pytest.mark.integration, pytest.mark.slow]
_EXIT_INTEGRITY = 6


def test_the_audit_of_a_folder_names_each(tmp_path: Path) -> None:
    places = {name: f"{number:03}" for number, name in enumerate(KINDS)}
    for name, folder in places.items():
        (tmp_path / "channel" / folder).mkdir(parents=True)
        (tmp_path / "channel" / folder / FILE_NAME).write_bytes(KINDS[name].make())
    result = run_tool("audit", "channel", "--json", cwd=tmp_path)
    assert result.returncode == _EXIT_INTEGRITY, result.stderr
    report = json.loads(result.stdout)
    assert len(report["packages"]) == len(KINDS)
    found = [finding["found"] for package in report["packages"] for finding in package["findings"]]
    for name, kind in KINDS.items():
        assert any(re.search(kind.said, text) for text in found), name


@pytest.mark.parametrize("name", ["deflated bomb", "index.json nested deep", "requirement with a newline"])
def test_the_audit_of_a_package_ends_with_what_is_wrong(tmp_path: Path, name: str) -> None:
    (tmp_path / SUBDIR).mkdir()
    package = tmp_path / SUBDIR / FILE_NAME
    package.write_bytes(KINDS[name].make())
    audited = run_tool("audit", str(package), cwd=tmp_path)
    assert (audited.returncode, "Traceback" in audited.stderr) == (_EXIT_INTEGRITY, False)
    assert re.search(KINDS[name].said, audited.stderr)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    work = tmp_path_factory.mktemp("malformed")
    (work / "channels").mkdir()
    with running(work / "channels", work=work, quiet=False) as running_server:
        yield running_server
    assert "defect" not in (work / "server.err").read_text()


def test_the_server_answers_each_with_422(server: Server) -> None:
    for channel in ("one", "two"):
        create_channel(server.root / channel, REGISTRY)
    headers = {"Authorization": f"Bearer {make_token(server.root, labels=None, access='write')}"}
    put, post = ("PUT", f"/one/{SUBDIR}/{FILE_NAME}"), ("POST", f"/api/channels/two/upload/{FILE_NAME}")
    for number, (name, kind) in enumerate(KINDS.items()):
        body = kind.make()
        for method, address in [put, post] if number % 4 == 0 else [put]:  # the latter reads the package once more
            answer = server.ask(address, method=method, headers=headers, body=body)
            assert answer.status in ({422} if body else {400, 422}), (name, address, answer)
            said = json.loads(answer.body)
            assert not body or re.search(kind.said, said["message"]), (name, said)
            assert str(server.root) not in answer.body.decode()
    assert server.ask("/health").status == 200
    for channel in ("one", "two"):
        assert not list((server.root / channel).rglob("*.conda"))
        address = f"/{channel}/{SUBDIR}/{FILE_NAME}"
        assert server.ask(address, method="PUT", headers=headers, body=sound()).status == 201, STEM
