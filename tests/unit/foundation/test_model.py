# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from channel_tools.conda.specs import InvalidSpecError
from channel_tools.foundation.model import Combination, combinations_of, names_in, reachable

DEFAULT = Combination(python="3.11", pytorch="2.12.0")


def test_every_pair_but_the_default_one_is_a_combination() -> None:
    found = combinations_of(DEFAULT, ["3.13"], ["2.11.0"])
    assert sorted(one.name for one in found) == [
        "python3.11-pytorch2.11", "python3.13-pytorch2.11", "python3.13-pytorch2.12",
    ]  # fmt: skip
    assert combinations_of(DEFAULT, [], []) == ()


def test_what_leads_to_itself_is_found_once() -> None:
    leads = {"a": ["b"], "b": ["c", "a"], "c": []}
    assert reachable(["a"], leads.__getitem__) == {"a", "b", "c"}
    assert reachable(["c"], leads.__getitem__) == {"c"}


def test_names_are_those_of_the_specs_whatever_a_template_is_filled_with() -> None:
    assert names_in(["python {pin:x.x}", "libtoy =={version}"]) == ["python", "libtoy"]
    with pytest.raises(InvalidSpecError):
        names_in(["python >=>="])
