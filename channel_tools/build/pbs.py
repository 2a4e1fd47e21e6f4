# SPDX-License-Identifier: BSD-3-Clause
"""What Snakemake's plugin cluster-generic runs for PBS: ``python -m channel_tools.build.pbs submit|state ...``.

``submit NAME OPTION... SCRIPT`` submits a script in the current folder, notes the job's id there under this name, and
prints it; on failure, it prints why, since the plugin reports only standard output. ``state JOB`` prints ``running``,
``success`` or ``failed``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from channel_tools.system.errors import CommandError
from channel_tools.system.files import write_text_atomically
from channel_tools.system.harmless import harmless_message
from channel_tools.system.schedulers import PBS_JOBS, scheduler_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel_tools.system.schedulers import Scheduler


def command_of(action: Literal["submit", "state"]) -> list[str]:
    """The command, without the arguments that the plugin or its user adds."""
    return [sys.executable, "-P", "-m", "channel_tools.build.pbs", action]


def submit_job(scheduler: Scheduler, name: str, words: Sequence[str], folder: Path) -> str:
    """Submit the script that is the last of ``words``, with the options before it; returns the id.

    The file of this name in ``folder``'s PBS_JOBS gets the id, for Scheduler.queued. Raises CommandError.
    """
    *options, script = words
    job = scheduler.submit(Path(script), options)
    (folder / PBS_JOBS).mkdir(exist_ok=True)
    write_text_atomically(folder / PBS_JOBS / name, job)
    return job


def state_of(scheduler: Scheduler, job: str) -> str:
    """The plugin's word for the job's state; if its script ended, its output files say whether it succeeded.

    While the scheduler does not respond, which stderr reports, the job counts as running: otherwise the plugin would
    end all builds.
    """
    try:
        state = scheduler.state(job)
    except CommandError as err:
        sys.stderr.write(harmless_message(str(err)) + "\n")
        return "running"
    if state.phase != "ended":
        return "running"
    return "failed" if state.failure else "success"


if __name__ == "__main__":
    _action, *_words = sys.argv[1:]
    _pbs = scheduler_of("pbs", os.environ)
    try:
        _reply = (
            state_of(_pbs, _words[0]) if _action == "state" else submit_job(_pbs, _words[0], _words[1:], Path.cwd())
        )
    except CommandError as _error:
        sys.stdout.write(harmless_message(str(_error)) + "\n")
        sys.exit(_error.exit_code)
    sys.stdout.write(_reply + "\n")
