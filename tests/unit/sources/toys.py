# SPDX-License-Identifier: BSD-3-Clause
"""Small archives, git repositories and needs for the tests of the source store."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from channel_tools.sources.model import NeededSource

TEXT = b"one\ntwo\nthree\n"


def tar_gz(members: dict[str, bytes | tuple[bytes, str]], *, mtime: int = 0) -> bytes:
    """A .tar.gz; a tuple is a member of that type (tarfile's code) with a link target."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, tuple):
                info.type, info.linkname = content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=mtime)


def file_need(content: bytes, *urls: str, name: str = "toy-1.tar.gz", package: str = "toy 1") -> NeededSource:
    """The need for exactly these bytes."""
    addresses = urls or (f"https://upstream.invalid/{name}",)
    sha256 = hashlib.sha256(content).hexdigest()
    return NeededSource(kind="url", identity=sha256, urls=addresses, names=(name,), packages=(package,))


def git_need(
    commit: str, *urls: str, excludes: tuple[str, ...] = (), submodules: bool = True, name: str = "toy"
) -> NeededSource:
    """The need for a commit."""
    addresses = urls or ("https://upstream.invalid/toy.git",)
    return NeededSource(
        kind="git",
        identity=commit,
        urls=addresses,
        names=(name,),
        excludes=excludes,
        submodules=submodules,
        packages=("toy 1",),
    )


def git(folder: Path, *words: str) -> str:
    """Run git with an author and date that never change."""
    environment = {
        **os.environ,
        "GIT_AUTHOR_NAME": "toy",
        "GIT_AUTHOR_EMAIL": "toy@example.invalid",
        "GIT_AUTHOR_DATE": "1700000000 +0000",
        "GIT_COMMITTER_NAME": "toy",
        "GIT_COMMITTER_EMAIL": "toy@example.invalid",
        "GIT_COMMITTER_DATE": "1700000000 +0000",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
    }
    try:
        result = subprocess.run(
            ["git", "-c", "protocol.file.allow=always", "-c", "maintenance.auto=false", *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    except FileNotFoundError:
        pytest.skip("git is not installed")
    return result.stdout.strip()


def make_repository(folder: Path, files: dict[str, bytes], *, submodules: dict[str, Path] | None = None) -> str:
    """A repository with one commit; its name. ``.sh`` files are programs, contents ``-> x`` are links to x."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main", "--template=")
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith(b"-> "):
            path.symlink_to(content[3:].decode())
            continue
        path.write_bytes(content)
        if path.suffix == ".sh":
            path.chmod(0o755)
    for name, repository in (submodules or {}).items():
        git(folder, "submodule", "--quiet", "add", str(repository), name)
    git(folder, "-c", "core.autocrlf=false", "add", "--all", "--force")
    git(folder, "commit", "--quiet", "-m", "all of it")
    return (folder / ".git/refs/heads/main").read_text().strip()
