# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.publish.third_party.services import parse_service_address
from channel_tools.publish.third_party.target import dependencies_first, open_third_party
from channel_tools.system.errors import IntegrityError, UsageError
from channel_tools.system.progress import SilentProgress
from tests.support.packages import make_conda
from tests.unit.publish.sets import make_set


def test_labels_and_promotion_are_refused_where_there_are_none(tmp_path: Path) -> None:
    packages = make_set([make_conda(tmp_path, "one")])
    target = open_third_party("quetz+https://host/toys", {})
    with pytest.raises(UsageError, match="quetz has no labels, so publishing to label 'testing' is not possible"):
        target.plan(packages, label="testing")
    with pytest.raises(UsageError, match="cannot promote packages there from testing to main"):
        target.promote((), source="testing", label="main", progress=SilentProgress())
    assert parse_service_address("anaconda://owner").label_address("testing").endswith("/owner/label/testing")


def test_packages_go_after_what_they_need_even_in_circles(tmp_path: Path) -> None:
    needs = {"a": ["c >=1", "python"], "b": [], "c": ["d[version='>=1']"], "d": ["b", "e"], "e": ["d"]}
    made = [make_conda(tmp_path, name, index={"depends": depends}) for name, depends in needs.items()]
    names = [file.file_name[0] for file in dependencies_first(make_set(made).files)]
    assert names == ["b", "e", "d", "c", "a"]


def test_a_file_that_is_not_the_planned_one_is_not_sent(tmp_path: Path) -> None:
    packages = make_set([make_conda(tmp_path, "one")])
    make_conda(tmp_path, "one", files={"a": b"made again"})
    with pytest.raises(IntegrityError, match=", as planned"):
        dependencies_first(packages.files)
