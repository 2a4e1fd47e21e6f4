# SPDX-License-Identifier: BSD-3-Clause
"""What commands look like on a terminal: real ones, in a terminal of 80 and 120 columns, with colour and without.

With CHANNEL_TOOLS_TEST_SCREENSHOTS the views are written there as SVG, by rich's export.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME, TerminalTheme
from rich.text import Text

from tests.support.browsers import SCREENSHOTS
from tests.support.processes import TEST_TIMEOUT_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
DRAWN = re.compile("\u2500+")
ROOT = Path(__file__).resolve().parents[3]
RECIPE = """\
schema_version: 1
package: {{name: {name}, version: '1.0'}}
build: {{noarch: generic, number: 0, script: "{script}"}}
about: {{license: BSD-3-Clause, homepage: "https://toy.example", summary: a toy}}
"""
STACKS = """\
default_stack: toy
stacks:
  toy:
    description: A library and what is built on it, to look at
    variants: [toy.yaml]
    packages: [library, broken]
    install: [library]
"""
# rich's own format names fonts of another site
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font: bold 18px system-ui, sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


@dataclass(frozen=True, kw_only=True)
class View:
    """A command, and what is on the terminal when it has ended: each line with its colours."""

    command: str
    columns: int
    folder: str
    code: int
    lines: tuple[str, ...]

    @property
    def words(self) -> str:
        return "\n".join(Text.from_ansi(line).plain.rstrip() for line in self.lines)

    def colours(self, word: str) -> set[str]:
        """How the word is drawn where it stands alone in a cell or at the start of a line."""
        found = set()
        for line in self.lines:
            text = Text.from_ansi(line)
            for span in text.spans:
                if text.plain[span.start : span.end].strip() == word:
                    found.add(re.sub(r"color\((\d)\)", lambda match: _COLOURS[int(match[1])], str(span.style)))
        return found

    def svg(self, theme: TerminalTheme = SVG_EXPORT_THEME) -> str:
        console = Console(record=True, width=self.columns, file=io.StringIO(), force_terminal=True)
        for line in self.lines:
            console.print(Text.from_ansi(line.replace(self.folder, "tree")))
        return console.export_svg(title=self.command, theme=theme, code_format=SVG, unique_id="terminal")


def on_screen(output: str) -> tuple[str, ...]:
    """The lines on a terminal after this output: what moves up and erases lines (rich's bars) is carried out."""
    lines, row = [""], 0
    for part in re.split(r"(\r?\n|\r|\x1b\[[0-9;?]*[A-KST-Zhl])", output):
        if part.endswith("\n"):
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part == "\x1b[1A":
            row = max(0, row - 1)
        elif part != "\r" and not re.fullmatch(r"\x1b\[[0-9;?]*[A-KST-Zhl]", part):
            lines[row] += part
    while lines and not lines[-1].strip():
        lines.pop()
    return tuple(lines)


def look(words: list[str], columns: int, tree: Path, extra: Mapping[str, str] | None = None) -> View:
    """Run a command of channel_tools in a pseudo-terminal."""
    return seen([sys.executable, "-m", "channel_tools", *words], words, columns, tree, extra)


def seen(
    program: list[str], words: list[str], columns: int, tree: Path, extra: Mapping[str, str] | None = None
) -> View:
    """Run ``program`` in a pseudo-terminal and show it as the command ``words`` of channel_tools."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
    environ = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "LINES"}}
    environ |= {"TERM": "xterm-256color", "CHANNEL_TOOLS_CACHE": str(tree / "cache"), **(extra or {})}
    process = subprocess.Popen(program, stdin=side, stdout=side, stderr=side, cwd=tree, env=environ)
    os.close(side)
    output = b""
    while True:
        try:
            piece = os.read(main, 1 << 16)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        output += piece
    os.close(main)
    code = process.wait(timeout=TEST_TIMEOUT_S)
    shown = " ".join(words).replace(f" --foundation-channel {(tree / 'empty').as_uri()}", "")
    return View(
        command=f"channel_tools {shown.replace(' --foundation conda-forge', '')}",
        columns=columns,
        folder=str(tree),
        code=code,
        lines=on_screen(output.decode()),
    )


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("terminal")
    for name, script in (("library", "echo built"), ("broken", "echo the compiler says no && false")):
        recipe = root / "recipes" / name / "recipe.yaml"
        recipe.parent.mkdir(parents=True)
        recipe.write_text(RECIPE.format(name=name, script=script))
    (root / "variants").mkdir()
    (root / "variants/toy.yaml").write_text("flavour: [plain]\n")
    (root / "variants/stacks.yaml").write_text(STACKS)
    for subdir in ("linux-64", "noarch"):
        (root / "empty" / subdir).mkdir(parents=True)
        (root / "empty" / subdir / "repodata.json").write_text('{"info": {}, "packages": {}, "packages.conda": {}}')
    return root


def from_nothing(tree: Path) -> list[str]:
    return ["--foundation", "conda-forge", "--foundation-channel", (tree / "empty").as_uri()]


@pytest.fixture(scope="module")
def views(tree: Path) -> dict[str, View]:
    """At 80 columns, in the order in which people run them; the build is real, and one of its packages fails."""
    commands = {
        "help": ["--help"],
        "list": ["list"],
        "build": ["build", "--variant", "toy", *from_nothing(tree)],
        "plan": ["plan", "--why", "--variant", "toy", *from_nothing(tree)],
        "error": ["validate", "--variant", "tyo"],
    }
    return {name: look(words, 80, tree) for name, words in commands.items()}


# what the command prints of a finished validation, without the minutes that one takes
VALIDATED = """\
from pathlib import Path
from channel_tools.cli.validate import print_report
from tests.unit.validate.reports import whole_report
print_report(whole_report(), Path("output/validation/udp.json"), details=True)
"""


def reports(columns: int, tree: Path, extra: Mapping[str, str] | None = None) -> dict[str, View]:
    """What doctor and validate say: of this machine, and of a validation that passed."""
    environ = {"PYTHONPATH": str(ROOT), **(extra or {})}
    asked = ["doctor", "--stack", "udp"]
    examined = [sys.executable, "-m", "channel_tools", *asked, "--root", str(ROOT)]
    validated = [sys.executable, "-c", VALIDATED]
    return {
        "doctor": seen(examined, asked, columns, tree, extra),
        "validate": seen(validated, ["validate", "--variant", "udp", "--details"], columns, tree, environ),
    }


def test_doctor_and_validate_are_alike_at_both_widths_with_and_without_colours(tree: Path, tmp_path: Path) -> None:
    narrow, wide = reports(80, tree), reports(120, tree)
    plain = reports(80, tree, {"NO_COLOR": "1"})
    assert narrow["doctor"].colours("ok") == {"green"}
    assert narrow["doctor"].colours("fault") == {"bold red"}
    assert narrow["validate"].colours("PASSED") == {"green"}
    for name, view in narrow.items():
        assert said_in(plain[name]) == said_in(view)
        assert not re.search(r"\x1b\[(?:[0-9;]*;)?3[0-7]m", "\n".join(plain[name].lines))
        assert {*view.words.split()} - {"\u2500" * 80} <= {*wide[name].words.split()} | {*DRAWN.findall(view.words)}
        # a command to be copied and the path of a file are not broken
        broken = [line for line in view.words.splitlines() if not re.match(r" *-> |PASSED|error", line)]
        assert max(map(len, broken)) <= 80
    folder = Path(os.environ.get(SCREENSHOTS, tmp_path))
    for name, view in narrow.items():
        light = view.svg(DEFAULT_TERMINAL_THEME)
        assert drawn_words(light) == drawn_words(view.svg())
        assert DEFAULT_TERMINAL_THEME.background_color.hex in light
        (folder / f"terminal-{name}.svg").write_text(light)


def said_in(view: View) -> set[str]:
    """Its words, without what is drawn between them."""
    return {word for word in view.words.split() if "\u2500" not in word}


def drawn_words(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_help_has_groups_within_80_columns(views: dict[str, View]) -> None:
    words = views["help"].words
    assert re.findall(r"^\u256d\u2500 (.*?) \u2500", words, re.MULTILINE) == [
        "Options",
        "Make a tree and look at it",
        "Build",
        "Run and validate",
        "Publish and serve",
        "Trust",
    ]
    assert max(map(len, words.splitlines())) <= 80


def test_finished_builds_stay_and_bars_do_not(views: dict[str, View]) -> None:
    words = views["build"].words
    assert views["build"].code == 7
    assert re.search(r"^built library-1\.0-\w+ after [0-9.]+ s$", words, re.MULTILINE)  # in a line
    assert re.search(r"^failed broken-1\.0-\w+ after [0-9.]+ s \(log:", words, re.MULTILINE)
    assert "all builds" not in words
    assert "\u2501" not in words  # no bar is left


def test_a_state_has_the_same_colour_in_every_command(views: dict[str, View]) -> None:
    assert views["build"].colours("built") == {"green"}
    assert views["build"].colours("failed") == {"bold red"}
    assert views["plan"].colours("skip") == {"dim"}
    assert views["plan"].colours("build") - {"bold"} == {"yellow"}  # a column has that name


def test_an_error_says_what_and_what_to_do_each_at_its_place(views: dict[str, View]) -> None:
    lines = views["error"].words.splitlines()
    assert lines[0].startswith("error: ")
    assert "tyo" in lines[0]
    assert next(line for line in lines if line.startswith("hint: "))
    assert views["error"].colours("error:") == {"bold red"}


def test_one_line_is_empty_between_a_table_and_what_follows(views: dict[str, View]) -> None:
    assert re.search(r"build\n\n[^\n]+because", views["plan"].words)


@pytest.mark.parametrize("name", ["list", "plan"])
def test_without_colours_and_at_120_columns_the_words_are_the_same(
    views: dict[str, View], tree: Path, name: str
) -> None:
    words = {"list": ["list"], "plan": ["plan", "--why", "--variant", "toy", *from_nothing(tree)]}[name]
    plain = look(words, 80, tree, {"NO_COLOR": "1"})
    said = said_in(views[name])
    assert said_in(plain) == said  # as the lines that a pipe gets
    assert "\x1b" not in "\n".join(plain.lines)
    wide = look(words, 120, tree)
    assert said <= {*wide.words.split()}
    assert max(len(line) for line in wide.words.splitlines() if "\u2500" in line) <= 120


def test_screenshots_load_nothing(views: dict[str, View]) -> None:
    folder = os.environ.get(SCREENSHOTS)
    for name, view in views.items():
        drawn = view.svg()
        assert re.findall(r"https?://[^\"']*", drawn) == ["http://www.w3.org/2000/svg"]
        if folder is not None and name in {"build", "plan"}:
            (Path(folder) / f"terminal-{name}.svg").write_text(drawn)
