# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.publish.model import label_address, label_path
from channel_tools.publish.target import open_target
from channel_tools.serve.addresses import parse_path
from channel_tools.system.errors import UsageError


def test_a_path_and_its_file_address_are_the_same_target(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    assert open_target(str(folder), environ={}).address == folder.as_uri()
    assert open_target(folder.as_uri(), environ={}).address == folder.as_uri()
    assert not folder.exists()


def test_an_unknown_scheme_is_answered_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="publishing to gopher:// addresses is not supported") as caught:
        open_target("gopher://host/x", environ={})
    assert "file://" in str(caught.value.hint)


def test_labels_lie_below_the_address() -> None:
    assert (label_path("main"), label_path("testing")) == ("", "label/testing")
    assert label_address("https://host/x/", "testing") == "https://host/x/label/testing"


@pytest.mark.parametrize("label", ["Main", "Testing", "RC_1.0-x", "0", "a" * 64])
def test_a_label_has_the_same_name_where_it_is_published_and_where_it_is_served(label: str) -> None:
    assert label_path(label) == f"label/{label}"
    place = parse_path(f"/channel/label/{label}/noarch/repodata.json")
    assert place is not None
    assert place.label == label


@pytest.mark.parametrize("label", ["", "..", "a/b", ".hidden", "a b", "a" * 65])
def test_what_cannot_stand_in_an_address_is_no_label(label: str) -> None:
    with pytest.raises(UsageError, match="not a valid label"):
        label_path(label)
    assert parse_path(f"/channel/label/{label}/noarch/repodata.json") is None
