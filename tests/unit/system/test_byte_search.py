# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel_tools.system.byte_search import WIDE_ENCODINGS, Match, find_paths, find_texts

PIECES = [b"/a/tree", b"/a/tree/env", b"/a/tree2", b"-old", b"/", b"x", b"\0", b"/a"]


@given(pieces=st.lists(st.sampled_from(PIECES)), chunk=st.integers(min_value=15, max_value=40))
@pytest.mark.parametrize("find", [find_paths, find_texts])
def test_chunks_make_no_difference(find: Callable[..., Iterator[Match]], pieces: list[bytes], chunk: int) -> None:
    content = b"".join(pieces)
    whole = list(find(io.BytesIO(content), [b"/a/tree"], allowed=[b"/a/tree/env"]))
    assert list(find(io.BytesIO(content), [b"/a/tree"], allowed=[b"/a/tree/env"], chunk_bytes=chunk)) == whole


def test_a_path_ends_where_its_name_does() -> None:
    content = io.BytesIO(b"/a/tree2 /a/tree/lib")
    assert list(find_paths(content, [b"/a/tree"])) == [Match(text=b"/a/tree", offset=9)]


def test_a_text_may_end_inside_of_a_name() -> None:
    assert list(find_texts(io.BytesIO(b"x/a/tree2"), [b"/a/tree"])) == [Match(text=b"/a/tree", offset=1)]


def test_a_part_of_an_allowed_text_does_not_count() -> None:
    content = io.BytesIO(b"/b/hold_hold_hold/lib /c/hold_hold/lib")
    assert list(find_texts(content, [b"hold_hold"], allowed=[b"/b/hold_hold_hold"])) == [
        Match(text=b"hold_hold", offset=25)
    ]


@pytest.mark.parametrize("encoding", WIDE_ENCODINGS)
@pytest.mark.parametrize("chunk", [96, 97, 98, 99, 1000])
def test_paths_of_wide_characters_end_where_their_names_do(encoding: str, chunk: int) -> None:
    texts = ["/a/tree2\0", "/a/tree-x/y", "/a/tree/env/more", "/a/tree/lib"]
    content = b"".join(text.encode(encoding) for text in texts)
    found = find_paths(
        io.BytesIO(content),
        ["/a/tree".encode(encoding)],
        allowed=["/a/tree/env".encode(encoding)],
        chunk_bytes=chunk,
        encoding=encoding,
    )
    assert [match.offset for match in found] == [len("".join(texts[:3]).encode(encoding))]
