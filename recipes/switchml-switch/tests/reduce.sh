#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Two workers of the installed libswitchml reduce through the installed switch,
# on loopback; the switch's counters must agree that it did the sums.
set -euo pipefail

# Addresses and ports that a test of another variant at the same time does not take.
net="127.$((20 + RANDOM % 200)).$((RANDOM % 250))"
coproc SWITCH { exec switchml-switch --address "${net}.1" --port 0 --controller-port 0; }
# bash forgets both when the process ends
switch_pid=${SWITCH_PID}
exec {switch_output}<&"${SWITCH[0]}"
trap 'kill "${switch_pid}" 2>/dev/null || true' EXIT
read -r -t 20 ready <&"${switch_output}"
controller=$(sed -n 's/.*"controller": "\([^"]*\)".*/\1/p' <<<"${ready}")
export SWITCHML_CONTROLLER="${controller}"

reduce() {
  local dtype=$1 numel=$2 pids=() rank
  for rank in 0 1; do
    SWITCHML_LOCAL_ADDRESS="${net}.$((2 + rank))" switchml-bench --rank "${rank}" --workers 2 \
      --dtype "${dtype}" --numel "${numel}" --iterations 2 &
    pids+=("$!")
  done
  for rank in 0 1; do wait "${pids[rank]}"; done
}

reduce int32 1000003
reduce float32 1000003
reduce float32 1
reduce int32 0

kill "${switch_pid}"
read -r -t 20 stopped <&"${switch_output}"
wait "${switch_pid}"
echo "${stopped}"
# 3907 packets of 256 carry 1000003 values. int32 sends one packet more, which describes the job; float32 one window of
# 252 packets more, with the description in its first; a single value is in the packet with its description. Each run
# reduces twice.
expected=$((2 * (3908 + 3907 + 252 + 1 + 1)))
grep -q "\"slots_completed\": ${expected}," <<<"${stopped}"
grep -q '"sessions_opened": 4,' <<<"${stopped}"
