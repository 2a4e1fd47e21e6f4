# SPDX-License-Identifier: BSD-3-Clause
"""What others wrote reaches a terminal without its control characters; only console.py and progress.py print."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import channel_tools
from channel_tools.cli import console, progress
from channel_tools.cli.console import style_of
from channel_tools.system.errors import ConfigError
from tests.support.command_line import run_tool
from tests.support.packages import make_conda

PACKAGE = Path(channel_tools.__file__).parent
COMMANDS_OF_TERMINALS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
CLEAR, RED, TITLE, OLD_CLEAR, TURNED = "\x1b[2J", "\x1b[31m", "\x1b]0;title\x07", "\x9b2J", "\u202egnp.exe"
FORGED = "x\nerror: everything is lost\nhint: run something else"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _as_defect(text: str) -> None:
    console.print_defect(f"ValueError: {text}\n")


def _as_error(text: str) -> None:
    console.print_error(ConfigError(text, hint=text))


def _as_log(text: str) -> None:
    logger = logging.getLogger("channel_tools.test")
    logging.getLogger().handlers.clear()
    console.configure_logging(0)
    logger.error("%s", text, exc_info=ValueError(text))


def _as_progress(text: str) -> None:
    with progress.shown_progress() as shown, shown.task(text, total=1) as task:
        shown.note(text)
        task.show(text)
        task.advance(detail=text)


WAYS: dict[str, Callable[[str], None]] = {
    "a line": console.print_line,
    "a note": console.print_note,
    "a table": lambda text: console.print_table(["a", "b"], [[text, text]], title=text),
    "JSON": lambda text: console.print_json({text: [text]}),
    "a result": lambda text: console.write_result(text, None),
    "an error": _as_error,
    "a defect": _as_defect,
    "the log": _as_log,
    "progress": _as_progress,
}


@pytest.fixture
def handlers() -> Iterator[None]:
    before = logging.getLogger().handlers[:]
    yield
    logging.getLogger().handlers[:] = before


def printed(way: str, text: str, stream: type[io.StringIO]) -> str:
    """What is written to both streams, which are of this kind; a terminal without colours or movements of its own."""
    out = stream()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", out)
        patch.setenv("TERM", "dumb")
        WAYS[way](text)
    return out.getvalue()


PIECES = ["\x1b", "[2J", "\x9b", "\u202e", "\n", "\t", "\r", "a", "[red]", "[/]", "\x07", "é"]
TEXTS = st.lists(st.sampled_from(PIECES)).map("".join)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(CLEAR)
@example(RED)
@example(TITLE)
@example(OLD_CLEAR)
@example(TURNED)
@example(FORGED)
@given(text=st.one_of(TEXTS, st.text(st.characters(exclude_categories=["Cs"]))))
def test_no_text_commands_a_terminal(way: str, stream: type[io.StringIO], text: str) -> None:
    if way == "a result" and stream is io.StringIO:
        assert (
            printed(way, text, stream) == text.removesuffix("\n") + "\n"
        )  # a program reads it: not one bit is changed
        return
    found = printed(way, text, stream)
    assert COMMANDS_OF_TERMINALS.search(found.replace("\t", "")) is None


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("way", ["a line", "a note", "a table", "JSON", "an error", "the log", "progress"])
def test_no_text_passes_for_a_message_of_ours(way: str) -> None:
    lines = printed(way, FORGED, io.StringIO).splitlines()
    ours = [line for line in lines if line.startswith(("error:", "hint:"))]
    assert ours == (["error: x", "hint: x"] if way == "an error" else [])


@pytest.mark.parametrize("text", [CLEAR, RED, TITLE, OLD_CLEAR, TURNED, FORGED, '\\u001b "', "\x7f"])
def test_json_is_read_back_as_it_was(text: str) -> None:
    assert json.loads(printed("JSON", text, io.StringIO)) == {text: [text]}


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_one_line_is_empty_between_a_table_and_what_follows_it(
    stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = stream()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("TERM", "dumb")
    console.print_table(["name"], [["toy"]])
    console.print_gap()
    console.print_line("next")
    assert [line.strip() for line in out.getvalue().splitlines()[-3:]] == ["toy", "", "next"]


HOSTILE = CLEAR + OLD_CLEAR + TURNED


@pytest.mark.parametrize("kind", ["lock", "file name", "folder", "package", "variant file"])
def test_commands_print_nothing_that_others_wrote_as_it_is(tmp_path: Path, kind: str) -> None:
    if kind == "lock":
        lock = tmp_path / "explicit.txt"
        lock.write_text(f"@EXPLICIT\nhttps://example.invalid/linux-64/{HOSTILE}-1-0.conda#{HOSTILE}\n")
        done = run_tool("env", "create", "env", "--lock", lock, cwd=tmp_path)
    elif kind == "file name":
        (tmp_path / f"{HOSTILE}-1-0.conda").write_bytes(b"no package")
        done = run_tool("audit", tmp_path / f"{HOSTILE}-1-0.conda", cwd=tmp_path)
    elif kind == "folder":
        (tmp_path / HOSTILE).mkdir()
        done = run_tool("channel", "verify", tmp_path / HOSTILE, cwd=tmp_path)
    elif kind == "package":
        bad = make_conda(tmp_path, "bad", index={"license": f"MIT{HOSTILE}"})
        done = run_tool("audit", bad, cwd=tmp_path)
    else:
        (tmp_path / "variants").mkdir()
        (tmp_path / "recipes").mkdir()
        (tmp_path / "variants" / "stacks.yaml").write_text('stacks: {"a\\e[2J\\u202e": {variants: 5}}\n')
        done = run_tool("list", cwd=tmp_path)
    assert done.returncode not in {0, 70}
    assert done.stderr or done.stdout
    assert COMMANDS_OF_TERMINALS.search(done.stdout + done.stderr) is None


PRINTING = {"print", "print_exc", "echo", "secho", "basicConfig", "StreamHandler", "Console", "pprint"}
ALLOWED = {  # how many places print by themselves, and why
    "build/engine.py": (10, "the log of a build"),
    "build/worker.py": (1, "the log of a build"),
    "cli/entry.py": (1, "the system's own words about standard output"),
    "cli/validate.py": (1, "passes on the output of a user's own job"),
    "doctor/library_probe.py": (1, "JSON for its parent process, in ASCII"),
    "doctor/loaded_probe.py": (1, "JSON for its parent process, in ASCII"),
    "ranks/look_at_ranks.py": (1, "JSON for its parent process, in ASCII"),
    "ranks/supervisor.py": (2, "the system's words about the user's own command"),
    "mirror/data/bootstrap.py": (1, "a script without this package; the path that its user gave"),
    "publish/third_party.py": (1, "JSON for its parent process"),
    "build/pbs.py": (3, "a program of its own for Snakemake, which makes it harmless"),
    "ranks/fork_ranks.py": (2, "what Python and torchrun say of a rank's end"),
}


MAY_PRINT = re.compile("|".join(rf"\b{name}\b" for name in (*sorted(PRINTING), "write", "writelines")))
"""In every module that prints; to parse all modules takes seconds."""


def _prints(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    words = ast.unparse(node.func)
    if re.search(r"(?:stdout|stderr|\bstream)(?:\.buffer)?\.write(?:lines)?$", words) and "stream.write" not in words:
        return True
    return words.rpartition(".")[2] in PRINTING


def test_nothing_else_prints() -> None:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name, source = str(path.relative_to(PACKAGE)), path.read_text()
        if name in {"cli/console.py", "cli/progress.py"} or not MAY_PRINT.search(source):
            continue
        if count := sum(map(_prints, ast.walk(ast.parse(source)))):
            found[name] = count
    assert found == {name: count for name, (count, _why) in ALLOWED.items()}


def test_a_state_has_one_colour_in_any_case_and_other_texts_have_none() -> None:
    assert style_of(" Failed ") == style_of("damaged") == "bold red"
    assert style_of("ok") != style_of("failed") != style_of("waiting") != style_of("skipped")
    assert style_of("libswitchml") == style_of("") == ""
