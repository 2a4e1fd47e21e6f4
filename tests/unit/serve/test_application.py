# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel_tools.serve.application import is_unchanged, parse_range, range_applies


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-0", range(1)),
        ("bytes=0-", range(10)),
        ("bytes=3-5", range(3, 6)),
        (" bytes= 3-5 ", range(3, 6)),
        ("bytes=-3", range(7, 10)),
        ("bytes=-30", range(10)),
        ("bytes=9-100", range(9, 10)),
        ("bytes=10-", range(0)),
        ("bytes=99-100", range(0)),
        ("bytes=-0", range(0)),
        ("bytes=7-8, 0-1", None),
        ("bytes=0-1,", None),
        ("bytes=5-3", None),
        ("bytes=", None),
        ("bytes=-", None),
        ("bytes=a-b", None),
        ("bytes=+1-2", None),
        ("bytes=1-2-3", None),
        ("bytes 0-1", None),
        ("items=0-1", None),
        ("", None),
        ("bytes=0-" + "9" * 600, None),
        ("bytes=٣-٤", None),
    ],
)
def test_a_range_of_ten_bytes(header: str, expected: range | None) -> None:
    assert parse_range(header.encode(), 10) == expected


def test_an_empty_file_has_no_range() -> None:
    assert parse_range(b"bytes=0-", 0) == range(0)
    assert parse_range(b"bytes=-5", 0) == range(0)


@given(st.binary(max_size=60).map(lambda text: b"bytes=" + text), st.integers(0, 10**12))
def test_a_range_stays_in_the_file(header: bytes, total: int) -> None:
    found = parse_range(header, total) or range(0)
    assert not found or 0 <= found.start < found.stop <= total


ETAG, DATE = b'"1-2"', b"Sat, 21 Nov 2026 18:00:00 GMT"


@pytest.mark.parametrize(
    ("none_match", "modified_since", "unchanged"),
    [
        (None, None, False),
        (ETAG, None, True),
        (b'"other"', None, False),
        (b'"other", "1-2"', None, True),
        (b'W/"1-2"', None, True),
        (b"*", None, True),
        (None, DATE, True),
        (None, b"Sat, 21 Nov 2026 18:00:01 GMT", False),
        (b'"other"', DATE, False),  # the tag decides where there is one
    ],
)
def test_unchanged(none_match: bytes | None, modified_since: bytes | None, *, unchanged: bool) -> None:
    assert is_unchanged(ETAG, DATE, if_none_match=none_match, if_modified_since=modified_since) == unchanged


@pytest.mark.parametrize(
    ("if_range", "applies"),
    [(None, True), (ETAG, True), (b'W/"1-2"', False), (b'"3"', False), (DATE, True), (b"", False)],
)
def test_if_range(if_range: bytes | None, *, applies: bool) -> None:
    assert range_applies(ETAG, DATE, if_range) == applies
