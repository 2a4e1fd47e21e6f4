# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.conda.clients import make_http_client
from channel_tools.sources.fetch import SOURCE_RETRY, ByHash, DebianFile, fetch_sources, fetch_unknown
from channel_tools.sources.model import NeededSource, SourceMirrors
from channel_tools.sources.store import SourceStore
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import ChannelError, IntegrityError, NetworkError
from channel_tools.system.http.download import Cancelled, Download, download
from channel_tools.system.http.pace import Retry
from channel_tools.system.progress import SilentProgress
from tests.support.scripted_server import ScriptedServer, scripted
from tests.unit.sources.server import Served, serving
from tests.unit.sources.toys import file_need, tar_gz

BIG = hashlib.shake_128(b"toy").digest(700_000)
CONTENT = tar_gz({"toy-1/big": BIG})
NOWHERE = "http://127.0.0.1:9/toy-1.tar.gz"
"""The discard port: nothing listens there."""
CLIENT = make_http_client({}, retry=Retry(attempts=SOURCE_RETRY.attempts, first_wait_s=0.001))


@pytest.fixture
def store(tmp_path: Path) -> SourceStore:
    return SourceStore(folder=tmp_path / "store")


def fetch(store: SourceStore, *needs: NeededSource, debian: ByHash | None = None) -> None:
    fetch_sources(needs, store, client=CLIENT, jobs=4, progress=SilentProgress(), debian=[debian] if debian else [])


def test_mirrors_are_tried_in_turn(store: SourceStore) -> None:
    with serving({"/good": Served(content=CONTENT), "/other": Served(content=tar_gz({"x": b"y"}))}) as host:
        urls = (NOWHERE, f"{host.address}/absent", f"{host.address}/other", f"{host.address}/good")
        need = file_need(CONTENT, *urls)
        fetch(store, need)
        fetch(store, need)
        assert [path for path, _range in host.requests] == ["/absent", "/other", "/good"]
    stored = store.known(need)
    assert stored.path.read_bytes() == CONTENT
    assert stored.path.name == "toy-1.tar.gz"
    assert store.origin(need) == urls[-1]
    assert list(store.incoming.iterdir()) == []


@pytest.mark.parametrize("scheme", ["ftp", "FTP", "s3", "sftp"])
def test_an_address_of_which_no_source_is_read_says_which_are(store: SourceStore, scheme: str) -> None:
    address = f"{scheme}://me:word@host.invalid/toy-1.tar.gz"
    with pytest.raises(NetworkError) as caught:
        fetch(store, file_need(CONTENT, address))
    said = str(caught.value)
    assert "://host.invalid/toy-1.tar.gz: sources are read from addresses of http, https and file" in said
    assert "word" not in said
    with serving({"/good": Served(content=CONTENT)}) as host:
        fetch(store, file_need(CONTENT, address, f"{host.address}/good"))


def test_a_sites_mirrors_are_tried_before_the_recipes_addresses(store: SourceStore, tmp_path: Path) -> None:
    folder = tmp_path / "mirror" / "releases"
    folder.mkdir(parents=True)
    (folder / "toy-1.tar.gz").write_bytes(CONTENT)
    with serving({"/good": Served(content=CONTENT), "/bad/toy-1.tar.gz": Served(content=b"another")}) as host:
        upstream = f"{host.address}/upstream/"
        mirrors = SourceMirrors(
            places=(
                ("https://elsewhere.example/", NOWHERE),
                (upstream, f"{host.address}/bad/"),
                (upstream, folder.as_uri() + "/"),
            )
        )
        need = file_need(CONTENT, f"{upstream}toy-1.tar.gz", f"{host.address}/good")
        fetch_sources([need], store, client=CLIENT, jobs=1, progress=SilentProgress(), mirrors=mirrors)
        assert [path for path, _range in host.requests] == ["/bad/toy-1.tar.gz"]
    assert store.known(need).path.read_bytes() == CONTENT
    assert store.origin(need) == (folder / "toy-1.tar.gz").as_uri()


def test_what_no_mirror_has_comes_from_upstream_and_an_error_names_them_all(store: SourceStore) -> None:
    with serving({"/upstream/toy-1.tar.gz": Served(content=CONTENT)}) as host:
        mirrors = SourceMirrors(places=((f"{host.address}/upstream/", f"{host.address}/mirror/"),))
        need = file_need(CONTENT, f"{host.address}/upstream/toy-1.tar.gz")
        fetch_sources([need], store, client=CLIENT, jobs=1, progress=SilentProgress(), mirrors=mirrors)
        assert [path for path, _range in host.requests] == ["/mirror/toy-1.tar.gz", "/upstream/toy-1.tar.gz"]
        absent = file_need(b"absent", f"{host.address}/upstream/absent.tar.gz")
        with pytest.raises(NetworkError) as caught:
            fetch_sources([absent], store, client=CLIENT, jobs=1, progress=SilentProgress(), mirrors=mirrors)
    for place in ("mirror", "upstream"):
        assert f"{host.address}/{place}/absent.tar.gz" in caught.value.message


def test_a_download_that_was_cut_off_goes_on_where_it_ended(store: SourceStore) -> None:
    with serving({"/toy": Served(content=CONTENT, cut_after=[300_000, 100_000])}) as host:
        need = file_need(CONTENT, f"{host.address}/toy")
        fetch(store, need)
        assert [asked for _path, asked in host.requests] == [None, "bytes=300000-", "bytes=400000-"]
    assert store.known(need).path.read_bytes() == CONTENT


def test_a_file_without_a_known_hash_is_sent_anew_when_it_was_cut_off(store: SourceStore) -> None:
    with serving({"/toy-1.tar.gz": Served(content=CONTENT, cut_after=[300_000])}) as host:
        need = fetch_unknown([f"{host.address}/toy-1.tar.gz"], store, client=CLIENT, progress=SilentProgress())
        assert [asked for _path, asked in host.requests] == [None, None]
    assert store.known(need).path.read_bytes() == CONTENT


def test_the_part_of_an_earlier_run_is_continued(store: SourceStore) -> None:
    with serving({"/toy": Served(content=CONTENT, cut_after=[1000, 1000, 1000])}) as host:
        need = file_need(CONTENT, f"{host.address}/toy")
        with pytest.raises(NetworkError, match=r"the connection ended after 1000 of \d+ bytes"):
            fetch(store, need)
        fetch(store, need)
        assert host.requests[-1] == ("/toy", "bytes=3000-")
    assert store.known(need).path.read_bytes() == CONTENT


def test_a_server_without_ranges_sends_it_all_again(store: SourceStore) -> None:
    with serving({"/toy": Served(content=CONTENT, ranges=False, cut_after=[1000])}) as host:
        fetch(store, need := file_need(CONTENT, f"{host.address}/toy"))
    assert store.known(need).path.read_bytes() == CONTENT


def test_a_part_that_belongs_to_other_bytes_is_dropped_and_fetched_anew(store: SourceStore) -> None:
    with serving({"/toy": Served(content=CONTENT)}) as host:
        need = file_need(CONTENT, f"{host.address}/toy")
        store.incoming.mkdir(parents=True)
        (store.incoming / f"{need.identity}.part").write_bytes(b"x" * 500)
        fetch(store, need)
        assert [asked for _path, asked in host.requests] == ["bytes=500-", None]
    assert store.known(need).path.read_bytes() == CONTENT


@pytest.mark.parametrize("extra", [b"", b"more"], ids=["complete", "too-long"])
def test_a_part_at_or_beyond_the_end_ends_well(store: SourceStore, extra: bytes) -> None:
    with serving({"/toy": Served(content=CONTENT)}) as host:
        need = file_need(CONTENT, f"{host.address}/toy")
        store.incoming.mkdir(parents=True)
        (store.incoming / f"{need.identity}.part").write_bytes(CONTENT + extra)
        fetch(store, need)
    assert store.known(need).path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("served", "error", "words"),
    [
        pytest.param(
            Served(content=CONTENT, announced=len(CONTENT) + 9, ranges=False),
            NetworkError,
            "ended after",
            id="more-told",
        ),
        pytest.param(Served(content=CONTENT, announced=1000), IntegrityError, "got 1000 bytes", id="less-told"),
        pytest.param(Served(content=CONTENT + b"x"), IntegrityError, "bytes with sha256", id="more-sent"),
        pytest.param(Served(content=b"<html>"), IntegrityError, "got 6 bytes with sha256", id="a-page"),
        pytest.param(Served(content=b"", status=403), NetworkError, "HTTP status 403", id="refused"),
        pytest.param(Served(content=b"", status=500), NetworkError, "HTTP status 500", id="broken"),
    ],
)
def test_what_servers_get_wrong_is_one_error_with_the_address(
    store: SourceStore, served: Served, error: type[Exception], words: str
) -> None:
    with serving({"/toy": served}) as host:
        need = file_need(CONTENT, f"{host.address}/toy", package="toy 1")
        with pytest.raises(error, match=words) as caught:
            fetch(store, need)
        text = str(caught.value)
        assert host.address in text
        assert need.identity in text
        assert "for toy 1" in text
    assert store.find(need) is None


def test_too_great_a_length_does_no_harm_where_ranges_show_the_end(store: SourceStore) -> None:
    with serving({"/toy": Served(content=CONTENT, announced=len(CONTENT) + 9)}) as host:
        fetch(store, need := file_need(CONTENT, f"{host.address}/toy"))
    assert store.known(need).path.read_bytes() == CONTENT


def test_the_right_bytes_that_must_not_be_unpacked_are_refused_with_the_member(store: SourceStore) -> None:
    content = tar_gz({"../evil": b"x"})
    with serving({"/toy": Served(content=content)}) as host:
        need = file_need(content, f"{host.address}/toy")
        with pytest.raises(IntegrityError, match=r"'\.\./evil'"):
            fetch(store, need)
    assert store.find(need) is None


def test_one_failure_keeps_what_came_and_all_failures_are_named(store: SourceStore) -> None:
    others = [tar_gz({f"x{number}": b"x"}) for number in range(3)]
    with serving({"/toy": Served(content=CONTENT)}) as host:
        good = file_need(CONTENT, f"{host.address}/toy")
        bad = [file_need(content, NOWHERE, package=f"p{number} 1") for number, content in enumerate(others)]
        with pytest.raises(NetworkError, match=r"could not be fetched \(3\)") as caught:
            fetch(store, bad[0], good, *bad[1:])
    assert store.find(good) is not None
    assert all(need.identity in str(caught.value) for need in bad)


def test_two_that_fill_one_store_at_once_fetch_each_file_once(store: SourceStore) -> None:
    contents = [tar_gz({f"x{number}": b"x"}) for number in range(6)]
    paths = {f"/{number}": Served(content=content) for number, content in enumerate(contents)}
    errors: list[BaseException] = []
    with serving(paths) as host:
        needs = [file_need(content, f"{host.address}/{number}") for number, content in enumerate(contents)]

        def run() -> None:
            try:
                fetch(SourceStore(folder=store.folder), *needs)
            except BaseException as err:  # noqa: BLE001 - a thread's error is the test's
                errors.append(err)

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert sorted(path for path, _range in host.requests) == sorted(paths)
    assert all(store.known(need).path.read_bytes() == content for need, content in zip(needs, contents, strict=True))


def test_a_cancelled_download_keeps_its_part(tmp_path: Path) -> None:
    need = file_need(CONTENT)
    cancelled = threading.Event()
    cancelled.set()
    with serving({"/toy": Served(content=CONTENT)}) as host:
        wanted = Download(
            url=f"{host.address}/toy",
            folder=Beneath(root=tmp_path),
            part="part",
            sha256=need.identity,
            on_bytes=lambda _count: None,
            cancelled=cancelled,
        )
        with pytest.raises(Cancelled):
            download(CLIENT, wanted)
    assert CONTENT.startswith((tmp_path / "part").read_bytes())
    assert (tmp_path / "part").stat().st_size > 0


def test_a_link_in_the_place_of_a_part_is_not_written_through(store: SourceStore, tmp_path: Path) -> None:
    with serving({"/toy": Served(content=CONTENT)}) as host:
        need = file_need(CONTENT, f"{host.address}/toy", NOWHERE)
        store.incoming.mkdir(parents=True)
        (tmp_path / "victim").write_bytes(b"kept")
        (store.incoming / f"{need.identity}.part").symlink_to(tmp_path / "victim")
        with pytest.raises(ChannelError, match=f"{need.identity}.part: is a symbolic link to {tmp_path / 'victim'}"):
            fetch(store, need)
    assert (tmp_path / "victim").read_bytes() == b"kept"


class _Debian:
    """Has one file under Debian's own name for it."""

    def __init__(self, content: bytes, sha256: str) -> None:
        self._content = content
        self._sha256 = sha256
        self.asked: list[Collection[str]] = []

    def find(self, hashes: Collection[str]) -> dict[str, DebianFile]:
        self.asked.append(hashes)
        file = DebianFile(package="toy", version="1-3", file_name="toy_1.orig.tar.gz")
        return {self._sha256: file} if self._sha256 in hashes else {}

    def download(self, file: DebianFile, folder: Path) -> Path:
        path = folder / file.file_name
        path.write_bytes(self._content)
        return path


def test_debians_source_packages_are_asked_by_hash_for_what_no_address_gave(store: SourceStore) -> None:
    need = file_need(CONTENT, NOWHERE)
    debian = _Debian(CONTENT, need.identity)
    fetch(store, need, debian=debian)
    assert store.known(need).path.name == "toy-1.tar.gz"
    assert store.origin(need) == "toy_1.orig.tar.gz of Debian's source package toy 1-3"
    fetch(store, need, debian=debian)
    assert len(debian.asked) == 1


def test_other_bytes_from_debian_are_refused_too(store: SourceStore) -> None:
    need = file_need(CONTENT, NOWHERE)
    with pytest.raises(IntegrityError, match="Debian's source package toy"):
        fetch(store, need, debian=_Debian(b"other", need.identity))
    assert store.find(need) is None


def test_a_need_with_two_names_is_stored_once(store: SourceStore) -> None:
    with serving({"/toy": Served(content=CONTENT)}) as host:
        need = replace(file_need(CONTENT, f"{host.address}/toy"), names=("v1.tar.gz", "toy-1.tar.gz"))
        fetch(store, need)
    assert store.supply(need, "toy-1.tar.gz").samefile(store.known(need).path)
    assert store.supply(need, "v1.tar.gz").samefile(store.supply(need, "toy-1.tar.gz"))


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ('attachment; filename="toy-1.tar.gz"', "toy-1.tar.gz"),
        ("attachment; filename=toy-1.tar.gz; size=3", "toy-1.tar.gz"),
        ("inline", "download"),
        ("attachment; filename=../../toy-1.tar.gz", "toy-1.tar.gz"),
        ("attachment; filename=..", "download"),
        ("attachment; filename=.origin.json", "download"),
    ],
)
def test_a_source_has_the_name_that_its_server_gives_it(store: SourceStore, header: str, name: str) -> None:
    """As for rattler-build, which unpacks what is called an archive there, whatever the address ends with."""
    with scripted(ScriptedServer(lambda _asked: (200, {"Content-Disposition": header}, CONTENT))) as server:
        need = file_need(CONTENT, f"{server.origin}/download?id=5", name="download")
        fetch(store, need)
    assert store.supply(need, "download").name == name
    assert store.supply(need, "download").read_bytes() == CONTENT


def test_an_archive_by_its_servers_name_is_checked_as_one(store: SourceStore) -> None:
    content, head = tar_gz({"../x": b"y"}), {"Content-Disposition": "attachment; filename=toy.tgz"}
    with scripted(ScriptedServer(lambda _asked: (200, head, content))) as server:
        need = file_need(content, f"{server.origin}/download", name="download")
        with pytest.raises(IntegrityError, match=r"'\.\./x'"):
            fetch(store, need)
    assert store.find(need) is None


def test_a_source_that_is_added_as_an_archive_is_one(store: SourceStore, tmp_path: Path) -> None:
    (tmp_path / "toy-1.tar.gz").write_bytes(CONTENT)
    need = file_need(CONTENT, "https://upstream.invalid/download", name="download")
    store.add_file(tmp_path / "toy-1.tar.gz", need, origin="by hand")
    assert store.supply(need, "download").name == "toy-1.tar.gz"
