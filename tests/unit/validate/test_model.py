# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import ast
import shlex

from channel_tools.validate.model import RANKS, last_line, torchrun_line


def test_the_line_that_starts_ranks_is_a_command_with_a_comment() -> None:
    assert shlex.split(torchrun_line(), comments=True) == ["torchrun", "--nproc-per-node", str(RANKS), "train.py"]


def test_the_last_line_is_pythons_after_its_comment() -> None:
    words, _colon, code = last_line("torch_switchml", "statistics()").partition(": ")
    assert words.startswith("#")
    assert [type(one) for one in ast.parse(code).body] == [ast.Import, ast.Expr]
