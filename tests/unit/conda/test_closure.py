# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from channel_tools.conda.closure import Closures


@dataclass(frozen=True)
class Package:
    name: str
    version: str = "1.0"
    depends: Sequence[str] | None = ()
    subdir: str = "linux-64"
    index: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", {"version": self.version, "build": "0", "depends": self.depends})

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}-0.conda"


def names(*packages: Package, of: Package) -> list[str]:
    return sorted(one.file_name for one in Closures(packages).of(of))


def test_a_closure_is_followed_through_and_holds_the_package_itself() -> None:
    top = Package("top", depends=("middle >=1", "__glibc >=2.17"))
    middle, bottom, other = Package("middle", depends=("bottom",)), Package("bottom"), Package("other")
    assert names(middle, bottom, other, of=top) == ["bottom-1.0-0.conda", "middle-1.0-0.conda", "top-1.0-0.conda"]


def test_everything_that_meets_a_requirement_is_in_it() -> None:
    top = Package("top", depends=("lower <3",))
    found = names(*(Package("lower", version) for version in ("1.0", "2.0", "3.0")), of=top)
    assert found == ["lower-1.0-0.conda", "lower-2.0-0.conda", "top-1.0-0.conda"]


def test_packages_may_depend_on_each_other() -> None:
    one, two = Package("one", depends=("two",)), Package("two", depends=("one",))
    assert names(one, two, of=one) == ["one-1.0-0.conda", "two-1.0-0.conda"]


def test_what_nothing_meets_is_a_problem_of_the_package_that_asks() -> None:
    top = Package("top", depends=("lower >=2", "gone", "lower >="))
    closures = Closures([Package("lower")])
    assert [one.name for one in closures.of(top)] == ["top"]
    assert [package for package, _words in closures.problems] == [top, top, top]
    words = [words for _package, words in closures.problems]
    assert "nothing in the channel satisfies 'lower >=2'; it has lower-1.0-0.conda" in words
    assert "nothing in the channel satisfies 'gone'; it has no package of that name" in words
    assert any(word.startswith("'lower >=' is not a valid MatchSpec") for word in words)


def test_requirements_are_found_in_every_form_and_null_is_none() -> None:
    lower = Package("lower", "1.0")
    forms = ("lower<2", "LOWER", "ours::lower =1", "lower[version='<2']", "lower~=1.0", "__glibc>=2.17", "lower==1.0=0")
    top, bare = Package("top", depends=forms), Package("bare", depends=None)
    closures = Closures([top, lower, bare, Package("lower", "2.0")])
    assert {one.file_name for one in closures.direct(top)} >= {"lower-1.0-0.conda"}
    assert closures.direct(bare) == []
    assert closures.problems == []


def test_what_a_condition_may_leave_out_is_no_problem() -> None:
    top = Package("top", depends=("gone[when='__win']",))
    closures = Closures([top])
    assert (closures.direct(top), closures.problems) == ([], [])


def test_metadata_that_cannot_be_compared_is_a_problem_and_satisfies_nothing_by_itself() -> None:
    top, bad = Package("top", depends=("lower",)), Package("lower", "")
    closures = Closures([top, bad])
    assert closures.direct(top) == []
    assert closures.satisfying("lower", or_unknown=True) == [bad]
    (words,) = (words for package, words in closures.problems if package is bad)
    assert words.startswith("version '' cannot be ordered by conda (")
