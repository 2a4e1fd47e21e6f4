#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The activation in the shells that are here, on stand-ins for machines with and without a Slingshot NIC.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "${work}"' EXIT
mkdir -p "${work}/nic/sys/class/cxi/cxi0" "${work}/none/sys/class/cxi"
# the scripts, over a table of the test's own: which variables a profile has is no matter here
export CONDA_PREFIX=${work}/env WORK=${work}
mkdir -p "${work}/env/etc" "${work}/env/share/fabric-profile"
cp -r "${PREFIX}/etc/conda" "${work}/env/etc/"
cp "${here}/variables" "${work}/env/share/fabric-profile/"
echo cxi > "${work}/env/share/fabric-profile/device"
tested=0
for shell in bash dash "busybox sh" zsh; do
  command -v "${shell%% *}" > /dev/null || { echo "no ${shell} here: not tested with it"; continue; }
  ${shell} -eu "${here}/activation.sh"
  tested=$((tested + 1))
done
[[ ${tested} -gt 0 ]]
