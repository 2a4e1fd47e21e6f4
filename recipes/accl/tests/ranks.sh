#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs PROGRAM RANK RANKS PORT once per rank of the emulator around it; fails when one of them does.
set -euo pipefail
pids=()
for ((rank = 0; rank < ACCL_EMULATOR_RANKS; rank++)); do
  "$1" "${rank}" "${ACCL_EMULATOR_RANKS}" "${ACCL_EMULATOR_PORT}" &
  pids+=($!)
done
failed=0
for pid in "${pids[@]}"; do
  wait "${pid}" || failed=1
done
exit "${failed}"
