# SPDX-License-Identifier: BSD-3-Clause
"""A bucket as a copy of a channel's folder."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from channel_tools.channel import channel_writer
from channel_tools.channel.maintenance import Retention
from channel_tools.page.write import add_page
from channel_tools.publish.folder import FolderTarget
from channel_tools.system.errors import ChannelError, ChannelToolsError, IntegrityError, NetworkError, UsageError
from channel_tools.system.progress import SilentProgress
from tests.support.command_line import run_tool
from tests.support.packages import make_conda
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.s3 import ACCESS_KEY, REFUSED, SECRET_KEY, Answer, Bucket
from tests.unit.publish.sets import make_set

pytestmark = pytest.mark.integration

_ROOT = Path(__file__).parents[3]
ONE, TWO = "linux-64/one-1.0-0.conda", "linux-64/two-1.0-0.conda"
RECORD = ".channel_tools/replica.json"
_HOUR_S = 3600.0


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return tmp_path / "made"


@pytest.fixture
def folder(tmp_path: Path, made: Path) -> FolderTarget:
    """A channel with the package one."""
    target = FolderTarget(root=tmp_path / "folder")
    publish(target, make_conda(made, "one"))
    return target


def publish(target: FolderTarget, *packages: Path, label: str = "main") -> None:
    target.publish(target.plan(make_set(list(packages)), label=label), progress=SilentProgress())


def clients_files(root: Path) -> dict[str, bytes]:
    paths = [path for path in root.rglob("*") if path.is_file() and ".channel_tools" not in path.parts]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def require_copy(bucket: Bucket, root: Path, *more: str) -> None:
    """That the bucket has the folder's files, the record of the copy, and ``more``, and nothing else."""
    files = clients_files(root)
    assert bucket.names() == {*files, RECORD, *more}
    for name, content in files.items():
        assert bucket.get(name) == content, name


@pytest.mark.parametrize(("scheme", "how"), [("http", "sharded"), ("s3", "plain")])
def test_a_client_installs_from_the_copy(bucket: Bucket, made: Path, tmp_path: Path, scheme: str, how: str) -> None:
    target = FolderTarget(root=tmp_path / "folder")
    libtoy = make_conda(made, "libtoy", files={"lib/libtoy.txt": b"lib"})
    toy = make_conda(made, "toy", subdir="noarch", index={"depends": ["libtoy"], "noarch": "generic"})
    publish(target, toy, libtoy, label="testing")
    bucket.copy(target.root)
    address, extra = f"s3://{bucket.name}/chan/label/testing", [bucket.server.endpoint]
    if scheme == "http":
        bucket.make_public()
        address, extra = f"{bucket.server.endpoint}/{bucket.name}/chan/label/testing", []
    driver = [sys.executable, "-m", "tests.integration.conda.clients", "install"]
    done = subprocess.run(
        [*driver, address, str(tmp_path / "env"), "toy", how, *extra],
        cwd=_ROOT, capture_output=True, text=True, timeout=TEST_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["libtoy-1.0-0.conda", "toy-1.0-0.conda"]
    assert (tmp_path / "env" / "lib" / "libtoy.txt").read_bytes() == b"lib"


def test_a_second_copy_sends_what_is_new_and_a_yank_arrives(bucket: Bucket, folder: FolderTarget, made: Path) -> None:
    (folder.root / ".channel_tools" / "tokens.json").write_text("secret")
    bucket.copy(folder.root)
    require_copy(bucket, folder.root)
    written = bucket.server.app.written()
    assert written[0] == written[-1] == f"PUT {RECORD}"
    assert written.index(f"PUT {ONE}") < written.index("PUT noarch/repodata.json")
    assert written.index("PUT noarch/repodata.json") < written.index("PUT linux-64/repodata.json")
    assert bucket.copy(folder.root).sent == ()
    assert bucket.server.app.written() == []
    publish(folder, make_conda(made, "two"))
    sent = bucket.copy(folder.root).sent
    assert [name for name in sent if name.endswith(".conda")] == [TWO]
    assert {name for name in sent if name.startswith("noarch/")} == set()
    assert bucket.listed() == {ONE, TWO}
    folder.yank((ONE,), label="main", reason="wrong sums")
    sent = bucket.copy(folder.root).sent
    assert [name for name in sent if name.endswith(".conda")] == []
    assert bucket.listed() == {TWO}
    assert bucket.get(ONE) == (folder.root / ONE).read_bytes()  # for lock files


def test_the_store_copies_what_is_promoted(bucket: Bucket, tmp_path: Path, made: Path) -> None:
    target = FolderTarget(root=tmp_path / "folder")
    publish(target, make_conda(made, "one"), make_conda(made, "two"), label="testing")
    bucket.copy(target.root)
    bucket.server.app.written()
    target.promote((ONE,), source="testing", label="main", progress=SilentProgress())
    bucket.copy(target.root)
    assert [line for line in bucket.server.app.written() if line.endswith(".conda")] == [f"COPY {ONE}"]
    require_copy(bucket, target.root)
    assert bucket.headers(ONE)["cache-control"] == "public, max-age=31536000, immutable"
    assert bucket.headers("linux-64/repodata.json")["cache-control"] == "public, no-cache, max-age=0"
    assert (bucket.listed(), bucket.listed("label/testing/")) == (
        {ONE},
        {f"label/testing/{ONE}", f"label/testing/{TWO}"},
    )


def test_what_the_folder_no_longer_has_is_removed_after_a_day(bucket: Bucket, folder: FolderTarget, made: Path) -> None:
    bucket.put("robots.txt", b"of somebody else")
    newer = make_conda(made, "one", version="2.0")
    publish(folder, newer)
    bucket.copy(folder.root, clock=lambda: 0.0)
    folder.retain(Retention(keep=1, grace_s=0.0), label="main", dry_run=False)
    folder.retain(Retention(keep=1, grace_s=0.0), label="main", dry_run=False)
    assert not (folder.root / ONE).exists()
    copied = bucket.copy(folder.root, clock=lambda: 1 * _HOUR_S)
    assert (ONE in copied.waiting, copied.removed) == (True, ())
    assert bucket.copy(folder.root, clock=lambda: 24 * _HOUR_S).removed == ()
    bucket.server.app.written()
    planned = bucket.copy(folder.root, clock=lambda: 26 * _HOUR_S, dry_run=True)
    assert (ONE in planned.removed, planned.sent, bucket.server.app.written()) == (True, (), [])
    assert ONE in bucket.names()
    assert bucket.copy(folder.root, clock=lambda: 26 * _HOUR_S) == planned
    require_copy(bucket, folder.root, "robots.txt")
    assert bucket.listed() == {f"linux-64/{newer.name}"}


def refusing(after: int, *, counted: Callable[[str], bool]) -> Callable[[str, str], Answer | None]:
    """A watch that lets ``after`` requests pass and refuses every later one."""
    seen: list[str] = []

    def watch(method: str, path: str) -> Answer | None:
        seen.append(path)
        return ("403 Forbidden", REFUSED % b"AccessDenied") if len(seen) > after and counted(method) else None

    return watch


@pytest.mark.slow
def test_a_copy_that_was_cut_off_leaves_readers_whole_and_is_completed(
    bucket: Bucket, folder: FolderTarget, made: Path
) -> None:
    publish(folder, make_conda(made, "tool", subdir="noarch", index={"noarch": "generic"}), label="testing")
    with channel_writer(folder.open_label("main")) as writer:
        add_page(writer)
    bucket.copy(folder.root)
    publish(folder, make_conda(made, "two"), make_conda(made, "two", subdir="noarch", index={"noarch": "generic"}))
    folder.promote(("noarch/tool-1.0-0.conda",), source="testing", label="main", progress=SilentProgress())
    cut_off = 0
    for requests in range(0, 200, 3):
        try:
            with bucket.server.app.watched(refusing(requests, counted=lambda _method: True)):
                bucket.copy(folder.root)
        except NetworkError:
            cut_off += 1
            assert bucket.listed() >= {ONE}  # each of which is there, with its bytes
            assert bucket.listed("label/testing/") == {"label/testing/noarch/tool-1.0-0.conda"}
            continue
        break
    require_copy(bucket, folder.root)
    assert cut_off > 3


@pytest.mark.slow
def test_a_copy_that_was_killed_is_completed(bucket: Bucket, folder: FolderTarget, made: Path) -> None:
    publish(folder, make_conda(made, "two"))
    words = [sys.executable, "-m", "channel_tools", "publish", "--to", bucket.address, "--from", str(folder.root)]
    running: list[subprocess.Popen[bytes]] = []

    def kill(method: str, path: str) -> Answer | None:
        if method == "PUT" and path.endswith("noarch/repodata.json"):
            running[0].send_signal(signal.SIGKILL)
        return None

    bucket.server.app.asked.clear()
    with bucket.server.app.watched(kill):
        running.append(subprocess.Popen(words, stderr=subprocess.PIPE))
        running[0].communicate(timeout=TEST_TIMEOUT_S)
    assert running[0].returncode == -signal.SIGKILL
    assert "linux-64/repodata.json" not in bucket.names()
    assert bucket.listed() == set()
    bucket.copy(folder.root)
    require_copy(bucket, folder.root)


def _other_size(bucket: Bucket, _target: FolderTarget, _made: Path) -> None:
    bucket.put(ONE, b"other bytes", sha256="0" * 64)


def _no_hash(bucket: Bucket, target: FolderTarget, _made: Path) -> None:
    bucket.put(ONE, (target.root / ONE).read_bytes())


def _folder_made_anew(bucket: Bucket, target: FolderTarget, made: Path) -> None:
    bucket.copy(target.root)
    identity = (target.root / ".channel_tools" / "identity").read_text()
    target.root.rename(made / "before")
    publish(target, make_conda(made / "anew", "one", files={"share/one.txt": b"other"}))
    (target.root / ".channel_tools" / "identity").write_text(identity)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_other_size, "the bucket has other bytes under this name"),
        (_no_hash, "was not sent by channel_tools"),
        (_folder_made_anew, "the bucket has other bytes under this name"),
    ],
)
def test_other_bytes_under_a_name_are_refused_before_anything_is_sent(
    bucket: Bucket,
    folder: FolderTarget,
    made: Path,
    change: Callable[[Bucket, FolderTarget, Path], None],
    said: str,
) -> None:
    change(bucket, folder, made)
    bucket.server.app.written()
    for dry_run in (True, False):
        with pytest.raises(ChannelError, match=f"{ONE}: {said}"):
            bucket.copy(folder.root, dry_run=dry_run)
    assert bucket.server.app.written() == []


def test_the_copy_of_another_folder_is_refused(bucket: Bucket, folder: FolderTarget, made: Path) -> None:
    bucket.copy(folder.root)
    other = FolderTarget(root=made / "other")
    publish(other, made / ONE)
    bucket.server.app.written()
    for dry_run in (True, False):
        with pytest.raises(ChannelError, match="is a copy of another folder") as caught:
            bucket.copy(other.root, dry_run=dry_run)
    assert bucket.server.app.written() == []
    assert RECORD in str(caught.value.hint)
    bucket.delete(RECORD)
    assert [name for name in bucket.copy(other.root).sent if name.endswith(".conda")] == []
    assert bucket.listed() == {ONE}


def test_a_bucket_that_was_written_in_place_is_refused_until_its_records_are_deleted(
    bucket: Bucket, folder: FolderTarget
) -> None:
    """As 0.2.0 left it: the files that clients read, and its own records."""
    for name, content in clients_files(folder.root).items():
        bucket.put(name, content, **({"sha256": folder.packages("main")[0].sha256} if name == ONE else {}))
    listing = ".channel_tools/listing.json"
    bucket.put(listing, (folder.root / listing).read_bytes())
    before = {name: bucket.get(name) for name in bucket.names()}
    with pytest.raises(ChannelError, match=r"version 0\.2 wrote a channel there") as caught:
        bucket.copy(folder.root)
    assert {name: bucket.get(name) for name in bucket.names()} == before
    assert re.search(r"delete \.channel_tools/ in the bucket", str(caught.value.hint))
    bucket.delete(listing)
    assert [name for name in bucket.copy(folder.root).sent if name.endswith(".conda")] == []
    require_copy(bucket, folder.root)


def test_what_the_folder_lacks_of_a_bucket_is_named(bucket: Bucket, folder: FolderTarget) -> None:
    bucket.put("label/testing/linux-64/old-1.0-0.conda", b"old")
    with pytest.raises(ChannelError, match=str(folder.root)) as caught:
        bucket.copy(folder.root)
    assert re.search("publish FILE --to .* --label testing", str(caught.value.hint))


def _damaged(target: FolderTarget) -> None:
    path = target.root / ONE
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def _deleted(target: FolderTarget) -> None:
    (target.root / ONE).unlink()


def _leading_out(target: FolderTarget) -> None:
    (target.root / "noarch" / "notes.txt").symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (_damaged, IntegrityError, "has other bytes than sha256"),
        (_deleted, ChannelError, "repodata.json: names one-1.0-0.conda"),
        (_leading_out, ChannelError, "notes.txt"),
    ],
)
def test_a_folder_that_is_not_whole_is_not_copied(
    bucket: Bucket,
    folder: FolderTarget,
    change: Callable[[FolderTarget], None],
    error: type[ChannelToolsError],
    said: str,
) -> None:
    change(folder)
    with pytest.raises(error, match=said):
        bucket.copy(folder.root)
    assert bucket.listed() == set()


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("AccessDenied", NetworkError, "not allowed to list objects"),
        ("InvalidAccessKeyId", NetworkError, "the credentials are not accepted"),
        ("NoSuchBucket", UsageError, "there is no such bucket"),
        ("Whatever", NetworkError, r"failed to list objects \(Whatever\)"),
    ],
)
def test_what_a_store_refuses_is_said_without_secrets(
    bucket: Bucket, folder: FolderTarget, code: str, error: type[ChannelToolsError], said: str
) -> None:
    with (
        bucket.server.app.watched(lambda _method, _path: ("403 Forbidden", REFUSED % code.encode())),
        pytest.raises(error, match=said) as caught,
    ):
        bucket.copy(folder.root)
    words = f"{caught.value.message} {caught.value.hint}"
    assert ACCESS_KEY not in words
    assert SECRET_KEY not in words


def test_the_command_copies_and_says_what(bucket: Bucket, folder: FolderTarget, tmp_path: Path) -> None:
    def tool(*words: str | Path) -> tuple[int, str]:
        done = run_tool(*words, cwd=tmp_path, environ=dict(os.environ))
        return done.returncode, done.stdout + done.stderr

    code, said = tool("publish", "--to", bucket.address, "--from", folder.root, "--dry-run")
    assert (code, f"send {ONE}" in said, bucket.names()) == (0, True, set()), said
    done = run_tool(
        "publish", "--to", bucket.address, "--from", folder.root, "--json", cwd=tmp_path, environ=dict(os.environ)
    )
    assert (done.returncode, ONE in json.loads(done.stdout)["sent"]) == (0, True), done.stderr
    code, said = tool("publish", "--to", bucket.address, "--from", folder.root, "--label", "testing")
    assert (code, "publish into the folder first" in said) == (2, True), said
    code, said = tool("yank", "one", "--at", bucket.address, "--reason", "x")
    assert (code, "make the change in the folder" in said) == (2, True), said
