# SPDX-License-Identifier: BSD-3-Clause
"""``env image``: an environment as one SquashFS image, mounted, unpacked, and refused where it is damaged."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from channel_tools.environments import activated_environment
from channel_tools.environments.images import mount_problem, mounted_command, read_image, unpack_image
from channel_tools.system.errors import CommandError, DiskFullError, IntegrityError, UsageError
from channel_tools.system.settings import CACHE_VARIABLE, MKSQUASHFS_VARIABLE, UNSQUASHFS_VARIABLE
from tests.support.command_line import run_tool
from tests.support.processes import TEST_TIMEOUT_S, wait_for
from tests.support.programs import in_namespaces, program
from tests.unit.environments.conftest import make_channel
from tests.unit.environments.toychannel import ToyChannel

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def programs() -> dict[str, str]:
    return {MKSQUASHFS_VARIABLE: program("mksquashfs"), UNSQUASHFS_VARIABLE: program("unsquashfs")}


@pytest.fixture
def channel(tmp_path: Path) -> ToyChannel:
    return make_channel(tmp_path / "channel")


def tool(
    tmp_path: Path, *words: object, code: int = 0, environ: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    arguments = [word if isinstance(word, Path) else str(word) for word in words]
    done = run_tool(*arguments, cwd=tmp_path, environ={CACHE_VARIABLE: str(tmp_path / "cache"), **environ})
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture
def image(tmp_path: Path, channel: ToyChannel, programs: dict[str, str]) -> Path:
    tool(tmp_path, "env", "create", tmp_path / "env", "tool", "-c", channel.root)
    (tmp_path / "at").mkdir()
    words = ("env", "image", tmp_path / "env", "-o", tmp_path / "env.squashfs", "--at", tmp_path / "at")
    said = tool(tmp_path, *words, environ=programs).stdout
    sha256 = hashlib.sha256((tmp_path / "env.squashfs").read_bytes()).hexdigest()
    assert said.endswith(f"sha256 {sha256}; mount it at {tmp_path / 'at'}\n")
    assert (tmp_path / "env.squashfs.sha256").read_text() == f"{sha256}  env.squashfs\n"
    return tmp_path / "env.squashfs"


def content(image: Path, name: str, programs: dict[str, str]) -> str:
    command = [programs[UNSQUASHFS_VARIABLE], "-cat", str(image), name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_same_packages_give_the_same_bytes_wherever_they_were(
    tmp_path: Path, channel: ToyChannel, image: Path, programs: dict[str, str]
) -> None:
    other = tmp_path / "another, longer folder"
    tool(tmp_path, "env", "create", other, "tool", "library", "-c", channel.root)
    tool(tmp_path, "env", "create", other, "tool", "-c", channel.root, "--replace", "--yes")
    words = ("-o", tmp_path / "again.squashfs", "--at", tmp_path / "at")
    tool(tmp_path, "env", "image", other, *words, environ=programs)
    assert (tmp_path / "again.squashfs").read_bytes() == image.read_bytes()
    tool(tmp_path, "env", "image", other, *words, "--force", environ={**programs, "SOURCE_DATE_EPOCH": "1000000000"})
    assert (tmp_path / "again.squashfs").read_bytes() != image.read_bytes()


def test_what_is_known_of_the_packages_is_inside(tmp_path: Path, image: Path, programs: dict[str, str]) -> None:
    lock = content(image, "share/channel_tools/image/conda-lock.yml", programs)
    assert "library-2.0-0.conda" in lock
    licenses = json.loads(content(image, "share/channel_tools/image/licenses.json", programs))
    assert [row["package"] for row in licenses["packages"]] == ["library 2.0", "tool 1.0"]
    assert json.loads(content(image, "share/channel_tools/image/sbom.cdx.json", programs))["bomFormat"] == "CycloneDX"
    script = content(image, "bin/tool", programs)
    assert script == f"#!/bin/sh\necho {tmp_path / 'at'}/share\n"
    (record,) = [
        row
        for row in json.loads(content(image, "conda-meta/tool-1.0-0.json", programs))["paths_data"]["paths"]
        if row["_path"] == "bin/tool"
    ]
    assert record["sha256_in_prefix"] == hashlib.sha256(script.encode()).hexdigest()


def test_it_is_mounted_for_a_command_and_gone_with_it(
    tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(program('mount')).parent}:{os.environ['PATH']}")
    at = tmp_path / "at"
    if problem := mount_problem(image, str(at)):
        pytest.skip(f"this user can mount no image here: {problem}")
    done = subprocess.run(
        mounted_command(image, str(at), [str(at / "bin/tool")]), capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{at}/share\n"
    assert list(at.iterdir()) == []


AS_ANOTHER_USER = """
"$1" -t tmpfs -o mode=755 none "$2" && mknod -m 666 "$2/fuse" c 10 229 && "$1" --bind "$2/fuse" /dev/fuse
shift 2
exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
"""
"""With a /dev/fuse that all may open, as machines have it where FUSE is meant to be used."""
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can read."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:  # pytest's own is its user's alone
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "at").mkdir()
        (folder / "dev").mkdir()
        yield folder


def running(word: str) -> list[int]:
    """The processes, but for this one, whose command line has the word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if word.encode() in words and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found


@pytest.mark.slow
def test_a_user_who_is_not_root_mounts_it_by_squashfuse_and_a_kill_leaves_nothing(
    tmp_path: Path, channel: ToyChannel, programs: dict[str, str], open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    if not Path("/dev/fuse").exists():
        pytest.skip("no /dev/fuse: squashfuse needs it")
    squashfuse = Path(program("squashfuse"))
    shutil.copytree(squashfuse.parents[2] / "loaded", open_folder / "lib")  # the user's cache may be closed to others
    shutil.copy(squashfuse, open_folder)
    path = f"{open_folder}:{SYSTEM_PATH}"
    at, image = open_folder / "at", open_folder / "env.squashfs"
    tool(tmp_path, "env", "create", tmp_path / "env", "tool", "-c", channel.root)
    tool(tmp_path, "env", "image", tmp_path / "env", "-o", image, "--at", at, environ=programs)
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    words = mounted_command(image, str(at), ["sh", "-c", f"{at}/bin/tool; grep -c fuse.squashfuse /proc/mounts; cat"])
    places = (program("mount"), str(open_folder / "dev"))
    command = ["/usr/bin/unshare", "--mount", "sh", "-euc", AS_ANOTHER_USER, "sh", *places, *words]
    variables = {"PATH": path, "LD_LIBRARY_PATH": str(open_folder / "lib")}
    with subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{at}/share\n".encode()
        assert process.stdout.readline() == b"1\n"
        daemons = [pid for pid in running(str(image)) if pid != process.pid]
        assert daemons
        process.send_signal(signal.SIGKILL)
    wait_for(lambda: not running(str(image)))
    assert list(at.iterdir()) == []


@pytest.mark.slow
def test_a_mount_that_a_killed_program_left_is_one_error(
    tmp_path: Path, image: Path, programs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = tmp_path / "at"
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("a mount of squashfuse in this namespace needs root and /dev/fuse")
    monkeypatch.setenv("PATH", f"{Path(program('mount')).parent}:{os.environ['PATH']}")
    with subprocess.Popen([program("squashfuse"), "-f", image, at]) as daemon:
        try:
            wait_for(lambda: (at / "conda-meta").exists() or daemon.poll() is not None)
            daemon.kill()
            daemon.wait()
            words = ("launch", "--image", image, "script.py")
            done = tool(tmp_path, *words, code=CommandError.exit_code, environ=programs)
        finally:
            subprocess.run(["umount", "--lazy", at], check=True)
    assert f"cannot be mounted at {at}: Transport endpoint is not connected: a mount is left there" in done.stderr
    assert done.stderr.count("error: ") == 1
    assert not mount_problem(image, str(at))


def test_what_cannot_be_mounted_does_not_run_in_what_is_there(
    tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("mount", "squashfuse"):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\necho {name} says no >&2; exit 1\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "at" / "conda-meta").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    problem = mount_problem(image, str(tmp_path / "at"))
    assert problem == "neither mount (mount says no) nor squashfuse (squashfuse says no)"


def test_unpacked_elsewhere_it_works_there_and_is_unpacked_once(
    tmp_path: Path, image: Path, programs: dict[str, str]
) -> None:
    scratch = tmp_path / "a scratch"
    scratch.mkdir()
    prefix = unpack_image(image, scratch, {**os.environ, **programs})
    said = subprocess.run([prefix / "bin/tool"], capture_output=True, text=True, check=True).stdout
    assert said == f"{prefix}/share\n"
    (prefix / "own").touch()
    assert unpack_image(image, scratch, {**os.environ, **programs}) == prefix
    assert (prefix / "own").exists()
    (prefix / ".channel_tools-unpacked").unlink()  # as after a kill
    unpack_image(image, scratch, {**os.environ, **programs})
    assert not (prefix / "own").exists()


def test_at_another_place_it_is_an_error(tmp_path: Path, image: Path, programs: dict[str, str]) -> None:
    prefix = tmp_path / "elsewhere"
    subprocess.run([programs[UNSQUASHFS_VARIABLE], "-quiet", "-dest", prefix, image], capture_output=True, check=True)
    with pytest.raises(UsageError, match=f"is an image that was made for {tmp_path / 'at'}"):
        activated_environment(prefix, environ=os.environ)
    script = f'CONDA_PREFIX={prefix}; . "$CONDA_PREFIX"/etc/conda/activate.d/channel_tools-image.sh'
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr.count(str(tmp_path / "at"))) == (1, 1)


def test_what_is_no_whole_image_is_an_error(tmp_path: Path, image: Path, programs: dict[str, str]) -> None:
    environ = {**os.environ, **programs}
    described = read_image(image, environ)
    assert described.at == str(tmp_path / "at")
    whole = image.read_bytes()
    (tmp_path / "cut.squashfs").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(IntegrityError, match="cut short"):
        read_image(tmp_path / "cut.squashfs", environ)
    image.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(IntegrityError, match=r"not the bytes that env\.squashfs\.sha256 has"):
        read_image(image, environ)
    (tmp_path / "text.squashfs").write_text("text")
    for name, words in (("text.squashfs", "not a SquashFS image"), ("absent.squashfs", "No such file")):
        with pytest.raises(UsageError, match=words):
            read_image(tmp_path / name, environ)


def test_an_image_of_another_machine_is_an_error(
    tmp_path: Path, image: Path, programs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del tmp_path
    monkeypatch.setattr("channel_tools.environments.images.current_platform", lambda: "linux-aarch64")
    with pytest.raises(UsageError, match="packages are for linux-64, but this machine is linux-aarch64"):
        read_image(image, {**os.environ, **programs})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("env", "-o", "env.img"), "not the name of an image"),
        (("env", "-o", "env.squashfs"), "exists; nothing was written"),
        (("env", "-o", "new.squashfs", "--at", "relative"), "--at relative: not an absolute path"),
        (("env", "-o", "new.squashfs", "--at", "/a:b"), "an environment cannot work at a path"),
        (("absent", "-o", "new.squashfs"), "not an environment"),
        (("-o", "new.squashfs"), "neither an environment nor --variant"),
        (("env", "--variant", "udp", "-o", "new.squashfs"), "both say what is in the image"),
    ],
)
def test_what_makes_no_sense_is_an_error(
    tmp_path: Path, image: Path, programs: dict[str, str], words: tuple[str, ...], message: str
) -> None:
    del image
    done = tool(tmp_path, "env", "image", *words, code=UsageError.exit_code, environ=programs)
    assert message in done.stderr
    assert not (tmp_path / "new.squashfs").exists()


def test_without_its_program_or_room_nothing_is_written(tmp_path: Path, image: Path, programs: dict[str, str]) -> None:
    del image
    words = ("env", "image", tmp_path / "env", "-o", tmp_path / "new.squashfs")
    missing = {**programs, MKSQUASHFS_VARIABLE: "/nowhere/mksquashfs"}
    refused = tool(tmp_path, *words, code=CommandError.exit_code, environ=missing)
    assert "/nowhere/mksquashfs: not found" in refused.stderr
    full = tmp_path / "full"
    full.write_text("#!/bin/sh\necho 'Write failed because No space left on device' >&2\nexit 1\n")
    full.chmod(0o755)
    done = tool(tmp_path, *words, code=DiskFullError.exit_code, environ={MKSQUASHFS_VARIABLE: str(full)})
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new.squashfs").exists()


FULL = """
mount -t tmpfs -o size=60k none "$1"
shift
exec "$@"
"""


def on_a_full_disk(folder: Path, *words: str | Path, cwd: Path, environ: Mapping[str, str]) -> str:
    """What the command, which has to find the disk full, says: ``folder`` is a file system of 60 kB."""
    path = f"{Path(program('mount')).parent}:{os.environ['PATH']}"
    command = [*in_namespaces("mount"), "sh", "-euc", FULL, "sh", str(folder), "channel_tools", *map(str, words)]
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, CACHE_VARIABLE: str(cwd / "cache"), **environ, "PATH": path},
        capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("error: ")) == (DiskFullError.exit_code, 1), done.stderr
    return done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("full", ["file", "temporary", "scratch"])
def test_a_disk_that_fills_up_is_one_error_and_nothing_stays(
    tmp_path: Path, image: Path, programs: dict[str, str], full: str
) -> None:
    folder = tmp_path / "full"
    folder.mkdir()
    words: tuple[str | Path, ...] = ("env", "image", tmp_path / "env", "-o", tmp_path / "new.squashfs")
    environ = programs
    if full == "file":
        words = (*words[:-1], folder / "new.squashfs")
    elif full == "temporary":
        environ = {**programs, "TMPDIR": str(folder)}
    else:
        shutil.rmtree(tmp_path / "at")
        words = ("launch", "--image", image, "--local-scratch", folder, "script.py")
    said = on_a_full_disk(folder, *words, cwd=tmp_path, environ=environ)
    assert re.search(rf"error: .*{folder}", said), said
    assert not (tmp_path / "new.squashfs").exists()


def test_what_is_exported_for_a_paper_gives_the_same_packages_again(tmp_path: Path, channel: ToyChannel) -> None:
    tool(tmp_path, "env", "create", tmp_path / "env", "tool", "-c", channel.root)
    channel.add("library", version="3.0")
    (tmp_path / "report.json").write_text("{}")
    said = tool(tmp_path, "export", "paper", tmp_path / "env", "-o", tmp_path / "paper", "--report", "report.json")
    paper = tmp_path / "paper"
    names = ["README.md", "conda-lock.yml", "environment.yml", "explicit.txt", "licenses.json", "sbom.cdx.json"]
    assert said.stdout == f"{paper}: wrote: {', '.join(names)}, validation-report.json, SHA256SUMS\n"
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=paper, check=True)
    before = {path.name: path.read_bytes() for path in paper.iterdir()}
    tool(tmp_path, "export", "paper", tmp_path / "env", "-o", tmp_path / "paper", "--report", "report.json")
    assert {path.name: path.read_bytes() for path in paper.iterdir()} == before
    tool(
        tmp_path,
        "env",
        "create",
        tmp_path / "again",
        "--lock",
        paper / "conda-lock.yml",
        environ={CACHE_VARIABLE: str(tmp_path / "new")},
    )
    made, was = (
        sorted(path.name for path in (tmp_path / env / "conda-meta").glob("*.json")) for env in ("again", "env")
    )
    assert made == was
    words = ("export", "paper", tmp_path / "env", "-o", paper, "--report", "absent")
    refused = tool(tmp_path, *words, code=UsageError.exit_code)
    assert "absent: cannot be read" in refused.stderr
