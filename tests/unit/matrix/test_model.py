# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import cast

from channel_tools.matrix.model import VariantFile, requirement_name
from channel_tools.system.yamlfile import YamlDocument

NO_DOCUMENT = cast("YamlDocument", None)


def test_a_variant_file_may_say_something_else_for_a_platform() -> None:
    other = VariantFile(document=NO_DOCUMENT, values={"fabric": ("rdma",)}, zip_keys=None)
    file = VariantFile(document=NO_DOCUMENT, values={"fabric": ("udp",)}, zip_keys=None, others={"linux-64": other})
    assert file.on("linux-64") == other
    assert other.on("osx-64") == other


def test_a_base_is_one_for_every_platform() -> None:
    other = VariantFile(document=NO_DOCUMENT, values={}, zip_keys=None)
    base = VariantFile(document=NO_DOCUMENT, values={}, zip_keys=None, others={"linux-64": other}).as_base()
    assert (base.is_base, base.on("linux-64").is_base, other.is_base) == (True, True, False)


def test_a_requirement_is_on_the_package_that_its_spec_names() -> None:
    assert requirement_name("python >=3.11,<4") == "python"
