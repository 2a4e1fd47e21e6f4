# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel_tools.serve.addresses import masked, place_of, split_token

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
    ],
)
def test_what_may_be_asked_for(path: str, parts: str) -> None:
    place = place_of(path)
    assert place is not None
    assert "/".join(place.parts) == parts


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/ours",
        "/ours/",
        "/ours/linux-64/",
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
    place = place_of(path)
    assert place is None or place.parts == ("ours", "linux-64")


@given(st.text(alphabet="ab./\\%20e~\0:-_t", max_size=40))
def test_no_path_leads_out_of_its_channel(text: str) -> None:
    for path in (text, unquote(text), "/ours/" + text, "/ours/linux-64/" + text):
        place = place_of(path)
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
        )
        if (place := place_of(path))
    }
    assert list(kinds.values()) == [True, True, True, False, False, False]
