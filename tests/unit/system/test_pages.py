# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from channel_tools.system.pages import day, escaped, page_templates, size_in_words


def test_values_are_escaped_and_lose_their_controls(tmp_path: Path) -> None:
    (tmp_path / "x.html").write_text("{{ value }}")
    template = page_templates(tmp_path).get_template("x.html")
    assert (
        template.render(value="<b>\x1b\u202e\ud800") == "&lt;b&gt;\ufffd\ufffd\ufffd" == escaped("<b>\x1b\u202e\ud800")
    )
    assert template.render(value=Markup("<b>")) == "<b>"
    with pytest.raises(UndefinedError):
        template.render()


@pytest.mark.parametrize(
    ("size_bytes", "said"), [(0, "0 bytes"), (1023, "1023 bytes"), (65536, "64 KiB"), (4 << 20, "4 MiB")]
)
def test_sizes_in_words(size_bytes: int, said: str) -> None:
    assert size_in_words(size_bytes) == said


@pytest.mark.parametrize(
    ("moment", "exact", "said"),
    [
        ("2026-03-01T23:30:00-02:00", "2026-03-02T01:30:00Z", "2 March 2026"),
        ("2026-12-01T00:00:00", "2026-12-01T00:00:00Z", "1 December 2026"),
    ],
)
def test_a_time_is_a_day_in_utc_with_the_exact_time(moment: str, exact: str, said: str) -> None:
    assert f'datetime="{exact}"' in day(moment)
    assert f">{said}</time>" in day(moment)


def test_what_is_no_time_stands_as_it_is() -> None:
    assert day("<soon>") == "&lt;soon&gt;"
