# SPDX-License-Identifier: BSD-3-Clause
"""Local git repositories: reading and hashing their objects, and fetching single commits into one.

Objects are read unchanged: no attribute, filter or line-ending setting changes a byte, no hook runs, and nothing is
fetched lazily. Every object is hashed when it is read, so a damaged repository cannot give wrong bytes.

A fetch gets the commit itself, without history. If a recipe excludes files, the commit is first fetched without
contents and then the wanted contents by name, so that excluded files are not even downloaded (servers that cannot
filter send them; they are not stored).

Git's tree objects: their entries, and the rules by which git makes files of them.

``git checkout`` and ``git fsck`` refuse a tree with entries that would be written elsewhere, or that git would take for
its own (verify_path in read-cache.c, fsck_tree in fsck.c). Who reads objects without a checkout has to do the same, by
the rules of all systems: what is made of a tree here may be checked out again on another one. Names that differ only in
case are two files to git, and one on some systems: clash_in finds them.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import hashlib
import os
import re
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from channel_tools.conda.addresses import is_confidential, scheme_of, shown_address, text_without_credentials
from channel_tools.sources.model import SourceMirrors
from channel_tools.system.archives import FOLDERS_DEEP
from channel_tools.system.errors import IntegrityError, NetworkError
from channel_tools.system.files import HashedStream
from channel_tools.system.processes import CommandResult, end_process_group, run_command, start_command, watch_command
from channel_tools.system.source_files import git_environment
from channel_tools.system.work_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from channel_tools.system.files import Digest

LINK_MODE = "120000"
SUBMODULE_MODE = "160000"
TREE_MODE = "40000"
_SHA256_DIGITS = 64
_SMALL_BYTES = 64 << 20
"""Trees and commits are read whole; the largest public ones have 2 MB."""
_SLOW_S = 300.0
_SLOWEST_BYTES_PER_S = 1000
"""A fetch ends if less than this arrives over 300 s: a server may count for minutes before it sends anything."""
_NETRC = ".netrc"
_MISSING_HINT = "fetch it there, or add its path to the recipe's extra.source_excludes"
_REFUSED_HINT = "nothing of it was written; tell those who keep the repository, and name a revision without it"


PATH_BYTES = 4096
"""The longest path of an entry (git's core.maxTreeDepth is half of that, with one letter a folder)."""
ENTRIES = 2_000_000
"""The most entries of a commit: ten times those of the largest public repositories.

A few small trees that name each other can have more entries than any machine has memory.
"""
_IGNORED_BY_HFS = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_AFTER_NAME = re.compile(r"(?<=.)(?:[. ]+|:.*)+$", re.DOTALL)
"""What NTFS leaves out at the end of a name: dots and blanks, and the name of a stream."""
_OWN = frozenset({".git", "git~1"})
_MODULES = frozenset({".gitmodules", "gitmod~1", "gitmod~2", "gitmod~3", "gitmod~4", "gi7eba~1"})


@dataclass(frozen=True, kw_only=True, slots=True)
class GitRepository:
    """A repository on this machine."""

    folder: Path
    max_entries: int = ENTRIES

    def holds(self, commit: str) -> bool:
        """Whether the repository has the commit and its root tree."""
        result = run_command([*self._git(), "cat-file", "-e", f"{commit}^{{tree}}"], env=git_environment(), check=False)
        return result.returncode == 0

    def entries(self, commit: str) -> list[TreeEntry]:
        """Every file, link and submodule of the commit, sorted by path.

        Raises IntegrityError for trees that are missing or damaged, and for an entry of which git makes no file (named,
        with the reason), wherever it is.
        """
        root = commit_fields(self.read_commit(commit)).get("tree")
        if root is None:
            raise IntegrityError(f"{commit} is not a commit", hint="name the commit itself, not a tag of it")
        leaves: list[TreeEntry] = []
        level = [TreeEntry(path="", mode=TREE_MODE, object=root)]
        depth = 0
        while level:  # one process for each level of folders
            if depth > FOLDERS_DEEP:
                message = f"commit {commit} has folders that are more than {FOLDERS_DEEP} deep: {level[0].path[:80]}..."
                raise IntegrityError(message, hint=_REFUSED_HINT)
            depth += 1
            contents = self.read_contents(
                [folder.object for folder in level], hint="make a clone with the whole commit (without a tree filter)"
            )
            below: list[TreeEntry] = []
            for folder, content in zip(level, contents, strict=True):
                entries = _checked_entries(commit, folder, content)
                below += [entry for entry in entries if entry.is_folder]
                leaves += [entry for entry in entries if not entry.is_folder]
                if len(leaves) + len(below) > self.max_entries:
                    message = f"commit {commit} has more than {self.max_entries} entries"
                    raise IntegrityError(message, hint=_REFUSED_HINT)
            level = below
        return sorted(leaves, key=lambda entry: os.fsencode(entry.path))

    def read_commit(self, commit: str) -> bytes:
        """The commit object's bytes."""
        return self.read_contents([commit])[0]

    def read_contents(self, names: Sequence[str], *, hint: str | None = None) -> list[bytes]:
        """The bytes of small objects. Raises as read_objects, and IntegrityError for one that is not small."""
        contents: list[bytes] = []
        self.read_objects(names, lambda _name, _size, stream: contents.append(stream.read()), hint=hint, small=True)
        return contents

    def read_objects(
        self,
        names: Sequence[str],
        take: Callable[[str, int, IO[bytes]], object],
        *,
        paths: Mapping[str, str] | None = None,
        hint: str | None = None,
        small: bool = False,
    ) -> None:
        """Call ``take(name, size, stream)``, which reads the stream's ``size`` bytes, for every object in this order.

        Raises IntegrityError for an object that is missing (with ``hint``) or whose bytes have another hash, with
        ``small`` also for one of more than 64 MiB; ``paths`` has the objects' paths, for the message.
        """
        with tempfile.TemporaryFile() as names_file:
            names_file.write("".join(f"{name}\n" for name in names).encode())
            names_file.seek(0)
            command = [*self._git(), "cat-file", "--batch"]
            process = start_command(
                command,
                env=git_environment(),
                stdin=names_file.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            if process.stdout is None:
                raise RuntimeError("a process started with a pipe has one")
            try:
                for name in names:
                    where = "" if paths is None else f" ({paths[name]})"
                    self._take_one(name, process.stdout, take, where, hint or _MISSING_HINT, small=small)
            finally:
                end_process_group(process)

    def _take_one(
        self,
        name: str,
        stream: IO[bytes],
        take: Callable[[str, int, IO[bytes]], object],
        where: str,
        hint: str,
        *,
        small: bool,
    ) -> None:
        words = stream.readline().split()
        if len(words) != 3 or words[1] == b"missing":  # noqa: PLR2004 - "<name> <kind> <size>"
            message = f"{self.folder}: object {name}{where} is missing from the repository"
            raise IntegrityError(message, hint=hint)
        kind, size = words[1].decode(), int(words[2])
        if small and size > _SMALL_BYTES:
            message = f"{self.folder}: the {kind} {name}{where} has {size} bytes; at most {_SMALL_BYTES} are read"
            raise IntegrityError(message, hint=_REFUSED_HINT)
        hashed = HashedStream(_First(stream, size), object_hash(kind, size, like=name))  # type: ignore[arg-type]
        take(name, size, hashed)  # type: ignore[arg-type]  # take only reads
        stream.read(1)  # the end of the line
        if hashed.digest.hexdigest() != name:
            message = f"{self.folder}: object {name}{where} is damaged: its bytes hash to {hashed.digest.hexdigest()}"
            raise IntegrityError(message, hint="run `git fsck` there, and clone again")

    def _git(self) -> list[str]:
        return ["git", "-c", "safe.directory=*", "-C", str(self.folder), "--no-replace-objects"]


class _First:
    """The first bytes of a stream as a separate one, to be read to its end."""

    def __init__(self, stream: IO[bytes], size_bytes: int) -> None:
        self._stream = stream
        self._left = size_bytes

    def read(self, size: int = -1) -> bytes:
        content = self._stream.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(content)
        return content


def object_hash(kind: str, size: int, *, like: str) -> Digest:
    """The hash that makes an object's name, of the kind that ``like`` has; update it with the object's bytes."""
    digest = hashlib.sha256() if len(like) == _SHA256_DIGITS else hashlib.sha1(usedforsecurity=False)
    digest.update(f"{kind} {size}\0".encode())
    return digest


def object_name(kind: str, content: bytes, *, like: str) -> str:
    """The name of an object, with the hash kind that ``like`` has."""
    digest = object_hash(kind, len(content), like=like)
    digest.update(content)
    return digest.hexdigest()


def link_target_of(path: str, size: int, stream: IO[bytes]) -> str:
    """The target of a link of this path, from its object. Raises IntegrityError for one that no system makes."""
    if size > PATH_BYTES:
        message = f"the link {path!r} has a target of {size} bytes; at most {PATH_BYTES} can be a path"
        raise IntegrityError(message, hint=_REFUSED_HINT)
    return os.fsdecode(stream.read())


def tree_name(entries: Sequence[TreeEntry], *, like: str) -> str:
    """The name of the root tree that has exactly these entries."""
    folders: dict[str, list[TreeEntry]] = {}
    items: list[TreeEntry] = []
    for entry in entries:
        head, slash, tail = entry.path.partition("/")
        if slash:
            folders.setdefault(head, []).append(TreeEntry(path=tail, mode=entry.mode, object=entry.object))
        else:
            items.append(entry)
    for name, below in folders.items():
        items.append(TreeEntry(path=name, mode=TREE_MODE, object=tree_name(below, like=like)))
    items.sort(key=lambda item: os.fsencode(item.path + ("/" if item.mode == TREE_MODE else "")))
    content = b"".join(
        item.mode.encode() + b" " + os.fsencode(item.path) + b"\0" + bytes.fromhex(item.object) for item in items
    )
    return object_name("tree", content, like=like)


def commit_fields(content: bytes) -> Mapping[str, str]:
    """The header of a commit object: ``tree``, ``committer`` ..."""
    header = content.partition(b"\n\n")[0].decode(errors="replace")
    return dict(line.partition(" ")[::2] for line in reversed(header.splitlines()))


def _checked_entries(commit: str, folder: TreeEntry, content: bytes) -> list[TreeEntry]:
    """The entries of a folder with their paths in the commit. Raises IntegrityError as GitRepository.entries."""
    prefix = f"{folder.path}/" if folder.path else ""
    entries: dict[str, TreeEntry] = {}
    try:
        for entry in read_tree(content, hash_bytes=len(folder.object) // 2):
            path = prefix + entry.path
            fault = fault_of(entry)
            if fault is None and entry.path in entries:
                fault = "is there twice"
            if fault is None and len(os.fsencode(path)) > PATH_BYTES:
                path, fault = f"{path[:80]}...", f"has a path of more than {PATH_BYTES} bytes"
            if fault is not None:
                message = f"commit {commit} cannot be made into files, and git refuses to: its entry {path!r} {fault}"
                raise IntegrityError(message, hint=_REFUSED_HINT)
            entries[entry.path] = replace(entry, path=path)
    except ValueError:
        message = f"commit {commit}: object {folder.object} ({folder.path or 'its root'}) is not a tree of git's"
        raise IntegrityError(message, hint=_REFUSED_HINT) from None
    return list(entries.values())


@contextlib.contextmanager
def git_environment_for(address: str) -> Iterator[dict[str, str]]:
    """The environment for git to ask an address: for a plain http address of another machine without .netrc.

    git has curl send what is there for the host, whoever reads it on the way. The home folder then is one with all else
    that is in the user's. What is asked by https is not redirected to http. The user's settings may give git another
    address (url.BASE.insteadOf).
    """
    environ = git_environment()
    home = Path(environ.get("HOME", "/"))
    words = ["git", "ls-remote", "--get-url", "--", address]
    address = run_command(words, env=environ, check=False).stdout.strip() or address
    if scheme_of(address) == "https":
        count = int(environ.get("GIT_CONFIG_COUNT") or 0)
        setting = {f"GIT_CONFIG_KEY_{count}": "protocol.http.allow", f"GIT_CONFIG_VALUE_{count}": "never"}
        environ |= {"GIT_CONFIG_COUNT": str(count + 1), **setting}
    if scheme_of(address) != "http" or is_confidential(address) or not (home / _NETRC).is_file():
        yield environ
        return
    with temporary_folder() as folder:
        for entry in home.iterdir():
            if entry.name != _NETRC:
                (folder / entry.name).symlink_to(entry.absolute())
        yield environ | {"HOME": str(folder)}


def open_repository(folder: Path) -> GitRepository | None:
    """The repository in ``folder`` (its .git, or itself if it is bare); None for any other folder."""
    for git_folder in (folder / ".git", folder):
        if git_folder.is_file() or ((git_folder / "objects").is_dir() and (git_folder / "HEAD").is_file()):
            return GitRepository(folder=folder)
    return None


def repositories_below(repository: GitRepository) -> Iterator[GitRepository]:
    """The repository itself and those of its submodules in git's layout, at any depth."""
    yield repository
    known: set[Path] = set()
    for modules in (repository.folder / ".git" / "modules", repository.folder / "modules"):
        for head in sorted(modules.rglob("HEAD")) if modules.is_dir() else ():
            if (head.parent / "objects").is_dir() and head.parent not in known:
                known.add(head.parent)
                yield GitRepository(folder=head.parent)


class _SlowFetch:
    """Notices a fetch by which a repository does not grow, whatever its protocol."""

    def __init__(self, folder: Path, *, limit_s: float = _SLOW_S) -> None:
        self._folder = folder
        self._limit_s = limit_s
        self._since_s, self._size_bytes = time.monotonic(), self._size()

    def check(self) -> None:
        """Raise NetworkError if less than 1000 bytes a second have arrived for ``limit_s``."""
        passed_s = time.monotonic() - self._since_s
        if passed_s < self._limit_s:
            return
        size_bytes = self._size()
        if size_bytes - self._size_bytes < passed_s * _SLOWEST_BYTES_PER_S:
            message = f"git received only {size_bytes - self._size_bytes} bytes in {passed_s:.0f} s"
            raise NetworkError(message, hint="check the address and the route to it, then run it again")
        self._since_s, self._size_bytes = time.monotonic(), size_bytes

    def _size(self) -> int:
        packs = self._folder / "objects" / "pack"
        try:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(packs))
        except FileNotFoundError:  # a pack that was received whole is renamed
            return 0


@dataclass(frozen=True, kw_only=True, slots=True)
class GitFetcher:
    """Fetches the commits of a source and of its submodules into one repository."""

    folder: Path
    urls: tuple[str, ...]
    excludes: tuple[str, ...]
    poll: Callable[[], None]
    """Called a few times a second while git fetches; an exception from it ends the fetch."""
    mirrors: SourceMirrors = field(default_factory=SourceMirrors)
    _found: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False)
    """The addresses of each repository that was asked for, by its path in the source."""

    def find(self, path: str, commit: str, url: str) -> GitRepository:
        """The repository with ``commit``, fetched if it is missing; used by write_archive.

        Raises NetworkError naming every address that was tried and why it failed.
        """
        repository = GitRepository(folder=self.folder)
        if not self.folder.exists():
            kind = "sha256" if len(commit) == _SHA256_DIGITS else "sha1"
            self.folder.mkdir(parents=True)
            self._git("init", "--quiet", "--bare", f"--object-format={kind}", ".")
        problems = []
        self._found[path] = self._addresses(path, url)
        for address in self.mirrors.addresses(self._found[path]):
            problem = self._fetch(repository, address, commit, path)
            if problem is None:
                return repository
            problems.append(f"  {shown_address(address)}: {problem}")
        subject = f"commit {commit}" + (f" of the submodule {path}" if path else "")
        raise NetworkError(f"{subject} cannot be fetched:\n" + "\n".join(problems))

    def _addresses(self, path: str, url: str) -> tuple[str, ...]:
        """The source's own addresses, or those of a submodule, which may be relative to the repository that names it.

        Raises IntegrityError for a submodule on this machine that a repository elsewhere names, as git refuses it.
        """
        if not path or not url:
            return self.urls
        above = max((known for known in self._found if not known or path.startswith(f"{known}/")), key=len, default="")
        bases = self._found.get(above, self.urls)
        if url.startswith(("./", "../")):
            return tuple(submodule_address(base, url) for base in bases)
        if _is_local(url) and not all(map(_is_local, bases)):
            message = f"the submodule {path} is named as {shown_address(url)}, a repository on this machine"
            hint = "nothing of it was read; tell those who keep the repository, or set submodules: false in the recipe"
            raise IntegrityError(message, hint=hint)
        return (url,)

    def _fetch(self, repository: GitRepository, address: str, commit: str, path: str) -> str | None:
        remote = "source"
        self._git("remote", "remove", remote, check=False)
        self._git("remote", "add", "--", remote, address)
        words = ["--quiet", "--no-tags", "--no-write-fetch-head", "--recurse-submodules=no", "--depth=1"]
        if self.excludes:
            self._git("config", f"remote.{remote}.promisor", "true")
            self._git("config", f"remote.{remote}.partialclonefilter", "blob:none")
            words.append("--filter=blob:none")
        with git_environment_for(address) as environ:
            result = self._run(["fetch", *words, remote, commit], environ)
            if result.returncode == 0 and self.excludes:
                result = self._fetch_contents(repository, remote, commit, path, environ)
        return None if result.returncode == 0 else text_without_credentials(" ".join(result.tail().split()))

    def _fetch_contents(
        self, repository: GitRepository, remote: str, commit: str, path: str, environ: Mapping[str, str]
    ) -> CommandResult:
        """Fetch the contents of all files that are not excluded."""
        is_excluded = exclusion(self.excludes)
        prefix = f"{path}/" if path else ""
        contents = {
            entry.object
            for entry in repository.entries(commit)
            if entry.mode != SUBMODULE_MODE and not is_excluded(prefix + entry.path)
        }
        words = [
            "-c", "fetch.negotiationAlgorithm=noop", "fetch", "--quiet", "--no-tags", "--no-write-fetch-head",
            "--recurse-submodules=no", "--filter=blob:none", "--stdin", remote,
        ]  # fmt: skip
        return self._fetch_with_input(words, sorted(contents), environ)

    def _fetch_with_input(
        self, words: Sequence[str], lines: Sequence[str], environ: Mapping[str, str]
    ) -> CommandResult:
        with tempfile.TemporaryFile() as input_file:
            input_file.write("".join(f"{line}\n" for line in lines).encode())
            input_file.seek(0)
            return self._run(words, environ, stdin=input_file.fileno())

    def _run(
        self, words: Sequence[str], environ: Mapping[str, str], *, stdin: int = subprocess.DEVNULL
    ) -> CommandResult:
        """Run a fetch that ends with this process, on any exception from ``poll``, and if almost nothing arrives."""
        slow = _SlowFetch(self.folder)

        def poll() -> None:
            self.poll()
            slow.check()

        result = watch_command(["git", *words], cwd=self.folder, env=environ, poll=poll, stdin=stdin)
        if os.strerror(errno.ENOSPC) in result.stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.folder))
        return result

    def _git(self, *words: str, check: bool = True) -> CommandResult:
        return run_command(["git", *words], cwd=self.folder, env=git_environment(), check=check)


def exclusion(globs: Sequence[str]) -> Callable[[str], bool]:
    """A predicate for excluded paths: ``*`` also matches ``/``, and a folder's name excludes everything below it."""
    patterns = [pattern for glob in globs for pattern in (glob, f"{glob.rstrip('/')}/*")]
    expression = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns)) if patterns else None
    return lambda path: expression is not None and expression.match(path) is not None


def _is_local(address: str) -> bool:
    """Whether git takes an address for a path of this machine: not HOST:PATH, nor another protocol's."""
    return scheme_of(address) == "file" or ("://" not in address and ":" not in address.partition("/")[0])


def submodule_address(base: str, relative: str) -> str:
    """The address of a submodule that .gitmodules gives as ``./...`` or ``../...``, of a repository at ``base``.

    Each ``../`` takes the last part of the path away, as git does with all kinds of addresses, but not the host.

    >>> submodule_address("git://host/group/top.git", "../sub.git"), submodule_address("me@host:top.git", "../sub.git")
    ('git://host/group/sub.git', 'me@host:sub.git')
    """
    if "://" in base:
        scheme, _, rest = base.partition("://")
        host, _, path = rest.partition("/")
        start = f"{scheme}://{host}/"
    else:
        host, colon, path = ("", "", base) if _is_local(base) else base.partition(":")
        start = host + colon + ("/" if path.startswith("/") else "")
    parts = path.strip("/").split("/")
    while relative.startswith(("./", "../")):
        step, _, relative = relative.partition("/")
        if step == "..":
            parts = parts[:-1]
    return start + "/".join([*parts, relative])


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeEntry:
    """A file, link or submodule of a commit: its path, its mode in octal and its object's name."""

    path: str
    mode: str
    object: str

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file, by the modes of today or by one of git's first ones (100664)."""
        return stat.S_ISREG(int(self.mode, 8))

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(int(self.mode, 8))

    @property
    def is_folder(self) -> bool:
        """Whether it is another tree."""
        return stat.S_ISDIR(int(self.mode, 8))

    @property
    def is_program(self) -> bool:
        """Whether it is a file that its owner may run."""
        return self.is_file and int(self.mode, 8) & stat.S_IXUSR != 0


def read_tree(content: bytes, *, hash_bytes: int) -> Iterator[TreeEntry]:
    """The entries of a tree object, as they stand in it. Raises ValueError for bytes that are none."""
    at = 0
    while at < len(content):
        end = content.find(b"\0", at)
        mode, blank, name = content[at:end].partition(b" ")
        below = content[end + 1 : end + 1 + hash_bytes]
        if end < 0 or not blank or not re.fullmatch(rb"[0-7]{5,6}", mode) or len(below) != hash_bytes:
            raise ValueError
        yield TreeEntry(path=os.fsdecode(name), mode=mode.decode(), object=below.hex())
        at = end + 1 + hash_bytes


def fault_of(entry: TreeEntry) -> str | None:
    """Why git makes no file of an entry of this name in its tree (``path`` is the name alone), None if it does."""
    name = entry.path
    if not name:
        return "has no name"
    if name in {".", ".."}:
        return f"has the name {name!r}, which leads out of its folder"
    if "/" in name:
        return "has a slash in its name"
    spellings = {_folded(part) for part in name.split("\\")}
    if spellings & _OWN:
        return "has a name that some systems take for '.git', git's own folder"
    if entry.is_link and spellings & _MODULES:
        return "is a link with the name of the file '.gitmodules'"
    return None


def _folded(name: str) -> str:
    """A name as the file systems of Windows and macOS compare it with git's own names, which are ASCII."""
    return _AFTER_NAME.sub("", _IGNORED_BY_HFS.sub("", name)).lower()


def clash_in(paths: Iterable[str]) -> tuple[str, str] | None:
    """Two paths that are one on a file system that does not tell case, None if there are none."""
    seen: dict[str, str] = {}
    for path in sorted(paths):
        for end in [index for index, letter in enumerate(path) if letter == "/"] + [len(path)]:
            part = path[:end]
            if (other := seen.setdefault(part.casefold(), part)) != part:
                return other, part
    return None
