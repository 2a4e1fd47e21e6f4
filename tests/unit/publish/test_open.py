# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.errors import UsageError
from channel_tools.publish.labels import label_address, label_path
from channel_tools.publish.open import open_target


def test_a_path_and_its_file_address_are_the_same_target(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    assert open_target(str(folder), environ={}).address == folder.as_uri()
    assert open_target(folder.as_uri(), environ={}).address == folder.as_uri()
    assert not folder.exists()


def test_an_unknown_scheme_is_answered_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="begin with gopher://") as caught:
        open_target("gopher://host/x", environ={})
    assert "file://" in str(caught.value.hint)


def test_labels_lie_below_the_address() -> None:
    assert (label_path("main"), label_path("testing")) == ("", "label/testing")
    assert label_address("https://host/x/", "testing") == "https://host/x/label/testing"


@pytest.mark.parametrize("label", ["", "..", "a/b", "Main", ".hidden", "a b", "a" * 65])
def test_what_cannot_stand_in_an_address_is_no_label(label: str) -> None:
    with pytest.raises(UsageError, match="no label"):
        label_path(label)
