# SPDX-License-Identifier: BSD-3-Clause
"""The command line as a whole process: exit codes, one message per error, stdout and stderr kept apart."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import channel_tools.errors
from channel_tools.errors import ChannelToolsError

ROOT = Path(__file__).parents[3]
# the command line's own libraries, and what they take themselves
HELP_LIBRARIES = {
    *("annotated_doc", "attr", "channel_tools", "markdown_it", "mdurl", "platformdirs", "pygments", "rich"),
    *("shellingham", "typer"),
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


def run_tool(*arguments: str, cwd: Path, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CHANNEL_TOOLS_")}
    return subprocess.run(
        [sys.executable, "-m", "channel_tools", *arguments],
        cwd=cwd,
        env={**kept, **(environ or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


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
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 0
    modules = set(result.stderr.split())
    ours = {name.split(".")[1] for name in modules if name.startswith("channel_tools.")}
    assert ours == {"cli", "errors", "settings", "signals"}
    others = {name.partition(".")[0] for name in modules if not name.startswith("_")} - sys.stdlib_module_names
    assert others <= HELP_LIBRARIES


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_every_command_explains_itself(command: str, tmp_path: Path) -> None:
    result = run_tool(*command.split(), "--help", cwd=tmp_path)
    assert result.returncode == 0
    assert "--json" in result.stdout
    assert result.stderr == ""


def test_list_prints_a_table_and_json(tree: Path) -> None:
    plain = run_tool("list", cwd=tree)
    assert plain.returncode == 0
    assert plain.stdout.splitlines()[1].split() == [
        "toy",
        "toy",
        "1.0",
        "noarch",
        "flavour=plain",
    ]
    assert '"package": "toy"' in run_tool("list", "--json", cwd=tree).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["plan", "--variant", "tyo"], 2, "'tyo' is no stack"),
        (["plan", "--foundation-channel", "http://127.0.0.1:9/x"], 2, "goes with --foundation conda-forge"),
        (["plan"], 4, "foundation"),
        (["env", "create", "x"], 8, "output/channel"),
        (["channel", "index"], 8, "output/channel"),
        (["foundation", "verify"], 4, "there is no foundation here"),
        (["plan", "--no-such-option"], 2, "No such option"),
    ],
    ids=["stack", "address", "no-foundation", "no-channel", "no-channel-index", "verify", "option"],
)
def test_errors_are_one_message_with_their_code(tree: Path, arguments: list[str], code: int, message: str) -> None:
    result = run_tool(*arguments, cwd=tree)
    assert (result.returncode, result.stdout) == (code, "")
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tree / "output").exists()


def test_unknown_package_is_answered_with_the_nearest(tree: Path) -> None:
    (tree / "output").mkdir()
    result = run_tool("build", "--dry-run", "--package", "tpy", cwd=tree)
    assert result.returncode == 2
    assert "'tpy' is no package of the stack 'toy'" in result.stderr
    assert "toy" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("flavour: [plain\n", 2, "this is no YAML"),
        ("flavour: [plain]\nflavour: [other]\n", 2, "stands twice"),
        ("flavour: plain\n", 1, "flavour"),
        ("flavour: [a, b]\nc_compiler: [x]\nzip_keys:\n  - [flavour, c_compiler]\n", 4, "zip_keys"),
        ("flavour: [plain]\nflavor: [other]\n", 2, "no recipe"),
    ],
    ids=["no-yaml", "twice", "no-list", "zip-length", "unused-key"],
)
def test_a_wrong_variant_file_is_named_with_its_line(tree: Path, text: str, line: int, message: str) -> None:
    (tree / "variants" / "toy.yaml").write_text(text)
    result = run_tool("list", cwd=tree)
    assert result.returncode == 3
    assert re.search(rf"variants/toy\.yaml:{line}: .*{message}", result.stderr), result.stderr


def test_exit_codes_are_those_of_the_readme() -> None:
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", (ROOT / "README.md").read_text(), re.MULTILINE)}
    classes = [item for item in vars(channel_tools.errors).values() if isinstance(item, type)]
    ours = {item.exit_code for item in classes if issubclass(item, ChannelToolsError) and item is not ChannelToolsError}
    assert ours <= documented
    assert len(ours) == len([item for item in classes if issubclass(item, ChannelToolsError)]) - 1


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


@pytest.mark.parametrize("attempt", range(20))
def test_exit_code_is_exact_though_rattler_was_used(tree: Path, attempt: int) -> None:
    del attempt
    assert run_tool("list", cwd=tree).returncode == 0
