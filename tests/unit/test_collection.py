# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PROGRAM = TESTS.parent / "channel_tools"
OF_THE_TREE = frozenset({"recipes"})
"""Folders of tests that have no folder of the program to test."""
TESTED_WITH_OTHERS = {
    "audit": "model package reading",
    "audit/rules": "files foundation",
    "build": "engine recorded",
    "channel": "records state",
    "cli": (
        "app bump channel config environment foundation init inventory launch maintenance mirror_keys "
        "pins publish rebuild render serve sources upstream"
    ),
    "conda": "contents unpacked",
    "doctor": "examine",
    "foundation/repairs": "native",
    "matrix": "engine missing_keys pinning_lock stacks",
    "mirror": "format",
    "mirror/exporting": "extras",
    "mirror/importing": "channels site",
    "page": "feed front model render",
    "pins": "conda_lock_model environment_file lock md5",
    "plan": "foundation locking own remote_run_exports view",
    "provenance": "cyclonedx licenses spdx statements trust",
    "publish": "channels",
    "publish/bucket": "label lease page records",
    "publish/s3": "client",
    "publish/server": "connection protocol",
    "ranks": "plan",
    "serve": "application",
    "serve/uploads": "api",
    "sources": "gitarchive transfer",
    "system": "charts",
    "validate": "model",
    "validate/workers": "distributed_allreduce reductions switchml_allreduce",
    "workflow": "adopt attest debug doctor foundation_lock inventory render sources upstream",
}
"""Modules, by their folder, without a test of their name: tests of others or of several modules meet them.

The list may only become shorter: a new module has its test in unit/FOLDER/test_MODULE.py.
"""


def test_pytest_looks_into_every_folder_of_tests(pytestconfig: pytest.Config) -> None:
    """By itself it leaves out every folder with the name ``build``."""
    left_out = pytestconfig.getini("norecursedirs")
    folders = {folder for path in TESTS.rglob("test_*.py") for folder in path.relative_to(TESTS).parents}
    assert Path("unit", "build") in folders
    assert [folder for folder in folders if any(fnmatch(folder.name, pattern) for pattern in left_out)] == []


def _modules() -> set[Path]:
    """Modules and packages of the program, without their endings."""
    paths = (path.relative_to(PROGRAM) for path in PROGRAM.rglob("*") if path.suffix == ".py" or path.is_dir())
    return {path.with_suffix("") for path in paths}


@pytest.mark.parametrize("kind", ["unit", "integration"])
def test_folders_of_tests_are_those_of_the_program(kind: str) -> None:
    folders = {path.parent.relative_to(TESTS / kind) for path in (TESTS / kind).rglob("test_*.py")}
    unknown = {folder for folder in folders if folder.parts[:1] and folder.parts[0] not in OF_THE_TREE} - _modules()
    assert unknown == set(), "name a folder of tests as the folder of channel_tools/ that they test"


def test_a_unit_test_with_the_name_of_a_module_is_where_the_module_is() -> None:
    """What tests several modules together has a name that no module has."""
    modules = _modules()
    names = {module.name for module in modules if (PROGRAM / module).with_suffix(".py").is_file()}
    unit = TESTS / "unit"
    tests = [path.relative_to(unit) for path in unit.rglob("test_*.py")]
    tested = {
        test: test.with_name(test.stem.removeprefix("test_")) for test in tests if test.parts[0] not in OF_THE_TREE
    }
    assert sum(one in modules for one in tested.values()) > 100
    astray = [
        str(test) for test, one in tested.items() if len(test.parts) > 1 and one.name in names and one not in modules
    ]
    assert astray == [], "unit/FOLDER/test_NAME.py tests channel_tools/FOLDER/NAME.py: move it, or name its subject"


def test_every_module_has_a_test_of_its_name() -> None:
    modules = [path.relative_to(PROGRAM) for path in PROGRAM.rglob("*.py") if not path.name.startswith("__")]
    assert len(modules) > 200
    without = {path for path in modules if not (TESTS / "unit" / path.with_name(f"test_{path.name}")).is_file()}
    listed = {Path(folder, f"{name}.py") for folder, names in TESTED_WITH_OTHERS.items() for name in names.split()}
    assert sorted(map(str, without - listed)) == [], "write tests/unit/FOLDER/test_MODULE.py for it"
    assert sorted(map(str, listed - without)) == [], "take it out of TESTED_WITH_OTHERS: it has a test, or is gone"
