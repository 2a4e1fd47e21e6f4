# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from channel_tools.channel.steps import listing_steps

Files = dict[str, tuple[str, frozenset[str]]]
SUBDIRS = ("linux-64", "noarch")


def needs(name: str, *depends: str) -> tuple[str, frozenset[str]]:
    return name, frozenset(depends)


def test_one_subdir_is_one_step_whatever_needs_what() -> None:
    files = {"a": needs("a", "b"), "b": needs("b", "a", "glibc")}
    assert listing_steps({"linux-64": files, "noarch": {}}) == [("linux-64", frozenset("ab"))]


def test_what_is_needed_becomes_visible_first() -> None:
    packages = {
        "linux-64": {"python": needs("python"), "torch": needs("torch", "python", "sympy")},
        "noarch": {"sympy": needs("sympy", "python"), "meta": needs("meta", "torch")},
    }
    assert listing_steps(packages) == [
        ("linux-64", frozenset({"python"})),
        ("noarch", frozenset({"sympy"})),
        ("linux-64", frozenset({"torch"})),
        ("noarch", frozenset({"meta"})),
    ]


def test_subdirs_that_need_each_other_in_a_circle_come_last() -> None:
    packages = {
        "linux-64": {"a": needs("a", "b"), "c": needs("c")},
        "noarch": {"b": needs("b", "a")},
    }
    assert listing_steps(packages) == [("linux-64", frozenset("ac")), ("noarch", frozenset("b"))]


@st.composite
def sets(draw: st.DrawFn) -> dict[str, Files]:
    """Sets without circles: a package needs only names that come before its own."""
    names = [f"p{number:02}" for number in range(draw(st.integers(min_value=1, max_value=12)))]
    packages: dict[str, Files] = {subdir: {} for subdir in SUBDIRS}
    for number, name in enumerate(names):
        earlier = draw(st.sets(st.sampled_from(names[:number]))) if number else set()
        packages[draw(st.sampled_from(SUBDIRS))][name] = (name, frozenset(earlier))
    return packages


@given(packages=sets())
def test_after_each_step_everything_visible_has_what_it_needs(packages: dict[str, Files]) -> None:
    visible: set[str] = set()
    depends = {name: wanted for files in packages.values() for name, wanted in files.values()}
    for subdir, names in listing_steps(packages):
        assert names <= packages[subdir].keys()
        visible |= names
        assert all(depends[name] <= visible for name in visible)
    assert visible == depends.keys()
