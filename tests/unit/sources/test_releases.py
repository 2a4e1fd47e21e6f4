# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.conda.clients import make_http_client
from channel_tools.sources.model import SourceMirrors
from channel_tools.sources.releases import Release, find_release
from channel_tools.system.errors import NetworkError, UsageError
from tests.unit.sources.toys import git


def found(location: str, version: str, *places: tuple[str, str]) -> Release:
    return find_release(location, version, client=make_http_client({}), mirrors=SourceMirrors(places=places))


@pytest.mark.parametrize(
    ("version", "names", "newest"),
    [
        ("1.0", ["toy-1.0.tar.gz", "toy-1.10.tar.gz", "toy-1.9.tar.gz"], "1.10"),
        ("1.0", ["toy-1.0.tar.gz", "toy-1.1rc1.tar.gz", "toy-2.0.zip", "other-3.0.tar.gz"], "1.0"),
        ("1.0rc1", ["toy-1.0rc1.tar.gz", "toy-1.0rc2.tar.gz", "toy-1.0.tar.gz"], "1.0"),
        ("2.0", ["toy-1.0.tar.gz"], "2.0"),
    ],
    ids=["by number", "no candidates, no other names", "from a candidate", "older ones"],
)
def test_a_folder_says_which_is_the_newest(tmp_path: Path, version: str, names: list[str], newest: str) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert found(f"{tmp_path.as_uri()}/toy-{version}.tar.gz", version).version == newest


def test_folders_may_have_the_version(tmp_path: Path) -> None:
    for name in ("1.0", "1.2", "docs"):
        (tmp_path / "toy" / name).mkdir(parents=True)
    assert found(f"{tmp_path.as_uri()}/toy/1.0/toy-1.0.tar.gz", "1.0").version == "1.2"


def test_what_lists_nothing_alike_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "readme").touch()
    with pytest.raises(UsageError, match=r"lists nothing that is named as toy-1\.0\.tar\.gz"):
        found(f"{tmp_path.as_uri()}/toy-1.0.tar.gz", "1.0")
    with pytest.raises(NetworkError, match="absent"):
        found(f"{tmp_path.as_uri()}/absent/toy-1.0.tar.gz", "1.0")


def test_tags_are_named_as_that_of_the_version(tmp_path: Path) -> None:
    repository = tmp_path / "toy.git"
    repository.mkdir()
    git(repository, "init", "--quiet")
    for number, tag in enumerate(["v1.0", "v1.1", "v2.0rc1", "other-9.0", "3.0"]):
        (repository / "file").write_text(str(number))
        git(repository, "add", "file")
        git(repository, "commit", "--quiet", "-m", tag)
        git(repository, "tag", *(["-a", "-m", tag, tag] if tag == "v1.1" else [tag]))
    commit = git(repository, "rev-parse", "v1.1^{commit}").strip()
    assert found(repository.as_uri(), "1.0") == Release(version="1.1", commit=commit)
    with pytest.raises(UsageError, match=r"none of its 5 tags names the version 7\.0"):
        found(repository.as_uri(), "7.0")
    mirrored = ("https://forge.example/lab/", tmp_path.as_uri() + "/")
    release = found("https://forge.example/lab/toy.git/archive/v1.0.tar.gz", "1.0", mirrored)
    assert release.changes == "https://forge.example/lab/toy/compare/v1.0...v1.1"
