# SPDX-License-Identifier: BSD-3-Clause
"""A recipe that uses much of the format must mean the same after it was evaluated, written and read again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig

from channel_tools.plan import render_folder
from channel_tools.plan.inputs import digest_of
from channel_tools.system.settings import Tree
from tests.unit.matrix.toytree import PLATFORM
from tests.unit.plan.conftest import by_name

if TYPE_CHECKING:
    from tests.unit.plan.conftest import Toy

RECIPE = """\
schema_version: 1
context:
  version: "1.10"
  flags: [a, b]
package:
  name: toy-meta
  version: ${{ version }}
source:
  - url:
      - https://example.org/a-${{ version }}.tar.gz
      - https://mirror.example.org/a-${{ version }}.tar.gz
    sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
    file_name: a.tar.gz
    target_directory: a
    patches: [fix.patch]
  - git: https://example.org/b.git
    rev: 0123456789012345678901234567890123456789
    target_directory: b
    lfs: true
  - path: data
    target_directory: c
build:
  number: ${{ 3 if transport == "udp" else 4 }}
  string: ${{ transport }}_${{ hash }}
  script:
    env: {MODE: "${{ transport }}", EMPTY: ""}
    content: |
      echo "version ${{ version }}: $MODE"
      make PREFIX=$PREFIX
  files: {include: ["lib/**"], exclude: ["lib/*.la"]}
  always_copy_files: ["etc/*.conf"]
  always_include_files: [etc/toy.conf]
  merge_build_and_host_envs: false
  python:
    entry_points: ["toy = toy:main"]
    skip_pyc_compilation: ["lib/toy/*.py"]
  dynamic_linking:
    rpaths: [lib/]
    missing_dso_allowlist: ["/lib64/ld*", "libcuda.so*"]
    rpath_allowlist: ["/usr/lib*"]
    overlinking_behavior: error
    overdepending_behavior: error
  prefix_detection:
    force_file_type: {text: ["*.txt"], binary: ["*.bin"]}
    ignore: ["*.md"]
requirements:
  build:
    - ${{ compiler('c') }}
  host:
    - python
    - libwire
    - if: linux
      then: [torch]
      else: [missing]
  run:
    - ${{ pin_compatible('torch', upper_bound='x.x', lower_bound='x.x', build='cpu*') }}
    - ${{ pin_compatible('libwire', exact=True) }}
    - python >=3.11,<3.12.0a0
  run_constraints:
    - ${{ pin_subpackage('toy-meta', exact=True) }}
    - __cuda >=12
  run_exports:
    weak: ["${{ pin_subpackage('toy-meta', upper_bound='x.x') }}"]
    strong: ["${{ pin_subpackage('toy-meta', lower_bound=None, upper_bound='2.0') }}", libgcc >=12]
    weak_constraints: [other <2]
  ignore_run_exports:
    by_name: [libgcc]
    from_package: [libwire]
tests:
  - package_contents:
      strict: true
      include: [toy.h]
      bin: [toy]
      lib: [toy]
      site_packages: [toy]
      files: {exists: [etc/toy.conf], not_exists: ["lib/*.a"]}
  - python: {imports: [toy, toy.sub], pip_check: false, python_version: ["3.11"]}
  - script:
      interpreter: bash
      env: {A: b}
      content: ["toy --version | grep -q '1\\\\.10'", "test ${{ version }} = 1.10"]
    requirements: {run: [torch], build: [libgcc]}
    files: {source: [a/], recipe: [data/x.txt]}
  - downstream: toy-plugin
about:
  homepage: https://example.org
  license: BSD-3-Clause AND Apache-2.0
  license_file: [LICENSE.txt, ../../LICENSE]
  summary: "A toy: with a colon"
  description: |
    Several lines,
    with 'quotes' and "more".
  documentation: https://example.org/docs
extra:
  recipe-maintainers: [maintainers]
  "yes": "no"
"""


def test_evaluating_and_writing_keeps_the_meaning(toy: Toy) -> None:
    folder = "recipes/toy-meta"
    changes: dict[str, str | None] = {
        f"{folder}/recipe.yaml": RECIPE,
        f"{folder}/fix.patch": "--- a/x\n+++ b/x\n",
        f"{folder}/data/x.txt": "x\n",
        f"{folder}/LICENSE.txt": "free\n",
        "variants/pins.yaml": "c_compiler: [gcc]\npython: ['3.11.*']\n",
    }
    package = by_name(toy.plan(changes))["toy-meta"]
    rendered = render_folder(package, toy.root / "rendered", tree=Tree(root=toy.tree_root))
    config = RenderConfig(platform=PlatformConfig(target_platform=PLATFORM))
    variants = VariantConfig.from_file(rendered / "variants.yaml")
    (again,) = Stage0Recipe.from_file(rendered / "recipe.yaml").render(variants, config)
    result, original = again.recipe.to_dict(), dict(package.rendered.recipe)

    assert result["build"].pop("variant") == {
        "use_keys": ["c_compiler", "c_compiler_version", "libwire", "python", "transport"]
    }
    assert result["build"].pop("string") == f"udp_{package.digest[:7]}"
    assert result["build"]["script"]["env"].pop("SOURCE_DATE_EPOCH") == str(package.date_s)
    assert package.rendered.build_number == 3
    local = result["source"][2]
    assert local.pop("use_gitignore") is False
    assert result["extra"].pop("channel_tools")["digest"] == package.digest
    assert result["about"]["license_file"] == ["LICENSE.txt", "_tree/LICENSE"]
    assert _without_last_changes(result) == _without_last_changes(original)


def _without_last_changes(recipe: dict[str, Any]) -> dict[str, Any]:
    build = {key: value for key, value in recipe["build"].items() if key != "string"}
    about = {key: value for key, value in recipe["about"].items() if key != "license_file"}
    return {**recipe, "build": build, "about": about}


_INPUTS = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=6)


@given(first=_INPUTS, second=_INPUTS)
def test_digests_differ_exactly_where_inputs_do(first: dict[str, str], second: dict[str, str]) -> None:
    assert (digest_of(first) == digest_of(second)) == (first == second)
    assert digest_of(dict(reversed(list(first.items())))) == digest_of(first)
