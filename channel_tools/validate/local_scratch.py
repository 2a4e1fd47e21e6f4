# SPDX-License-Identifier: BSD-3-Clause
"""Puts an environment on the local disk of every host of a job: installed on the first, unpacked on the others.

Every host then has the same bytes under the same path, and reads one file from the shared file system instead of the
ten thousand of an environment.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.system.errors import CommandError, UsageError
from channel_tools.system.remote import run_on_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from channel_tools.ranks.hosts import RankHosts

_LIMIT_S = 1800.0
_PREFIX = "channel_tools-"
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def local_scratch_of(text: str, environ: Mapping[str, str]) -> Path:
    """The folder that ``--local-scratch`` means in this job: a path, with ``$NAME`` and ``${NAME}`` expanded.

    Raises UsageError for a variable that is not set, and for a path that depends on the current folder.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if not environ.get(name):
            message = f"--local-scratch {text}: {name} is not set in this job"
            raise UsageError(message, hint="name the nodes' own disk as in the site's documentation, such as /local")
        return environ[name]

    folder = Path(_VARIABLE.sub(value, text))
    if not folder.is_absolute():
        raise UsageError(
            f"--local-scratch {text}: {folder} is not an absolute path", hint="give an absolute path, such as /local"
        )
    return folder


@contextlib.contextmanager
def scratch_folder(scratch: Path, hosts: RankHosts | None, *, keep: bool) -> Iterator[Path]:
    """A new folder in ``scratch`` on this host; removed on all hosts after the block, unless ``keep``.

    Raises UsageError if this host has no such folder or it is not writable.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=scratch))
    except OSError as err:
        message = f"--local-scratch {scratch}: {err.strerror} on the first node"
        raise UsageError(message, hint="name a folder that every node has, or a variable of jobs: '$TMPDIR'") from None
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
            if hosts is not None:
                _run_on_others(hosts, f"rm -rf {shlex.quote(str(folder))}")


def copy_to_hosts(prefix: Path, hosts: RankHosts, shared: Path) -> None:
    """Copy the environment at ``prefix`` to the same path on the other hosts, through the folder ``shared``.

    Raises CommandError naming each host on which this failed, with its error.
    """
    packed = shared / "environment.tar"
    with tarfile.open(packed, "w") as archive:
        archive.add(prefix, arcname=".")
    target, file = shlex.quote(str(prefix)), shlex.quote(str(packed))
    # tar's last line says only that it ends, the one before says why
    why = '{ echo "$said" | tail -n 2 | head -n 1 >&2; exit 1; }'
    failures = _run_on_others(hosts, f"mkdir -p {target} && said=$(tar -xf {file} -C {target} 2>&1) || {why}")
    packed.unlink()
    if failures:
        words = "; ".join(f"{host}: {error}" for host, error in failures.items())
        raise CommandError(
            f"the environment could not be unpacked on {words}",
            hint="name a folder with enough space, or leave out --local-scratch",
        )


def _run_on_others(hosts: RankHosts, script: str) -> dict[str, str]:
    """Run a line of shell on all hosts but the first, at the same time; the errors of those where it failed."""
    commands = {name: hosts.shell_command(name, script) for name in hosts.names[1:]}
    answers = run_on_hosts(commands, env=hosts.variables, limit_s=_LIMIT_S)
    return {name: answer.error for name, answer in answers.items() if answer.error}
