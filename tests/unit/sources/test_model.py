# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.matrix import RenderedPackage, expand_stacks, load_tree
from channel_tools.sources.model import SourceMirrors, needed_sources
from channel_tools.system.errors import ConfigError
from channel_tools.system.settings import Tree

STACKS = """\
default_stack: toys
stacks:
  toys:
    description: toys
    variants: []
    packages: [one, two]
    install: [one]
    validate: {method: switchml}
"""
RECIPE = """\
schema_version: 1
package: {{name: {name}, version: '1.0'}}
source:
{source}
build: {{noarch: generic}}
{extra}
"""
SHA256, OTHER, COMMIT = "1" * 64, "2" * 64, "3" * 40


def expand(root: Path, one: str, two: str, *, extra: str = "") -> list[RenderedPackage]:
    for name, source in (("one", one), ("two", two)):
        folder = root / "recipes" / name
        folder.mkdir(parents=True)
        (folder / "recipe.yaml").write_text(RECIPE.format(name=name, source=source, extra=extra))
    (root / "variants").mkdir()
    (root / "variants" / "stacks.yaml").write_text(STACKS)
    loaded = load_tree(Tree(root=root))
    return expand_stacks(loaded, [loaded.stacks["toys"]], foundation_kind="registry", platform="linux-64")


def test_the_same_bytes_named_twice_are_one_need_with_all_addresses(tmp_path: Path) -> None:
    packages = expand(
        tmp_path,
        f"  - url: [https://a.invalid/v1.tar.gz, https://b.invalid/v1.tar.gz]\n    sha256: '{SHA256}'\n  - path: src",
        f"  - url: https://c.invalid/two-1.tar.gz\n    sha256: '{SHA256}'\n"
        f"  - url: https://c.invalid/x.patch\n    sha256: '{OTHER}'",
    )
    first, second = needed_sources(packages)
    assert (first.kind, first.identity) == ("url", SHA256)
    assert first.urls == (
        "https://a.invalid/v1.tar.gz", "https://b.invalid/v1.tar.gz", "https://c.invalid/two-1.tar.gz",
    )  # fmt: skip
    assert first.names == ("v1.tar.gz", "two-1.tar.gz")
    assert first.packages == ("one 1.0", "two 1.0")
    assert (second.identity, second.packages) == (OTHER, ("two 1.0",))


def test_git_sources_differ_by_what_is_left_out(tmp_path: Path) -> None:
    packages = expand(
        tmp_path,
        f"  - git: https://a.invalid/toy.git\n    rev: '{COMMIT}'",
        f"  - git: https://a.invalid/toy.git\n    rev: '{COMMIT}'\n    submodules: false",
        extra="extra: {source_excludes: [b/**, a]}",
    )
    first, second = needed_sources(packages)
    assert (first.kind, first.identity, first.names) == ("git", COMMIT, ("toy",))
    assert first.excludes == ("a", "b/**")
    assert (first.submodules, second.submodules) == (True, False)


@pytest.mark.parametrize(
    "source",
    ["  - url: https://a.invalid/v1.tar.gz", "  - git: https://a.invalid/toy.git\n    tag: v1"],
    ids=["no-sha256", "no-commit"],
)
def test_sources_that_are_not_named_by_their_content_are_refused(tmp_path: Path, source: str) -> None:
    with pytest.raises(ConfigError, match="so its content may change"):
        expand(tmp_path, source, source)


def test_mirrors_come_before_the_addresses_that_they_stand_for() -> None:
    mirrors = SourceMirrors(
        places=(("https://a.example/", "https://near.example/a/"), ("https://a.example/x/", "https://x.example/"))
    )
    assert mirrors.addresses(["https://a.example/x/1.tar", "https://b.example/1.tar"]) == (
        "https://near.example/a/x/1.tar",
        "https://x.example/1.tar",
        "https://a.example/x/1.tar",
        "https://b.example/1.tar",
    )


def test_an_address_is_tried_once() -> None:
    mirrors = SourceMirrors(places=(("https://a.example/", "https://b.example/"),))
    assert mirrors.addresses(["https://a.example/1", "https://b.example/1"]) == (
        "https://b.example/1",
        "https://a.example/1",
    )
    assert SourceMirrors().addresses(["u", "u"]) == ("u",)
