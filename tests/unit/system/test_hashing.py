# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import hashlib
import io

from channel_tools.system.hashing import HashedStream


def test_what_is_read_is_hashed_and_the_rest_on_request() -> None:
    stream = HashedStream(io.BytesIO(b"abcdef"))
    assert stream.read(2) == b"ab"
    assert stream.digest.hexdigest() == hashlib.sha256(b"ab").hexdigest()
    assert stream.hexdigest() == hashlib.sha256(b"abcdef").hexdigest()
    assert stream.read() == b""


def test_another_hash_can_be_continued() -> None:
    digest = hashlib.sha512(b"head ")
    assert HashedStream(io.BytesIO(b"body"), digest).hexdigest() == hashlib.sha512(b"head body").hexdigest()
