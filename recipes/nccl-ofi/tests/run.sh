#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The plugin as NCCL loads it, and what it needs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "${work}"' EXIT

"${CC}" -std=gnu11 -Wall -Wextra "${here}/plugin.c" -ldl -Wl,--disable-new-dtags,-rpath,"${PREFIX}/lib" -o "${work}/plugin"

# exactly the net ABIs from which the range of NCCL was made
[[ $("${work}/plugin" names) == "${NET_ABIS}" ]] || { "${work}/plugin" names; exit 1; }

for library in libnccl-net.so libnccl-net-ofi.so; do
  "${OBJDUMP:-objdump}" -p "${PREFIX}/lib/${library}" > "${work}/headers"
  grep -q 'NEEDED *libfabric.so.1' "${work}/headers"
  # not with `!`, which leaves set -e without effect
  if grep -E 'R(UN)?PATH' "${work}/headers" | grep -vE 'R(UN)?PATH +[$]ORIGIN(/\.?)?$'; then
    echo "${library}: the rpath above leaves the package's own folder"
    exit 1
  fi
done
if [[ ${CUDART} == none ]]; then
  if grep 'NEEDED *libcudart' "${work}/headers"; then
    echo "libnccl-net-ofi.so: linked to the CUDA runtime, though built without it"
    exit 1
  fi
else
  # linked, or opened by this name
  grep -q "NEEDED *${CUDART}" "${work}/headers" || grep -q "libcudart.so." "${PREFIX}/lib/libnccl-net.so"
  [[ -e ${PREFIX}/lib/${CUDART} ]]
fi

# over loopback, which the plugin leaves out unless told otherwise: the test needs no network
export FI_PROVIDER=tcp OFI_NCCL_PROVIDER=tcp FI_TCP_IFACE=lo OFI_NCCL_EXCLUDE_TCP_IF=none
"${work}/plugin" init > "${work}/out" 2> "${work}/err" || { cat "${work}/err"; exit 1; }
if [[ ${IS_CLASSIC} != yes && ! -e /proc/driver/nvidia/version ]]; then
  cat "${work}/out"
  # asks CUDA before all else; without a driver it has to say so and fail, not crash
  grep -q "init [1-9]" "${work}/out" || { cat "${work}/out" "${work}/err"; exit 1; }
  grep -qi "cuda" "${work}/err" || { cat "${work}/err"; exit 1; }
  echo "skipped: transfers with this version need a GPU's driver, and this machine has none"
elif [[ ${PLATFORM} == aws && ! -r /sys/devices/virtual/dmi/id/product_name ]]; then
  # asks the firmware which instance this is
  grep -q "product_name" "${work}/err" || { cat "${work}/out" "${work}/err"; exit 1; }
  echo "skipped: transfers of the aws build need /sys/devices/virtual/dmi, and this machine shows none"
elif [[ ${IS_CLASSIC} == yes ]]; then
  # needs no GPU for host memory: real transfers over libfabric's tcp
  grep -qE "^${NET_NAME}: init 0, devices [1-9]" "${work}/out" || { cat "${work}/out" "${work}/err"; exit 1; }
  # libfabric 2 offers loopback without an address; then over the host's own interface
  "${work}/plugin" send > "${work}/out" 2> "${work}/err" ||
    env -u FI_TCP_IFACE "${work}/plugin" send > "${work}/out" 2>> "${work}/err" || { cat "${work}/err"; exit 1; }
  grep -q "1048576 bytes arrived" "${work}/out" || { cat "${work}/out" "${work}/err"; exit 1; }
  echo "sent and received over tcp, host memory"
else
  cat "${work}/out"
fi
