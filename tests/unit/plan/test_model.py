# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from channel_tools.plan import Plan, plan_to_json


def test_an_empty_plan_says_what_its_lock_lacks_in_order() -> None:
    plan = Plan(packages=(), unsatisfiable=(), locks=("b", "a"), lock_file="locks/conda-forge.json")
    assert plan.to_build == ()
    assert plan_to_json(plan) == {
        "schema": 1,
        "foundation_lock": {"file": "locks/conda-forge.json", "missing": ["a", "b"]},
        "packages": [],
        "unserved": [],
    }
    assert plan_to_json(Plan(packages=(), unsatisfiable=()))["foundation_lock"] is None
