# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from channel_tools.system.document import decode_json, decode_msgpack


def test_values_are_decoded_to_the_type_that_is_asked_for() -> None:
    assert decode_json(b'{"a": [1]}') == {"a": [1]}
    assert decode_json('{"a": "b"}', dict[str, str]) == {"a": "b"}
    assert decode_msgpack(msgspec.msgpack.encode({"a": 1}), dict[str, int]) == {"a": 1}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "truncated"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deep"),
        (b'"\xff"', "is not valid UTF-8"),
        (b'{"a": 1}', "Expected `str`"),
    ],
    ids=["empty", "deep", "not UTF-8", "another type"],
)
def test_every_fault_of_json_is_the_one_error(content: bytes, said: str) -> None:
    with pytest.raises(msgspec.DecodeError, match=said):
        decode_json(content, dict[str, str] if content.startswith(b"{") else object)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x91" * 100_000 + b"\xc0", b"\xa1\xff", b"\x81\x80\x01"],
    ids=["empty", "deep", "not UTF-8", "a map as key"],
)
def test_every_fault_of_messagepack_is_the_one_error(content: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_msgpack(content)


BEGUN_AT_ONCE = """
import dataclasses, sys, threading, types
import msgspec
from channel_tools.system.document import decode_json

FIELDS = "".join(f"\\n    f{number}: 'Inner{number % 5}'" for number in range(40))
ONE = "class Inner{}(msgspec.Struct):\\n    a: 'int'\\n    b: 'dict[str, int]'\\n"
INNER = "".join(ONE.format(number) for number in range(5))
content = msgspec.json.encode({f"f{number}": {"a": 1, "b": {}} for number in range(40)})
sys.setswitchinterval(1e-6)
for number in range(200):
    module = types.ModuleType(f"made{number}")
    sys.modules[module.__name__] = module
    names = vars(module) | {"msgspec": msgspec, "dataclasses": dataclasses}
    vars(module).update(names)
    exec(INNER + sys.argv[1] + FIELDS, vars(module))
    start = threading.Barrier(8)

    def decode():
        start.wait()
        decode_json(content, module.T)

    threads = [threading.Thread(target=decode) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


@pytest.mark.parametrize("kind", ["class T(msgspec.Struct):", "@dataclasses.dataclass\nclass T:"])
def test_threads_may_begin_to_decode_a_type_at_once(kind: str) -> None:
    """msgspec itself ends the process by SIGSEGV, on one core too."""
    ended = subprocess.run([sys.executable, "-c", BEGUN_AT_ONCE, kind], check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
