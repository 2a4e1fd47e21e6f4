# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rattler_build import JinjaConfig, PlatformConfig, VariantConfig

from channel_tools.matrix import expand_stacks, find_stack, load_tree
from channel_tools.matrix.selectors import SelectorError, Selectors, has_selectors, select_lines
from channel_tools.matrix.variants import read_conda_build_config, read_variant_file
from channel_tools.system.errors import ConfigError
from tests.support.conda_forge import conda_forge_folder
from tests.unit.matrix.toytree import PLATFORM, write_tree

if TYPE_CHECKING:
    from channel_tools.matrix.model import VariantFile

_PLATFORMS = ("linux-64", "linux-aarch64", "linux-ppc64le", "linux-32", "osx-64", "osx-arm64", "win-64", "win-arm64")


def _file(folder: Path, text: str, *, name: str = "a.yaml", environ: dict[str, str] | None = None) -> VariantFile:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_variant_file(path, environ or {})


@pytest.mark.parametrize(
    ("selector", "platforms"),
    [
        ("linux", "linux-64 linux-aarch64 linux-ppc64le linux-32"),
        ("not linux", "osx-64 osx-arm64 win-64 win-arm64"),
        ("unix", "linux-64 linux-aarch64 linux-ppc64le linux-32 osx-64 osx-arm64"),
        ("x86", "linux-64 linux-32 osx-64 win-64"),
        ("x86_64", "linux-64 osx-64 win-64"),
        ("aarch64 or arm64", "linux-aarch64 osx-arm64 win-arm64"),
        ("win64", "win-64"),
        ("unix or win64", "linux-64 linux-aarch64 linux-ppc64le linux-32 osx-64 osx-arm64 win-64"),
        ("not (win and arm64)", "linux-64 linux-aarch64 linux-ppc64le linux-32 osx-64 osx-arm64 win-64"),
        ("linux and riscv64", ""),
        ("s390x or armv7l or ppc64 or wasm32 or zos", ""),
        ('target_platform == "linux-64"', "linux-64"),
        ("target_platform.startswith('osx-')", "osx-64 osx-arm64"),
        ('build_platform in ("linux-64", "win-64")', "linux-64 win-64"),
        ("py3k and not py2k", " ".join(_PLATFORMS)),
        ('linux64 and os.environ.get("CUDA", "False") == "True"', "linux-64"),
        ("win or environ.get('ABSENT') or os.getenv('ABSENT')", "win-64 win-arm64"),
    ],
)
def test_a_selector_holds_on_its_platforms(selector: str, platforms: str) -> None:
    holding = [one for one in _PLATFORMS if Selectors(one, {"CUDA": "True"}).is_true(selector)]
    assert sorted(holding) == sorted(platforms.split())


@pytest.mark.parametrize(
    ("selector", "reason"),
    [
        ("linus", "'linus' is not known"),
        ('cuda_compiler_version != "None"', "'cuda_compiler_version' is not known"),
        ("py == 312", "'py' has no value here: conda-build takes that of its own Python"),
        ("np < 200", "'np' has no value here"),
        ("linux and and", "'and' is not known"),
        ("(linux", "unexpected end"),
        ("linux |", "."),
        ('os.environ["ABSENT"]', "no attribute 'ABSENT'"),
        ('"a" < 1', "TypeError"),
        ("().__class__.__bases__", "unsafe"),
        ("os.system('true')", "no attribute 'system'"),
    ],
)
def test_what_cannot_be_evaluated_is_not_taken_for_false(selector: str, reason: str) -> None:
    with pytest.raises(SelectorError, match=reason):
        Selectors(PLATFORM, {}).is_true(selector)


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("a: b  # [linux]", "a: b"),
        ("a: b  # [win]", ""),
        ("a: b # why not [linux] there", "a: b"),
        ("a: b  # [win]  # noqa", ""),
        ("a: b  # [win] (see [1](x))", "a: b  # [win] (see [1](x))"),
        ("'- b  # [linux]'", "'- b'"),
        ("  # - b  # [win]", "  # - b  # [win]"),
        ("a: [b, c]  # [linux]", "a: [b, c]"),
        ("a: [b, c]", "a: [b, c]"),
        ("a: [b, c]  # plain", "a: [b, c]  # plain"),
    ],
)
def test_which_part_of_a_line_is_its_selector(line: str, kept: str) -> None:
    text = select_lines(f"first: 1\n{line}\nlast: 1\n", Path("a.yaml"), Selectors(PLATFORM, {}))
    assert text == f"first: 1\n{kept}\nlast: 1\n"
    assert has_selectors(line) == (kept != line)


def test_values_are_those_of_the_platform_and_text(tmp_path: Path) -> None:
    text = """\
compiler:
  - gcc      # [linux and x86_64]
  - clang    # [osx]
  - gcc-arm  # [aarch64]
level:       # [win]
  - 3        # [win]
version:
  - 2.10
  - 15       # [linux]
  - 010      # [unix]
  - None
  -          # [unix]
single: 3.10
flag: [true, False]  # [linux]
word: [yes]
zip_keys:
  -            # [win]
    - level    # [win]
    - version  # [win]
  -
    - flag
    - pair     # [linux]
pair: [a, b]
nothing:
"""
    file = _file(tmp_path, text)
    assert file.on("linux-64").values == {
        "compiler": ("gcc",),
        "version": ("2.10", "15", "010", "None", ""),
        "single": ("3.10",),
        "flag": (True, False),
        "word": ("yes",),
        "pair": ("a", "b"),
    }
    assert file.on("linux-64").zip_keys == (("flag", "pair"),)
    assert file.on("linux-aarch64").values["compiler"] == ("gcc-arm",)
    assert file.values["compiler"] == ("gcc", "gcc-arm")


def test_a_group_with_one_key_left_moves_nothing_together(tmp_path: Path) -> None:
    file = _file(tmp_path, "a: [x, y]\nb: [x, y]  # [win]\nzip_keys:\n  -\n    - a\n    - b  # [win]\n")
    assert (file.values, file.zip_keys) == ({"a": ("x", "y")}, None)


def test_the_environment_chooses(tmp_path: Path) -> None:
    text = 'cuda:\n  - "None"\n  - "12.9"  # [os.environ.get("CUDA", "False") == "True"]\n'
    assert _file(tmp_path, text).values["cuda"] == ("None",)
    assert _file(tmp_path, text, environ={"CUDA": "True"}).values["cuda"] == ("None", "12.9")


def test_conda_builds_own_file_name_is_enough(tmp_path: Path) -> None:
    file = _file(tmp_path, "python: 3.10\nnumpy:\n  - 2.0\n", name="conda_build_config.yaml")
    assert file.values == {"python": ("3.10",), "numpy": ("2.0",)}


def test_conditions_are_those_of_the_engine(tmp_path: Path) -> None:
    text = """\
compiler:
  - if: linux and x86_64
    then: gcc
    else: [clang, icx]
level:
  - if: win
    then: "3"
name: ["${{ 'lin' if linux else 'other' }}", 12]
"""
    file = _file(tmp_path, text)
    assert file.on("linux-64").values == {"compiler": ("gcc",), "name": ("lin", 12)}
    assert file.on("linux-aarch64").values["compiler"] == ("clang", "icx")
    for platform in ("linux-64", "linux-aarch64"):
        context = JinjaConfig(platform=PlatformConfig(target_platform=platform))
        engine = VariantConfig.from_yaml_with_context(text, context).to_dict()
        assert {key: list(values) for key, values in file.on(platform).values.items()} == {
            key: items for key, items in engine.items() if items
        }


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a:\n  - b  # [linus]\n", 2, r"the selector \[linus\] cannot be evaluated: 'linus' is not known"),
        ("a:\n  - b\n\nzip_keys:\n  - [a, b]  # [and]\n", 5, r"the selector \[and\]"),
        ("pin_run_as_build:  # [linux]\n  python: {max_pin: x.x}\n", 1, "'pin_run_as_build' has no meaning"),
        ("a: [b]  # [linux]\nc: {d: e}\n", 2, "must be text, found a mapping"),
        ("a: [b]  # [linux]\nc:\n  - if: win\n    then: x\n", 3, "must be text, found a mapping"),
        ("a: [b]  # [linux]\na: [c]  # [x86_64]\n", 2, "duplicate key 'a'"),
        ("a:\n  - if: linus\n    then: x\n", 2, "the condition 'linus' cannot be evaluated: 'linus' is not known"),
        ("a:\n  - x\n  - if: linux and\n    then: x\n", 3, "cannot be evaluated"),
        ("a:\n  - if: linux\n    than: x\n", 2, "a condition has the keys if, then and perhaps else"),
        ("a:\n  - if: linux\n    then: 3.10\n", 3, "'a' has 3.10, which some YAML parsers read as 3.1"),
        ("a: ['${{ unknown }}']\n", 1, "the build engine cannot read it"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        _file(tmp_path, text)
    assert caught.value.line == line
    assert caught.value.hint


def test_a_stack_has_the_variants_of_the_planned_platform(tmp_path: Path) -> None:
    text = 'transport:\n  - udp     # [x86_64]\n  - rdma    # [aarch64]\n  - ndis    # [win]\nlibwire: ["1"]  # [osx]\n'
    loaded = load_tree(write_tree(tmp_path, {"variants/udp.yaml": text}))
    for platform, transport in (("linux-64", "udp"), ("linux-aarch64", "rdma")):
        packages = expand_stacks(loaded, [find_stack(loaded, None)], foundation_kind="registry", platform=platform)
        found = [package.variant["transport"] for package in packages if package.name == "libtoy"]
        assert found == [transport]


@pytest.mark.parametrize("platform", ["linux-64", "linux-aarch64", "osx-arm64", "win-64"])
def test_conda_forges_pinning_reads_as_the_engine_reads_it(platform: str) -> None:
    path = conda_forge_folder() / "conda_build_config.yaml"
    text = path.read_text(encoding="utf-8")
    file = read_conda_build_config(text, path, Selectors(platform, {}), without=("pin_run_as_build",))
    context = JinjaConfig(platform=PlatformConfig(target_platform=platform))
    engine = VariantConfig.from_conda_build_config(path, context).to_dict()
    texts = {key: ["" if item is None else item for item in items] for key, items in engine.items() if items}
    assert {key: list(values) for key, values in file.values.items() if key in texts} == texts
    single = {key: values for key, values in file.values.items() if key not in texts}
    assert all(len(values) == 1 for values in single.values()), single
