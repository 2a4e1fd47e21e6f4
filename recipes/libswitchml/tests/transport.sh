#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What each transport can do on any machine: dummy reduces, the others say what they lack.
set -euo pipefail

unset SWITCHML_CONTROLLER SWITCHML_CONFIG

# refused TEXT COMMAND...: the command fails with a message that has the text
refused() {
  local text="$1" output
  shift
  if output=$("$@" 2>&1); then
    echo "succeeded without what it needs: $*" >&2
    exit 1
  fi
  if [[ "${output}" != *"${text}"* ]]; then
    echo "expected '${text}' of: $*" >&2
    echo "${output}" >&2
    exit 1
  fi
}

bench=(switchml-bench --rank 0 --workers 1 --numel 100003 --iterations 3)
case "${TRANSPORT}" in
  dummy)
    for dtype in float32 int32; do
      "${bench[@]}" --dtype "${dtype}" | tee report.json
      grep -q '"wrong": 0,' report.json
      SWITCHML_NUM_THREADS=2 SWITCHML_PACKET_NUMEL=64 "${bench[@]}" --dtype "${dtype}" --in-place | grep -q '"wrong": 0,'
    done
    printf '[backend.dummy]\nbandwidth = fast\n' >bad.cfg
    SWITCHML_CONFIG=bad.cfg refused "bad.cfg" "${bench[@]}"
    # nothing of the folder that it happens to run in
    cp bad.cfg switchml.cfg
    cp bad.cfg "switchml-$(uname -n).cfg"
    "${bench[@]}" | grep -q '"wrong": 0,'
    # the prefix's own file, wherever the prefix is
    mkdir -p "${PREFIX}/etc"
    printf '[general]\nbackend = other\n' >"${PREFIX}/etc/switchml.cfg"
    refused "etc/switchml.cfg: general.backend" "${bench[@]}"
    rm "${PREFIX}/etc/switchml.cfg"
    ;;
  udp)
    refused SWITCHML_CONTROLLER "${bench[@]}"
    ;;
  dpdk*)
    refused SWITCHML_CONTROLLER "${bench[@]}"
    export SWITCHML_CONTROLLER=127.0.0.1:1 SWITCHML_DPDK_EAL_OPTIONS="--no-huge --no-pci -m 64"
    refused "DPDK found no port" "${bench[@]}"
    ;;
  rdma)
    refused SWITCHML_CONTROLLER "${bench[@]}"
    if [[ -z "$(ls /sys/class/infiniband 2>/dev/null)" ]]; then
      SWITCHML_CONTROLLER=127.0.0.1:1 refused "no RDMA device" "${bench[@]}"
    fi
    ;;
  *)
    echo "no test for transport '${TRANSPORT}'" >&2
    exit 1
    ;;
esac
