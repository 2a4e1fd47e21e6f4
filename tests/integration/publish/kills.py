# SPDX-License-Identifier: BSD-3-Clause
"""Publishers that are killed, that meet each other, and that run out of disk, beside readers that never rest.

``python -m tests.integration.publish.kills WHAT ARGUMENTS`` prints one JSON value and leaves through os._exit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from channel_tools.channel import open_channel, verify_channel
from channel_tools.publish.folder import FolderTarget
from channel_tools.publish.model import PackageSet
from channel_tools.system.errors import DiskFullError
from channel_tools.system.progress import SilentProgress
from tests.support.packages import make_conda, own
from tests.support.programs import program
from tests.support.readers import reader_faults, run_killed
from tests.unit.publish.sets import make_set

SUBDIRS = ("linux-64", "noarch")
OLD_KEYS = {
    f"{subdir}/{name}-1.0-h1_0.conda"
    for subdir, name in (
        ("linux-64", "python"), ("noarch", "sympy"), ("linux-64", "torch"), ("linux-64", "libtoy"), ("noarch", "toy"),
    )
}  # fmt: skip
NEW_KEYS = {key.replace("h1_0", "h2_0") for key in OLD_KEYS}


def stack(folder: Path, build: str) -> PackageSet:
    """A foundation and own packages of two subdirs that need each other in turn; a later build hides an earlier one."""

    def package(subdir: str, name: str, *depends: str, mine: bool = False) -> Path:
        extra: dict[str, object] = {"depends": [f"{need} * {build}" for need in depends]}
        if subdir == "noarch":
            extra["noarch"] = "generic"
        about = own(f"{name}-{build}") if mine else {}
        return make_conda(
            folder, name, build=build, subdir=subdir, index=extra, about=about, variant={"v": "1"} if mine else None
        )

    foundation = [
        package("linux-64", "python"),
        package("noarch", "sympy", "python"),
        package("linux-64", "torch", "sympy", "python"),
    ]
    mine = [package("linux-64", "libtoy", "torch", mine=True), package("noarch", "toy", "libtoy", "sympy", mine=True)]
    return make_set(mine, foundation)


def rows_of(channel: Path, subdir: str) -> dict[str, dict[str, object]]:
    content = (channel / subdir / "repodata.json").read_bytes()
    rows: dict[str, dict[str, object]] = json.loads(content)["packages.conda"]
    return {f"{subdir}/{name}": row for name, row in rows.items()}


def half_listed(channel: Path) -> list[str]:
    """Faults of what is listed now: a subdir with neither set whole."""
    faults = []
    for subdir in SUBDIRS:
        rows = rows_of(channel, subdir).keys()
        if not any(rows >= {key for key in keys if key.startswith(f"{subdir}/")} for keys in (OLD_KEYS, NEW_KEYS)):
            faults.append(f"neither set is whole in {subdir}: {sorted(rows)}")
    return faults


def read_while(channel: Path, until_s: float) -> tuple[int, list[str]]:
    """Read without pause until the time has come: how often, and what was wrong."""
    reads, faults = 0, []
    while time.monotonic() < until_s:
        faults += reader_faults(channel)
        faults += half_listed(channel)
        reads += 1
    return reads, faults


def forked(action: Callable[[], None]) -> int:
    """Run the action in a process of its own; its process id."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    return child


def done(action: Callable[[], None]) -> None:
    """Run the action to its end in a process of its own: a solver's threads here would block those forked later."""
    assert os.waitpid(forked(action), 0)[1] == 0


def findings_of(channel: Path) -> list[str]:
    """What verifying the channel finds, in a process of its own: it solves, as done() says."""
    reader, writer = os.pipe()

    def verify() -> None:
        os.write(writer, json.dumps([finding.message for finding in verify_channel(open_channel(channel))]).encode())

    child = forked(verify)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    assert os.waitpid(child, 0)[1] == 0
    findings: list[str] = json.loads(text)
    return findings


def prepare(root: Path) -> tuple[FolderTarget, PackageSet]:
    """A target with the old set under main and testing, and the new set to be published."""
    os.fsync = lambda fd: None  # noqa: ARG005 - a killed process loses nothing that it wrote; only a power cut would
    base = FolderTarget(root=root / "base")
    old = stack(root / "old", "h1_0")
    for label in ("main", "testing"):
        base.publish(base.plan(old, label=label), progress=SilentProgress())
    return base, stack(root / "new", "h2_0")


def publish_new(target: FolderTarget, packages: PackageSet) -> None:
    target.publish(target.plan(packages, label="main"), progress=SilentProgress())


def promote_new(target: FolderTarget) -> None:
    target.promote(tuple(sorted(NEW_KEYS)), source="testing", label="main", progress=SilentProgress())


def finished_faults(target: FolderTarget) -> list[str]:
    """What is wrong once the publisher has come to its end."""
    faults = findings_of(target.root)
    listed = {key for subdir in SUBDIRS for key in rows_of(target.root, subdir)}
    if listed != NEW_KEYS:
        faults.append(f"lists {sorted(listed)}")
    faults += [f"left {left}" for left in target.root.rglob(".tmp-*")]
    return faults + [f"{key} is lost" for key in sorted(OLD_KEYS | NEW_KEYS) if not (target.root / key).is_file()]


def actions(base: FolderTarget, new: PackageSet) -> dict[str, tuple[FolderTarget, Callable[[FolderTarget], None]]]:
    """What is killed: publishing, and promoting what was published to testing before."""
    staged = FolderTarget(root=base.root.with_name("staged"))
    shutil.copytree(base.root, staged.root, copy_function=os.link)

    def stage() -> None:
        staged.publish(staged.plan(new, label="testing"), progress=SilentProgress())

    done(stage)
    return {"publish": (base, lambda target: publish_new(target, new)), "promote": (staged, promote_new)}


def kill_at_every_step(root: Path) -> dict[str, object]:
    """Kill publishing and promoting before their 1st, 2nd, 3rd ... change of a folder."""
    faults: list[str] = []
    steps = 0
    for name, (base, action) in actions(*prepare(root)).items():
        step, killed = 0, True
        while killed:
            step += 1
            target = FolderTarget(root=root / "target")
            shutil.copytree(base.root, target.root, copy_function=os.link)
            killed = run_killed(lambda target=target, action=action: action(target), at=step)  # type: ignore[misc]
            found = [*reader_faults(target.root), *half_listed(target.root)]
            if killed:
                done(lambda target=target, action=action: action(target))  # type: ignore[misc]
            faults += [f"{name}, step {step}: {fault}" for fault in [*found, *finished_faults(target)]]
            shutil.rmtree(target.root)
        steps += step - 1
    return {"steps": steps, "faults": faults}


def kill_at_random(root: Path, rounds: int, seed: int) -> dict[str, object]:
    """Kill publishing and promoting at random moments of the time they take, while a reader reads."""
    chance = random.Random(seed)  # noqa: S311 - moments, no secrets
    prepared = list(actions(*prepare(root)).items())
    faults: list[str] = []
    reads = killed = 0
    for number in range(rounds):
        name, (base, action) = prepared[number % len(prepared)]
        target = FolderTarget(root=root / f"target-{number}")
        shutil.copytree(base.root, target.root, copy_function=os.link)
        if number < len(prepared):
            started = time.monotonic()
            done(lambda target=target, action=action: action(target))  # type: ignore[misc]
            duration_s = time.monotonic() - started
        else:
            child = forked(lambda target=target, action=action: action(target))  # type: ignore[misc]
            seen, found = read_while(target.root, time.monotonic() + chance.uniform(0, 1.2 * duration_s))
            os.kill(child, signal.SIGKILL)
            was_killed = os.waitpid(child, 0)[1] == signal.SIGKILL
            duration_s *= 1.02 if was_killed else 0.9  # the pace of the machine changes with what else it does
            killed += was_killed
            reads += seen
            found += [*reader_faults(target.root), *half_listed(target.root)]
            done(lambda target=target, action=action: action(target))  # type: ignore[misc]
            faults += [f"{name}, round {number}: {fault}" for fault in [*found, *finished_faults(target)]]
        shutil.rmtree(target.root)
    return {"rounds": rounds, "killed": killed, "reads": reads, "faults": faults}


def publish_together(root: Path, sets: int) -> dict[str, object]:
    """Two publishers at once, each with sets of its own under both labels, while this process reads main."""
    target = FolderTarget(root=root / "target")
    made = [
        make_set(
            [make_conda(root / f"made-{who}", f"p{who}-{number}", about=own(f"d{who}{number}"), files={"x": b"x"})]
        )
        for number in range(sets)
        for who in range(2)
    ]

    def run(mine: list[PackageSet]) -> None:
        for packages in mine:
            for label in ("testing", "main"):
                target.publish(target.plan(packages, label=label), progress=SilentProgress())

    publishers = [forked(lambda mine=made[who::2]: run(mine)) for who in range(2)]  # type: ignore[misc]
    reads, faults, waiting = 0, [], set(publishers)
    statuses = []
    while waiting:
        for process in list(waiting):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                waiting.discard(process)
                statuses.append(status)
        if (target.root / "noarch" / "repodata.json").is_file():
            faults += reader_faults(target.root)
            reads += 1
    channels = [target.root, target.root / "label" / "testing"]
    faults += [finding for path in channels for finding in findings_of(path)]
    return {
        "statuses": statuses,
        "reads": reads,
        "faults": faults,
        "listed": [len(rows_of(path, "linux-64")) for path in channels],
    }


def fill_disk(root: Path, sizes: list[int]) -> dict[str, object]:
    """Publish into file systems that are too small, of several sizes, then make room and publish again."""
    payload = hashlib.shake_256(b"payload").digest(60_000)
    first = make_set([make_conda(root / "made", "first")])
    more = make_set(
        [make_conda(root / "made", f"more{number}", files={"x": payload + bytes([number])}) for number in range(5)]
    )
    faults: list[str] = []
    full = 0
    for size in sizes:
        with tmpfs(root / "disk", size) as disk:
            target = FolderTarget(root=disk / "target")
            target.publish(target.plan(first, label="main"), progress=SilentProgress())
            try:
                target.publish(target.plan(more, label="main"), progress=SilentProgress())
            except DiskFullError:
                full += 1
                listed = list(rows_of(target.root, "linux-64"))
                if listed not in (
                    ["linux-64/first-1.0-0.conda"],
                    sorted(file.key for file in (*first.files, *more.files)),
                ):
                    faults.append(f"{size}: lists {listed}")
                faults += [f"{size}: {fault}" for fault in reader_faults(target.root)]
                subprocess.run([program("mount"), "-o", "remount,size=16m", str(disk)], check=True)
                target.publish(target.plan(more, label="main"), progress=SilentProgress())
            faults += [f"{size}, repaired: {item}" for item in findings_of(target.root)]
            if len(rows_of(target.root, "linux-64")) != 6:
                faults.append(f"{size}: {sorted(rows_of(target.root, 'linux-64'))}")
    return {"full": full, "faults": faults}


@contextlib.contextmanager
def tmpfs(folder: Path, size_bytes: int) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    subprocess.run([program("mount"), "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run([program("umount"), str(folder)], check=True)


def main(arguments: list[str]) -> object:
    what, root, *rest = arguments
    if what == "steps":
        return kill_at_every_step(Path(root))
    if what == "random":
        return kill_at_random(Path(root), int(rest[0]), int(rest[1]))
    if what == "together":
        return publish_together(Path(root), int(rest[0]))
    if what == "full":
        return fill_disk(Path(root), [int(size) for size in rest])
    raise ValueError(what)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])), flush=True)  # noqa: T201 - its result, read by the test
    os._exit(0)
