# SPDX-License-Identifier: BSD-3-Clause
"""Installs channel_tools from a bundle, on a machine that has only Python, and imports the bundle with it.

    python3 bootstrap.py --root-sha256 FINGERPRINT --to FOLDER

Needs Python 3.11 or later and no network. This script is on the same medium as the bundle: before you run it, compare
its sha256 with the one that you got from the bundle's makers through a separate channel. It has the sha256 of each
wheel, and pip installs no others. The installed program then verifies the whole bundle by the FINGERPRINT that you got
from them as well, and imports it.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path
from typing import NoReturn

Wheel = dict[str, str]
"""``requirement`` is what pip is asked for, ``file`` the name of the wheel that meets it, ``sha256`` its hash."""
WHEELS: dict[str, list[Wheel]] = {}
"""The wheels for each Python and machine (``3.12 x86_64``). ``mirror create`` fills this in."""
OLDEST_PYTHON = (3, 11)
TOOL_FOLDER = "tool"


class BootstrapError(Exception):
    """The bundle differs from the one that this script is for, or cannot be used here."""


def wheels_for_this_machine() -> list[Wheel]:
    """The wheels to install. Raises BootstrapError if there are none for this Python on this machine."""
    if not WHEELS:
        raise BootstrapError(
            "this script is not from a bundle: run the bootstrap.py of the one that you want to import"
        )
    this_machine = f"{sys.version_info.major}.{sys.version_info.minor}", os.uname().machine
    wheels = WHEELS.get(" ".join(this_machine))
    if wheels is None:
        raise BootstrapError(
            f"the bundle's wheels are for Python {', '.join(WHEELS)}; this is Python {' '.join(this_machine)}"
        )
    return wheels


def copy_wheels(bundle: Path, wheels: list[Wheel], folder: Path) -> None:
    """Copy wheels from a bundle, which is a folder or a tar file. Raises BootstrapError if one is not in it."""
    with contextlib.ExitStack() as stack:
        tar = None if bundle.is_dir() else stack.enter_context(tarfile.open(bundle, "r:"))
        for wheel in wheels:
            name = f"{TOOL_FOLDER}/{wheel['file']}"
            try:
                source = (bundle / name).open("rb") if tar is None else tar.extractfile(name)
            except (KeyError, FileNotFoundError):
                source = None
            if source is None:
                raise BootstrapError(
                    f"{name} is not in the bundle; updates leave it out: begin with a bundle of mirror create"
                )
            with source, (folder / wheel["file"]).open("wb") as copy:
                shutil.copyfileobj(source, copy)


def check_environment(environment: Path) -> None:
    """Raise BootstrapError for a folder that has anything other than a virtual environment in it."""
    if environment.exists() and not (environment / "pyvenv.cfg").is_file() and any(environment.iterdir()):
        raise BootstrapError(
            f"{environment} is not a virtual environment and not empty; give another folder with --venv"
        )


def install(wheels: list[Wheel], folder: Path, environment: Path) -> Path:
    """Make a virtual environment and install the wheels in ``folder`` into it; returns its channel_tools.

    pip, which is one of the wheels, checks the hashes of all. Its own is checked here, since it runs from its wheel.
    """
    [pip] = (wheel for wheel in wheels if wheel["requirement"].startswith("pip=="))
    with (folder / pip["file"]).open("rb") as stream:
        if hashlib.file_digest(stream, "sha256").hexdigest() != pip["sha256"]:
            raise BootstrapError(f"{TOOL_FOLDER}/{pip['file']} is not the file with sha256 {pip['sha256']}")
    requirements = folder / "requirements.txt"
    requirements.write_text("".join(f"{wheel['requirement']} --hash=sha256:{wheel['sha256']}\n" for wheel in wheels))
    venv.create(environment, with_pip=False, symlinks=True)  # a copy of conda's Python finds no libpython
    command = [str(environment / "bin" / "python"), f"{folder / pip['file']}/pip", "--isolated", "install", "--quiet"]
    command += ["--no-index", "--find-links", str(folder), "--require-hashes", "--requirement", str(requirements)]
    if subprocess.run([*command, "--no-cache-dir", "--disable-pip-version-check"], check=False).returncode:
        raise BootstrapError("pip did not install the wheels; its output is above")
    return environment / "bin" / "channel_tools"


def temporary_folder(stack: contextlib.ExitStack) -> Path:
    """A folder that is removed with the stack or, if this process is killed, by the next run of channel_tools.

    That recognises it by its name and its lock: channel_tools/system/work_folder.py.
    """
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=".channel_tools-tmp-"))
    descriptor = os.open(folder, os.O_RDONLY)
    stack.callback(os.close, descriptor)
    with contextlib.suppress(OSError):  # a file system without locks for folders
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return Path(folder)


def main(arguments: list[str]) -> NoReturn:
    """Install, then have the installed program verify and import the bundle."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root-sha256", required=True, metavar="FINGERPRINT")
    parser.add_argument("--to", required=True, metavar="FOLDER", type=Path, help="the folder for the mirror")
    parser.add_argument(
        "--bundle", type=Path, default=Path(__file__).resolve().parent, help="default: the folder of this script"
    )
    parser.add_argument("--venv", type=Path, help="where to install channel_tools; default: FOLDER/tool/venv")
    options = parser.parse_args(arguments)
    if sys.version_info < OLDEST_PYTHON:
        parser.error(f"Python 3.11 or later is needed; this is {sys.version.split()[0]}")
    environment = (options.venv or options.to / TOOL_FOLDER / "venv").absolute()
    try:
        wheels = wheels_for_this_machine()
        check_environment(environment)
        with contextlib.ExitStack() as stack:
            folder = temporary_folder(stack)
            copy_wheels(options.bundle, wheels, folder)
            tool = install(wheels, folder, environment)
    except BootstrapError as err:
        sys.exit(f"error: {options.bundle}: {err}")
    except (OSError, tarfile.TarError) as err:
        sys.exit(f"error: {options.bundle}: damaged or unreadable: {err!r}")
    sys.stderr.write(f"channel_tools is installed in {environment}\n")
    words = [str(tool), "mirror", "import", str(options.bundle), "--to", str(options.to)]
    sys.exit(subprocess.run([*words, "--root-sha256", options.root_sha256], check=False).returncode)


if __name__ == "__main__":
    main(sys.argv[1:])
