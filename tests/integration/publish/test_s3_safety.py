# SPDX-License-Identifier: BSD-3-Clause
"""Buckets under attack: killed writers, several writers, servers and networks that fail."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from channel_tools.channel.maintenance import Retention
from channel_tools.conda.repodata import encode_json
from channel_tools.publish.bucket.lease import LeaseRecord, Owner
from channel_tools.system.errors import ChannelError, ChannelToolsError, IntegrityError, NetworkError, UsageError
from channel_tools.system.http.pace import Timeouts
from tests.support.packages import make_conda
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.s3 import ACCESS_KEY, ERROR, SECRET_KEY, After, Answer, Bucket, Request, Watch, publish, serve_s3
from tests.unit.publish.sets import make_set

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_ROOT = Path(__file__).parents[3]
_ROUNDS = 5
"""docs/how-to/publish-to-s3.md tells of 200: python -m tests.integration.publish.s3_kills 200 7."""
_LEASE = "chan/.channel_tools/writer.json"


def test_killed_writers_leave_a_sound_channel_that_the_next_run_completes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.publish.s3_kills", str(_ROUNDS), "1"],
        cwd=_ROOT, capture_output=True, text=True, timeout=TEST_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["faults"], outcome["orphans"]) == ([], [])
    assert outcome["kills"] > _ROUNDS // 2


def test_publishers_at_once_wait_for_each_other_and_readers_see_whole_sets(bucket: Bucket, tmp_path: Path) -> None:
    sets = [[make_conda(tmp_path, f"toy{number}"), make_conda(tmp_path, f"toy{number}-x")] for number in range(4)]
    publish(bucket.target(), make_set(sets[0]))
    torn: list[frozenset[str]] = []
    ended = threading.Event()

    def read() -> int:
        reads = 0
        while not ended.is_set():
            torn.extend(view for view in bucket.views()[:3] if len(view) % 2)
            reads += 1
        return reads

    with ThreadPoolExecutor(4) as pool:
        reader = pool.submit(read)
        writers = [pool.submit(publish, bucket.target(), make_set(files)) for files in sets[1:]]
        reports = [writer.result() for writer in writers]
        ended.set()
    assert (torn, [len(report.uploaded) for report in reports]) == ([], [2, 2, 2])
    assert reader.result() > 1
    assert bucket.listed() == sorted(path.name for files in sets for path in files)


def leave_lease(bucket: Bucket, *, lease_s: float) -> None:
    """As a writer on another machine that is not heard of any more would."""
    owner = Owner(token="", host="far-away", process=4711, machine="another boot", started="1")
    bucket.put(_LEASE, encode_json(LeaseRecord(owner=owner, lease_s=lease_s)))


def test_a_writer_that_does_not_end_is_named(bucket: Bucket, tmp_path: Path) -> None:
    leave_lease(bucket, lease_s=600.0)
    with pytest.raises(ChannelError, match="process 4711 on far-away is writing to this channel"):
        publish(bucket.target(wait_s=0.2), make_set([make_conda(tmp_path, "one")]))
    assert bucket.keys() == [_LEASE]


def test_a_lease_that_is_not_renewed_is_taken_over(bucket: Bucket, tmp_path: Path) -> None:
    leave_lease(bucket, lease_s=0.0)
    publish(bucket.target(wait_s=20.0), make_set([make_conda(tmp_path, "one")]))
    assert bucket.listed() == ["one-1.0-0.conda"]


@pytest.mark.parametrize("held_up_at", ["records.msgpack.zst", "linux-64/repodata.json"])
def test_a_writer_that_was_held_up_undoes_nothing(bucket: Bucket, tmp_path: Path, held_up_at: str) -> None:
    """It loses its lease with a write on the way; another writer comes and goes, then the write arrives."""
    slow, quick = make_set([make_conda(tmp_path, "slow")]), make_set([make_conda(tmp_path, "quick")])
    publish(bucket.target(), make_set([make_conda(tmp_path, "first")]))
    held, let_go = threading.Event(), threading.Event()

    def hold_up(request: Request) -> Answer | None:
        if held.is_set() and request.path.endswith("writer.json"):
            return "503 Service Unavailable", b""
        if request.method == "PUT" and request.path.endswith(held_up_at):
            held.set()
            assert let_go.wait(60)
        return None

    with serve_s3() as (endpoint, app), ThreadPoolExecutor(1) as pool:
        app.watch = hold_up
        target = bucket.target(endpoint=endpoint, lease_s=1.0, timeouts=Timeouts(read_s=60.0))
        writing = pool.submit(publish, target, slow)
        assert held.wait(60)
        publish(bucket.target(), quick)
        before = bucket.listed()
        let_go.set()
        with pytest.raises(ChannelError, match=r"another writer (changed it in the meantime|took over)"):
            writing.result()
    committed = held_up_at != "records.msgpack.zst"
    assert before == bucket.listed()
    assert ("slow-1.0-0.conda" in before) == committed
    publish(bucket.target(), slow)
    assert bucket.listed() == ["first-1.0-0.conda", "quick-1.0-0.conda", "slow-1.0-0.conda"]


def first_time(fault: Callable[[Request, list[bytes]], list[bytes]]) -> After:
    """The fault, once for each request that changes something and each read of the records."""
    seen: set[tuple[str, str]] = set()

    def after(request: Request, served: list[bytes]) -> list[bytes]:
        key = (request.method, request.path)
        if key in seen or request.method == "HEAD" or (request.method == "GET" and "records" not in request.path):
            return served
        seen.add(key)
        return fault(request, served)

    return after


def lose(request: Request, served: list[bytes]) -> list[bytes]:
    request.drop()
    return served


def cut(request: Request, served: list[bytes]) -> list[bytes]:
    del request
    body = b"".join(served)
    return [body[: len(body) // 2]]


def every_fifth_unavailable() -> Watch:
    count = 0

    def watch(request: Request) -> Answer | None:
        nonlocal count
        del request
        count += 1
        return None if count % 5 else ("503 Slow Down", ERROR % b"SlowDown")

    return watch


@pytest.mark.parametrize(
    ("watch", "after"),
    [(every_fifth_unavailable(), None), (None, first_time(lose)), (None, first_time(cut))],
    ids=["unavailable", "answers lost", "answers cut"],
)
def test_failures_that_pass_are_got_over(
    bucket: Bucket, tmp_path: Path, watch: Watch | None, after: After | None
) -> None:
    publish(bucket.target(), make_set([make_conda(tmp_path, "first")]))
    packages = make_set([make_conda(tmp_path, "one"), make_conda(tmp_path, "two")])
    with bucket.server.app.watched(watch, after):
        publish(bucket.target(), packages)
    assert bucket.listed() == ["first-1.0-0.conda", "one-1.0-0.conda", "two-1.0-0.conda"]


def alter(request: Request) -> Answer | None:
    if request.method == "PUT" and request.path.endswith(".conda"):
        request.body = request.body[:-1] + bytes([request.body[-1] ^ 1])
    return None


def stall(request: Request) -> Answer | None:
    if request.method == "PUT" and request.path.endswith(".conda"):
        threading.Event().wait(2)
    return None


def spoil_records(request: Request, served: list[bytes]) -> list[bytes]:
    body = b"".join(served)
    return [body[:-1] + b"?"] if request.method == "GET" and "records" in request.path else served


@pytest.mark.parametrize(
    ("watch", "after", "error", "message"),
    [
        (alter, None, IntegrityError, "the server received other bytes than were sent"),
        (stall, None, NetworkError, "the request to .* timed out"),
        (None, spoil_records, ChannelError, "not valid channel records"),
    ],
    ids=["bytes altered", "peer stalls", "records altered"],
)
def test_failures_that_stay_are_told_and_change_nothing(
    bucket: Bucket,
    tmp_path: Path,
    watch: Watch | None,
    after: After | None,
    error: type[ChannelToolsError],
    message: str,
) -> None:
    publish(bucket.target(), make_set([make_conda(tmp_path, "first")]))
    packages = make_set([make_conda(tmp_path, "one")])
    target = bucket.target(timeouts=Timeouts(read_s=0.5)) if watch is stall else bucket.target()
    with bucket.server.app.watched(watch, after), pytest.raises(error, match=message):
        publish(target, packages)
    assert bucket.listed() == ["first-1.0-0.conda"]
    publish(bucket.target(), packages)
    assert bucket.listed() == ["first-1.0-0.conda", "one-1.0-0.conda"]


def test_what_could_not_be_deleted_is_deleted_by_the_next_change(bucket: Bucket, tmp_path: Path) -> None:
    old, new = make_conda(tmp_path, "one"), make_conda(tmp_path, "one", version="2.0")
    target, rule = bucket.target(), Retention(keep=1, grace_s=0.0)
    publish(target, make_set([old, new]))

    def refuse_deleting(request: Request) -> Answer | None:
        return ("403 Forbidden", ERROR % b"AccessDenied") if request.path.endswith("?delete") else None

    with bucket.server.app.watched(refuse_deleting), pytest.raises(NetworkError, match="not allowed to delete"):
        target.retain(rule, label="main", dry_run=False)
    assert bucket.listed() == [new.name]
    assert bucket.keys(f"chan/linux-64/{old.name}") != []
    target.yank((f"linux-64/{new.name}",), label="main", reason="wrong")
    assert bucket.keys(f"chan/linux-64/{old.name}") == []
    with pytest.raises(ChannelError, match="other bytes were published under this name before"):
        publish(target, make_set([make_conda(tmp_path / "again", "one", files={"a": b"other"})]))


def test_a_server_without_conditional_writes_is_refused(bucket: Bucket, tmp_path: Path) -> None:
    packages = make_set([make_conda(tmp_path, "one")])
    with serve_s3() as (endpoint, app):
        app.conditional = False
        with pytest.raises(ChannelError, match="ignores the conditions of conditional writes") as caught:
            publish(bucket.target(endpoint=endpoint), packages)
        assert "If-None-Match" in str(caught.value.hint)
        app.watch = lambda request: ("501 Not Implemented", b"") if request.method == "PUT" else None
        with pytest.raises(ChannelError, match="the server cannot write"):
            publish(bucket.target(endpoint=endpoint), packages)
    assert bucket.keys() == [_LEASE]


def test_what_cannot_be_reached_is_named(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = make_set([make_conda(tmp_path, "one")])
    bucket.server.client.delete_bucket(Bucket=bucket.name)
    with pytest.raises(UsageError, match="there is no such bucket"):
        publish(bucket.target(), packages)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(NetworkError, match=f"{endpoint}: could not be reached"):
            publish(bucket.target(endpoint=endpoint, timeouts=Timeouts()), packages)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(NetworkError, match="no credentials found"):
        publish(bucket.target(), packages)


def test_refused_credentials_are_told_without_their_words(bucket: Bucket, tmp_path: Path) -> None:
    body = (ERROR % b"InvalidAccessKeyId").replace(b"refused", f"no {ACCESS_KEY} {SECRET_KEY}".encode())
    with (
        bucket.server.app.watched(lambda _: ("403 Forbidden", body)),
        pytest.raises(NetworkError, match="the credentials are not accepted") as caught,
    ):
        publish(bucket.target(), make_set([make_conda(tmp_path, "one")]))
    told = "".join(traceback.format_exception(caught.value)) + str(caught.value.hint)
    assert "AWS_ACCESS_KEY_ID" in told
    assert [word for word in (ACCESS_KEY, SECRET_KEY) if word in told] == []
