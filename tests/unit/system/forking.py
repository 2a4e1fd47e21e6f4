# SPDX-License-Identifier: BSD-3-Clause
"""A server for the tests of ForkServer: each child runs its argument as Python, whose ``status`` is its exit status."""

from __future__ import annotations

from channel_tools.system.fork_server import serve_forks


def run(code: str, server: int) -> int:
    """Run the code; ``server`` is a name in it."""
    names: dict[str, object] = {"server": server, "status": 0}
    exec(code, names)  # noqa: S102 - the code is the test
    return int(str(names["status"]))


if __name__ == "__main__":
    serve_forks(run)
