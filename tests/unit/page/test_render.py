# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from channel_tools.page.render import chip, chips, command, link, need


def test_every_text_is_escaped_and_every_address_quoted() -> None:
    assert link("<b>", "../", "a b/ü") == '<a href="../a%20b/%C3%BC">&lt;b&gt;</a>'
    assert chip("<i>", "good") == '<span class="chip good">&lt;i&gt;</span>'
    assert chips([("a", ""), ("b", "bad")]) == ' <span class="chip">a</span> <span class="chip bad">b</span>'
    assert "<script>" not in need("<script>", "", None, "<script>")


def test_a_command_breaks_no_option_and_its_comment_stands_back() -> None:
    shown = command("conda install --channel our-channel  # once & for all")
    assert "<span>--channel</span>" in shown
    assert '<i class="after"># once &amp; for all</i>' in shown


def test_a_dependency_has_a_link_only_where_it_has_a_page() -> None:
    assert need("zlib", "../", None, "") == "<li><code>zlib</code></li>"
    assert need("zlib", "../", "zlib.html", "packs").startswith('<li><a href="../zlib.html">zlib</a> ')
