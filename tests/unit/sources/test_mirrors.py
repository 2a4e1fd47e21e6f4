# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from channel_tools.sources.mirrors import SourceMirrors


def test_mirrors_come_before_the_addresses_that_they_stand_for() -> None:
    mirrors = SourceMirrors(
        places=(("https://a.example/", "https://near.example/a/"), ("https://a.example/x/", "https://x.example/"))
    )
    assert mirrors.addresses(["https://a.example/x/1.tar", "https://b.example/1.tar"]) == (
        "https://near.example/a/x/1.tar",
        "https://x.example/1.tar",
        "https://a.example/x/1.tar",
        "https://b.example/1.tar",
    )


def test_an_address_is_tried_once() -> None:
    mirrors = SourceMirrors(places=(("https://a.example/", "https://b.example/"),))
    assert mirrors.addresses(["https://a.example/1", "https://b.example/1"]) == (
        "https://b.example/1",
        "https://a.example/1",
    )
    assert SourceMirrors().addresses(["u", "u"]) == ("u",)
