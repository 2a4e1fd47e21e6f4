# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import io

import pytest

from channel_tools.system.archives import UnsafeMemberError, ar_members, check_link, check_links, check_member_path

ARCHIVE = b"!<arch>\n" + b"debian-binary   0           0     0     100644  4         `\n" + b"2.0\n"


@pytest.mark.parametrize("name", ["a", "a/b", "./a/b"])
def test_a_path_that_stays_inside_is_taken(name: str) -> None:
    check_member_path(name)


@pytest.mark.parametrize("name", ["/a", "../a", "a/../../b", ""])
def test_a_path_that_leads_outside_is_not(name: str) -> None:
    with pytest.raises(UnsafeMemberError):
        check_member_path(name)


def test_a_link_leads_inside_also_through_other_links() -> None:
    check_link("lib/a", "../share/a")
    with pytest.raises(UnsafeMemberError):
        check_link("a", "../outside")
    check_links({"lib": "usr/lib", "a": "lib/a"}, ["usr/lib"])
    with pytest.raises(UnsafeMemberError):
        check_links({"deep/er": "..", "a": "deep/er/../../x"}, ["deep"])


def test_members_of_an_ar_archive_have_their_place_in_it() -> None:
    (member,) = ar_members(io.BytesIO(ARCHIVE))
    assert (member.name, ARCHIVE[member.offset : member.offset + member.size_bytes]) == ("debian-binary", b"2.0\n")
