# SPDX-License-Identifier: BSD-3-Clause
"""A server whose channels' writers put pipes, devices, links and other things in the place of their files."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from channel_tools.channel import channel_writer, open_channel, verify_channel
from channel_tools.page.write import add_page
from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.server.protocol import API, encode, set_request
from channel_tools.system.progress import SilentProgress
from tests.support.damage import DAMAGES, GROWTH_BYTES, damage, peak_memory_bytes, places_of
from tests.support.packages import make_conda
from tests.support.serving import Answer, Server, make_token, running
from tests.unit.publish.sets import make_set

pytestmark = [pytest.mark.integration, pytest.mark.slow]
_KINDS = sorted(DAMAGES)
_EACH = 1
"""How many kinds of damage each place gets here; unit/publish/test_damaged.py makes more of them."""
_YANK = {"schema": 1, "label": "main", "keys": ["linux-64/toy-1.0-0.conda"], "reason": "broken"}


@pytest.fixture(scope="module")
def channels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the channel ``victim``, which has labels and a page."""
    work = tmp_path_factory.mktemp("damaged")
    target = FolderTarget(root=work / "channels" / "victim")
    for label in ("main", "x"):
        packages = make_set([make_conda(work, "toy"), make_conda(work, "tool", subdir="noarch")])
        target.publish(target.plan(packages, label=label), progress=SilentProgress())
        with channel_writer(target.open_label(label)) as writer:
            add_page(writer)
    return target.root.parent


@pytest.fixture
def damaged(channels: Path) -> dict[str, str]:
    """Copies of the channel, each with one damage; by name, with what was done."""
    made = {}
    for number, place in enumerate(places_of(channels / "victim")):
        for again in range(_EACH):
            kind = _KINDS[(number * _EACH + again) % len(_KINDS)]
            if kind == "too large" and place.endswith(".conda"):
                continue  # a package may be as large as that
            name = f"c{number}-{again}"
            shutil.copytree(channels / "victim", channels / name)
            damage(channels / name, place, kind, channels / "victim" / place)
            made[name] = f"{place}: {kind}"
    return made


def answers(server: Server, channel: str, headers: dict[str, str], new: bytes) -> Iterator[tuple[str, Answer]]:
    """What the server says to requests of each sort for a channel; jobs are waited for."""
    api = f"{API}/{channel}"
    for path in (f"/{channel}/linux-64/repodata.json", f"/{channel}/noarch/tool-1.0-0.conda", f"/{channel}/"):
        yield path, server.ask(path, headers=headers)
    yield "labels", server.ask(f"{api}/labels", headers=headers)
    yield "packages", server.ask(f"{api}/labels/main/packages", headers=headers)
    yield "plan", server.ask(f"{api}/plan", method="POST", headers=headers, body=new)
    yield "set", server.ask(f"{api}/sets", method="POST", headers=headers, body=new)
    begun = server.ask(f"{api}/yank", method="POST", headers=headers, body=json.dumps(_YANK).encode())
    yield "yank", begun
    if begun.status == 202:
        job = json.loads(begun.body)["id"]
        ended = server.ask(f"{api}/jobs/{job}?wait=25", headers=headers)
        yield "job", ended
        found = json.loads(ended.body)
        assert found["state"] in {"done", "failed"}, found
        if found["state"] == "failed":
            assert "failed to run the job" not in found["error"]["message"], found


def test_damaged_folders_of_uploads_are_one_error_for_their_channel_only(channels: Path, tmp_path: Path) -> None:
    target = FolderTarget(root=channels / "whole")
    package = make_conda(tmp_path, "single")
    target.publish(target.plan(make_set([make_conda(tmp_path, "toy")]), label="main"), progress=SilentProgress())
    outside = tmp_path / "outside"
    outside.mkdir()
    uploads = channels / ".channel_tools" / "uploads"
    damaged: dict[str, str] = {}
    for kind in DAMAGES:
        for place in ("", "arriving"):
            name = f"u{len(damaged)}"
            shutil.copytree(target.root, channels / name)
            (uploads / name / place).mkdir(parents=True)
            damage(uploads, f"{name}/{place}".rstrip("/"), kind, outside)
            damaged[name] = f"{kind} in the place of {place or 'its uploads'}"
    headers = {"Authorization": f"Bearer {make_token(channels, labels=None, access='write')}"}
    with running(channels, work=tmp_path, workers=2, quiet=False) as server:
        answers = {
            name: server.ask(
                f"/{name}/linux-64/{package.name}", method="PUT", headers=headers, body=package.read_bytes()
            )
            for name in (*damaged, "whole")
        }
        refused = {name: answer.status for name, answer in answers.items() if answer.status != 201}
    harmless = {name for name, what in damaged.items() if what.startswith(("gone", "folder"))}
    assert set(refused.values()) == {409}, {damaged[name]: answers[name] for name in refused}
    assert refused.keys() == damaged.keys() - harmless
    assert "Traceback" not in server.errors_said()
    assert list(outside.iterdir()) == []


def test_each_damage_is_one_error_with_its_reason_and_the_server_ends(
    channels: Path, damaged: dict[str, str], tmp_path: Path
) -> None:
    token = make_token(channels, labels=None, access="write")
    headers = {"Authorization": f"Bearer {token}"}
    new = encode(set_request(make_set([make_conda(tmp_path, "new")]), label="main"))
    before = {path: path.read_bytes() for path in (channels / "victim").rglob("*") if path.is_file()}
    with running(channels, work=tmp_path, workers=2, quiet=False) as server:
        peaks = {process: peak_memory_bytes(process) for process in (server.process.pid, *server.workers())}

        def ask(channel: str) -> list[str]:
            seen = [(name, answer) for name, answer in answers(server, channel, headers, new)]
            return [
                f"{damaged[channel]}: {name}: {answer.status} {answer.body[:200]!r}"
                for name, answer in seen
                if answer.status not in {200, 201, 202, 404, 409, 422, 507}
            ]

        with ThreadPoolExecutor(4) as pool:
            faults = [fault for found in pool.map(ask, damaged) for fault in found]
        assert faults == []
        assert server.ask("/victim/linux-64/repodata.json", headers=headers).status == 200
        grown = {process: peak_memory_bytes(process) - peak for process, peak in peaks.items()}
        assert max(grown.values()) < GROWTH_BYTES, grown
    said = server.errors_said()
    assert Counter(word for word in ("Traceback", "defect") if word in said) == Counter(), said[-2000:]
    assert {path: path.read_bytes() for path in (channels / "victim").rglob("*") if path.is_file()} == before
    assert verify_channel(open_channel(channels / "victim")) == []
