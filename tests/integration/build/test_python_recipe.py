# SPDX-License-Identifier: BSD-3-Clause
"""Python recipes as everybody writes them: pip names the folders of the build, the packages do not."""

from __future__ import annotations

import marshal
import os
from typing import TYPE_CHECKING, cast

import pytest

from channel_tools.conda.archive import read_info_json, read_package, stream_component
from tests.support.command_line import run_tool

if TYPE_CHECKING:
    from pathlib import Path
    from types import CodeType

    from channel_tools.system.settings import Settings

pytestmark = [pytest.mark.integration, pytest.mark.slow]

FILES = {
    "variants/stacks.yaml": """\
default_stack: py
stacks:
  py: {description: two packages of one source, packages: [compiled, pure], install: [compiled]}
""",
    "variants/pins.yaml": 'python: ["3.11.* *_cpython"]\n',
    "recipes/compiled/recipe.yaml": """\
package: {name: compiled, version: "1.0"}
source: {path: ../../source}
build:
  script:
    - python -m pip install . -vv --no-deps --no-build-isolation
    - echo "PLACE = '${PREFIX}'" > ${SP_DIR}/greeting/place.py
    - python -m compileall -q ${SP_DIR}/greeting
requirements: {host: [python, pip, setuptools], run: [python]}
tests: [{python: {imports: [greeting, greeting.place]}}]
about: {license: BSD-3-Clause}
""",
    "recipes/pure/recipe.yaml": """\
package: {name: pure, version: "1.0"}
source: {path: ../../source}
build: {noarch: python, script: "python -m pip install . -vv --no-deps --no-build-isolation"}
requirements: {host: [python, pip, setuptools], run: [python]}
tests: [{python: {imports: [greeting]}}]
about: {license: BSD-3-Clause}
""",
    "source/pyproject.toml": """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "greeting"
version = "1.0"
[tool.setuptools]
packages = ["greeting"]
""",
    "source/greeting/__init__.py": "def greet():\n    return 'hello'\n",
}


def test_pip_install_passes_the_audit(tmp_path: Path, own_settings: Settings, stack_channel: Path) -> None:
    assert stack_channel.is_dir()
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    foundation = ("--foundation", "conda-forge", "--foundation-channel", own_settings.foundation.as_uri())
    words = ("build", *foundation, "--no-attest", "--root", tmp_path)
    result = run_tool(*words, cwd=tmp_path, environ=os.environ | {"CHANNEL_TOOLS_CACHE": str(tmp_path / "cache")})
    assert result.returncode == 0, result.stderr
    assert "byte code that named the build's folder was compiled again (files: 2)" in result.stderr
    assert result.stderr.count("greeting-1.0.dist-info/direct_url.json") == 2

    (pure,) = (tmp_path / "output" / "channel" / "noarch").glob("pure-*.conda")
    (compiled,) = (tmp_path / "output" / "channel").glob("linux-*/compiled-*.conda")
    assert not any(name.endswith(("direct_url.json", ".pyc")) for name in _content(pure))
    content = _content(compiled)
    place = "lib/python3.11/site-packages/greeting"
    # place.py has the prefix as text, which no client replaces in byte code
    assert [name for name in content if name.endswith((".pyc", "direct_url.json"))] == [
        f"{place}/__pycache__/__init__.cpython-311.pyc"
    ]
    code = cast("CodeType", marshal.loads(content[f"{place}/__pycache__/__init__.cpython-311.pyc"][16:]))  # noqa: S302 - our own
    assert code.co_filename == f"{place}/__init__.py"
    assert b"direct_url" not in content["lib/python3.11/site-packages/greeting-1.0.dist-info/RECORD"]


def _content(package: Path) -> dict[str, bytes]:
    """The files of a package, which agrees with its own lists of them."""
    read_package(package, contents=True)
    found = {member.name: stream.read() for member, stream in stream_component(package, "pkg") if stream}
    assert sorted(found) == sorted(row["_path"] for row in read_info_json(package, "paths.json")["paths"])
    return found
