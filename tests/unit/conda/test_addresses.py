# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import asyncio
import hashlib
import json
import os
from pathlib import Path

import msgspec
import pytest
import rattler
import zstandard

from channel_tools.conda.addresses import (
    channel_address,
    file_name_of,
    has_credentials,
    has_secret,
    is_downgraded,
    is_misspelled,
    local_path,
    packages_address,
    parse_address,
    shown_address,
    split_revision,
    without_credentials,
)
from channel_tools.publish.target import open_target
from channel_tools.system.errors import IntegrityError, UsageError
from tests.unit.environments.toychannel import served


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        ("https://user:pw@host/chan", "https://host/chan"),
        ("https://token@host:8443/chan", "https://host:8443/chan"),
        ("https://host/t/tk-1234/chan/linux-64/a-1-0.conda", "https://host/chan/linux-64/a-1-0.conda"),
        ("https://host/proxy/t/tk-1234", "https://host/proxy"),
        ("https://host/chan/a.conda?X-Amz-Signature=abc#part", "https://host/chan/a.conda"),
        ("s3://key:secret@bucket/chan", "s3://bucket/chan"),
    ],
)
def test_credentials_are_taken_away(address: str, plain: str) -> None:
    assert without_credentials(address) == plain
    assert has_credentials(address)
    assert not has_credentials(plain)


@pytest.mark.parametrize(
    ("address", "secret"),
    [
        ("https://user:pw@host/a.tar.gz", True),
        ("https://token@host/a.git", True),
        ("git+https://token@host/a.git", True),
        ("ftp://user:pw@host/a.tar.gz", True),
        ("ssh://git:pw@host/a.git", True),
        ("https://user:pw@[/a.git", True),
        ("https://host/t/tk-1/channel/a.conda", True),
        ("https://host/a?X-Amz-Signature=1&X-Amz-Date=2", True),
        ("https://host/a?file=1&private_token=2", True),
        ("https://host/a?sig=", True),
        ("https://host/a.tar.gz?ref=main&download=1", False),
        ("https://host/pool/main/t/tar/tar_1.35.orig.tar.xz", False),
        ("ssh://git@host/a.git", False),
        ("git@host:group/a.git", False),
        ("ftp://host/a", False),
        ("file:///srv/a@b/c", False),
        ("../a@b", False),
    ],
)
def test_addresses_of_sources_are_told_from_those_with_a_secret(address: str, *, secret: bool) -> None:
    assert has_secret(address) is secret
    assert (shown_address(address) == address) is not secret
    assert "pw" not in shown_address(address)
    assert "tk-1" not in shown_address(address)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://host/a.git@v1", ("https://host/a.git", "v1")),
        ("https://host/a.git@release/2026.11", ("https://host/a.git", "release/2026.11")),
        ("https://host/x@y/a.git@v1", ("https://host/x@y/a.git", "v1")),
        ("ssh://git@host/a.git@v1", ("ssh://git@host/a.git", "v1")),
        ("ssh://git@host/a.git", ("", "ssh://git@host/a.git"[17:])),
        ("git@host:group/a.git@a/b", ("git@host:group/a.git", "a/b")),
        ("git@host:group/a.git", ("", "group/a.git")),
        ("../a.git@v1", ("../a.git", "v1")),
        ("https://host/a.git", ("", "a.git")),
        ("https://host", ("", "")),
    ],
)
def test_a_revision_is_told_from_the_address_before_it(text: str, expected: tuple[str, str]) -> None:
    address, rev = split_revision(text)
    assert address == expected[0]
    assert not address or rev == expected[1]


@pytest.mark.parametrize("address", ["https://user:secret@[/chan", "https://[user:secret@]/chan"])
def test_of_what_is_no_address_nothing_is_shown(address: str) -> None:
    assert "secret" not in without_credentials(address)


@pytest.mark.parametrize("address", ["https://host/chan", "file:///srv/t/x/chan", "https://host/label/test/noarch"])
def test_addresses_without_any_stay(address: str) -> None:
    assert without_credentials(address) == address


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("http://[", "Invalid IPv6 URL"),
        ("http://", "names no host"),
        ("https:///chan", "names no host"),
        ("s3://", "names no host"),
        ("http://host:99999/chan", "Port out of range"),
        ("http://host:x/chan", "Port could not be cast"),
        ("http://host:0/chan", "its port is 0"),
        ("http://a b/chan", "blanks"),
        ("https://host/ch\nan", "blanks or characters that cannot be printed"),
        ("https://host/\udcff", "cannot be printed"),
        ("https://" + "x" * 64 + "/chan", "label"),
        ("https://../chan", "label"),
        ("file://", "names no folder"),
        ("file:///srv/%00", "names no folder"),
        ("file://host/srv", "has no host, found 'host'"),
    ],
)
def test_what_cannot_be_an_address_is_refused(address: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_address(address)
    with pytest.raises(UsageError, match=problem):
        channel_address(address)


@pytest.mark.parametrize(
    "channel", ["", "a b", "x\n", "javascript:alert(1)", "-x", "ftp://host/chan", "~nosuchuser/chan"]
)
def test_what_names_no_channel_is_refused(channel: str) -> None:
    with pytest.raises(UsageError):
        channel_address(channel)


def test_a_wrong_address_is_told_without_its_secrets() -> None:
    with pytest.raises(UsageError) as caught:
        parse_address("https://user:secret@host:99999/t/secret/chan?x=secret")
    assert "secret" not in f"{caught.value} {caught.value.hint}"
    assert "https://host:99999/chan" in str(caught.value)


def test_a_folder_that_no_client_can_read_is_named_with_what_to_do(tmp_path: Path) -> None:
    """Linux takes any bytes as a name; the address of a channel is text."""
    folder = tmp_path / os.fsdecode(b"no \xff utf-8") / "channel"
    folder.mkdir(parents=True)
    for text in (str(folder), f"{folder}/../channel"):
        with pytest.raises(UsageError, match=r"no \\udcff utf-8/channel: not UTF-8, and conda's clients") as refused:
            channel_address(text)
        assert refused.value.hint == "rename the folder, or give a link to it whose own path is UTF-8"
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert channel_address(str(link)) == link.as_uri()


def test_folders_become_addresses(tmp_path: Path) -> None:
    assert channel_address(str(tmp_path)) == tmp_path.as_uri()
    assert channel_address("https://host/chan/") == "https://host/chan"


def test_a_bare_name_is_no_address_unless_a_folder_has_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="'conda-forge': not an address or an existing folder"):
        channel_address("conda-forge")
    (tmp_path / "conda-forge").mkdir()
    assert channel_address("conda-forge") == (tmp_path / "conda-forge").as_uri()


def test_local_paths() -> None:
    assert local_path("file:///srv/my%20channel") == Path("/srv/my channel")
    assert local_path("https://host/srv") is None
    assert file_name_of("https://host/noarch/a-1%211.0-0.conda") == "a-1!1.0-0.conda"


BASE_URLS = [
    None,
    "",
    "./",
    "files",
    "files/",
    "../files/",
    "../../../files",
    "/absolute",
    "/absolute/",
    "//two/slashes/",
    "https://other.example/x",
    "https://other.example:8443/x/",
    "https://user:secret@other.example/x/",
    "https://other.example/x/?signature=1",
    "https://other.example/x?file=",
    "s3://bucket/x/",
    "../a b/",
    "x%20y/",
]
RECORD = {"name": "a", "version": "1", "build": "0", "build_number": 0, "depends": [], "sha256": "0" * 64, "size": 1}


def write_plain(folder: Path, base_url: str | None) -> None:
    info = {"subdir": "noarch"} | ({} if base_url is None else {"base_url": base_url})
    index = {"info": info, "packages": {}, "packages.conda": {"a-1-0.conda": RECORD | {"subdir": "noarch"}}}
    (folder / "repodata.json").write_text(json.dumps(index | {"repodata_version": 2}))


def write_sharded(folder: Path, base_url: str | None) -> None:
    row = RECORD | {"subdir": "noarch", "sha256": bytes(32)}
    shard = zstandard.compress(msgspec.msgpack.encode({"packages": {}, "packages.conda": {"a-1-0.conda": row}}))
    sha256 = hashlib.sha256(shard)
    info = {"subdir": "noarch", "base_url": base_url or "", "shards_base_url": "./shards/"}
    info |= {"created_at": "2026-01-01T00:00:00Z"}
    index = msgspec.msgpack.encode({"info": info, "shards": {"a": sha256.digest()}})
    (folder / "shards").mkdir()
    (folder / "shards" / f"{sha256.hexdigest()}.msgpack.zst").write_bytes(shard)
    (folder / "repodata_shards.msgpack.zst").write_bytes(zstandard.compress(index))


def rattlers_address(channel: str, cache: Path) -> str:
    """The address of the one package, as rattler asks for it."""
    gateway = rattler.Gateway(cache_dir=cache)

    async def query() -> list[list[rattler.RepoDataRecord]]:
        return await gateway.query([channel], [rattler.Subdir("noarch")], ["a"], recursive=False)

    [record] = [record for group in asyncio.run(query()) for record in group]
    return str(record.url)


@pytest.mark.parametrize("base_url", BASE_URLS)
def test_packages_are_where_rattler_looks_for_them(base_url: str | None, tmp_path: Path) -> None:
    for kind, write in (("plain", write_plain), ("sharded", write_sharded)):
        folder = tmp_path / kind / "noarch"
        folder.mkdir(parents=True)
        write(folder, base_url)
    with served(tmp_path) as host:
        channels = [(tmp_path / "plain").as_uri(), f"{host}/plain"]
        if base_url is None or not ("?" in base_url or base_url.startswith("//")):
            # in the index of shards, rattler takes // for a host, and puts the file's name after a query
            channels.append(f"{host}/sharded")
        for channel in channels:
            expected = rattlers_address(channel, tmp_path / "cache")
            assert packages_address(channel, "noarch", base_url) + "a-1-0.conda" == expected


@pytest.mark.parametrize(
    ("channel", "base_url", "folder"),
    [
        ("https://u:pw@host/chan", None, "https://u:pw@host/chan/noarch/"),
        ("https://u:pw@host/chan", "../files/", "https://u:pw@host/chan/files/"),
        ("https://u:pw@host/chan", "https://host/chan/files", "https://u:pw@host/chan/files/"),
        ("https://host/t/TOKEN/chan", "../files", "https://host/t/TOKEN/chan/files/"),
        ("https://host/t/TOKEN/chan", "/chan/files", "https://host/t/TOKEN/chan/files/"),
        ("https://u:pw@host/chan", "https://other/chan/", "https://other/chan/"),
        ("https://u:pw@host/chan", "https://host:8443/chan/", "https://host:8443/chan/"),
        ("https://u:pw@host/chan", "http://host/chan/", "http://host/chan/"),
        ("https://u:pw@host/chan", "../../chan2/", "https://host/chan2/"),
        ("https://host/t/TOKEN/chan", "https://other/files/", "https://other/files/"),
        ("https://host/t/TOKEN/chan", "/files/", "https://host/files/"),
    ],
)
def test_credentials_go_only_to_what_is_below_the_channel(channel: str, base_url: str | None, folder: str) -> None:
    assert packages_address(channel, "noarch", base_url) == folder


@pytest.mark.parametrize(
    ("base_url", "reason"),
    [
        ("file:///srv/files/", "cannot have packages in folders here"),
        ("https://", "names no host"),
        ("https://host:0/", "port is 0"),
        ("https://[/x", "Invalid IPv6"),
        ("https://u:secret@host:bad/x", "Port could not be cast"),
    ],
)
def test_an_index_with_an_unusable_base_url_is_named(base_url: str, reason: str) -> None:
    with pytest.raises(IntegrityError, match=reason) as caught:
        packages_address("https://host/chan", "noarch", base_url)
    assert "https://host/chan/noarch: its index gives" in caught.value.message
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "https:/me:S3cret@host/ours",
        "https:me:S3cret@host/ours",
        "https//me:S3cret@host/ours",
        "https:///me:S3cret@host/ours",
        "https ://me:S3cret@host/ours",
        "://me:S3cret@host/ours",
        "git+https:/me:S3cret@host/ours",
        "HTTP:/t/S3cret/ours",
        "https://me:S3cret/x@host/ours",
        "file://me:S3cret@host/ours",
    ],
)
def test_a_misspelled_address_is_refused_and_its_secret_not_shown(text: str) -> None:
    assert "S3cret" not in without_credentials(text)
    assert has_secret(text)
    for use in (channel_address, lambda address: open_target(address, environ={})):
        with pytest.raises(UsageError) as caught:
            use(text)
        assert "S3cret" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("text", ["/srv/a@b", "./https", "a:b@c", "https://host/a@b"])
def test_what_only_looks_a_bit_like_that_is_as_before(text: str) -> None:
    assert (without_credentials(text), is_misspelled(text)) == (text, False)


@pytest.mark.parametrize(
    ("channel", "place", "expected"),
    [
        ("https://host/ours", "http://host/ours/noarch/a.conda", True),
        ("https://host/ours", "http://127.0.0.1:8/a.conda", False),
        ("https://host/ours", "https://elsewhere/a.conda", False),
        ("http://host/ours", "http://host/files/a.conda", False),
    ],
)
def test_an_https_channel_is_told_from_its_packages_at_plain_http(channel: str, place: str, *, expected: bool) -> None:
    assert is_downgraded(channel, place) is expected
