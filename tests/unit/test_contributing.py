# SPDX-License-Identifier: BSD-3-Clause
"""What CONTRIBUTING.md says under "How to add something", done to a copy of the tree.

Each test makes the changes that its paragraph names and no others; where one no longer suffices, the paragraph is to be
mended with the test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from channel_tools.system.errors import VerificationError
from tests.support.packages import make_conda

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
COPIED = ("channel_tools", "changes", "docs/reference/schemas", "tests/support", "variants")
FILES = ("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "tests/__init__.py", "tests/unit/test_schemas.py")
RECIPE = """\
schema_version: 1
package: {name: answer, version: "42"}
build: {noarch: generic, script: "echo ${{ depth }}"}
about: {license: BSD-3-Clause}
"""
STACK = """\
  answer:
    description: says the answer
    variants: [answer.yaml]
    packages: [answer]
    install: [answer]
"""
TARGET = """\
from channel_tools.system.extras import needs_extra


@needs_extra("answer", "publishing to answer://")
def open_answer(address, environ):
    import answerlib

    raise AssertionError(address, environ, answerlib)
"""
METHOD = """\
from channel_tools.validate.model import ValidationMethod


class AnswerMethod(ValidationMethod):
    def check(self, *, stack, ranks, options, hosts=1):
        pass

    def run(self, context):
        raise AssertionError(context)


METHOD = AnswerMethod()
"""
RULE = """

_ANSWER = Requirement(rule=Rule.ANSWER, expected="42", fix="think")


def answer_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    yield _ANSWER.violation(package.file_name, "", "a question")
"""
OPTION = '    answer: Annotated[str | None, Option(help="To what?")] = None\n'
REPAIR = """\
def write_answer(tree, context):
    (tree / "answer").write_text("42")


STEPS = {"write_answer": write_answer}
"""


RULES = """\
    files.answer_rule,
    files.package_rule,
    files.name_rule,
    loader.elf_rule,
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("copy")
    ignored = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    recipes = (str(path.relative_to(ROOT)) for path in ROOT.glob("recipes/*/recipe.yaml"))
    for name in (*FILES, *recipes):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)
    return copy


def change(path: Path, before: str, after: str) -> None:
    """Exchange one place of a file, which must be there."""
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{path}: {before!r}"
    path.write_text(text.replace(before, after), encoding="utf-8")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def run(
    tree: Path, *words: str, environ: Mapping[str, str] | None = None, fails: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run Python in the copy, on the copy's modules."""
    variables = {**os.environ, "PYTHONPATH": str(tree), **(environ or {})}
    result = subprocess.run(
        [sys.executable, *words], cwd=tree, env=variables, capture_output=True, text=True, check=False
    )
    assert (result.returncode != 0) is fails, result.stdout + result.stderr
    return result


def test_a_recipe_and_a_stack(tree: Path, tmp_path: Path) -> None:
    write(tree / "recipes" / "answer" / "recipe.yaml", RECIPE)
    write(tree / "variants" / "answer.yaml", "depth: [deep]\n")
    with (tree / "variants" / "stacks.yaml").open("a", encoding="utf-8") as file:
        file.write(STACK)
    for subdir in ("linux-64", "noarch"):
        write(tmp_path / subdir / "repodata.json", '{"packages": {}, "packages.conda": {}}')

    listed = run(tree, "-m", "channel_tools", "list", "--variant", "answer")
    foundation = ("--foundation", "conda-forge", "--foundation-channel", str(tmp_path))
    words = ("render", "--variant", "answer", "--package", "answer", *foundation, "-o", str(tmp_path / "out"))
    run(tree, "-m", "channel_tools", *words)

    assert ["answer", "answer", "42", "noarch", "yes", "depth=deep"] in [
        line.split() for line in listed.stdout.split("\n")
    ]
    (rendered,) = (tmp_path / "out").iterdir()
    assert rendered.name.startswith("answer-42-h")
    assert "variant:depth: deep" in (rendered / "recipe.yaml").read_text(encoding="utf-8")


def test_a_publishing_target_with_an_extra_of_its_own(tree: Path) -> None:
    write(tree / "channel_tools" / "publish" / "answer.py", TARGET)
    change(
        tree / "channel_tools" / "publish" / "target.py",
        "KINDS: Mapping[str, Kind] = {\n",
        'KINDS: Mapping[str, Kind] = {\n    "answer": Kind("channel_tools.publish.answer", "open_answer"),\n',
    )
    extras = tree / "channel_tools" / "system" / "extras.py"
    change(extras, 'Extra = Literal["', 'Extra = Literal["answer", "')
    change(extras, '    "mirror": (', '    "answer": ("answerlib",),\n    "mirror": (')

    opened = run(
        tree,
        "-c",
        "from channel_tools.publish.target import open_target; open_target('answer://there', environ={})",
        fails=True,
    )

    assert "answerlib: not installed; it is required for publishing to answer://" in opened.stderr


def test_a_validation_method(tree: Path) -> None:
    write(tree / "channel_tools" / "validate" / "answer" / "__init__.py", "")
    write(tree / "channel_tools" / "validate" / "answer" / "method.py", METHOD)
    change(
        tree / "channel_tools" / "matrix" / "stacks.py", 'MethodName = Literal["', 'MethodName = Literal["answer", "'
    )
    tests = ("-m", "pytest", "-q", "-p", "no:randomly", "tests/unit/test_schemas.py", "-k", "reader_takes or methods")

    stale = run(tree, *tests, fails=True)
    run(tree, *tests, environ={"REFRESH_GOLDEN": "1"})

    assert "docs/reference/schemas/stacks.json" in stale.stdout


def test_a_rule_of_the_audit(tree: Path, tmp_path: Path) -> None:
    audit = tree / "channel_tools" / "audit"
    change(audit / "model.py", '    PACKAGE = "package"\n', '    ANSWER = "answer"\n    PACKAGE = "package"\n')
    with (audit / "rules" / "files.py").open("a", encoding="utf-8") as file:
        file.write(RULE)
    change(audit / "policy.py", "    files.package_rule,\n    files.name_rule,\n    loader.elf_rule,\n", RULES)

    audited = run(tree, "-m", "channel_tools", "audit", str(make_conda(tmp_path, "toy")), fails=True)

    assert "toy-1.0-0.conda: the package: answer: a question\n    expected: 42\n    to fix: think\n" in audited.stdout
    assert audited.returncode == VerificationError.exit_code


def test_a_command_option(tree: Path) -> None:
    request, command = (tree / "channel_tools" / name for name in ("requests/init.py", "cli/upstream.py"))
    change(request, "    check: Annotated[", f"{OPTION}    check: Annotated[")
    act = "    from channel_tools.workflow.bump import bump as bumped\n"
    change(command, act, f"    print_line(str(request.answer))\n{act}")

    bumped = run(tree, "-m", "channel_tools", "bump", "none", "2", "--answer", "42", fails=True)

    assert bumped.stdout == "42\n"


def test_a_row_of_the_registry_foundation_with_a_repair(tree: Path) -> None:
    write(tree / "channel_tools" / "foundation" / "repairs" / "answer.py", REPAIR)
    with (tree / "channel_tools" / "foundation" / "data" / "native.yaml").open("a", encoding="utf-8") as file:
        file.write("  answer: {debs: [answer], repairs: [write_answer]}\n")

    read = run(
        tree,
        "-c",
        "from channel_tools.foundation.table import load_table\n"
        "print([entry.repairs for entry in load_table(subdir='linux-64').entries if entry.name == 'answer'])",
    )

    assert "write_answer" in read.stdout


def test_a_changelog_entry(tree: Path) -> None:
    write(tree / "changes" / "+answer.added.md", "`plan` says the answer.\n")

    draft = run(tree, "-m", "towncrier", "build", "--draft", "--version", "42.0.0")

    _before, _heading, added = draft.stdout.partition("### Added\n")
    assert "\n- `plan` says the answer.\n" in added.partition("\n### ")[0]
