# SPDX-License-Identifier: BSD-3-Clause
"""A commit's files, with its submodules, as one archive that can be verified by itself.

The archive has the exact bytes and modes of every included file, sorted, with the commit's time: the same commit gives
the same tar. The manifest has the commit objects and the names of what was left out, so that hashing the archive's
members rebuilds every tree up to the commit: a Merkle proof without the repository and without git.
"""

from __future__ import annotations

import base64
import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING

import msgspec
import zstandard

from channel_tools.sources.git import (
    LINK_MODE,
    SUBMODULE_MODE,
    GitRepository,
    TreeEntry,
    commit_fields,
    exclusion,
    link_target_of,
    object_hash,
    object_name,
    tree_name,
)
from channel_tools.system.archives import members_of_tar
from channel_tools.system.document import decode_json
from channel_tools.system.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

FindRepository = Callable[[str, str, str], GitRepository]
"""``find(path, commit, url)``: the repository that has the commit of a source (path empty) or of a submodule."""
SCHEMA = 1
_LEVEL = 6
_CHUNK_BYTES = 1 << 20
_FILE_MODE, _PROGRAM_MODE = "100644", "100755"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitProof:
    """A commit whose files are in the archive below ``path`` (empty for the source's own commit)."""

    path: str
    commit: str
    content: str
    """The commit object in base64."""
    left_out: tuple[TreeEntry, ...]
    """What is not in the archive: excluded paths, and the paths of submodules."""
    unusual_modes: dict[str, str]
    """Old forms of modes that some commits have, by path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GitManifest:
    """The content of a git source's archive."""

    commit: str
    excludes: tuple[str, ...]
    submodules: bool
    top: str
    """The archive's single top folder."""
    sha256: str
    size_bytes: int
    origin: str
    commits: tuple[CommitProof, ...]
    schema: int = SCHEMA


def write_archive(
    destination: Path,
    *,
    commit: str,
    top: str,
    find: FindRepository,
    excludes: Sequence[str],
    submodules: bool,
) -> tuple[CommitProof, ...]:
    """Write the files of ``commit`` to ``destination`` (.tar.zst) and return the proofs for its manifest.

    Raises IntegrityError for objects that are missing or damaged, and what ``find`` raises.
    """
    excluded = exclusion(excludes)
    proofs: list[CommitProof] = []
    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    with (
        destination.open("wb") as raw,
        compressor.stream_writer(raw, closefd=False) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.GNU_FORMAT, errors="surrogateescape") as tar,
    ):
        writer = _TreeWriter(tar, top, excluded)
        waiting = [("", commit, "")]
        while waiting:
            path, name, url = waiting.pop(0)
            repository = find(path, name, url)
            proof, below = writer.write_commit(repository, path, name)
            proofs.append(proof)
            if submodules:
                waiting += below
    return tuple(proofs)


class _TreeWriter:
    def __init__(self, tar: tarfile.TarFile, top: str, excluded: Callable[[str], bool]) -> None:
        self._tar = tar
        self._top = top
        self._excluded = excluded
        self._made: set[str] = set()

    def write_commit(
        self, repository: GitRepository, path: str, commit: str
    ) -> tuple[CommitProof, list[tuple[str, str, str]]]:
        """Write the files of one commit below ``path``; returns its proof, and the submodules that it names."""
        content = repository.read_commit(commit)
        entries = repository.entries(commit)
        prefix = f"{path}/" if path else ""
        time_s = int(commit_fields(content)["committer"].split()[-2])
        left_out = [entry for entry in entries if entry.mode == SUBMODULE_MODE or self._excluded(prefix + entry.path)]
        absent = {item.path for item in left_out}
        present = [entry for entry in entries if entry.path not in absent]
        waiting = iter(present)

        def take(_name: str, size: int, stream: IO[bytes]) -> None:
            self._write(prefix, next(waiting), size, stream, time_s)

        paths = {entry.object: prefix + entry.path for entry in present}
        repository.read_objects([entry.object for entry in present], take, paths=paths)
        proof = CommitProof(
            path=path,
            commit=commit,
            content=base64.b64encode(content).decode(),
            left_out=tuple(left_out),
            unusual_modes={
                entry.path: entry.mode for entry in present if entry.mode not in {_FILE_MODE, _PROGRAM_MODE, LINK_MODE}
            },
        )
        excluded = {item.path for item in left_out if self._excluded(prefix + item.path)}
        links = [item for item in left_out if item.mode == SUBMODULE_MODE and item.path not in excluded]
        urls = read_submodule_urls(repository, entries) if links else {}
        return proof, [(prefix + item.path, item.object, urls.get(item.path, "")) for item in links]

    def _write(self, prefix: str, entry: TreeEntry, size: int, stream: IO[bytes], time_s: int) -> None:
        info = tarfile.TarInfo(f"{self._top}/{prefix}{entry.path}")
        info.mtime = time_s
        info.uid = info.gid = 0
        if entry.mode == LINK_MODE:
            target = link_target_of(prefix + entry.path, size, stream)
            info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
            self._tar.addfile(info)
            return
        info.size = size
        info.mode = 0o755 if int(entry.mode, 8) & 0o100 else 0o644
        self._tar.addfile(info, stream)


def read_submodule_urls(repository: GitRepository, entries: Sequence[TreeEntry]) -> dict[str, str]:
    """The address of every submodule by its path, from the commit's .gitmodules."""
    named = next((entry for entry in entries if entry.path == ".gitmodules"), None)
    if named is None:
        return {}
    (content,) = repository.read_contents([named.object])
    urls: dict[str, str] = {}
    section: dict[str, str] = {}
    for line in content.decode(errors="replace").splitlines():
        if line.strip().startswith("["):
            section = {}
        key, equals, value = (part.strip() for part in line.partition("="))
        if equals:
            section[key] = value.strip('"')
            if {"path", "url"} <= section.keys():
                urls[section["path"]] = section["url"]
    return urls


def verify_archive(path: Path, manifest: GitManifest) -> None:
    """Rebuild every tree from the archive's members. Raises IntegrityError if they do not hash to their commits."""
    entries = list(_hashed_members(path, manifest))
    paths = sorted((proof.path for proof in manifest.commits), key=len, reverse=True)
    members: dict[str, list[TreeEntry]] = {proof.path: [] for proof in manifest.commits}
    for entry in entries:
        owner = next(owner for owner in paths if not owner or entry.path.startswith(f"{owner}/"))
        members[owner].append(replace(entry, path=entry.path.removeprefix(f"{owner}/" if owner else "")))
    if not manifest.commits or manifest.commits[0].commit != manifest.commit or manifest.commits[0].path:
        raise _invalid(path, "its manifest starts with another commit")
    for proof in manifest.commits:
        _verify_commit(path, proof, members[proof.path])
    _verify_links(path, manifest)


def _verify_commit(path: Path, proof: CommitProof, members: Sequence[TreeEntry]) -> None:
    content = base64.b64decode(proof.content)
    if object_name("commit", content, like=proof.commit) != proof.commit:
        raise _invalid(path, f"the commit object of {proof.path or 'the source'} does not hash to {proof.commit}")
    entries = [replace(entry, mode=proof.unusual_modes.get(entry.path, entry.mode)) for entry in members]
    entries += proof.left_out
    tree = tree_name(entries, like=proof.commit)
    expected = commit_fields(content)["tree"]
    if tree != expected:
        reason = f"the files of {proof.path or 'the source'} make tree {tree}; commit {proof.commit} has {expected}"
        raise _invalid(path, reason)


def _verify_links(path: Path, manifest: GitManifest) -> None:
    """Check that every submodule's commit is the one that its parent commit names."""
    named = {
        (f"{proof.path}/" if proof.path else "") + item.path: item.object
        for proof in manifest.commits
        for item in proof.left_out
        if item.mode == SUBMODULE_MODE
    }
    for proof in manifest.commits[1:]:
        if named.get(proof.path) != proof.commit:
            raise _invalid(
                path, f"submodule {proof.path} is at {proof.commit}; its parent names {named.get(proof.path)}"
            )
    is_excluded = exclusion(manifest.excludes)
    present = {proof.path for proof in manifest.commits}
    for proof in manifest.commits:
        for item in proof.left_out:
            full = (f"{proof.path}/" if proof.path else "") + item.path
            is_submodule = item.mode == SUBMODULE_MODE and (full in present or not manifest.submodules)
            if not is_submodule and not is_excluded(full):
                raise _invalid(path, f"{full} is missing, although it is not excluded")


def _hashed_members(path: Path, manifest: GitManifest) -> Iterator[TreeEntry]:
    top = f"{manifest.top}/"
    for member, stream in members_of_tar(path):
        if not member.name.startswith(top):
            raise _invalid(path, f"member {member.name!r} is outside the folder {manifest.top}")
        name = member.name.removeprefix(top)
        if member.issym():
            target = os.fsencode(member.linkname)
            yield TreeEntry(path=name, mode=LINK_MODE, object=object_name("blob", target, like=manifest.commit))
            continue
        if stream is None:
            raise _invalid(path, f"member {member.name!r} is not a file")
        digest = object_hash("blob", member.size, like=manifest.commit)
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
        mode = _PROGRAM_MODE if member.mode & 0o100 else _FILE_MODE
        yield TreeEntry(path=name, mode=mode, object=digest.hexdigest())


def encode_manifest(manifest: GitManifest) -> bytes:
    """The manifest as JSON, the same bytes for the same values."""
    return msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=1)


def decode_manifest(content: bytes, path: Path) -> GitManifest:
    """The manifest in ``path``. Raises IntegrityError for anything else."""
    try:
        return decode_json(content, GitManifest)
    except (msgspec.DecodeError, msgspec.ValidationError) as err:
        raise _invalid(path, f"not a valid manifest of a git source: {err}") from None


def _invalid(path: Path, reason: str) -> IntegrityError:
    return IntegrityError(
        f"{path}: {reason}", hint="run channel_tools sources verify, which moves damaged entries aside"
    )
