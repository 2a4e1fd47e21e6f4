# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from channel_tools.channel import Foundation

ADDRESS = "https://conda.example/conda-forge"


def test_foundations_that_differ_in_further_channels_alone_are_equal() -> None:
    plain = Foundation(kind="conda-forge", address=ADDRESS)
    with_lab = plain.with_further(["https://conda.example/lab"])
    assert plain == with_lab
    assert with_lab != Foundation(kind="registry")
    assert with_lab.addresses == ("https://conda.example/lab", ADDRESS)
    assert str(with_lab) == f"conda-forge at {ADDRESS}"


def test_of_two_further_channels_of_one_name_the_new_one_stays() -> None:
    first = Foundation(kind="registry").with_further(["https://a.example/lab", "https://a.example/other"])
    moved = first.with_further(["https://b.example/lab"])
    assert moved.further == ("https://b.example/lab", "https://a.example/other")


def test_only_a_foundation_made_here_is_not_updated_by_others() -> None:
    registry = Foundation(kind="registry")
    assert not registry.is_updated_by_others
    assert registry.with_further(["https://a.example/lab"]).is_updated_by_others
    assert Foundation(kind="conda-forge", address=ADDRESS).is_updated_by_others
