#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

mkdir -p "${PREFIX}/bin"
# CPPFLAGS, CFLAGS and LDFLAGS are lists of options, set by the compilers' activation.
# shellcheck disable=SC2086
"${CC}" ${CPPFLAGS:-} ${CFLAGS:-} -std=gnu11 -Wall -Wextra -D_GNU_SOURCE -DWANTED_SONAME="\"${HIP_SONAME}\"" \
  src/*.c ${LDFLAGS:-} -o "${PREFIX}/bin/rocm-external-check"
for kind in activate deactivate; do
  install -D -m 644 "src/${kind}.sh" "${PREFIX}/etc/conda/${kind}.d/${kind}-rocm-external.sh"
done
