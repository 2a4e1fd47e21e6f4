# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from channel_tools.system.document import convert, decode_json, decode_msgpack


def test_a_hook_makes_the_values_of_other_types() -> None:
    assert decode_json(b'["a/b"]', list[Path], made) == [Path("a/b")]
    with pytest.raises(msgspec.DecodeError, match="Expected `Path`"):
        decode_json(b'["a/b"]', list[Path])


def made(kind: type[Path], text: str) -> Path:
    return kind(text)


def test_decoded_values_are_converted_to_a_type() -> None:
    assert convert({"a": {"b": 1}}, dict[str, dict[str, int]]) == {"a": {"b": 1}}
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        convert({"a": "b"}, dict[str, int])


def test_values_are_decoded_to_the_type_that_is_asked_for() -> None:
    assert decode_json(b'{"a": [1]}') == {"a": [1]}
    assert decode_json('{"a": "b"}', dict[str, str]) == {"a": "b"}
    assert decode_msgpack(msgspec.msgpack.encode({"a": 1}), dict[str, int]) == {"a": 1}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "truncated"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deep"),
        (b'"\xff"', "UTF-8"),  # msgspec has words of its own since 0.23
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


ROOT = Path(__file__).parents[3]
BEGUN_AT_ONCE = """
import dataclasses, sys, threading, types
import msgspec
from channel_tools.system.document import convert, decode_json

FIELDS = "".join(f"\\n    f{number}: 'Inner{number % 5}'" for number in range(40))
ONE = "class Inner{}(msgspec.Struct):\\n    a: 'int'\\n    b: 'dict[str, int]'\\n"
INNER = "".join(ONE.format(number) for number in range(5))
value = {f"f{number}": {"a": 1, "b": {}} for number in range(40)}
content = msgspec.json.encode(value)
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
        decode_json(content, module.T) if sys.argv[2] == "decode" else convert(value, module.T)

    threads = [threading.Thread(target=decode) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["decode", "convert"])
@pytest.mark.parametrize("kind", ["class T(msgspec.Struct):", "@dataclasses.dataclass\nclass T:"])
def test_threads_may_begin_to_decode_a_type_at_once(kind: str, how: str) -> None:
    """msgspec itself ends the process by SIGSEGV, on one core too."""
    script = [sys.executable, "-c", BEGUN_AT_ONCE, kind, how]
    ended = subprocess.run(script, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


DIRECT = """
import msgspec
from msgspec import convert, json
from msgspec.msgpack import Decoder

msgspec.convert({}, dict)
msgspec.json.decode(b"{}")
msgspec.json.Decoder(dict)
msgspec.msgpack.decode(b"{}")
json.decode(b"{}", type=dict)
msgspec.json.encode({})
"""


def test_the_linter_finds_every_call_of_msgspecs_own_decoders() -> None:
    """By TID251, whose list is in pyproject.toml; of our modules, document.py alone is excepted."""
    where = ROOT / "channel_tools" / "channel" / "made_up.py"
    command = [sys.executable, "-m", "ruff", "check", "--select=TID251", "--output-format=concise"]
    checked = subprocess.run(
        [*command, f"--stdin-filename={where}", "-"],
        cwd=ROOT,
        input=DIRECT,
        check=False,
        capture_output=True,
        text=True,
    )
    found = [int(line.split(":")[1]) for line in checked.stdout.splitlines() if " TID251 " in line]
    lines = DIRECT.splitlines()
    assert sorted(set(found)) == [lines.index(line) + 1 for line in lines if line][1:-1], (
        checked.stdout + checked.stderr
    )
