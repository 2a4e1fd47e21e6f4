#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What the plugin offers and needs, by its file: it can be loaded only where ROCm's own libraries are.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "${work}"' EXIT

for library in librccl-net.so librccl-net-ofi.so; do
  "${OBJDUMP}" -p "${PREFIX}/lib/${library}" > "${work}/headers"
  grep -q 'NEEDED *libfabric.so.1$' "${work}/headers"
  grep -q "NEEDED *libamdhip64.so.${ROCM}\$" "${work}/headers" || { cat "${work}/headers"; exit 1; }
  # not with `!`, which leaves set -e without effect
  if grep -E 'R(UN)?PATH' "${work}/headers" | grep -vE 'R(UN)?PATH +[$]ORIGIN(/\.?)?$'; then
    echo "${library}: the rpath above leaves the package's own folder"
    exit 1
  fi
  if grep -E 'NEEDED *lib(cuda|nccl)' "${work}/headers"; then
    echo "${library}: needs a library of CUDA"
    exit 1
  fi
  offered=$("${NM}" -D --defined-only "${PREFIX}/lib/${library}" | sed -n 's/.* ncclNetPlugin_v//p' | sort -n | tr '\n' ' ')
  [[ ${offered} == "6 7 8 9 10 11 12 " ]] || { echo "${library}: net ABIs ${offered}"; exit 1; }
done
