# SPDX-License-Identifier: BSD-3-Clause
"""The command line as a whole process: exit codes, one message per error, stdout and stderr kept apart."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

import channel_tools.system.errors
from channel_tools.cli.app import app, app_for
from channel_tools.system.errors import ChannelToolsError
from tests.support.command_line import run_tool
from tests.support.processes import TEST_TIMEOUT_S

ROOT = Path(__file__).parents[3]
REQUESTS = [path.stem for path in (ROOT / "channel_tools" / "requests").glob("[a-z]*.py")]
# the command line's own libraries, and what they take themselves
HELP_MODULES = {
    *("", "counting", "errors", "extras", "files", "harmless", "settings", "work_folder"),  # of channel_tools.system
    *("channel_tools.requests", *(f"channel_tools.requests.{name}" for name in REQUESTS)),  # what options become
}
HELP_LIBRARIES = {
    *("annotated_doc", "attr", "channel_tools", "markdown_it", "mdurl", "platformdirs", "pygments", "rich"),
    *("shellingham", "typer"),
    "sitecustomize",  # Debian's Python has one
}
SUBCOMMANDS = [
    "list",
    "render",
    "plan",
    "build",
    "validate",
    "env create",
    "foundation build",
    "channel verify",
    "pins",
    "mirror create",
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "recipes" / "toy").mkdir(parents=True)
    (tmp_path / "variants").mkdir()
    (tmp_path / "recipes" / "toy" / "recipe.yaml").write_text(
        "schema_version: 1\n"
        "package: {name: toy, version: '1.0'}\n"
        "build:\n  noarch: generic\n  number: 0\n  script: echo ${{ flavour }} ${{ c_compiler }}\n"
        "about: {license: BSD-3-Clause}\n"
    )
    (tmp_path / "variants" / "toy.yaml").write_text("flavour: [plain]\nc_compiler: [gcc]\n")
    (tmp_path / "variants" / "stacks.yaml").write_text(
        "default_stack: toy\n"
        "stacks:\n"
        "  toy:\n"
        "    description: one small package\n"
        "    variants: [toy.yaml]\n"
        "    packages: [toy]\n"
        "    install: [toy]\n"
        "    validate: {method: switchml}\n"
    )
    return tmp_path


def test_help_imports_no_stage(tmp_path: Path) -> None:
    """What makes help slow is what it imports; the seconds are measured by ``make bench``, on a quiet machine."""
    script = (
        "import sys\n"
        "from channel_tools.cli.app import app\n"
        "try:\n"
        "    app(['--help'])\n"
        "except SystemExit as end:\n"
        "    print(*sorted(sys.modules), file=sys.stderr)\n"
        "    raise\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=TEST_TIMEOUT_S,
    )
    assert result.returncode == 0
    modules = set(result.stderr.split())
    ours = {name for name in modules if name.startswith("channel_tools.") and not name.startswith("channel_tools.cli")}
    assert {name.removeprefix("channel_tools.system").lstrip(".") for name in ours} == HELP_MODULES
    others = {name.partition(".")[0] for name in modules if not name.startswith("_")} - sys.stdlib_module_names
    assert others <= HELP_LIBRARIES


def test_a_command_is_made_without_the_others() -> None:
    named = get_command(app_for(["mirror", "keys", "create"]))
    assert list(named.commands) == ["mirror"]  # type: ignore[attr-defined]
    for others in (["pln"], ["-v", "plan"], ["--help"], []):
        assert app_for(others) is app


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_every_command_explains_itself(command: str, tmp_path: Path) -> None:
    result = run_tool(*command.split(), "--help", cwd=tmp_path)
    assert result.returncode == 0
    assert "--json" in result.stdout
    assert result.stderr == ""


def test_list_prints_a_table_and_json(tree: Path) -> None:
    short = run_tool("list", cwd=tree)
    assert short.returncode == 0
    assert short.stdout.splitlines()[1].split() == ["toy", "1", "1", "1", "one", "small", "package"]
    assert short.stdout.splitlines()[-2].startswith("1 stack, 1 package, 1 variant;")
    named = run_tool("list", "--base", "debian-13", cwd=tree)
    assert named.stdout.splitlines()[-1].startswith("base debian-13: runs on glibc 2.41 or later, ")
    plain = run_tool("list", "--variant", "toy", cwd=tree)
    assert plain.returncode == 0
    assert plain.stdout.splitlines()[1].split() == [
        "toy",
        "toy",
        "1.0",
        "noarch",
        "yes",
        "flavour=plain",
    ]
    assert '"package": "toy"' in run_tool("list", "--json", cwd=tree).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["plan", "--variant", "tyo"], 2, "'tyo' is not a stack"),
        (["plan", "--base", "debian-9"], 2, "'debian-9' is not one of"),
        (["list", "--base", "debian-13", "--foundation", "conda-forge"], 2, "only the registry foundation is made"),
        (["plan", "--foundation-channel", "http://127.0.0.1:9/x"], 2, "needs --foundation conda-forge"),
        (["plan"], 4, "foundation"),
        (["env", "create", "x"], 8, "output/channel"),
        (["channel", "index"], 8, "output/channel"),
        (["foundation", "verify"], 4, "there is no foundation here"),
        (["plan", "--no-such-option"], 2, "No such option"),
    ],
    ids=[
        "stack",
        "base",
        "base-of-another",
        "address",
        "no-foundation",
        "no-channel",
        "no-channel-index",
        "verify",
        "option",
    ],
)
def test_errors_are_one_message_with_their_code(tree: Path, arguments: list[str], code: int, message: str) -> None:
    result = run_tool(*arguments, cwd=tree)
    assert (result.returncode, result.stdout) == (code, "")
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tree / "output").exists()


@pytest.mark.parametrize("command", ["list", "plan"])
def test_a_key_that_no_recipe_uses_is_noted(tree: Path, command: str) -> None:
    (tree / "variants" / "toy.yaml").write_text("flavour: [plain]\nflavor: [other]\n")
    result = run_tool(command, cwd=tree)
    assert "toy.yaml:2: no recipe of this tree uses the key 'flavor'; did you mean flavour?" in result.stderr


def test_unknown_package_is_answered_with_the_nearest(tree: Path) -> None:
    (tree / "output").mkdir()
    result = run_tool("build", "--dry-run", "--package", "tpy", cwd=tree)
    assert result.returncode == 2
    assert "'tpy' is not a package of the stack 'toy'" in result.stderr
    assert "toy" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("flavour: [plain\n", 2, "this is not valid YAML"),
        ("flavour: [plain]\nflavour: [other]\n", 2, "duplicate key"),
        ("flavour: plain\n", 1, "flavour"),
        ("flavour: [a, b]\nc_compiler: [x]\nzip_keys:\n  - [flavour, c_compiler]\n", 4, "zip_keys"),
    ],
    ids=["no-yaml", "twice", "no-list", "zip-length"],
)
def test_a_wrong_variant_file_is_named_with_its_line(tree: Path, text: str, line: int, message: str) -> None:
    (tree / "variants" / "toy.yaml").write_text(text)
    result = run_tool("list", cwd=tree)
    assert result.returncode == 3
    assert re.search(rf"variants/toy\.yaml:{line}: .*{message}", result.stderr), result.stderr


def test_exit_codes_are_those_of_the_documentation() -> None:
    table = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    classes = [item for item in vars(channel_tools.system.errors).values() if isinstance(item, type)]
    ours = {item.exit_code for item in classes if issubclass(item, ChannelToolsError) and item is not ChannelToolsError}
    assert ours <= documented
    assert len(ours) == len([item for item in classes if ChannelToolsError in item.__bases__]), "each has its own"


@pytest.mark.parametrize(
    ("closing", "code"),
    [(">/dev/full", 12), (">&-", 14), ("<&- >&- 2>&-", 14), ("2>&-", 0), ("2>/dev/full", 0)],
)
def test_results_that_cannot_be_written_are_an_error(tree: Path, closing: str, code: int) -> None:
    command = f'exec "{sys.executable}" -m channel_tools list {closing}'
    result = subprocess.run(
        ["sh", "-c", command], cwd=tree, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S
    )
    assert result.returncode == code
    assert result.stderr.startswith("error: standard output: " if code and "2>" not in closing else "")
    assert "Traceback" not in result.stderr


INTERRUPTED = """
import os, signal, sys, runpy
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "channel_tools.cli." + sys.argv[2]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv[1:] = ["list"] + sys.argv[2:]
runpy.run_module("channel_tools", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["entry", "app", "console", "serve"])
def test_an_interrupt_among_the_imports_gives_no_traceback(tree: Path, module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, "list", module]
    result = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S)
    assert (result.returncode, result.stdout, result.stderr) == (-signal.SIGINT, "", "")


INTERRUPTED_AT_FIRST = """
import os, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name not in {"channel_tools", "channel_tools.__main__"}:
            os.kill(os.getpid(), 2)
sys.meta_path.insert(0, Finder())
import channel_tools.__main__
"""


def test_an_interrupt_of_the_first_import_gives_no_traceback() -> None:
    command = [sys.executable, "-c", INTERRUPTED_AT_FIRST]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S)
    assert (result.returncode, result.stdout, result.stderr) == (-signal.SIGINT, "", "")


def test_nohup_is_heeded(tree: Path) -> None:
    """A signal that the caller ignores stays ignored while a command runs."""
    script = (
        "import os, signal\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from channel_tools.system.errors import signals_raised\n"
        "with signals_raised():\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "print('went on')\n"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=tree, capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("went on\n", "")


def test_pipes_and_devices_are_refused_before_a_command_begins(tree: Path) -> None:
    os.mkfifo(tree / "fifo")
    for path, kind in (("fifo", "a pipe"), ("/dev/zero", "a device")):
        result = run_tool("env", "create", "new", "--lock", path, cwd=tree)
        assert result.returncode == 14
        assert result.stderr.startswith(f"error: {path}: is {kind}; expected a file or a folder\n")


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["env", "create", ""], "an argument"),
        (["mirror", "keys", "create", "--keys", ""], "--keys"),
        (["token", "create", "x", "--all-channels", "--at="], "--at"),
        (["render", "-o", ""], "-o"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_nothing_is_written_to_the_current_folder_for_an_empty_path(
    tree: Path, arguments: list[str], where: str
) -> None:
    before = sorted(tree.rglob("*"))
    result = run_tool(*arguments, cwd=tree)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {where}: is empty\n")
    assert sorted(tree.rglob("*")) == before


def test_a_tilde_after_an_equals_sign_is_the_home_folder(tree: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for words in (("--keys=~/keys",), ("--keys", "~nosuchuser")):
        result = run_tool("mirror", "keys", "create", *words, cwd=tree, environ={"HOME": str(home)})
        assert result.returncode == 0, result.stderr
    assert (home / "keys" / "keys.json").is_file()
    assert (tree / "~nosuchuser" / "keys.json").is_file()


def test_a_reader_that_closes_early_gets_no_traceback(tree: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "channel_tools", "list", "--json"],
        cwd=tree,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait() == 141
