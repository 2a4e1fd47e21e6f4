# SPDX-License-Identifier: BSD-3-Clause
"""A logger plugin of Snakemake: writes what it says of jobs to ``events.jsonl``, a JSON value a line.

Snakemake finds the package by its name on the module path, and loads it for ``--logger channel-tools``; see the
documentation of snakemake-interface-logger-plugins. Its Python may not have channel_tools, so nothing of that is used.
``channel_tools.build.cluster`` reads the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

if TYPE_CHECKING:
    from logging import LogRecord


_FILE = "events.jsonl"  # in the workflow's folder


class LogHandler(LogHandlerBase):
    """Writes a line when a job starts or is submitted, and when it fails or is rejected."""

    def emit(self, record: LogRecord) -> None:
        """Write the record's line, if it is about a job."""
        attributes = vars(record)
        values: dict[str, Any] | None = None
        if attributes.get("event") == LogEvent.JOB_INFO:
            asked = {name: attributes["resources"].get(name) for name in ("mem_mb", "runtime")}
            stem = attributes["wildcards"].get("stem")
            values = {"number": attributes["jobid"], "stem": stem, "threads": attributes["threads"], **asked}
        elif attributes.get("event") == LogEvent.JOB_ERROR:
            message, logs = attributes["rule_msg"] or "", [str(log) for log in attributes["log"]]
            submitted = "external_jobid" in attributes["aux"]
            values = {"number": attributes["jobid"], "message": message, "submitted": submitted, "logs": logs}
        if values is not None:
            with Path(self.baseFilename).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"rule": attributes["rule_name"], **values}, default=str) + "\n")

    @property
    def baseFilename(self) -> str:  # noqa: N802 - Snakemake's name for the file of such a plugin
        """The file, for Snakemake to name at its end."""
        return str(Path(_FILE).absolute())

    @property
    def writes_to_stream(self) -> bool:
        """No: Snakemake's own lines stay on stderr."""
        return False

    @property
    def writes_to_file(self) -> bool:
        """Yes: ``baseFilename``."""
        return True

    @property
    def has_filter(self) -> bool:
        """Yes, none: also what ``--quiet`` leaves out on the terminal is wanted."""
        return True

    @property
    def has_formatter(self) -> bool:
        """Yes: ``emit`` writes JSON."""
        return True

    @property
    def needs_rulegraph(self) -> bool:
        """No."""
        return False
