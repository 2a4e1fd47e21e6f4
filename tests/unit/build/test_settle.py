# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json

import pytest

from channel_tools.build.settle import settled, source_date_of

RENDERED = """\
recipe:
  about:
    description: |
      timestamp: as the recipe writes it
build_configuration:
  host_platform:
    platform: linux-64
    virtual_packages:
    - __linux=6.18=0
    - __archspec=1=zen4
  channels:
  - channel
  timestamp: 2026-11-22T20:24:06.152444282Z
  packaging_settings:
    archive_type: conda
    compression_level: 1
finalized_dependencies:
  host:
    specs:
    - source: zlib
    - spec: libgcc >=12
      from: build
    resolved:
    - build: h_1
      depends:
      - z
      - a
      name: zlib
      timestamp: 1674385602000
    - build: h_2
      name: libgcc
  run:
    depends:
    - spec: libgcc >=12
    - spec: __glibc >=2.36
      from: build
    constraints: []
"""
SETTLED = """\
recipe:
  about:
    description: |
      timestamp: as the recipe writes it
build_configuration:
  host_platform:
    platform: linux-64
    virtual_packages: []
  channels:
  - channel
  timestamp: 2020-09-13T12:26:40Z
  packaging_settings:
    archive_type: conda
    compression_level: 15
finalized_dependencies:
  host:
    specs:
    - source: zlib
    - spec: libgcc >=12
      from: build
    resolved:
    - build: h_2
      name: libgcc
    - build: h_1
      depends:
      - z
      - a
      name: zlib
      timestamp: 1674385602000
  run:
    depends:
    - spec: __glibc >=2.36
      from: build
    - spec: libgcc >=12
    constraints: []
"""


def test_a_rendered_recipe_loses_the_hour_the_machine_and_the_order_of_hash_tables() -> None:
    content = settled("recipe/rendered_recipe.yaml", RENDERED.encode(), date_s=1_600_000_000)

    assert content.decode() == SETTLED
    assert settled("recipe/rendered_recipe.yaml", content, date_s=1_600_000_000) == content


def test_index_json_gets_the_date_and_an_order() -> None:
    given = {"depends": ["b", "a"], "name": "toy", "timestamp": 1795379046152}

    content = settled("index.json", json.dumps(given).encode(), date_s=1_600_000_000)

    assert json.loads(content) == {"depends": ["a", "b"], "name": "toy", "timestamp": 1_600_000_000_000}


@pytest.mark.parametrize(
    ("build", "date_s"),
    [({"script": {"env": {"SOURCE_DATE_EPOCH": "5"}}}, 5), ({"script": ["make"]}, None), ({}, None)],
)
def test_the_date_that_a_recipe_builds_with(build: dict[str, object], date_s: int | None) -> None:
    assert source_date_of({"build": build}) == date_s
