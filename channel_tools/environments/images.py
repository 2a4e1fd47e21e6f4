# SPDX-License-Identifier: BSD-3-Clause
"""An environment as one SquashFS image, for machines whose metadata servers feel its many files.

What has the environment's path inside is written for one mount point. Its original stands beside it, so that the image
can also be unpacked anywhere, as an archive of ``packing`` can. Python's compiled files are made to be valid whatever
the time of their source is, since all files have the same one: the bytes depend on the packages alone.

A user mounts an image in a mount namespace, which ends with the job however that ends: by the kernel as root, else by
squashfuse in a user namespace.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import shlex
import shutil
import stat
import struct
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.conda.platforms import current_platform
from channel_tools.environments.activation import IMAGE_DESCRIPTION, check_environment, check_prefix_path
from channel_tools.environments.history import HISTORY
from channel_tools.environments.packing import packable
from channel_tools.system.document import decode_json
from channel_tools.system.errors import CommandError, IntegrityError, UsageError
from channel_tools.system.extras import needs_extra
from channel_tools.system.files import (
    absolute_path,
    atomic_path,
    disk_full_reported,
    new_file_mode,
    remove_tree,
    sha256_of_file,
    write_text_atomically,
)
from channel_tools.system.locks import exclusive_lock
from channel_tools.system.processes import run_command
from channel_tools.system.settings import MKSQUASHFS_VARIABLE, UNSQUASHFS_VARIABLE
from channel_tools.system.work_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from conda_pack import CondaEnv, File

SUFFIX = ".squashfs"
_FOLDER = "share/channel_tools/image"
_RELOCATABLE = f"{_FOLDER}/relocatable"
_CHECK = "etc/conda/activate.d/channel_tools-image.sh"
_COMPLETE = ".channel_tools-unpacked"
_OURS = ".channel_tools"
_MAGIC = b"hsqs"
_BYTES_USED = struct.Struct("<Q")
_BYTES_USED_AT, _SUPERBLOCK_BYTES = 40, 96
_LEVEL = "3"
"""Level 15, which is mksquashfs's own, makes files smaller by a seventh in twenty times the time."""
_PYC_HEADER = 16
_HASHED_UNCHECKED = (1).to_bytes(4, "little")
"""The flags of a compiled file that is valid by itself (PEP 552)."""
_MOUNT = """\
image=$1 at=$2
shift 2
if ! said=$(mount -t squashfs -o loop,ro,nosuid,nodev "$image" "$at" 2>&1); then
    before=$(stat -c %d "$at") log=$(mktemp)
    setpriv --pdeathsig KILL squashfuse -f -o ro "$image" "$at" >"$log" 2>&1 &
    while [ "$(stat -c %d "$at")" = "$before" ]; do
        kill -0 $! 2>/dev/null || {
            echo "neither mount ($said) nor squashfuse ($(cat "$log"))" >&2
            rm "$log"
            exit 1
        }
        sleep 0.05
    done
    rm "$log"
fi
exec "$@"
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageDescription:
    """What an image says of itself: the folder that it is to be mounted at, and the platform of its packages."""

    at: str
    platform: str


def find_squashfs_program(name: str, environ: Mapping[str, str]) -> str:
    """The path of mksquashfs or unsquashfs. Raises CommandError without it."""
    variable = {"mksquashfs": MKSQUASHFS_VARIABLE, "unsquashfs": UNSQUASHFS_VARIABLE}[name]
    named = environ.get(variable) or name
    found = shutil.which(named, path=environ.get("PATH"))
    if found is None:
        message = f"{named}: not found; it makes and reads SquashFS images"
        raise CommandError(message, hint=f"install squashfs-tools, or set {variable} to its path")
    return found


def make_image(
    prefix: Path,
    file: Path,
    *,
    at: Path,
    platform: str,
    history: str,
    documents: Mapping[str, bytes],
    epoch: int,
    environ: Mapping[str, str],
) -> int:
    """Write the environment at ``prefix`` as an image for the mount point ``at``; returns its bytes.

    ``history`` takes the place of its history, ``documents`` are further files by name, ``epoch`` is the time of all
    files. ``FILE.sha256`` is written, too. Raises UsageError for a mount point at which no environment can work, and as
    pack_environment, DiskFullError, and CommandError without mksquashfs or if it fails.
    """
    mksquashfs = find_squashfs_program("mksquashfs", environ)
    with needs_extra("pack", "an image of an environment"):
        from conda_pack import CondaPackException  # noqa: PLC0415 - of an extra

    prefix = absolute_path(prefix)
    check_environment(prefix)
    if not at.is_absolute():
        raise UsageError(f"--at {at}: not an absolute path", hint="name the folder that it will be mounted at")
    check_prefix_path(at)
    with temporary_folder() as folder:
        with disk_full_reported(folder):
            try:
                environment = packable(prefix)
                environment.files = [entry for entry in environment.files if not _is_of_here(entry.target)]
                tree = _unpacked(environment, folder / "image", at=str(at))
                environment.files = [entry for entry in environment.files if _has_prefix(entry, prefix)]
                originals = _unpacked(environment, folder / "originals", at=None)
            except CondaPackException as err:
                hint = (
                    "create the environment again with channel_tools env create, and make the image before it changes"
                )
                raise UsageError(f"{prefix}: cannot be packed: {' '.join(str(err).split())}", hint=hint) from None
            for compiled in sorted(tree.rglob("__pycache__/*.pyc")):
                _make_valid(compiled)
            shutil.copytree(originals, tree / _RELOCATABLE, symlinks=True)
            for record in sorted(tree.glob("conda-meta/*.json")):
                _correct_hashes(record, tree)
            description = asdict(ImageDescription(at=str(at), platform=platform))
            written = {f"{_FOLDER}/{name}": content for name, content in documents.items()}
            place = shlex.quote(str(at))
            words = shlex.quote(f"error: this image was made for {at}, which its files name: mount it there, not at")
            check = f'if [ "$CONDA_PREFIX" != {place} ]; then\n    echo {words} "$CONDA_PREFIX" >&2\n    return 1\nfi\n'
            texts = {HISTORY: history, IMAGE_DESCRIPTION: json.dumps(description, indent=2) + "\n", _CHECK: check}
            written |= {name: text.encode() for name, text in texts.items()}
            for name, content in written.items():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                (tree / name).unlink(missing_ok=True)  # it may be a hard link to the package cache
                (tree / name).write_bytes(content)
        with disk_full_reported(file), atomic_path(file) as temporary:
            _squash(mksquashfs, tree, temporary, epoch=epoch)
            temporary.chmod(new_file_mode())
    write_text_atomically(file.with_name(f"{file.name}.sha256"), f"{sha256_of_file(file)}  {file.name}\n")
    return file.stat().st_size


def _is_of_here(target: str) -> bool:
    """Whether a file says how the environment was made here, not what it is."""
    return Path(target).name.startswith(_OURS) or target == HISTORY


def _has_prefix(entry: File, prefix: Path) -> bool:
    """Whether a file has, or will have, the environment's path inside."""
    if entry.file_mode != "unknown":
        return entry.file_mode is not None
    source = Path(entry.source)
    return source.is_file() and not source.is_symlink() and os.fsencode(prefix) in source.read_bytes()


def _correct_hashes(record: Path, tree: Path) -> None:
    """Let a package's record have the hashes of its files as they are for the mount point."""
    document = json.loads(record.read_bytes())
    for row in document["paths_data"]["paths"]:
        path = tree / row["_path"]
        if (tree / _RELOCATABLE / row["_path"]).is_file() and not path.is_symlink():
            row["sha256_in_prefix" if row.get("prefix_placeholder") else "sha256"] = sha256_of_file(path)
            row["size_in_bytes"] = path.stat().st_size
    record.unlink()
    record.write_text(json.dumps(document, indent=1, sort_keys=True), encoding="utf-8")


def _unpacked(environment: CondaEnv, folder: Path, *, at: str | None) -> Path:
    folder.mkdir()
    # conda-pack 0.9 leaves an empty file in the folder itself
    environment.pack(output=str(folder), format="no-archive", arcroot="tree", dest_prefix=at, force=True)
    return folder / "tree"


def _make_valid(compiled: Path) -> None:
    """Make a compiled file one that Python takes without a look at its source's time."""
    source = compiled.parents[1] / f"{compiled.name.partition('.')[0]}.py"
    content = compiled.read_bytes()
    if not source.is_file() or len(content) < _PYC_HEADER:
        return
    header = content[:4] + _HASHED_UNCHECKED + importlib.util.source_hash(source.read_bytes())
    compiled.unlink()  # it may be a hard link to the package cache
    compiled.write_bytes(header + content[_PYC_HEADER:])


def _squash(mksquashfs: str, tree: Path, file: Path, *, epoch: int) -> None:
    words = ["-noappend", "-no-progress", "-comp", "zstd", "-Xcompression-level", _LEVEL, "-all-root", "-no-xattrs"]
    words += ["-mkfs-time", str(epoch), "-all-time", str(epoch)]
    # others may read what a user with a strict umask has unpacked
    words += ["-action", "chmod(u+rwX,go+rX,go-w)@!type(l)"]
    # mksquashfs takes no time from both the variable and an option
    environ = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    result = run_command([mksquashfs, str(tree), str(file), *words], check=False, env=environ)
    if result.returncode != 0:
        said = result.stdout + result.stderr
        if os.strerror(errno.ENOSPC) in said:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
        raise CommandError(f"{mksquashfs} failed: {result.tail()}", hint="it has to know zstd: version 4.4 or later")


def read_image(file: Path, environ: Mapping[str, str]) -> ImageDescription:
    """What an image says of itself.

    Raises UsageError for a file that is no image of ours, and an image for another platform; IntegrityError for one
    that is cut short, or is not what its ``.sha256`` says; CommandError without unsquashfs.
    """
    unsquashfs = find_squashfs_program("unsquashfs", environ)
    try:
        with file.open("rb") as stream:
            block = stream.read(_SUPERBLOCK_BYTES)
    except OSError as err:
        raise UsageError(f"{file}: cannot be read: {err.strerror}", hint="name an image of env image") from None
    if block[: len(_MAGIC)] != _MAGIC or len(block) < _SUPERBLOCK_BYTES:
        raise UsageError(f"{file}: not a SquashFS image", hint=f"make one: channel_tools env image -o FILE{SUFFIX}")
    (wanted,), size = _BYTES_USED.unpack_from(block, _BYTES_USED_AT), file.stat().st_size
    again = "copy it again, or make it again"
    if size < wanted:
        raise IntegrityError(f"{file}: cut short: {size} bytes, expected {wanted}", hint=again)
    stated = file.with_name(f"{file.name}.sha256")
    if stated.is_file() and stated.read_text(encoding="utf-8").split()[:1] != [sha256_of_file(file)]:
        raise IntegrityError(f"{file}: not the bytes that {stated.name} has the sha256 of", hint=again)
    result = run_command([unsquashfs, "-cat", str(file), IMAGE_DESCRIPTION], check=False)
    try:
        document = decode_json(result.stdout.encode())
        description = ImageDescription(at=str(document["at"]), platform=str(document["platform"]))
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{file}: not an image of env image: it has no {IMAGE_DESCRIPTION}") from None
    if description.platform != current_platform():
        message = f"{file}: the packages are for {description.platform}, but this machine is {current_platform()}"
        raise UsageError(message, hint="make an image on such a machine")
    return description


def mounted_command(file: Path, at: str, words: Sequence[str]) -> list[str]:
    """A command that runs ``words`` in a mount namespace of its own, in which the image is mounted at ``at``."""
    alone = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *alone, "--mount", "sh", "-euc", _MOUNT, "sh", str(absolute_path(file)), at, *words]


def mount_problem(file: Path, at: str) -> str:
    """Why the image cannot be mounted at ``at`` here; empty if it can."""
    try:
        is_folder = stat.S_ISDIR(Path(at).stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        is_folder = False
    except OSError as err:  # as of a FUSE mount whose program is gone
        return f"{err.strerror}: a mount is left there of a program that was killed (remove it: fusermount -u {at})"
    if not is_folder:
        return f"there is no folder {at} (mkdir -p {shlex.quote(at)} makes one)"
    result = run_command(mounted_command(file, at, ["test", "-d", f"{at}/conda-meta"]), check=False)
    return "" if result.returncode == 0 else " ".join(result.tail().split()) or "mount failed"


def unpack_image(file: Path, scratch: Path, environ: Mapping[str, str]) -> Path:
    """Unpack an image into a folder of its own below ``scratch``, once for all runs there; returns that prefix.

    Raises UsageError for a folder that does not exist, CommandError if it cannot be unpacked, and DiskFullError.
    """
    if not scratch.is_dir():
        raise UsageError(f"--local-scratch {scratch}: no such folder", hint="name one on each node's own disk")
    name = f"{file.name.removesuffix(SUFFIX)}-{sha256_of_file(file)[:16]}"
    prefix = absolute_path(scratch) / name
    check_prefix_path(prefix)
    with exclusive_lock(prefix.with_name(f".{name}.lock"), resource=str(prefix)), disk_full_reported(scratch):
        if (prefix / _COMPLETE).exists():
            return prefix
        if prefix.exists():  # an earlier run was interrupted
            remove_tree(prefix)
        unsquashfs = find_squashfs_program("unsquashfs", environ)
        result = run_command([unsquashfs, "-no-progress", "-dest", str(prefix), str(file)], check=False)
        if result.returncode != 0:
            remove_tree(prefix)
            if os.strerror(errno.ENOSPC) in result.stdout + result.stderr:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(prefix))
            raise CommandError(f"{file}: cannot be unpacked: {result.tail()}")
        for name_here in (IMAGE_DESCRIPTION, _CHECK):
            (prefix / name_here).unlink()
        shutil.copytree(prefix / _RELOCATABLE, prefix, symlinks=True, dirs_exist_ok=True)
        python = prefix / "bin" / "python"
        run_command([str(python) if python.exists() else "python3", str(prefix / "bin" / "conda-unpack")])
        (prefix / _COMPLETE).touch()
    return prefix


def history_text(packages: Sequence[str], specs: Sequence[str], *, epoch: int) -> str:
    """The history of an environment that was made at once, at that time."""
    made = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(epoch))
    lines = [f"==> {made} <==", "# cmd: channel_tools env image", *(f"+{package}" for package in packages)]
    return "".join(f"{line}\n" for line in [*lines, f"# update specs: {list(specs)!r}"])
