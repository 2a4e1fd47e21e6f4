# SPDX-License-Identifier: BSD-3-Clause
"""A small tree of recipes and a foundation of bare repodata, for the tests of matrix and plan."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from channel_tools.system.settings import Tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PLATFORM = "linux-64"

FILES: Mapping[str, str] = {
    "variants/stacks.yaml": """\
default_stack: udp
stacks:
  udp:
    description: Sums over sockets
    variants: [udp.yaml]
    packages: [libtoy, toy-switch, toy-plugin, toy-meta]
    install: [toy-meta, "libtoy=*=udp*"]
    validate: {method: switchml, num_threads: 2}
""",
    "variants/pins.yaml": """\
c_compiler: [gcc]
python: ["3.11.*", "3.12.*"]
""",
    "variants/foundation-registry.yaml": """\
c_compiler_version: ["12"]
libwire: ["1.51"]
""",
    "variants/foundation-conda-forge.yaml": """\
c_compiler_version: ["15"]
libwire: ["1.82"]
""",
    "variants/udp.yaml": "transport: [udp]\n",
    "recipes/libtoy/recipe.yaml": """\
schema_version: 1
context:
  version: "1.2.0"
package:
  name: libtoy
  version: ${{ version }}
source:
  - path: src
    patches:
      - ../../patches/libtoy/0001-louder.patch
build:
  number: 0
  string: ${{ transport }}_h${{ hash }}_0
requirements:
  build:
    - ${{ compiler('c') }}
  host:
    - libwire
  run_exports:
    - ${{ pin_subpackage('libtoy', upper_bound='x') }}
tests:
  - package_contents:
      lib: [toy]
about:
  license: BSD-3-Clause
  license_file: ../../LICENSE
""",
    "recipes/libtoy/build.sh": "make install\n",
    "recipes/libtoy/README.md": "What it is.\n",
    "recipes/libtoy/src/toy.c": "int toy(void) { return 1; }\n",
    "recipes/libtoy/src/proto/toy.proto": "message Toy {}\n",
    "patches/libtoy/0001-louder.patch": "--- a/toy.c\n+++ b/toy.c\n",
    "LICENSE": "BSD\n",
    "recipes/toy-switch/recipe.yaml": """\
schema_version: 1
package: {name: toy-switch, version: "0.3"}
source:
  - path: src
  - path: ../libtoy/src/proto
    target_directory: proto
requirements:
  build:
    - ${{ compiler('c') }}
tests:
  - script: [toy-switch --version]
    requirements:
      run: [libtoy]
""",
    "recipes/toy-switch/build.sh": "make install\n",
    "recipes/toy-switch/src/switch.c": "int main(void) { return 0; }\n",
    "recipes/toy-plugin/recipe.yaml": """\
schema_version: 1
package: {name: toy-plugin, version: "0.5"}
build:
  number: 2
  script: [pip install .]
requirements:
  build:
    - ${{ compiler('c') }}
  host: [python, torch, libtoy]
  run:
    - python
    - ${{ pin_compatible('torch', upper_bound='x.x') }}
    - libtoy >=1,<2
tests:
  - python: {imports: [toy]}
  - script: [toy-run]
    requirements:
      run: [toy-switch]
""",
    "recipes/toy-meta/recipe.yaml": """\
schema_version: 1
package: {name: toy-meta, version: "1.0"}
build: {noarch: generic}
requirements:
  run: [toy-plugin ==0.5]
""",
}

# name, version, build, depends
Record = tuple[str, str, str, tuple[str, ...]]
FOUNDATION: tuple[Record, ...] = (
    ("gcc_linux-64", "12.2.0", "h1_0", ()),
    ("gcc_linux-64", "15.1.0", "h1_0", ()),
    ("libgcc", "12.2.0", "h1_0", ()),
    ("libwire", "1.51.1", "h1_0", ()),
    ("libwire", "1.52.0", "h1_0", ()),
    ("python", "3.11.2", "h1_0", ()),
    ("torch", "2.13.0", "cpu_0", ("python 3.11.*",)),
)
RUN_EXPORTS: Mapping[str, Mapping[str, list[str]]] = {
    "gcc_linux-64-12.2.0-h1_0.conda": {"strong": ["libgcc >=12"]},
    "libwire-1.51.1-h1_0.conda": {"weak": ["libwire >=1.51.1,<1.52.0a0"]},
}


def write_tree(root: Path, changes: Mapping[str, str | None] | None = None) -> Tree:
    """Write the files below ``root``; ``changes`` replaces, adds or (None) leaves out some."""
    for name, content in {**FILES, **(changes or {})}.items():
        if content is not None:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    return Tree(root=root)


def write_foundation(folder: Path, records: Sequence[Record] = FOUNDATION) -> Path:
    """A channel folder with an index of ``records`` and no packages: enough to solve with."""
    entries = {}
    for name, version, build, depends in records:
        file_name = f"{name}-{version}-{build}.conda"
        entries[file_name] = {
            "name": name,
            "version": version,
            "build": build,
            "build_number": 0,
            "depends": list(depends),
            "subdir": PLATFORM,
            "size": 1,
            "sha256": hashlib.sha256(file_name.encode()).hexdigest(),
        }
    for subdir, packages in ((PLATFORM, entries), ("noarch", {})):
        index = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": packages, "repodata_version": 1}
        exports = {name: {"run_exports": value} for name, value in RUN_EXPORTS.items() if name in packages}
        (folder / subdir).mkdir(parents=True, exist_ok=True)
        (folder / subdir / "repodata.json").write_text(json.dumps(index), encoding="utf-8")
        run_exports = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": exports}
        (folder / subdir / "run_exports.json").write_text(json.dumps(run_exports), encoding="utf-8")
    return folder
