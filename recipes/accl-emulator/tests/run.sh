#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two ranks get ready, a command runs between them, its exit code comes back, and nothing is left running.
set -euo pipefail

[[ "$(accl-emulator --ranks 2 --port 23500 -- sh -c 'echo "${ACCL_EMULATOR_RANKS} ${ACCL_EMULATOR_PORT}"')" =~ ^2\ [0-9]+$ ]]
code=0
accl-emulator --ranks 1 --port 23500 -- sh -c 'exit 7' || code=$?
[[ "${code}" == 7 ]]
code=0
accl-emulator --ranks 0 2>/dev/null || code=$?
[[ "${code}" == 2 ]]
if pgrep -f "${PREFIX}/bin/cclo_emu"; then
  echo "an emulator outlived its command" >&2
  exit 1
fi
