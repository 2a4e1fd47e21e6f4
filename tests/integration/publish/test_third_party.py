# SPDX-License-Identifier: BSD-3-Clause
"""Publishing to the servers of others, each against a stand-in that takes uploads as the service does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.packages import make_conda
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.scripted_server import Asked, Reply, ScriptedServer, scripted
from tests.support.third_party_servers import KEY, ForeignServer, foreign_server

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_ROOT = Path(__file__).parents[3]
VARIABLES = {
    "quetz": "QUETZ_API_KEY",
    "artifactory": "ARTIFACTORY_TOKEN",
    "prefix": "PREFIX_API_KEY",
    "anaconda": "ANACONDA_API_KEY",
    "cloudsmith": "CLOUDSMITH_API_KEY",
}


@pytest.fixture
def server() -> Iterator[ForeignServer]:
    with foreign_server() as server:
        yield server


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two packages, the first of which needs the second."""
    return [make_conda(tmp_path, "app", index={"depends": ["lib >=1"]}), make_conda(tmp_path, "lib")]


def publish(server: ForeignServer, kind: str, *steps: dict[str, object]) -> list[dict[str, Any]]:
    """Plan and publish; the outcome of each step. The key must not be in what is told."""
    return publish_to(server.addresses()[kind], kind, *steps)


def publish_to(address: str, kind: str, *steps: dict[str, object]) -> list[dict[str, Any]]:
    folder = str(Path(str(next(iter(cast("list[str]", steps[0]["files"]))))).parent)
    environ = {name: value for name, value in os.environ.items() if name not in VARIABLES.values()}
    environ |= {"HOME": folder, "RATTLER_AUTH_FILE": f"{folder}/none.json"}
    driver = [sys.executable, "-m", "tests.integration.publish.third_party_publisher"]
    done = subprocess.run(
        [*driver, address, VARIABLES[kind]],
        input=json.dumps([{"key": KEY} | step for step in steps]),
        cwd=_ROOT, env=environ, capture_output=True, text=True, timeout=TEST_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert KEY not in done.stdout + done.stderr
    outcomes: list[dict[str, Any]] = json.loads(done.stdout)
    return outcomes


def of(*files: Path, **more: object) -> dict[str, object]:
    return {"files": [str(path) for path in files], **more}


@pytest.mark.parametrize("kind", VARIABLES)
def test_packages_arrive_after_what_they_need_and_only_once(
    server: ForeignServer, files: list[Path], tmp_path: Path, kind: str
) -> None:
    other = make_conda(tmp_path / "other", "lib", files={"a": b"other bytes"})
    lib = files[1]
    first, again, listed, unlisted = publish(server, kind, of(*files), of(*files), of(other), of(lib, behind=lib.name))
    assert first.get("uploaded") == ["linux-64/app-1.0-0.conda", "linux-64/lib-1.0-0.conda"], first
    assert server.arrived[:2] == ["lib-1.0-0.conda", "app-1.0-0.conda"]
    assert sorted(server.files.values()) == sorted(path.read_bytes() for path in files)
    assert "one by one" in str(first["notes"])
    assert first["address"].startswith(server.url)
    assert (again["uploaded"], again["present"]) == ([], ["app-1.0-0.conda", "lib-1.0-0.conda"])
    assert (listed.get("error"), "other bytes" in str(listed.get("message"))) == ("ChannelError", True), listed
    if kind == "artifactory":  # which takes the same file again
        assert unlisted.get("uploaded") == ["linux-64/lib-1.0-0.conda"], unlisted
    else:
        assert unlisted.get("error") == "NetworkError", unlisted
        assert "as soon as the server's index lists it" in str(unlisted.get("hint")), unlisted
    assert sorted(server.files.values()) == sorted(path.read_bytes() for path in files)


@pytest.mark.parametrize("kind", VARIABLES)
def test_keys_that_are_wrong_or_missing_are_told(server: ForeignServer, files: list[Path], kind: str) -> None:
    wrong, missing = publish(server, kind, of(*files, key="wrong"), of(*files, key=None))
    assert wrong["error"] == "NetworkError"
    assert missing["error"] == "UsageError"
    assert "no key for uploading" in missing["message"]
    assert all(VARIABLES[kind] in outcome["hint"] for outcome in (wrong, missing))
    assert server.files == {}


def test_labels_are_those_that_the_service_has(server: ForeignServer, files: list[Path]) -> None:
    [outcome] = publish(server, "anaconda", of(*files, label="testing"))
    assert server.labels == [["testing"], ["testing"]]
    assert outcome.get("address") == f"{server.url}/conda/owner/label/testing"


def test_what_fails_half_way_is_completed_by_the_next_run(server: ForeignServer, files: list[Path]) -> None:
    server.failing.add("app-1.0-0.conda")
    [failed] = publish(server, "quetz", of(*files))
    assert (failed["error"], server.arrived) == ("NetworkError", ["lib-1.0-0.conda"])
    server.failing.clear()
    [done] = publish(server, "quetz", of(*files))
    assert done.get("uploaded") == ["linux-64/app-1.0-0.conda"], done


def test_a_server_that_stalls_ends_in_an_error(server: ForeignServer, files: list[Path]) -> None:
    server.stalled.set()
    [outcome] = publish(server, "quetz", of(*files, limit_s=1))
    assert (outcome["error"], "was not accepted within 1 s" in outcome["message"]) == ("NetworkError", True)


def test_a_name_without_a_hash_in_the_index_is_an_error(server: ForeignServer, files: list[Path]) -> None:
    server.without_hashes.set()
    published, again = publish(server, "quetz", of(*files), of(*files))
    assert published.get("uploaded") == ["linux-64/app-1.0-0.conda", "linux-64/lib-1.0-0.conda"], published
    assert (again.get("error"), "without a sha256" in again.get("message", "")) == ("ChannelError", True), again


@pytest.mark.parametrize("kind", ["quetz", "artifactory", "prefix"])
def test_a_key_for_reading_does_not_follow_a_redirect(files: list[Path], kind: str) -> None:
    absent: Reply = (404, {}, b"")
    with scripted(ScriptedServer(lambda _asked: absent)) as thief:

        def answer(asked: Asked) -> Reply:
            return 302, {"Location": f"{thief.origin}{asked.path}"}, b""

        with scripted(ScriptedServer(answer)) as server:
            address = {
                "quetz": f"quetz+{server.origin}/toys",
                "artifactory": f"artifactory+{server.origin}/artifactory/toys",
                "prefix": f"prefix://toys?api={server.origin}&read={server.origin}/prefix/toys",
            }[kind]
            publish_to(address, kind, of(*files))
            asked = [one for one in server.asked if one.path.endswith(("repodata.json", ".zst"))]
    assert asked
    assert all(KEY in str(one.headers) for one in asked)
    assert thief.asked
    # rattler-build's uploads are another matter: docs/reference/threat-model.md
    assert not [one for one in thief.asked if KEY in str(one.headers) and one.path.endswith(("repodata.json", ".zst"))]
