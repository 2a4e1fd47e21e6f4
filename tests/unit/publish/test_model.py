# SPDX-License-Identifier: BSD-3-Clause
"""Package files that are published from anywhere: their metadata says where they belong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from channel_tools.channel import Foundation, channel_writer, open_channel, verify_channel
from channel_tools.channel.index import index_channel
from channel_tools.channel.listing import Patch
from channel_tools.publish.folder import FolderTarget, open_folder
from channel_tools.publish.model import file_set
from channel_tools.publish.target import open_target
from channel_tools.system.errors import FoundationError, IntegrityError, UsageError
from channel_tools.system.files import sha256_of_file
from channel_tools.system.progress import SilentProgress
from channel_tools.workflow.publish import files_to_publish
from tests.support.packages import CONDA_FORGE, REGISTRY, make_conda, old_format


def moved(package: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return package.rename(folder / package.name)


def published(folder: Path, *files: Path, foundation: Foundation = REGISTRY) -> FolderTarget:
    target = open_folder(str(folder))
    plan = target.plan(file_set(files, foundation), label="main")
    target.publish(plan, progress=SilentProgress())
    return target


@pytest.mark.parametrize("folder", ["Downloads", "noarch", "osx-64", "linux-64", "."])
def test_a_package_goes_to_the_subdir_that_its_metadata_names(tmp_path: Path, folder: str) -> None:
    files = [
        moved(make_conda(tmp_path / "made", "toy"), tmp_path / folder),
        moved(make_conda(tmp_path / "made", "mac", subdir="osx-arm64"), tmp_path / folder),
        moved(make_conda(tmp_path / "made", "win", subdir="win-64"), tmp_path / folder),
        moved(make_conda(tmp_path / "made", "pure", subdir="noarch"), tmp_path / folder),
        moved(old_format(make_conda(tmp_path / "made", "old")), tmp_path / folder),
    ]
    target = published(tmp_path / "channel", *files)
    assert {str(package.key) for package in target.packages("main")} == {
        "linux-64/toy-1.0-0.conda",
        "osx-arm64/mac-1.0-0.conda",
        "win-64/win-1.0-0.conda",
        "noarch/pure-1.0-0.conda",
        "linux-64/old-1.0-0.tar.bz2",
    }
    assert verify_channel(open_channel(tmp_path / "channel")) == []
    again = target.plan(file_set(files, REGISTRY), label="main")
    assert (again.upload, len(again.present)) == ((), 5)


def test_files_of_the_same_name_for_two_subdirs_are_two_packages(tmp_path: Path) -> None:
    files = [
        moved(make_conda(tmp_path / "made", "toy"), tmp_path / "a"),
        moved(make_conda(tmp_path / "made", "toy", subdir="linux-aarch64"), tmp_path / "b"),
    ]
    found = file_set(files, REGISTRY).files
    assert [str(file.key) for file in found] == ["linux-64/toy-1.0-0.conda", "linux-aarch64/toy-1.0-0.conda"]


def test_other_bytes_of_the_same_name_are_refused_wherever_they_are(tmp_path: Path) -> None:
    files = [
        moved(make_conda(tmp_path / "made", "toy", files={"a": content}), tmp_path / name)
        for name, content in (("noarch", b"1"), ("linux-64", b"2"))
    ]
    with pytest.raises(UsageError, match="has the same name and other bytes"):
        file_set(files, REGISTRY)


@pytest.mark.parametrize("name", ["toy-1.0-0 (1).conda", "other-1.0-0.conda", "toy.conda"])
def test_a_name_that_is_not_the_packages_is_to_be_corrected(tmp_path: Path, name: str) -> None:
    path = make_conda(tmp_path, "toy")
    renamed = path.rename(path.with_name(name))
    with pytest.raises(UsageError, match=r"says that it is toy-1\.0-0; expected .* named toy-1\.0-0\.conda") as caught:
        file_set([renamed], REGISTRY)
    assert caught.value.hint == "rename it to toy-1.0-0.conda"


def test_a_package_without_a_subdir_asks_for_one(tmp_path: Path) -> None:
    nowhere = old_format(make_conda(tmp_path, "toy"), index={"subdir": None})
    with pytest.raises(UsageError, match="no subdir, nor the platform and arch of older packages"):
        file_set([nowhere], REGISTRY)
    of_2013 = old_format(
        make_conda(tmp_path, "toy"), index={"subdir": None, "platform": "osx", "arch": "x86_64"}, without=["paths.json"]
    )
    target = published(tmp_path / "channel", of_2013)
    assert [str(package.key) for package in target.packages("main")] == ["osx-64/toy-1.0-0.tar.bz2"]


def test_what_is_no_package_is_named(tmp_path: Path) -> None:
    path = tmp_path / "toy-1.0-0.conda"
    for content in (b"", b"not a package"):
        path.write_bytes(content)
        with pytest.raises(IntegrityError, match=r"toy-1\.0-0\.conda: not a complete conda package"):
            file_set([path], REGISTRY)
    with pytest.raises(UsageError, match="no such package file"):
        file_set([tmp_path / "missing-1.0-0.conda"], REGISTRY)


def test_the_foundation_is_the_given_one_else_that_of_the_channel_or_the_target(tmp_path: Path) -> None:
    package = make_conda(tmp_path / "made", "toy")
    target = open_target(str(tmp_path / "channel"), environ={})
    with pytest.raises(UsageError, match="does not say on which foundation") as caught:
        files_to_publish([package], None, settings=None, target=target)
    assert "--foundation" in str(caught.value.hint)
    assert files_to_publish([package], CONDA_FORGE, settings=None, target=target).foundation == CONDA_FORGE
    published(tmp_path / "channel", package, foundation=CONDA_FORGE)
    assert files_to_publish([package], None, settings=None, target=target).foundation == CONDA_FORGE
    in_channel = tmp_path / "channel" / "linux-64" / package.name
    new = open_target(str(tmp_path / "new"), environ={})
    assert files_to_publish([in_channel], None, settings=None, target=new).foundation == CONDA_FORGE
    with pytest.raises(FoundationError):
        target.plan(files_to_publish([package], REGISTRY, settings=None, target=target), label="main")


def listed_beside(package: Path, index: dict[str, object], **fields: object) -> Path:
    """Another tool's repodata.json beside the package, which says the ``fields`` otherwise than that does."""
    record = {"name": "toy", "version": "1.0", "build": "0", "build_number": 0, "subdir": "linux-64", "depends": []}
    record |= index | {"sha256": sha256_of_file(package)} | fields
    repodata = {"packages": {}, "packages.conda": {package.name: record}}
    (package.parent / "repodata.json").write_text(json.dumps(repodata))
    return package


def record_of(folder: Path, file_name: str = "toy-1.0-0.conda") -> dict[str, object]:
    row: dict[str, object] = json.loads((folder / "linux-64" / "repodata.json").read_bytes())["packages.conda"][
        file_name
    ]
    return row


@pytest.mark.parametrize(
    ("own", "listed"),
    [
        ({"constrains": ["dsk[array] >=2023"]}, {"constrains": ["dsk >=2023"]}),
        ({"depends": ["dsk[array] >=2023"], "license": "X"}, {"depends": ["dsk >=2023"], "license": "MIT"}),
        ({"depends": ["dsk >=2"]}, {"depends": ["dsk >=2,<3"]}),
        ({"constrains": ["dsk >=2", "x"]}, {"constrains": ["dsk >=2"], "track_features": "slow"}),
    ],
)
def test_what_a_channel_lists_otherwise_than_a_package_says_is_published_with_it(
    tmp_path: Path, own: dict[str, object], listed: dict[str, object]
) -> None:
    package = listed_beside(make_conda(tmp_path / "theirs", "toy", index=own), own, **listed)
    channel = tmp_path / "channel"
    target = published(channel, package, foundation=CONDA_FORGE)
    assert listed.items() <= record_of(channel).items()
    assert verify_channel(open_channel(channel)) == []
    # the records can be made again from the files, the listing and nothing else
    shutil.rmtree(channel / ".channel_tools" / "cache", ignore_errors=True)
    (channel / "linux-64" / package.name).touch()
    with channel_writer(open_channel(channel)) as writer:
        assert index_channel(writer).refused == ()
    assert listed.items() <= record_of(channel).items()
    # a channel of ours passes them on, and what it has changed since stays
    further = published(tmp_path / "further", channel / "linux-64" / package.name, foundation=CONDA_FORGE)
    assert listed.items() <= record_of(further.root).items()
    change = Patch(records={package.name: {"depends": ["dsk 2.5.*"]}})
    target.hotfix({"linux-64": change}, label="main", replace=False)
    published(channel, package, foundation=CONDA_FORGE)
    assert record_of(channel)["depends"] == ["dsk 2.5.*"]


def test_a_record_is_what_the_correction_in_force_makes_it(tmp_path: Path) -> None:
    """Also where the package was read with another one, or refused without."""
    own: dict[str, object] = {"depends": ["dsk[array] >=2"], "constrains": ["dsk[array] >=1"]}
    package = listed_beside(make_conda(tmp_path / "theirs", "toy", index=own), own, depends=["dsk"], constrains=[])
    target = published(tmp_path / "channel", package, foundation=CONDA_FORGE)

    def corrected(**fields: object) -> list[str]:
        patch = Patch(records={package.name: fields}) if fields else Patch()
        target.hotfix({"linux-64": patch}, label="main", replace=True)
        listed = json.loads((tmp_path / "channel" / "linux-64" / "repodata.json").read_bytes())["packages.conda"]
        return [*listed.get(package.name, {}).get("depends", ["not listed"])]

    assert corrected(depends=["dsk >=2"], constrains=[]) == ["dsk >=2"]
    assert corrected(depends=["dsk >=2"]) == ["not listed"]
    assert corrected(depends=["dsk >=3"], constrains=["dsk <9"]) == ["dsk >=3"]
    assert record_of(tmp_path / "channel")["constrains"] == ["dsk <9"]
    assert corrected() == ["not listed"]
    assert corrected(depends=["dsk"], constrains=[]) == ["dsk"]
    assert verify_channel(open_channel(tmp_path / "channel")) == []


def test_a_record_of_other_bytes_corrects_nothing(tmp_path: Path) -> None:
    own: dict[str, object] = {"constrains": ["dsk[array] >=2023"]}
    package = listed_beside(make_conda(tmp_path, "toy", index=own), own, constrains=[], sha256="0" * 64)
    with pytest.raises(IntegrityError, match="constrains 'dsk"):
        file_set([package], CONDA_FORGE)
    (package.parent / "repodata.json").write_text("{")
    with pytest.raises(IntegrityError, match="what is listed of the packages cannot be read"):
        file_set([package], CONDA_FORGE)


def test_a_correction_is_not_lost_to_a_server_that_makes_the_records_itself(tmp_path: Path) -> None:
    own: dict[str, object] = {"depends": ["dsk >=2"]}
    package = listed_beside(make_conda(tmp_path, "toy", index=own), own, depends=["dsk >=2,<3"])
    target = open_target("quetz+https://host.example/toys", environ={})
    with pytest.raises(UsageError, match=r"linux-64/toy-1\.0-0\.conda: the channel that it is in lists") as caught:
        target.plan(file_set([package], CONDA_FORGE), label="main")
    assert "quetz makes records from the packages" in str(caught.value.hint)
