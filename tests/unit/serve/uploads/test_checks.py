# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.channel import Foundation, add_set, channel_writer
from channel_tools.plan.inputs import HASH_DIGITS
from channel_tools.serve.uploads.checks import DIGEST_DIGITS, audit_uploaded, check_digests
from channel_tools.system.errors import ChannelError, IntegrityError, VerificationError
from tests.support.packages import REGISTRY, link, make_conda, new_channel, own
from tests.unit.audit.packages import Toy
from tests.unit.audit.rules.test_licenses import LIBRARY, recorded

DIGEST = "0123456789abcdef" * 4


def test_a_digest_is_looked_for_as_the_plan_writes_it() -> None:
    assert DIGEST_DIGITS == HASH_DIGITS


def test_the_digest_of_a_plan_stands_in_the_build_string(tmp_path: Path) -> None:
    foreign = make_conda(tmp_path, "foreign")
    right = make_conda(tmp_path, "right", build="py311h0123456_0", about=own(DIGEST))
    check_digests([foreign, right])
    for build in ("h1234567_0", "0", "py311_0"):
        with pytest.raises(IntegrityError, match="names the digest 0123456789abcdef"):
            check_digests([make_conda(tmp_path, "wrong", build=build, about=own(DIGEST))])


def test_packages_are_audited_among_their_set_and_the_channel(tmp_path: Path) -> None:
    channel = new_channel(tmp_path)
    inner = make_conda(tmp_path / "a", "inner", files={"lib/inner.txt": b"x"})
    with channel_writer(channel) as writer:
        add_set(writer, [inner])
    beside = make_conda(tmp_path / "b", "beside", files={"lib/beside.txt": b"x"})
    outer = make_conda(
        tmp_path / "b",
        "outer",
        index={"depends": ["inner", "beside"]},
        files={"lib/one": link("lib/one", "inner.txt"), "lib/two": link("lib/two", "beside.txt")},
    )
    audit = audit_uploaded([outer, beside], REGISTRY, [channel])
    assert audit.notes == ()
    assert {name: row.name for name, row in audit.rows.items()} == {
        "linux-64/outer-1.0-0.conda": "outer",
        "linux-64/beside-1.0-0.conda": "beside",
    }
    for places, files in (([], [outer, beside]), ([channel], [outer])):
        with pytest.raises(VerificationError, match="neither the package nor its dependencies have"):
            audit_uploaded(files, REGISTRY, places)


def test_what_the_audit_reads_of_the_channels_packages_is_in_the_channel(tmp_path: Path) -> None:
    """A writer of its folder learns nothing of another channel's packages by a link in the place of a dependency."""
    channel, elsewhere = new_channel(tmp_path / "ours"), new_channel(tmp_path / "theirs")
    inner = make_conda(tmp_path / "a", "inner", files={"lib/inner.txt": b"x"})
    for place in (channel, elsewhere):
        with channel_writer(place) as writer:
            add_set(writer, [inner])
    files = {"lib/one": link("lib/one", "inner.txt")}
    outer = make_conda(tmp_path / "b", "outer", index={"depends": ["inner"]}, files=files)
    audit_uploaded([outer], REGISTRY, [channel])
    dependency = channel.path / "linux-64" / inner.name
    dependency.unlink()
    dependency.symlink_to(elsewhere.path / "linux-64" / inner.name)
    with pytest.raises(ChannelError, match=f"{inner.name}: is a symbolic link to .*, out of the folder"):
        audit_uploaded([outer], REGISTRY, [channel])


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"subdir": "noarch", "noarch": "generic"}, "noarch"),
        ({"subdir": "win-64"}, "win-64"),
        ({"subdir": None, "platform": "osx", "arch": "arm64"}, "osx-arm64"),
    ],
    ids=["noarch", "win-64", "platform and arch"],
)
def test_a_package_for_another_subdir_than_its_folder_is_refused(
    tmp_path: Path, said: dict[str, object], found: str
) -> None:
    good = make_conda(tmp_path, "good")
    misplaced = make_conda(tmp_path, "misplaced", index=said)
    with pytest.raises(IntegrityError, match=rf"misplaced-1\.0-0\.conda.*is for the subdir '{found}'"):
        audit_uploaded([good, misplaced], REGISTRY, [])


def test_an_older_package_needs_no_subdir_in_its_metadata(tmp_path: Path) -> None:
    older = make_conda(tmp_path, "older", index={"subdir": None, "platform": "linux", "arch": "x86_64"})
    assert list(audit_uploaded([older], REGISTRY, []).rows) == ["linux-64/older-1.0-0.conda"]


def test_missing_licence_texts_are_noted_and_keep_nothing_out(tmp_path: Path) -> None:
    lower = Toy(name="lower", files={"include/lower.hpp": b""}).write(tmp_path)
    upper = Toy(files=LIBRARY, info=recorded("lower")).write(tmp_path)
    audit = audit_uploaded([lower, upper], REGISTRY, [])
    (note,) = audit.notes
    assert "license: no licence text of lower" in note
    assert len(audit.rows) == 2


def test_what_a_foundation_elsewhere_would_tell_is_left_out_and_said(tmp_path: Path) -> None:
    outer = make_conda(tmp_path, "outer", index={"depends": ["far"]}, files={"lib/one": link("lib/one", "far.txt")})
    foundation = Foundation(kind="conda-forge", address="https://channel.example/conda-forge")
    (note,) = audit_uploaded([outer], foundation, []).notes
    assert "these rules were not applied: libstdcxx, link, needed" in note
    bad = make_conda(tmp_path, "bad", files={"bin/run": b"#!/home/me/python\n"})
    with pytest.raises(VerificationError, match="interpreter"):
        audit_uploaded([bad], foundation, [])
