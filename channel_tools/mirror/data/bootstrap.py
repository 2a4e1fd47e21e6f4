# SPDX-License-Identifier: BSD-3-Clause
"""Installs channel_tools from a bundle, on a machine that has only Python, and imports the bundle with it.

    python3 bootstrap.py --root-sha256 FINGERPRINT --to FOLDER

Needs Python 3.11 or later and no network. FINGERPRINT is the one that you got from the bundle's makers through a
separate channel. It identifies the root keys, which identify the keys that signed the list of files, which has the
hashes of the wheels that are installed here; the installed program then verifies the whole bundle itself. This script
is on the same medium as the bundle: compare its sha256 with the one that you got from them, too.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

OLDEST_PYTHON = (3, 11)
EXTRAS = "mirror,s3,serve"
LIMIT_BYTES = 256 << 20
PRIME = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
CURVE_D = -121665 * pow(121666, PRIME - 2, PRIME) % PRIME
SQRT_M1 = pow(2, (PRIME - 1) // 4, PRIME)
Point = tuple[int, int, int, int]


class RejectedError(Exception):
    """The bundle differs from what was signed, or cannot be used here."""


def point_add(one: Point, other: Point) -> Point:
    """The sum of two points of Edwards25519 in extended coordinates (RFC 8032, 5.1.4)."""
    a = (one[1] - one[0]) * (other[1] - other[0]) % PRIME
    b = (one[1] + one[0]) * (other[1] + other[0]) % PRIME
    c = 2 * one[3] * other[3] * CURVE_D % PRIME
    d = 2 * one[2] * other[2] % PRIME
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % PRIME, g * h % PRIME, f * g % PRIME, e * h % PRIME


def point_multiply(scalar: int, point: Point) -> Point:
    """``scalar`` times the point."""
    result: Point = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = point_add(result, point)
        point = point_add(point, point)
        scalar >>= 1
    return result


def point_of(encoded: bytes) -> Point | None:
    """The point that 32 bytes encode, None if they are not a valid encoding."""
    number = int.from_bytes(encoded, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    if y >= PRIME:
        return None
    square = (y * y - 1) * pow(CURVE_D * y * y + 1, PRIME - 2, PRIME) % PRIME
    x = pow(square, (PRIME + 3) // 8, PRIME)
    if (x * x - square) % PRIME:
        x = x * SQRT_M1 % PRIME
    if (x * x - square) % PRIME or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = PRIME - x
    return x, y, 1, x * y % PRIME


def verifies(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether an Ed25519 signature is valid (RFC 8032, 5.1.7)."""
    if len(public) != 32 or len(signature) != 64:  # noqa: PLR2004 - the lengths that the standard gives
        return False
    key, commitment = point_of(public), point_of(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    base = point_of((4 * pow(5, PRIME - 2, PRIME) % PRIME).to_bytes(32, "little"))
    if key is None or commitment is None or base is None or scalar >= ORDER:
        return False
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % ORDER
    left, right = point_multiply(scalar, base), point_add(commitment, point_multiply(challenge, key))
    return (
        not (left[0] * right[2] - right[0] * left[2]) % PRIME and not (left[1] * right[2] - right[1] * left[2]) % PRIME
    )


def canonical(value: Any) -> str:  # noqa: ANN401 - any JSON
    """JSON in the canonical form that is signed."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, dict):
        return "{" + ",".join(f"{canonical(key)}:{canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value)
    raise RejectedError(f"damaged: metadata contains a {type(value).__name__}, which is not allowed in it")


class Bundle:
    """The bundle's files, in a folder or a tar file."""

    def __init__(self, path: Path, tar: tarfile.TarFile | None) -> None:
        self.path = path
        self.tar = tar
        self.members = {} if self.tar is None else {item.name: item for item in self.tar.getmembers() if item.isreg()}

    def root_names(self) -> list[str]:
        """The files of root metadata."""
        if self.tar is None:
            return sorted(f"metadata/{path.name}" for path in (self.path / "metadata").glob("*.root.json"))
        return sorted(name for name in self.members if name.startswith("metadata/") and name.endswith(".root.json"))

    def read(self, name: str) -> bytes:
        """The content of one file."""
        if self.tar is None:
            path = self.path / name
            if path.is_symlink() or not path.is_file():
                raise RejectedError(f"missing: {name} is not in the bundle")
            with path.open("rb") as stream:
                return stream.read(LIMIT_BYTES)
        stream_or_none = self.tar.extractfile(self.members[name]) if name in self.members else None
        if stream_or_none is None:
            raise RejectedError(f"missing: {name} is not in the bundle")
        return stream_or_none.read(LIMIT_BYTES)


def signed_by(root: dict[str, Any], role: str, metadata: dict[str, Any]) -> int:
    """How many of the role's keys have validly signed."""
    message = canonical(metadata["signed"]).encode()
    wanted = {keyid: root["keys"][keyid] for keyid in root["roles"][role]["keyids"]}
    right = set()
    for signature in metadata["signatures"]:
        key = wanted.get(signature["keyid"])
        if key is None or key["scheme"] != "ed25519":
            continue
        public = bytes.fromhex(key["keyval"]["public"])
        if verifies(public, bytes.fromhex(signature["sig"]), message):
            right.add(public)
    return len(right)


def check_signed(root: dict[str, Any], role: str, metadata: dict[str, Any], name: str) -> None:
    """Raise RejectedError unless as many of the role's keys signed as the root metadata requires."""
    threshold = root["roles"][role]["threshold"]
    if metadata["signed"]["_type"] != name.rpartition("/")[2].removesuffix(".json").rpartition(".")[2]:
        raise RejectedError(f"mixed: {name} has another type than its name says")
    if threshold < 1 or (count := signed_by(root, role, metadata)) < threshold:
        raise RejectedError(f"{name} has {count} of the {threshold} signatures required from trusted keys")


def check_current(metadata: dict[str, Any], name: str) -> None:
    """Raise RejectedError for expired metadata."""
    expires = datetime.fromisoformat(metadata["signed"]["expires"])
    if expires <= datetime.now(UTC):
        raise RejectedError(f"frozen: {name} expired on {expires.date()}; check this machine's clock")


def trusted_root(bundle: Bundle, root_sha256: str) -> dict[str, Any]:
    """The newest root metadata that is trusted by the fingerprint."""
    for name in bundle.root_names():
        content = bundle.read(name)
        if hashlib.sha256(content).hexdigest() == root_sha256:
            break
    else:
        raise RejectedError("wrong keys: no root metadata in the bundle has this fingerprint")
    metadata = json.loads(content)
    check_signed(metadata["signed"], "root", metadata, name)
    while (following := f"metadata/{metadata['signed']['version'] + 1}.root.json") in bundle.root_names():
        later = json.loads(bundle.read(following))
        check_signed(metadata["signed"], "root", later, following)
        check_signed(later["signed"], "root", later, following)
        if later["signed"]["version"] != metadata["signed"]["version"] + 1:
            raise RejectedError(f"mixed: {following} has another version than its name says")
        metadata, name = later, following
    check_current(metadata, name)
    root: dict[str, Any] = metadata["signed"]
    return root


def trusted_targets(bundle: Bundle, root_sha256: str) -> dict[str, Any]:
    """The signed list of files: path to length and hashes."""
    root = trusted_root(bundle, root_sha256)
    name = "metadata/timestamp.json"
    metadata = json.loads(bundle.read(name))
    check_signed(root, "timestamp", metadata, name)
    check_current(metadata, name)
    for role in ("snapshot", "targets"):
        listed = metadata["signed"]["meta"][f"{role}.json"]
        name = f"metadata/{int(listed['version'])}.{role}.json"
        content = bundle.read(name)
        if hashlib.sha256(content).hexdigest() != listed["hashes"]["sha256"]:
            raise RejectedError(f"changed: {name} differs from the signed file")
        metadata = json.loads(content)
        check_signed(root, role, metadata, name)
        check_current(metadata, name)
        if metadata["signed"]["version"] != listed["version"]:
            raise RejectedError(f"mixed: {name} has another version than its name says")
    targets: dict[str, Any] = metadata["signed"]["targets"]
    return targets


def read_target(bundle: Bundle, targets: dict[str, Any], name: str) -> bytes:
    """A file of the bundle, checked against the signed list."""
    if name not in targets:
        raise RejectedError(f"added: {name} is not in the signed list of files")
    content = bundle.read(name)
    if hashlib.sha256(content).hexdigest() != targets[name]["hashes"]["sha256"]:
        raise RejectedError(f"changed: {name} differs from the signed file")
    return content


def copy_wheels(bundle: Bundle, targets: dict[str, Any], folder: Path) -> str:
    """Copy the wheels to ``folder``; returns the version of channel_tools among them."""
    tool = json.loads(read_target(bundle, targets, "bundle.json"))["tool"]
    if tool is None:
        raise RejectedError("the bundle was made with --without-tool: install channel_tools in another way")
    here, machine = f"{sys.version_info.major}.{sys.version_info.minor}", os.uname().machine
    if here not in tool["pythons"] or machine not in tool["machines"]:
        fits = f"Python {', '.join(tool['pythons'])} on {', '.join(tool['machines'])}"
        raise RejectedError(f"the bundle's wheels are for {fits}; this is Python {here} on {machine}")
    for name in sorted(targets):
        if name.startswith("tool/") and name.endswith(".whl") and "/" not in name.removeprefix("tool/"):
            (folder / name.removeprefix("tool/")).write_bytes(read_target(bundle, targets, name))
    version: str = tool["version"]
    return version


def check_environment(environment: Path) -> None:
    """Raise RejectedError for a folder that has anything other than a virtual environment in it."""
    if environment.exists() and not (environment / "pyvenv.cfg").is_file() and any(environment.iterdir()):
        raise RejectedError(
            f"{environment} is not a virtual environment and not empty; give another folder with --venv"
        )


def install(wheels: Path, version: str, environment: Path) -> Path:
    """Make a virtual environment and install the wheels into it with the pip among them; returns its channel_tools."""
    venv.create(environment, with_pip=False)
    [pip] = wheels.glob("pip-*.whl")
    command = [str(environment / "bin" / "python"), f"{pip}/pip", "--isolated", "install", "--quiet", "--no-index"]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--find-links", str(wheels)]
    if subprocess.run([*command, f"channel-tools[{EXTRAS}]=={version}"], check=False).returncode:
        raise RejectedError("pip could not install the wheels; its output is above")
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
    """Verify, install, import."""
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
    environment = (options.venv or options.to / "tool" / "venv").absolute()
    try:
        check_environment(environment)
        with contextlib.ExitStack() as stack:
            tar = None if options.bundle.is_dir() else stack.enter_context(tarfile.open(options.bundle, "r:"))
            bundle = Bundle(options.bundle, tar)
            targets = trusted_targets(bundle, options.root_sha256.lower().replace(":", ""))
            wheels = temporary_folder(stack)
            tool = install(wheels, copy_wheels(bundle, targets, wheels), environment)
    except RejectedError as err:
        # names in a bundle that is rejected may be anybody's
        said = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(err))
        sys.exit(f"error: {options.bundle}: {said}")
    except (OSError, tarfile.TarError, KeyError, TypeError, ValueError, RecursionError) as err:
        sys.exit(f"error: {options.bundle}: damaged or unreadable: {err!r}")
    sys.stderr.write(f"channel_tools is installed in {environment}\n")
    words = [str(tool), "mirror", "import", str(options.bundle), "--to", str(options.to)]
    sys.exit(subprocess.run([*words, "--root-sha256", options.root_sha256], check=False).returncode)


if __name__ == "__main__":
    main(sys.argv[1:])
