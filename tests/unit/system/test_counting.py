# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from channel_tools.system.counting import counted

PROGRAM = Path(__file__).parents[3] / "channel_tools"
PLURAL = re.compile(r" (more |new )?(?!bytes|has\b|is\b|was\b)[a-z]+s(?![\w.])")
LENGTH = re.compile(r"\{\s*len\(")
"""In every module of such places; to parse all modules takes seconds."""
ELSEWHERE = (PROGRAM / "validate" / "workers",)  # these run without channel_tools


@pytest.mark.parametrize(
    ("count", "words", "text"),
    [
        (0, ("package",), "0 packages"),
        (1, ("package",), "1 package"),
        (2, ("package",), "2 packages"),
        (1, ("entry", "entries"), "1 entry"),
        (12345, ("entry", "entries"), "12,345 entries"),
        (1, ("file is", "files are"), "1 file is"),
    ],
)
def test_a_count_has_the_noun_in_its_number(count: int, words: tuple[str, ...], text: str) -> None:
    assert counted(count, *words) == text


def _plurals(path: Path) -> Iterator[str]:
    """The places of a module where a length is followed by a plural, whatever the length is."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source if LENGTH.search(source) else "")):
        if isinstance(node, ast.JoinedStr):
            for value, text in pairwise(node.values):
                if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                    call = value.value
                    length = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "len"
                    if length and PLURAL.match(str(text.value)):
                        yield f"{path.relative_to(PROGRAM)}:{node.lineno}"


def test_no_message_writes_a_plural_after_a_length_itself() -> None:
    found = [
        place
        for path in sorted(PROGRAM.rglob("*.py"))
        if not any(path.is_relative_to(other) for other in ELSEWHERE)
        for place in _plurals(path)
    ]
    assert found == [], "use channel_tools.system.counting.counted"
