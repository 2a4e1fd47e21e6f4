# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
from pathlib import Path

import pytest

from channel_tools.channel.listing import Patch, check_names, read_patch
from channel_tools.system.errors import ConfigError


def written(folder: Path, **keys: object) -> Path:
    path = folder / "patch_instructions.json"
    path.write_text(
        json.dumps({"patch_instructions_version": 1} | {k.replace("_conda", ".conda"): v for k, v in keys.items()})
    )
    return path


def test_names_of_the_old_format_also_mean_the_conda_file(tmp_path: Path) -> None:
    patch = read_patch(
        written(
            tmp_path,
            packages={"a-1-0.tar.bz2": {"license": "MIT", "features": None}},
            packages_conda={"a-1-0.conda": {"license": "BSD-3-Clause"}, "b-1-0.conda": {"depends": ["c >=1"]}},
            remove=["d-1-0.tar.bz2"],
            revoke=["e-1-0.conda"],
        )
    )
    assert patch == Patch(
        records={
            "a-1-0.tar.bz2": {"license": "MIT", "features": None},
            "a-1-0.conda": {"license": "BSD-3-Clause", "features": None},
            "b-1-0.conda": {"depends": ["c >=1"]},
        },
        remove=("d-1-0.conda", "d-1-0.tar.bz2"),
        revoke=("e-1-0.conda",),
    )
    known = {"a-1-0.tar.bz2", "b-1-0.conda", "d-1-0.conda", "e-1-0.conda"}
    check_names(patch, "noarch", known, tmp_path)
    assert patch.resolved(known).names() == known


def test_fields_are_replaced_null_takes_them_out_and_revoked_packages_cannot_be_installed() -> None:
    patch = Patch(records={"a.conda": {"license": None, "constrains": ["x <2"]}}, revoke=("a.conda",))
    record: dict[str, object] = {"name": "a", "depends": ["b"], "license": "MIT"}
    assert patch.applied("a.conda", record) == {
        "constrains": ["x <2"],
        "depends": ["b", "package_has_been_revoked"],
        "name": "a",
        "revoked": True,
    }
    assert patch.applied("other.conda", record) is record
    assert record == {"name": "a", "depends": ["b"], "license": "MIT"}


def test_a_later_patch_wins_field_by_field() -> None:
    first = Patch(records={"a.conda": {"license": "MIT", "depends": ["x"]}}, remove=("b.conda",))
    later = Patch(records={"a.conda": {"depends": []}}, revoke=("c.conda",))
    assert first.merged(later) == Patch(
        records={"a.conda": {"license": "MIT", "depends": []}}, remove=("b.conda",), revoke=("c.conda",)
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "the file: found []; expected an object"),
        ("{}", "patch_instructions_version: found None; expected 1"),
        ('{"patch_instructions_version": 1, "package": {}}', "unknown key 'package'"),
        ('{"patch_instructions_version": 1, "packages.conda": []}', "packages.conda: found"),
        ('{"patch_instructions_version": 1, "packages.conda": {"a.conda": 3}}', "packages.conda: a.conda: found 3"),
        (
            '{"patch_instructions_version": 1, "packages": {"a.conda": {"sha256": "x"}}}',
            "sha256: this field identifies the package",
        ),
        ('{"patch_instructions_version": 1, "packages": {"a.conda": {"depends": null}}}', "depends: found None"),
        (
            '{"patch_instructions_version": 1, "packages": {"a.conda": {"depends": "b"}}}',
            "expected a list of MatchSpecs",
        ),
        (
            '{"patch_instructions_version": 1, "packages": {"a.conda": {"depends": ["b >=1,,"]}}}',
            "is not a valid MatchSpec",
        ),
        ('{"patch_instructions_version": 1, "packages": {"a.conda": {"license": 1}}}', "license: found 1"),
        ('{"patch_instructions_version": 1, "packages": {"a.conda": {"purls": "x"}}}', "purls: found 'x'"),
        ('{"patch_instructions_version": 1, "remove": "a.conda"}', "remove: found 'a.conda'"),
        ('{"patch_instructions_version": 1, "revoke": [1]}', "revoke: found [1]"),
    ],
)
def test_what_is_wrong_with_a_patch_is_said_with_its_place(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "patch_instructions.json"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        read_patch(path)
    assert message in caught.value.message
    assert str(path) in caught.value.message


def test_names_that_are_not_published_are_refused(tmp_path: Path) -> None:
    patch = Patch(remove=("a.conda", "b.conda", "c.conda"))
    with pytest.raises(ConfigError, match=r"names b\.conda and 1 more, which noarch does not have"):
        check_names(patch, "noarch", ["a.conda"], tmp_path)
    with pytest.raises(ConfigError, match="no such file"):
        read_patch(tmp_path / "missing.json")
