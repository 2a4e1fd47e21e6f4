# SPDX-License-Identifier: BSD-3-Clause
"""Environments handed over: as an image with all that is known of them, or as a folder for a paper.

Both have the lock, the licences and the bill of materials of what is installed.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from channel_tools.environments import check_archive, environment_channels, installed_lock
from channel_tools.environments.images import (
    SUFFIX,
    history_text,
    make_image,
    mount_problem,
    mounted_command,
    read_image,
    unpack_image,
)
from channel_tools.environments.package_cache import cached_name
from channel_tools.environments.state import read_state
from channel_tools.pins.files import CONDA_LOCK, pin_files, write_pin_files
from channel_tools.pins.virtual import machine_virtual_packages
from channel_tools.provenance.components import Inventory
from channel_tools.provenance.licenses import license_row
from channel_tools.provenance.verify import fetch_attestations
from channel_tools.ranks.hosts import hosts_of_the_job, hosts_of_this_job
from channel_tools.requests.environment import EnvironmentRequest
from channel_tools.system.counting import counted
from channel_tools.system.errors import CommandError, NetworkError, UsageError, VerificationError
from channel_tools.system.files import absolute_path, sha256_of_file, write_text_atomically
from channel_tools.system.remote import run_on_hosts
from channel_tools.system.settings import UNSQUASHFS_VARIABLE
from channel_tools.system.work_folder import temporary_folder
from channel_tools.validate.local_scratch import local_scratch_of
from channel_tools.workflow.environment import install
from channel_tools.workflow.inventory import component_of, make_document

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from channel_tools.pins import Lock
    from channel_tools.ranks.hosts import RankHosts
    from channel_tools.requests.environment import ImageRequest, PaperRequest
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Settings

_OF_SCHEDULERS = ("SLURM", "PBS_")
_UNPACK = (
    "import os, sys; from pathlib import Path; from channel_tools.environments.images import unpack_image; "
    "unpack_image(*map(Path, sys.argv[1:]), os.environ)"
)
"""What another node runs, as the same user with the same program."""
_UNPACK_LIMIT_S = 1800.0
_FIRST = datetime(2000, 1, 1, tzinfo=UTC)
_MS = 1000
_HOW = """\
# How to make this environment again

{count} packages for {platform}, which {lock} names with their hashes.

    channel_tools env create PREFIX --lock {lock}

where the channels can be reached that the lock names ({channels}), else with `-c` and the folder or address of a copy,
or of a bundle that was imported. Without channel_tools, conda, mamba and micromamba take `explicit.txt`:

    conda create -p PREFIX --file explicit.txt

`environment.yml` has the versions and builds without hashes, `sbom.cdx.json` the bill of materials, `licenses.json`
what may be passed on{report}. `sha256sum -c SHA256SUMS` checks the files.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """An image that was made."""

    file: Path
    at: Path
    sha256: str
    size_bytes: int


def make_environment_image(
    settings: Settings | None, request: ImageRequest, *, environ: Mapping[str, str], progress: Progress
) -> Image:
    """Make an image of an environment, or of a stack, which needs ``settings``. Raises as make_image and install do."""
    check_archive(request.file, replace=request.force, suffixes=(SUFFIX,), kind="an image")
    if request.prefix is not None:
        return _image_of(request.prefix, request, environ, progress)
    with temporary_folder() as folder:
        prefix = folder / "environment"
        wanted = EnvironmentRequest(prefix=prefix, install=request.install)
        install(settings, wanted, environ=environ, progress=progress)
        return _image_of(prefix, request, environ, progress)


def _image_of(prefix: Path, request: ImageRequest, environ: Mapping[str, str], progress: Progress) -> Image:
    # the bytes say nothing of where the environment was
    lock = replace(installed_lock(prefix, machine_virtual_packages()), stack="environment")
    (platform,) = lock.platforms
    epoch = _epoch(lock, environ)
    packages = [f"{package.channel}/{package.ref.key}" for package in platform.packages]
    with progress.task(f"image {request.file.name}", total=None):
        size_bytes = make_image(
            prefix,
            request.file,
            at=request.at,
            platform=platform.platform,
            history=history_text(sorted(map(_history_line, packages)), lock.specs, epoch=epoch),
            documents={
                **{name: text.encode() for name, text in _documents(lock, epoch).items()},
                **_license_texts(prefix),
                **({} if request.without_attestations else _attestations(prefix, environ, progress)),
            },
            epoch=epoch,
            environ=environ,
        )
    return Image(file=request.file, at=request.at, sha256=sha256_of_file(request.file), size_bytes=size_bytes)


def _license_texts(prefix: Path) -> dict[str, bytes]:
    """The texts of the packages' licences, as they have them in info/licenses, by package."""
    texts = {}
    for record in read_state(absolute_path(prefix)).records:
        folder = Path(record.extracted_package_dir or "") / "info" / "licenses"
        for path in sorted(folder.rglob("*")) if record.extracted_package_dir else ():
            if path.is_file():
                texts[f"licenses/{cached_name(record)}/{path.relative_to(folder)}"] = path.read_bytes()
    return texts


def _attestations(prefix: Path, environ: Mapping[str, str], progress: Progress) -> dict[str, bytes]:
    """The attestations that the channels listed when the packages were installed. Raises as fetch_attestations."""
    records = read_state(absolute_path(prefix)).records
    try:
        found = fetch_attestations(records, environment_channels(prefix), environ)
    except (NetworkError, VerificationError) as err:
        hint = "--without-attestations leaves them out; env update takes the packages that the channel has now"
        raise type(err)(err.message, hint=hint) from None
    if missing := len(records) - len(found):
        progress.note(f"image: the channels list no attestations of {missing} of {counted(len(records), 'package')}")
    return {f"attestations/{name}": content for name, content in sorted(found.items())}


def _history_line(address: str) -> str:
    channel, subdir, file_name = address.rsplit("/", 2)
    return f"{channel}/{subdir}::{file_name.removesuffix('.conda').removesuffix('.tar.bz2')}"


def _epoch(lock: Lock, environ: Mapping[str, str]) -> int:
    """SOURCE_DATE_EPOCH, else the time of the newest package. Raises UsageError for one that is no number."""
    named = environ.get("SOURCE_DATE_EPOCH", "")
    if named:
        if not named.isdecimal() or int(named) >= 2**32:
            raise UsageError(f"SOURCE_DATE_EPOCH={named}: expected seconds since 1970", hint="or unset it")
        return int(named)
    times = (package.timestamp_ms for platform in lock.platforms for package in platform.packages)
    return max((round(time / _MS) for time in times if time is not None), default=round(_FIRST.timestamp()))


def _documents(lock: Lock, epoch: int) -> dict[str, str]:
    """What is known of the packages of an environment, as file names and contents."""
    (platform,) = lock.platforms
    components = tuple(
        sorted((component_of(package, []) for package in platform.packages), key=lambda component: component.name)
    )
    inventory = Inventory(name=lock.stack, platform=platform.platform, components=components)
    rows = [asdict(license_row(component)) for component in components]
    licenses = json.dumps({"schema": 1, "packages": rows}, indent=2) + "\n"
    files = pin_files(lock, ["environment", "explicit"])
    made = datetime.fromtimestamp(epoch, tz=UTC)
    return {**files, "licenses.json": licenses, "sbom.cdx.json": make_document(inventory, created_at=made)}


def export_paper(request: PaperRequest, *, environ: Mapping[str, str]) -> dict[str, str]:
    """Write the folder of what is known of an environment; returns its files.

    Raises as installed_lock and make_document, and UsageError for a report that cannot be read.
    """
    lock = installed_lock(request.prefix, machine_virtual_packages())
    files = _documents(lock, _epoch(lock, environ))
    if request.report is not None:
        try:
            files["validation-report.json"] = request.report.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as err:
            raise UsageError(f"{request.report}: cannot be read: {err}", hint="name a report of validate") from None
    (platform,) = lock.platforms
    files["README.md"] = _HOW.format(
        count=len(platform.packages),
        platform=platform.platform,
        lock=CONDA_LOCK,
        channels=", ".join(lock.channels),
        report=", and `validation-report.json` is what validate found" if request.report is not None else "",
    )
    write_pin_files(request.folder, files)
    sums = [f"{sha256_of_file(request.folder / name)}  {name}\n" for name in sorted(files)]
    write_text_atomically(request.folder / "SHA256SUMS", "".join(sums))
    return files


def run_in_image(
    file: Path,
    words_at: Callable[[str], Sequence[str]],
    *,
    local_scratch: str | None,
    ranks: int | None = None,
    environ: Mapping[str, str],
    progress: Progress,
) -> NoReturn:
    """Become this program with the words for the prefix of an image: mounted, else unpacked in the scratch.

    The mount is in a namespace of this process, and gone with it; only what this process starts itself sees it, so that
    the program is not told of the scheduler's job that it runs in. With ``ranks``, they run on all nodes of that job;
    where these are several, the image is unpacked on each of them. Raises as read_image, unpack_image and
    hosts_of_this_job, and CommandError for an image that cannot be mounted, without a scratch.
    """
    file = absolute_path(file)
    description = read_image(file, environ)
    progress.note(f"image: {file}, sha256 {sha256_of_file(file)}")
    scratch = None if local_scratch is None else local_scratch_of(local_scratch, environ)
    hosts = _hosts_of(ranks, environ)
    if hosts is not None and scratch is None:
        message = f"{file}: can be mounted on this node alone, but the job has {', '.join(hosts.names)}"
        hint = "give --local-scratch FOLDER, on each node's own disk, to unpack it there, or ask for one node"
        raise UsageError(message, hint=hint)
    variables = dict(environ)
    start = [sys.executable, "-P", "-m", "channel_tools"]
    problem = "the job has several nodes" if hosts is not None else mount_problem(file, description.at)
    if not problem:
        command = mounted_command(file, description.at, [*start, *words_at(description.at)])
        variables = {name: value for name, value in environ.items() if not name.startswith(_OF_SCHEDULERS)}
    elif scratch is not None:
        progress.note(f"image: cannot be mounted ({problem}); unpacking it into {scratch}")
        if hosts is not None:
            _unpack_on_others(file, scratch, hosts, environ)
        command = [*start, *words_at(str(unpack_image(file, scratch, environ)))]
    else:
        message = f"{file}: cannot be mounted at {description.at}: {problem}"
        hint = (
            "give --local-scratch FOLDER, on the node's own disk, or an image that env image made --at a folder here; "
            f"where the site has it mounted: --prefix {description.at}"
        )
        raise CommandError(message, hint=hint)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(command[0], command, variables)  # noqa: S606 - the same program, without a shell


def _hosts_of(ranks: int | None, environ: Mapping[str, str]) -> RankHosts | None:
    """The hosts of ranks in a job of several nodes; None in one of one node, and outside a job."""
    hosts = () if ranks is None else hosts_of_the_job(ranks, environ=environ)
    return hosts_of_this_job(len(hosts), max(host.ranks for host in hosts), environ) if len(hosts) > 1 else None


def _unpack_on_others(file: Path, scratch: Path, hosts: RankHosts, environ: Mapping[str, str]) -> None:
    """Unpack an image on all hosts but the first. Raises CommandError naming each on which this failed."""
    # ssh takes no variables along
    finding = [f"{name}={environ[name]}" for name in ("PATH", UNSQUASHFS_VARIABLE) if name in environ]
    script = shlex.join(["env", *finding, sys.executable, "-P", "-c", _UNPACK, str(file), str(scratch)])
    commands = {name: hosts.shell_command(name, script) for name in hosts.names[1:]}
    answers = run_on_hosts(commands, env=hosts.variables, limit_s=_UNPACK_LIMIT_S)
    if failures := [f"{name}: {answer.error}" for name, answer in answers.items() if answer.error]:
        message = f"{file}: could not be unpacked into {scratch} on {'; '.join(failures)}"
        raise CommandError(message, hint="name a folder that every node has, with enough space")
