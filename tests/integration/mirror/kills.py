# SPDX-License-Identifier: BSD-3-Clause
"""Bundles that are made and imported by processes that are killed, or on disks that fill up.

``python -m tests.integration.mirror.kills WHAT ARGUMENTS`` prints one JSON value and leaves through os._exit.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from channel_tools.channel import open_channel
from channel_tools.mirror.format import BundleRejectedError
from channel_tools.mirror.importing import importer as receive
from channel_tools.mirror.importing.site import import_state
from channel_tools.system.errors import DiskFullError, UsageError
from tests.integration.publish.kills import findings_of
from tests.support.readers import reader_faults
from tests.unit.mirror.bundles import add_toys, exporting_site, foreign_channel, import_to, listed, toy_channel, verify

_CHANGES = frozenset({"open", "os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"})


def run_until(action: Callable[[], object], *, stop_at: float) -> tuple[bool, int, float]:
    """Run ``action`` in a fork; kill it at its ``stop_at``-th change of a file, or after so many seconds.

    Whether it came to that, and how many changes and seconds there were.
    """
    reading, writing = os.pipe()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _act(action, stop_at if isinstance(stop_at, int) else sys.maxsize, writing)
    os.close(writing)
    if isinstance(stop_at, float):
        time.sleep(stop_at)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with os.fdopen(reading, "rb") as stream:
        told = stream.read()
    if status not in {0, -signal.SIGKILL}:
        raise RuntimeError(f"the import ended with {status} instead of being killed")
    return status != 0, int(told or 0), time.monotonic() - started


def _act(action: Callable[[], object], stop_at: int, writing: int) -> None:
    count = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if event in _CHANGES and not (event == "open" and not _writes(arguments)):
            count += 1
            if count == stop_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    status = 1
    try:
        action()
        os.write(writing, str(count).encode())
        status = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(status)


def _writes(arguments: tuple[object, ...]) -> bool:
    flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
    return bool(flags & (os.O_WRONLY | os.O_RDWR))


def kill_imports(root: Path, rounds: int, seed: int) -> dict[str, object]:
    """Import bundle 2 where bundle 1 is, killed at random moments; then again. What was wrong, and how often."""
    os.fsync = lambda fd: None  # noqa: ARG005 - a killed process loses nothing that it wrote; only a power cut would
    site = exporting_site(root, toy_channel(root), foreign_channel(root / "conda-forge", ["python"]))
    site.bundle(root / "first.tar")
    import_to(root / "first.tar", root / "base", site.fingerprint)
    add_toys(open_channel(root / "channel"), ["more"])
    add_toys(open_channel(root / "channel"), ["toy"], version="2.0")
    foreign_channel(root / "conda-forge", ["numpy"])
    site.bundle(root / "second.tar", plan=site.plan())
    shutil.copytree(root / "base", root / "trial", symlinks=True)
    _, steps, seconds = run_until(lambda: import_to(root / "second.tar", root / "trial"), stop_at=sys.maxsize)
    done = {path: listed(root / "trial" / "channels" / path) for path in ("channel", "conda-forge")}
    randomly = random.Random(seed)  # noqa: S311 - moments, no secrets
    faults: list[str] = []
    killed = 0
    for number in range(rounds):
        by_step = number % 2 == 0
        stop_at = randomly.randint(1, steps) if by_step else randomly.uniform(0, seconds)
        faults += [f"round {number}, {stop_at}: {fault}" for fault in _round(root, stop_at, done)]
        killed += 1
    return {"rounds": killed, "steps": steps, "seconds": seconds, "faults": faults}


def _round(root: Path, stop_at: float, done: dict[str, list[str]]) -> list[str]:
    destination = root / "destination"
    shutil.rmtree(destination, ignore_errors=True)
    shutil.copytree(root / "base", destination, symlinks=True)
    run_until(lambda: import_to(root / "second.tar", destination), stop_at=stop_at)
    faults = _faults(destination)
    import_to(root / "second.tar", destination)
    faults += _faults(destination)
    faults += [f"repaired: {finding}" for finding in findings_of(destination / "channels" / "channel")]
    for name, packages in done.items():
        if listed(destination / "channels" / name) != packages:
            faults.append(f"{name} lists {listed(destination / 'channels' / name)}")
    if left := [str(path) for path in destination.rglob(".tmp-*")] + [
        str(path) for path in destination.rglob("*.part")
    ]:
        faults.append(f"left {left}")
    if import_state(destination).incoming.exists():
        faults.append("left incoming files")
    with contextlib.suppress(BundleRejectedError):
        import_to(root / "first.tar", destination)
        faults.append("an older bundle was taken in")
    return faults


def kill_creates(root: Path, rounds: int, seed: int) -> dict[str, object]:
    """Make a bundle, killed at random moments; then again. What was wrong afterwards."""
    os.fsync = lambda fd: None  # noqa: ARG005 - as in kill_imports
    site = exporting_site(root, toy_channel(root, ["toy", "more"], ["zlib", "ssl"]))
    _, steps, _ = run_until(lambda: site.bundle(root / "trial"), stop_at=sys.maxsize)
    randomly = random.Random(seed)  # noqa: S311 - as there
    faults: list[str] = []
    for number in range(rounds):
        bundle = root / f"{number}.tar" if number % 2 else root / str(number)
        stop_at = randomly.randint(1, steps)
        killed, _, _ = run_until(lambda bundle=bundle: site.bundle(bundle), stop_at=stop_at)  # type: ignore[misc]
        if killed:
            if bundle.exists():
                with contextlib.suppress(UsageError):  # killed after the last rename: it is there, and complete
                    site.bundle(bundle)
            else:
                site.bundle(bundle)
        verify(bundle, site.fingerprint)
        if left := [path.name for path in root.iterdir() if path.name.startswith(f".{bundle.name}.unfinished")]:
            faults.append(f"round {number}, {stop_at}: left {left}")
    return {"rounds": rounds, "steps": steps, "faults": faults}


def fill_disk(root: Path, disk: Path) -> dict[str, object]:
    """Import on a disk (a small tmpfs) with ever less room: it is said, nothing breaks, the next run completes it."""
    site = exporting_site(root, toy_channel(root))
    site.bundle(root / "first")
    add_toys(open_channel(root / "channel"), [f"more{number}" for number in range(20)])
    site.bundle(root / "second")
    outcomes: list[str] = []
    faults: list[str] = []
    refusals = 0
    for room in (None, *range(400_000, 0, -25_000)):
        destination = disk / "destination"
        shutil.rmtree(destination, ignore_errors=True)
        import_to(root / "first", destination, site.fingerprint)
        free = shutil.disk_usage(disk).free
        with (disk / "filler").open("wb") as stream:
            stream.write(b"x" * (0 if room is None else max(0, free - room)))
        try:
            import_to(root / "second", destination)
            outcomes.append("done")
        except DiskFullError as err:
            refusals += 1
            outcomes.append("before" if "nothing was written" in str(err) else "midway")
        faults += [f"{room}: {fault}" for fault in reader_faults(destination / "channels" / "channel")]
        (disk / "filler").unlink()
        import_to(root / "second", destination)
        faults += [f"{room}: {finding}" for finding in findings_of(destination / "channels" / "channel")]
    return {"outcomes": sorted(set(outcomes)), "faults": faults, "refusals": refusals}


def _faults(destination: Path) -> list[str]:
    """What readers would trip over now."""
    return [
        f"{name}: {fault}"
        for name in ("channel", "conda-forge")
        for fault in reader_faults(destination / "channels" / name)
    ]


def main(what: str, *words: str) -> object:
    if what == "disk-full":
        return fill_disk(Path(words[0]), Path(words[1]))
    if what == "disk-full-unasked":  # as if there had been room when it was asked for
        vars(receive)["check_space"] = lambda folder, needed_bytes: None  # noqa: ARG005
        return fill_disk(Path(words[0]), Path(words[1]))
    kill = {"imports": kill_imports, "creates": kill_creates}[what]
    return kill(Path(words[0]), int(words[1]), int(words[2]))


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])), flush=True)  # noqa: T201
    os._exit(0)
