# SPDX-License-Identifier: BSD-3-Clause
"""Publishing to a running server, by our own client and by those of rattler-build."""

from __future__ import annotations

import dataclasses
import hashlib
import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from channel_tools.channel import open_channel, verify_channel
from channel_tools.channel.listing import Patch
from channel_tools.channel.maintenance import Retention
from channel_tools.publish import maintenance
from channel_tools.publish.model import PackageFile, PackageSet, PublishReport
from channel_tools.publish.server.protocol import API, JobResponse, encode, set_request
from channel_tools.publish.server.target import ServerTarget, open_server
from channel_tools.system.errors import ChannelError, ConfigError, IntegrityError, UsageError, VerificationError
from channel_tools.system.progress import SilentProgress
from tests.support.packages import REGISTRY, make_conda, own
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.serving import Server, make_token, running
from tests.unit.publish.sets import package_file

pytestmark = pytest.mark.integration
_ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, kw_only=True)
class Place:
    """A server and a channel name of its own for a test."""

    server: Server
    channel: str
    work: Path
    token: str

    @property
    def folder(self) -> Path:
        return self.server.root / self.channel

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def target(self, token: str | None = None) -> ServerTarget:
        return open_server(f"{self.server.address}/{self.channel}", {"CHANNEL_TOOLS_TOKEN": token or self.token})

    def package(self, name: str, *, foundation: bool = False, size_bytes: int = 10, build: str = "0") -> PackageFile:
        payload = hashlib.shake_256(name.encode() + build.encode()).digest(size_bytes)
        path = make_conda(self.work / build, name, build=build, files={f"share/{name}": payload})
        return package_file(path, foundation=foundation)

    def listed(self, label: str = "main") -> list[str]:
        folder = self.folder if label == "main" else self.folder / "label" / label
        return sorted(json.loads((folder / "linux-64" / "repodata.json").read_bytes())["packages.conda"])


def set_of(*files: PackageFile) -> PackageSet:
    return PackageSet(name="a set", files=files, foundation=REGISTRY)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    work = tmp_path_factory.mktemp("publishing")
    (work / "channels").mkdir()
    with running(work / "channels", work=work, workers=2) as running_server:
        yield running_server


@pytest.fixture
def place(server: Server, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    channel = "c" + hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    token = make_token(server.root, channel, labels=None, access="write")
    return Place(server=server, channel=channel, work=tmp_path, token=token)


def test_a_set_is_published_to_a_new_channel_and_read_from_it(place: Place) -> None:
    files = [place.package("one", size_bytes=3 << 20), place.package("two"), place.package("base", foundation=True)]
    target = place.target()
    plan = target.plan(set_of(*files), label="main")
    assert sorted(file.key for file in plan.upload) == sorted(file.key for file in files)
    report = target.publish(plan, progress=SilentProgress())
    assert sorted(report.uploaded) == sorted(str(file.key) for file in files)
    assert report.address == f"{place.server.address}/{place.channel}"
    assert place.listed() == ["base-1.0-0.conda", "one-1.0-0.conda", "two-1.0-0.conda"]
    assert verify_channel(open_channel(place.folder)) == []
    answer = place.server.ask(f"/{place.channel}/{files[0].key}", headers=place.headers)
    assert hashlib.sha256(answer.body).hexdigest() == files[0].sha256
    again = target.plan(set_of(*files), label="main")
    assert (again.upload, again.link, len(again.present)) == ((), (), 3)
    assert target.publish(again, progress=SilentProgress()).uploaded == ()
    uploads = place.server.root / ".channel_tools" / "uploads" / place.channel
    assert [path for path in uploads.rglob("*.conda") if path.is_file()] == []


def test_labels_share_bytes_and_promotion_links(place: Place) -> None:
    file = place.package("one")
    target = place.target()
    target.publish(target.plan(set_of(file), label="testing"), progress=SilentProgress())
    assert place.listed("testing") == ["one-1.0-0.conda"]
    assert place.listed() == []
    assert [one.key for one in target.plan(set_of(file), label="main").link] == [file.key]
    report = target.promote((str(file.key),), source="testing", label="main", progress=SilentProgress())
    assert report.linked == (str(file.key),)
    assert place.listed() == ["one-1.0-0.conda"]
    with pytest.raises(ChannelError, match="label testing does not list linux-64/none-1-0"):
        target.promote(("linux-64/none-1-0.conda",), source="testing", label="main", progress=SilentProgress())


def test_other_bytes_under_a_name_are_refused(place: Place) -> None:
    first = place.package("one")
    target = place.target()
    target.publish(target.plan(set_of(first), label="main"), progress=SilentProgress())
    other = package_file(make_conda(place.work / "other", "one", files={"share/one": b"others"}))
    with pytest.raises(ChannelError, match="other bytes under this name") as caught:
        target.plan(set_of(other), label="main")
    assert str(place.server.root) not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("climbs", IntegrityError, "would be written outside the folder"),
        ("lies-about-name", IntegrityError, "index.json says other-1.0-0"),
        ("no-package", IntegrityError, "not a complete conda package"),
        ("breaks-audit", VerificationError, "interpreter"),
        ("lies-about-digest", IntegrityError, "names the digest abc"),
        ("lies-about-subdir", IntegrityError, "is for the subdir 'noarch'"),
    ],
)
def test_what_is_wrong_with_a_package_is_told_and_nothing_is_published(
    place: Place, kind: str, error: type[Exception], words: str
) -> None:
    good = place.package("good")
    if kind == "climbs":
        path = make_conda(place.work / "bad", "bad", files={"../../etc/x": b"x"})
    elif kind == "lies-about-name":
        path = make_conda(place.work / "bad", "bad", index={"name": "other"})
    elif kind == "lies-about-digest":
        path = make_conda(place.work / "bad", "bad", build="h1234567_0", about=own("abc"))
    elif kind == "lies-about-subdir":
        path = make_conda(place.work / "bad", "bad", index={"subdir": "noarch", "noarch": "generic"})
    elif kind == "no-package":
        path = place.work / "bad" / "linux-64" / "bad-1.0-0.conda"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * 1000)
    else:
        path = make_conda(place.work / "bad", "bad", files={"bin/run": b"#!/home/me/bin/python\n"})
    target = place.target()
    target.publish(target.plan(set_of(good), label="main"), progress=SilentProgress())
    bad = dataclasses.replace(package_file(path), subdir="linux-64")
    files = (good, place.package("other"), bad)
    with pytest.raises(error, match=words) as caught:
        target.publish(target.plan(set_of(*files), label="main"), progress=SilentProgress())
    assert str(place.server.root) not in str(caught.value)
    assert place.listed() == ["good-1.0-0.conda"]
    assert verify_channel(open_channel(place.folder)) == []


def test_a_file_that_changed_after_it_was_announced_is_found_out(place: Place) -> None:
    file = place.package("one", size_bytes=5000)
    file.path.write_bytes(bytes(file.size_bytes))
    target = place.target()
    with pytest.raises(IntegrityError, match="the local channel's index says"):
        target.publish(target.plan(set_of(file), label="main"), progress=SilentProgress())


def test_a_set_that_was_compared_is_not_compared_again_to_be_opened(place: Place) -> None:
    """Its job compares it once more, with the channel's lock held."""
    file, more = place.package("one"), place.package("two")
    target, packages = place.target(), set_of(file, more)
    target.publish(target.plan(set_of(file), label="main"), progress=SilentProgress())
    request, address = set_request(packages, "main"), f"{API}/{place.channel}/sets"
    compared = target.connection.ask("POST", address, JobResponse, request)
    assert compared.missing == {str(more.key): 0}
    planned = replace(request, upload=(str(file.key), str(more.key)))
    opened = target.connection.ask("POST", address, JobResponse, planned)
    assert (opened.id, opened.missing) == (compared.id, {str(file.key): 0, str(more.key): 0})
    assert target.publish(target.plan(packages, label="main"), progress=SilentProgress()).uploaded == (str(more.key),)
    assert place.listed() == ["one-1.0-0.conda", "two-1.0-0.conda"]


def test_a_plan_has_the_schema_of_the_protocol_as_other_responses(place: Place) -> None:
    file = place.package("new")
    body = encode(set_request(set_of(file), "main"))
    answer = place.server.ask(f"{API}/{place.channel}/plan", method="POST", body=body, headers=place.headers)
    assert json.loads(answer.body) == {"schema": 1, "upload": [str(file.key)], "link": [], "present": []}


def test_an_upload_goes_on_where_it_was_cut_off(place: Place) -> None:
    file = place.package("one", size_bytes=300_000)
    packages = set_of(file)
    target = place.target()
    job = target.connection.ask("POST", f"{API}/{place.channel}/sets", JobResponse, set_request(packages, "main"))
    assert job.missing == {str(file.key): 0}
    content = file.path.read_bytes()
    path = f"{API}/{place.channel}/sets/{job.id}/files/{file.key}"
    sent = place.server.ask(
        path,
        method="PUT",
        body=content[:100_000],
        headers={**place.headers, "Content-Range": f"bytes 0-99999/{file.size_bytes}"},
    )
    assert (sent.status, json.loads(sent.body)["received"]) == (200, 100_000)
    wrong = place.server.ask(
        path,
        method="PUT",
        body=content[50_000:],
        headers={**place.headers, "Content-Range": f"bytes 50000-{file.size_bytes - 1}/{file.size_bytes}"},
    )
    assert (wrong.status, json.loads(wrong.body)["kind"]) == (409, "OffsetError")
    target.publish(target.plan(packages, label="main"), progress=SilentProgress())
    assert place.listed() == ["one-1.0-0.conda"]
    rows = [row for row in place.server.log() if row["method"] == "PUT" and place.channel in str(row["path"])]
    assert len(rows) <= 3


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"label": "../x"}, 400),
        ({"label": "Über"}, 400),
        ({"files": ()}, 400),
        ({"schema": 2}, 400),
        ({"name": "x" * 1000}, 400),
        ({"upload": ("linux-64/none-1.0-0.conda",)}, 400),
    ],
    ids=["label", "capitals", "empty", "schema", "name", "upload"],
)
def test_a_set_that_cannot_be_is_refused(place: Place, change: dict[str, object], status: int) -> None:
    wanted = replace(set_request(set_of(place.package("one")), "main"), **change)  # type: ignore[arg-type]
    answer = place.server.ask(f"{API}/{place.channel}/sets", method="POST", body=encode(wanted), headers=place.headers)
    assert answer.status == status
    assert not place.folder.exists()


@pytest.mark.parametrize("key", ["linux-64/../x.conda", "../../x.conda", "linux-64/x.tar.gz", "/etc/x.conda", "a/b/c"])
def test_a_file_of_another_place_is_refused(place: Place, key: str) -> None:
    document = json.loads(encode(set_request(set_of(place.package("one")), "main")))
    subdir, _, document["files"][0]["file_name"] = key.rpartition("/")
    document["files"][0]["subdir"] = subdir
    body = json.dumps(document).encode()
    answer = place.server.ask(f"{API}/{place.channel}/sets", method="POST", body=body, headers=place.headers)
    assert (answer.status, json.loads(answer.body)["kind"]) == (400, "UsageError")


def test_who_may_not_write_cannot(place: Place) -> None:
    file = place.package("one")
    root, name = place.server.root, place.channel
    cases = {
        "reading": make_token(root, name),
        "other channel": make_token(root, "other", labels=None, access="write"),
        "other label": make_token(root, name, labels=("testing",), access="write"),
        "unknown": "ct-00000000-" + "0" * 48,
    }
    for kind, token in cases.items():
        with pytest.raises(UsageError, match="token") as caught:
            place.target(token).plan(set_of(file), label="main")
        assert token not in str(caught.value), kind
    with pytest.raises(UsageError, match="a token is required"):
        open_server(f"{place.server.address}/{name}", {"HOME": str(place.work)}).plan(set_of(file), label="main")
    assert not place.folder.exists()
    place.target(cases["other label"]).plan(set_of(file), label="testing")


def test_promotion_wants_both_labels(place: Place) -> None:
    file = place.package("one")
    target = place.target()
    target.publish(target.plan(set_of(file), label="testing"), progress=SilentProgress())
    only = make_token(place.server.root, place.channel, labels=("testing",), access="write")
    with pytest.raises(UsageError, match="not valid for this channel and label"):
        place.target(only).promote((str(file.key),), source="testing", label="main", progress=SilentProgress())
    assert not (place.folder / str(file.key)).exists()


def upload(kind: str, place: Place, label: str, package: Path) -> subprocess.CompletedProcess[str]:
    channel = place.channel if label == "main" else f"{place.channel}/label/{label}"
    command = [sys.executable, "-m", "tests.integration.conda.clients", "upload", kind, place.server.address, channel]
    environ = {**os.environ, "TOKEN": place.token}
    return subprocess.run(
        [*command, str(package)],
        cwd=_ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=TEST_TIMEOUT_S,
    )


@pytest.mark.parametrize("label", ["main", pytest.param("testing", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["quetz", "artifactory"])
def test_rattler_builds_clients_can_upload(place: Place, kind: str, label: str) -> None:
    first = place.package("first")
    target = place.target()
    for one in ("main", label):
        target.publish(target.plan(set_of(first), label=one), progress=SilentProgress())
    second = place.package("second", size_bytes=200_000)
    for _again in range(2):
        done = upload(kind, place, label, second.path)
        assert done.returncode == 0, done.stderr
        assert place.listed(label) == ["first-1.0-0.conda", "second-1.0-0.conda"]
    other = make_conda(place.work / "other", "second", files={"share/x": b"other bytes"})
    refused = upload(kind, place, label, other)
    assert refused.returncode != 0
    name = "second-1.0-0.conda"
    assert place.server.statuses(place.channel, f"/{name}", count=3) == [201, 201, 409]
    assert verify_channel(open_channel(place.folder)) == []
    arriving = place.server.root / ".channel_tools" / "uploads" / place.channel / "arriving"
    assert list(arriving.iterdir()) == []


def test_what_would_leave_listed_packages_uninstallable_is_refused_and_changes_nothing(place: Place) -> None:
    """Sent as a set by our own client, as one package by others'."""
    target, made = place.target(), place.work / "needs"
    app = make_conda(made, "app", index={"depends": ["lib 1.0 hd2_0"]})
    lib, newer = (
        make_conda(made, "lib", variant={}, about=own(digest), build=f"h{digest}_0") for digest in ("d2", "d3")
    )
    target.publish(target.plan(set_of(package_file(app), package_file(lib)), label="main"), progress=SilentProgress())
    before = place.listed()
    plan = target.plan(set_of(package_file(newer)), label="main")
    with pytest.raises(ChannelError, match="1 listed package could no longer be installed") as caught:
        target.publish(plan, progress=SilentProgress())
    assert "linux-64/app-1.0-0.conda: needs linux-64/lib-1.0-hd2_0.conda" in caught.value.message
    assert "channel_tools yank" in (caught.value.hint or "")
    address = f"/{place.channel}/linux-64/{newer.name}"
    answer = place.server.ask(address, method="PUT", headers=place.headers, body=newer.read_bytes())
    assert answer.status == 409
    assert b"could no longer be installed" in answer.body
    assert place.listed() == before
    assert not (place.folder / "linux-64" / newer.name).exists()


class _LastByteAtOnce:
    """Bodies of requests whose last bytes are sent when all are about to send theirs."""

    def __init__(self, senders: int) -> None:
        self._all_ready = threading.Barrier(senders, timeout=TEST_TIMEOUT_S)

    def of(self, content: bytes) -> Iterator[bytes]:
        yield content[:-1]
        self._all_ready.wait()
        yield content[-1:]


@pytest.mark.parametrize("address", ["/{}/linux-64/{}", "/api/channels/{}/upload/{}"])
@pytest.mark.parametrize("what", ["the same package", pytest.param("one each", marks=pytest.mark.slow)])
def test_clients_that_upload_at_once_are_each_told_of_their_success(place: Place, address: str, what: str) -> None:
    target, senders = place.target(), 4
    target.publish(target.plan(set_of(place.package("first")), label="main"), progress=SilentProgress())
    for number in range(5):
        names = [f"p{number}{'' if what == 'the same package' else sender}" for sender in range(senders)]
        packages, bodies = [place.package(name).path for name in names], _LastByteAtOnce(senders)

        def send(package: Path, bodies: _LastByteAtOnce = bodies) -> tuple[int, bytes]:
            content = package.read_bytes()
            headers = {**place.headers, "Content-Length": str(len(content))}
            method = "POST" if address.startswith("/api") else "PUT"
            with closing(http.client.HTTPConnection("127.0.0.1", place.server.port, timeout=TEST_TIMEOUT_S)) as sending:
                sending.request(method, address.format(place.channel, package.name), bodies.of(content), headers)
                response = sending.getresponse()
                return response.status, response.read()

        with ThreadPoolExecutor(senders) as threads:
            answers = list(threads.map(send, packages))
        assert [status for status, _body in answers] == [201] * senders, answers
        assert {package.name for package in packages} <= set(place.listed())


def test_clients_that_publish_the_same_set_at_once_all_succeed(place: Place) -> None:
    """So do those that yank the same at once: they share a job."""
    target, clients = place.target(), 4
    for number in range(5):
        packages = set_of(*(place.package(f"s{number}-{part}") for part in range(3)))
        all_planned = threading.Barrier(clients, timeout=TEST_TIMEOUT_S)

        def publish(
            _client: int, packages: PackageSet = packages, all_planned: threading.Barrier = all_planned
        ) -> PublishReport:
            own_target = place.target()
            plan = own_target.plan(packages, label="main")
            all_planned.wait()
            return own_target.publish(plan, progress=SilentProgress())

        def yank(_client: int, packages: PackageSet = packages, all_planned: threading.Barrier = all_planned) -> None:
            all_planned.wait()
            place.target().yank((str(packages.files[0].key),), label="main", reason="wrong")

        with ThreadPoolExecutor(clients) as threads:
            reports = list(threads.map(publish, range(clients)))
            assert sorted(packages.by_name()) in [sorted(report.uploaded) for report in reports]
            assert {key.rpartition("/")[2] for key in packages.by_name()} <= set(place.listed())
            list(threads.map(yank, range(clients)))
        assert {package.yanked for package in target.packages("main") if package.name == f"s{number}-0"} == {"wrong"}


@pytest.mark.parametrize("kind", ["quetz", "artifactory"])
def test_a_single_upload_is_audited_too(place: Place, kind: str) -> None:
    target = place.target()
    target.publish(target.plan(set_of(place.package("first")), label="main"), progress=SilentProgress())
    bad = make_conda(place.work / "bad", "bad", files={"bin/run": b"#!/home/me/bin/python\n"})
    done = upload(kind, place, "main", bad)
    assert done.returncode != 0
    assert place.server.statuses(place.channel, "/bad-1.0-0.conda", count=1) == [422]
    assert place.listed() == ["first-1.0-0.conda"]


def test_a_single_upload_for_another_subdir_than_its_metadata_says_is_refused(place: Place) -> None:
    target = place.target()
    target.publish(target.plan(set_of(place.package("first")), label="main"), progress=SilentProgress())
    bad = make_conda(place.work / "bad", "bad", index={"subdir": "noarch", "noarch": "generic"})
    headers = {"Authorization": f"Bearer {place.token}"}
    address = f"/{place.channel}/linux-64/{bad.name}"
    answer = place.server.ask(address, method="PUT", headers=headers, body=bad.read_bytes())
    assert answer.status == 422
    assert b"is for the subdir 'noarch'" in answer.body
    assert place.listed() == ["first-1.0-0.conda"]


def test_what_is_published_is_looked_after_from_afar(place: Place) -> None:
    target = place.target()
    first, second = place.package("one"), place.package("two")
    for label in ("main", "testing"):
        target.publish(target.plan(set_of(first, second), label=label), progress=SilentProgress())
    assert target.labels() == ["main", "testing"]
    assert [package.key for package in target.packages("main")] == [first.key, second.key]
    changed = maintenance.yank(target, "one", label=None, reason="it is wrong", dry_run=False)
    assert [(one.label, one.key) for one in changed] == [("main", str(first.key)), ("testing", str(first.key))]
    assert (place.listed(), place.listed("testing")) == (["two-1.0-0.conda"], ["two-1.0-0.conda"])
    assert [package.yanked for package in target.packages("main")] == ["it is wrong", None]
    with pytest.raises(ChannelError, match="was yanked"):
        target.plan(set_of(first), label="main")
    target.yank((str(first.key),), label="main", reason=None)
    assert place.listed() == ["one-1.0-0.conda", "two-1.0-0.conda"]
    target.hotfix({"linux-64": Patch(records={second.file_name: {"license": "MIT"}})}, label="main", replace=False)
    records = json.loads((place.folder / "linux-64" / "repodata.json").read_bytes())["packages.conda"]
    assert records[second.file_name]["license"] == "MIT"
    with pytest.raises(ConfigError, match="cannot be patched"):
        target.hotfix({"linux-64": Patch(records={second.file_name: {"sha256": "0"}})}, label="main", replace=False)
    plan = target.retain(Retention(keep=1), label="main", dry_run=True)
    assert (plan.retire, plan.delete) == ((), ())
    assert verify_channel(open_channel(place.folder)) == []


def test_labels_of_others_are_not_told(place: Place) -> None:
    target = place.target()
    target.publish(target.plan(set_of(place.package("one")), label="main"), progress=SilentProgress())
    only = place.target(make_token(place.server.root, place.channel, labels=("testing",), access="write"))
    assert only.labels() == []
    with pytest.raises(UsageError, match="not valid"):
        only.packages("main")
    with pytest.raises(UsageError, match="not valid"):
        only.yank(("linux-64/one-1.0-0.conda",), label="main", reason="x")
