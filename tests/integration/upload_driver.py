# SPDX-License-Identifier: BSD-3-Clause
"""Uploads a package by rattler-build's own client, in a process that its runtime may crash.

``python -m tests.integration.upload_driver quetz|artifactory ADDRESS CHANNEL PACKAGE`` with the token in the variable
TOKEN.
"""

from __future__ import annotations

import os
import sys

import rattler_build

if __name__ == "__main__":
    kind, address, channel, package = sys.argv[1:]
    code = 0
    try:
        if kind == "quetz":
            rattler_build.upload_package_to_quetz([package], address, channel, api_key=os.environ["TOKEN"])
        else:
            rattler_build.upload_package_to_artifactory([package], address, channel, token=os.environ["TOKEN"])
    except Exception as err:  # noqa: BLE001 - its words are what the test reads
        sys.stderr.write(f"{err}\n")
        code = 1
    sys.stderr.flush()
    os._exit(code)
