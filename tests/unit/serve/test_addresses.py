# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import re
import urllib.parse
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel_tools.serve.addresses import masked, parse_path, split_token
from tests.unit.page.sites import whole_channel

TOKEN = "ct-0123abcd-" + "9f" * 24


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/ours/linux-64/repodata.json", "ours/linux-64/repodata.json"),
        ("/ours/noarch/repodata.json.zst", "ours/noarch/repodata.json.zst"),
        ("/ours/channeldata.json", "ours/channeldata.json"),
        ("/ours/linux-64/shards/" + "0" * 64 + ".msgpack.zst", "ours/linux-64/shards/" + "0" * 64 + ".msgpack.zst"),
        ("/ours/label/testing/linux-64/a-1!2.0+x-h1_0.conda", "ours/label/testing/linux-64/a-1!2.0+x-h1_0.conda"),
        ("/ours/linux-64/_libgcc_mutex-0.1-main.conda", "ours/linux-64/_libgcc_mutex-0.1-main.conda"),
        ("/Our.channel-2/osx-arm64/x.conda", "Our.channel-2/osx-arm64/x.conda"),
        ("/ours/", "ours/index.html"),
        ("/ours/label/testing/", "ours/label/testing/index.html"),
        ("/ours/page/page.css", "ours/page/page.css"),
        ("/ours/page/name/_libgcc_mutex.html", "ours/page/name/_libgcc_mutex.html"),
        ("/ours/label/x/page/build/linux-64/a-1!2.0+x-0.html", "ours/label/x/page/build/linux-64/a-1!2.0+x-0.html"),
    ],
)
def test_what_may_be_asked_for(path: str, parts: str) -> None:
    place = parse_path(path)
    assert place is not None
    assert "/".join(place.parts) == parts


def test_every_file_of_a_channels_page_may_be_asked_for(tmp_path: Path) -> None:
    channel = whole_channel(tmp_path)
    files = [file.relative_to(channel.path).as_posix() for file in (channel.path / "page").rglob("*") if file.is_file()]
    folders = {file.split("/")[1] for file in files if file.count("/") > 1}
    assert folders == {"build", "name", "stack"}
    for file in files:
        place = parse_path(f"/ours/{file}")
        assert place is not None, file
        assert "/".join(place.parts) == f"ours/{file}"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/ours",
        "/ours/linux-64/",
        "/ours/page/",
        "/ours/page/name/",
        "/ours/page/build/a.html",
        "/ours/page/build/page/a.html",
        "/ours/page/name/more/a.html",
        "/ours/page/stack/",
        "/ours/page/log/a.html",
        "/ours/linux-64",  # a file of that name could be meant, but a folder is not read as one
        "/ours/.channel_tools/channel.json",
        "/.channel_tools/tokens.json",
        "/ours/linux-64/.tmp-abc/x.conda",
        "/ours/linux-64/.hidden",
        "/ours/../tokens.json",
        "/ours/linux-64/../../x",
        "/../etc/passwd",
        "/ours/linux-64/..",
        "//etc/passwd",
        "/ours//linux-64/x",
        "/ours/linux-64\\..\\x",
        "/ours/linux-64/x\0.json",
        "/ours/linux-64/%2e%2e",
        "/ours/linux-64/x.conda/",
        "/ours/linux-64/x y",
        "/ours/linux-64/x\n",
        "/ours/linux-64/" + "x" * 256,
        "/ours/label/main/linux-64/x",  # it has an address of its own
        "/ours/label/../linux-64/x",
        "/ours/label/testing/label/testing/linux-64/x",
        "/ours/src/x",
        "/t/linux-64/x",
        "/api/linux-64/x",
        "/ours/linux-64/shards/more/x",
    ],
)
def test_what_may_not(path: str) -> None:
    place = parse_path(path)
    assert place is None or place.parts == ("ours", "linux-64")


@given(st.text(alphabet="ab./\\%20e~\0:-_t", max_size=40))
def test_no_path_leads_out_of_its_channel(text: str) -> None:
    for path in (text, unquote(text), "/ours/" + text, "/ours/linux-64/" + text):
        place = parse_path(path)
        if place is not None:
            assert all(part and not part.startswith(".") and "/" not in part for part in place.parts)
            assert not set("\\%\0") & set("".join(place.parts))


@pytest.mark.parametrize(
    ("path", "token", "rest"),
    [
        ("/ours/x", None, "/ours/x"),
        (f"/t/{TOKEN}/ours/x", TOKEN, "/ours/x"),
        ("/t//ours/x", "", "/ours/x"),
        ("/t/abc", "abc", "/"),
        ("/t/abc/t/def/x", "abc", "/t/def/x"),
        ("/tt/abc/x", None, "/tt/abc/x"),
    ],
)
def test_the_token_of_a_path(path: str, token: str | None, rest: str) -> None:
    assert split_token(path) == (token, rest)


@pytest.mark.parametrize(
    "path",
    [f"/t/{TOKEN}/ours/x", f"/t/{TOKEN}", f"//t/{TOKEN}/x", f"/ours/{TOKEN}", f"/t/a/t/{TOKEN}/x", f"/x?t={TOKEN}"],
)
def test_no_token_is_left_in_a_masked_path(path: str) -> None:
    assert TOKEN not in masked(path)
    assert TOKEN[12:] not in masked(path)


def encoded(text: str, times: int) -> str:
    for _ in range(times):
        text = "".join(f"%{byte:02x}" for byte in text.encode()) if times < 3 else text.replace("-", "%2D")
        text = text.replace("%", "%25") if times > 1 else text
    return text


MUTILATED = {
    "short": TOKEN[:-1],
    "shorter": TOKEN[:-9],
    "long": TOKEN + "0",
    "capitals": TOKEN.upper(),
    "mixed": TOKEN[:20] + TOKEN[20:].upper(),
    "encoded": encoded(TOKEN, 1),
    "doubly encoded": encoded(TOKEN, 2),
    "dashes encoded often": TOKEN.replace("-", "%25252525252D"),
    "other dashes": TOKEN.replace("-", "_"),
    "no dashes": TOKEN.replace("-", ""),
    "no prefix": TOKEN[3:],
    "the secret": TOKEN[12:],
    "most of the secret": TOKEN[14:],
    "a wrong letter": TOKEN[:40] + "g" + TOKEN[41:],
    "a short id": "ct-" + TOKEN[4:],
}


@pytest.mark.parametrize("kind", MUTILATED)
@pytest.mark.parametrize("place", ["/ours/{}/x", "/{}", "/T/{}/ours/x", "/ours/noarch/{}.conda", "/ours/x={}&y"])
def test_no_token_is_left_that_was_mutilated(kind: str, place: str) -> None:
    found = masked(place.format(MUTILATED[kind]))
    for _ in range(9):
        found = urllib.parse.unquote(found)
    assert re.search("[0-9a-f]{9}", found, re.IGNORECASE) is None


@pytest.mark.parametrize(
    "path",
    [
        "/ours/linux-64/shards/" + "0a" * 32 + ".msgpack.zst",
        "/api/v1/channels/ours/jobs/" + "0a" * 16,
        "/ours/linux-64/torch-switchml-2.8.0-py312_h0123abc_0.conda",
        "/ours/linux-64/libdirect-2024.10.01-h0123abc_0.conda",
        "/ours/linux-64/a%2Bb-1.0-0.conda",
    ],
)
def test_other_paths_are_logged_as_they_are(path: str) -> None:
    assert masked(path) == path


def test_what_is_no_token_of_ours_is_masked_where_tokens_stand() -> None:
    assert masked("/t/hunter2/ours/linux-64/x.conda") == "/t/***/ours/linux-64/x.conda"
    assert masked("/ours/linux-64/x.conda") == "/ours/linux-64/x.conda"


def test_only_packages_and_shards_never_change() -> None:
    kinds = {
        path: place.never_changes
        for path in (
            "/c/noarch/a-1-0.conda",
            "/c/noarch/a-1-0.tar.bz2",
            "/c/noarch/shards/0.msgpack.zst",
            "/c/noarch/repodata.json",
            "/c/noarch/repodata_shards.msgpack.zst",
            "/c/a-1-0.conda",
            "/c/page/name/a-1-0.conda",
        )
        if (place := parse_path(path))
    }
    assert list(kinds.values()) == [True, True, True, False, False, False, False]
