# SPDX-License-Identifier: BSD-3-Clause
"""``python -m channel_tools.build.worker SPEC.json``: builds one package, writes the result file, leaves no process.

It ends by os._exit after flushing: runtime threads of the engine crash the interpreter's exit now and then.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from channel_tools.build.model import WorkerResult, WorkerSpec
from channel_tools.build.supervise import supervise
from channel_tools.files import write_bytes_atomically


def main(spec_file: Path) -> int:
    """Build what ``spec_file`` says; returns 0 when the result file was written, whatever the result is."""
    spec = msgspec.json.decode(spec_file.read_bytes(), type=WorkerSpec)
    return supervise(lambda: _build(spec), parent_pid=spec.parent_pid)


def _build(spec: WorkerSpec) -> int:
    result = _run(spec)
    write_bytes_atomically(Path(spec.result_file), msgspec.json.encode(result))
    sys.stdout.flush()
    sys.stderr.flush()
    return 0


def _run(spec: WorkerSpec) -> WorkerResult:
    # the supervising process must not load an engine
    if spec.conda_build is not None:
        from channel_tools.build.conda_build import run_conda_build  # noqa: PLC0415

        return run_conda_build(spec, spec.conda_build)
    from channel_tools.build.engine import run_engine  # noqa: PLC0415

    return run_engine(spec)


if __name__ == "__main__":
    _status = main(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_status)
