# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.environments import OutsidePath, find_outside_paths

CLONE = Path("/home/me/clone")


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    prefix = tmp_path / "out" / "env"
    (prefix / "conda-meta").mkdir(parents=True)
    return prefix


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"-I/home/me/clone/include", id="text"),
        pytest.param(b"\x7fELF\0\0/home/me/clone/lib\0\xff", id="binary"),
        pytest.param(b"/home/me/clone", id="end-of-file"),
        pytest.param(b'{"url": "file:///home/me/clone"}', id="address"),
        pytest.param(b"/home/me/clone2 /home/me/clone:", id="after-a-longer-name"),
    ],
)
def test_a_mention_is_found(prefix: Path, content: bytes) -> None:
    write(prefix / "lib/file", content)
    assert find_outside_paths(prefix, [CLONE]) == (OutsidePath(file="lib/file", names="/home/me/clone", is_link=False),)


@pytest.mark.parametrize(
    "content",
    [b"/home/me/clone2/lib", b"/home/me/clone-old", b"/home/me/cloned", b"/home/me", b""],
    ids=["longer-name", "dash", "longer-word", "parent", "empty"],
)
def test_another_path_is_none(prefix: Path, content: bytes) -> None:
    write(prefix / "lib/file", content)
    assert find_outside_paths(prefix, [CLONE]) == ()


def test_the_prefix_may_lie_below_a_forbidden_path(prefix: Path) -> None:
    out = prefix.parent
    write(prefix / "bin/good", f"#!{prefix}/bin/python".encode())
    write(prefix / "bin/bad", f"#!{prefix}/bin/python {out}/build/src".encode())
    write(prefix / "bin/sibling", f"{prefix}-old/lib".encode())
    found = [finding.file for finding in find_outside_paths(prefix, [out])]
    assert found == ["bin/bad", "bin/sibling"]


def test_records_may_name_channel_and_cache_and_nothing_else_may(prefix: Path) -> None:
    channel, cache = CLONE / "output/channel", CLONE / "cache"
    record = f'{{"url": "file://{channel}/linux-64/a.conda", "source": "{cache}/a"}}'.encode()
    write(prefix / "conda-meta/a.json", record)
    write(prefix / "share/a.json", record)
    write(prefix / "conda-meta/b.json", f"{CLONE}/recipes".encode())
    found = find_outside_paths(prefix, [CLONE], recorded_sources=[channel, cache])
    assert [finding.file for finding in found] == ["conda-meta/b.json", "share/a.json"]


def test_records_may_name_the_prefix_that_a_package_was_built_in(prefix: Path) -> None:
    built = f"{CLONE}/output/builds/a/host_env_placehold_placehold"
    replaced = f'{{"paths": [{{"_path": "bin/a", "prefix_placeholder": "{built}"}}]}}'
    write(prefix / "conda-meta/a.json", replaced.encode())
    write(prefix / "bin/a", built.encode())
    write(prefix / "conda-meta/b.json", replaced.replace("]", f', "{CLONE}/recipes"]').encode())
    found = find_outside_paths(prefix, [CLONE])
    assert [finding.file for finding in found] == ["bin/a", "conda-meta/b.json"]


def test_links_must_end_inside(prefix: Path, tmp_path: Path) -> None:
    write(tmp_path / "outside/file", b"")
    write(prefix / "lib/real", b"")
    (prefix / "lib/relative").symlink_to("real")
    (prefix / "lib/absolute-inside").symlink_to(prefix / "lib/real")
    (prefix / "lib/climbing").symlink_to("../../../outside/file")
    (prefix / "lib/folder").symlink_to(tmp_path / "outside")
    (prefix / "lib/twice").symlink_to("folder/file")
    found = find_outside_paths(prefix, [CLONE])
    assert found == (
        OutsidePath(file="lib/climbing", names=str(tmp_path / "outside/file"), is_link=True),
        OutsidePath(file="lib/folder", names=str(tmp_path / "outside"), is_link=True),
        OutsidePath(file="lib/twice", names=str(tmp_path / "outside/file"), is_link=True),
    )


def test_a_prefix_reached_through_a_link(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(prefix)
    (prefix / "lib").mkdir()
    (prefix / "lib/link").symlink_to("../conda-meta")
    write(prefix / "lib/file", f"{prefix}/lib".encode())
    assert find_outside_paths(tmp_path / "alias", [prefix.parent]) == ()


def test_nested_forbidden_paths_count_once(prefix: Path) -> None:
    write(prefix / "lib/file", f"{CLONE}/.venv/bin/python".encode())
    assert [finding.names for finding in find_outside_paths(prefix, [CLONE / ".venv", CLONE])] == [str(CLONE)]


@pytest.mark.parametrize("path", [Path("/"), Path("relative/clone")], ids=str)
def test_paths_that_mean_everything_are_refused(prefix: Path, path: Path) -> None:
    with pytest.raises(ValueError, match="expected an absolute path below the root"):
        find_outside_paths(prefix, [path])
