# SPDX-License-Identifier: BSD-3-Clause
"""Publishing to and promoting in a bucket, killed with SIGKILL at many moments; a program, since it forks.

``python -m tests.integration.publish.s3_kills ROUNDS SEED`` prints one JSON value. Each round brings in a set of three
packages, or promotes one, killed before a change or right after the server's answer to it. The channel left behind must
be sound for readers, who see all of the set or nothing of it, and the same command must complete it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from channel_tools.publish.bucket.target import BucketTarget
from channel_tools.publish.model import PackageSet
from channel_tools.publish.s3.client import S3Store
from channel_tools.system.progress import SilentProgress
from tests.support.packages import make_conda
from tests.support.s3 import ACCESS_KEY, SECRET_KEY, Bucket, Server, StrictS3, publish, s3_client
from tests.unit.publish.sets import make_set

_CHANGING = frozenset({"PUT", "POST", "DELETE"})


def run_killed(bucket: Bucket, action: Callable[[BucketTarget], object], *, at: int, after: bool) -> int:
    """Run ``action`` in a fork that kills itself at its ``at``-th changing request; how many of them it began."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            target = bucket.target()
            _kill_at(target, at, after=after, report=writing)
            action(target)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        begun = len(stream.read())
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in {0, -signal.SIGKILL}:
        raise RuntimeError(f"the writer ended with {status} instead of being killed")
    return begun if status else 0


def _kill_at(target: BucketTarget, at: int, *, after: bool, report: int) -> None:
    count, mutex = 0, threading.Lock()

    def sending(request: object, **_: object) -> None:
        nonlocal count
        if getattr(request, "method", "") in _CHANGING:
            with mutex:
                count += 1
                os.write(report, b".")
                if count == at and not after:
                    os.kill(os.getpid(), signal.SIGKILL)

    def received(**_: object) -> None:
        if after and count >= at:
            os.kill(os.getpid(), signal.SIGKILL)

    assert isinstance(target.store, S3Store)
    events = target.store._client.meta.events
    events.register("before-send.s3", sending)
    events.register("response-received.s3", received)


def kill_often(bucket: Bucket, folder: Path, *, rounds: int, seed: int) -> dict[str, object]:
    """Publish and promote in turn, killed somewhere each time; what was wrong, and how often something was killed."""
    chance = random.Random(seed)  # noqa: S311 - which moments are taken is no secret
    publish(bucket.target(), _set(folder, "first"), label="testing")
    moments, faults, kills = 24, list[str](), 0
    for number in range(rounds):
        packages = _set(folder, f"toy{number}")
        action = _promote(packages) if number % 2 else _publish(packages)
        if number % 2:
            publish(bucket.target(), packages, label="testing")
        at = chance.randrange(1, moments + 1)
        begun = run_killed(bucket, action, at=at, after=chance.random() < 0.5)
        moments = max(moments, begun)
        kills += begun > 0
        faults += [f"round {number}, killed at {at}: {fault}" for fault in _faults(bucket, packages)]
        action(bucket.target())
        wanted = {file.file_name for file in packages.files}
        if not wanted <= set(bucket.listed()):
            faults.append(f"round {number}, killed at {at}: the next run does not publish {sorted(wanted)}")
    return {"faults": faults, "kills": kills, "orphans": _orphans(bucket)}


def _faults(bucket: Bucket, packages: PackageSet) -> list[str]:
    """What a reader would trip over; what is listed in linux-64 needs what is listed in noarch."""
    try:
        views = bucket.views()
    except (AssertionError, bucket.server.client.exceptions.NoSuchKey) as err:
        return [] if bucket.keys("chan/linux-64/repodata.json") == [] else [f"broken for readers: {err}"]
    linux = {file.file_name for file in packages.files if file.subdir != "noarch"}
    noarch = {file.file_name for file in packages.files} - linux
    seen = [view & linux for view in views[:3]]
    faults = [f"a reader sees {sorted(part)} of the set" for part in seen if part not in (set(), linux)]
    if any(seen) and not all(noarch <= view for view in views[3:]):
        faults.append("a reader sees packages without what they need")
    return faults


def _orphans(bucket: Bucket) -> list[str]:
    """Packages in the bucket that no index names, once all is completed."""
    named = bucket.listed()
    files = [key.rpartition("/")[2] for key in bucket.all_keys("chan/") if "/label/" not in key]
    return sorted(name for name in files if name.endswith(".conda") and name not in named)


def _set(folder: Path, name: str) -> PackageSet:
    needs: dict[str, object] = {"depends": [f"{name}-any"]}
    return make_set(
        [
            make_conda(folder, name, index=needs),
            make_conda(folder, f"{name}-x", index=needs),
            make_conda(folder, f"{name}-any", subdir="noarch", index={"noarch": "generic"}),
        ]
    )


def _publish(packages: PackageSet) -> Callable[[BucketTarget], object]:
    return lambda target: publish(target, packages)


def _promote(packages: PackageSet) -> Callable[[BucketTarget], object]:
    keys = tuple(str(file.key) for file in packages.files)
    return lambda target: target.promote(keys, source="testing", label="main", progress=SilentProgress())


def main(arguments: list[str]) -> object:
    rounds, seed = map(int, arguments)
    os.environ |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    command = [sys.executable, "-m", "tests.support.s3"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        endpoint = process.stdout.readline().strip()
        server = Server(endpoint=endpoint, app=StrictS3(), client=s3_client(endpoint))
        outcome = kill_often(server.make_bucket(), Path(folder), rounds=rounds, seed=seed)
        process.communicate()
    return outcome


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])), flush=True)  # noqa: T201 - its result, read by the test
    os._exit(0)
