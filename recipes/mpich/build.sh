#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

# MPICH 3.x implements MPI 3.1, 4.x implements MPI 4.0, 5.x implements MPI 5.0
case "${PKG_VERSION}" in
  3.*) standard=310 ;;
  4.*) standard=400 ;;
  5.*) standard=500 ;;
  *)
    echo "version ${PKG_VERSION}: say here which MPI standard it implements" >&2
    exit 1
    ;;
esac

mkdir -p "${PREFIX}/bin" "${PREFIX}/etc/conda/activate.d" "${PREFIX}/etc/conda/deactivate.d"
# CPPFLAGS, CFLAGS and LDFLAGS are lists of options, set by the compilers' activation.
# shellcheck disable=SC2086
"${CC}" ${CPPFLAGS:-} ${CFLAGS:-} -std=gnu11 -Wall -Wextra -D_GNU_SOURCE \
  -DWANTED_SONAME="\"${MPICH_SONAME}\"" -DPACKAGE_VERSION="\"${PKG_VERSION}\"" -DMPI_STANDARD="${standard}" \
  src/*.c ${LDFLAGS:-} -o "${PREFIX}/bin/mpich-external-check" -ldl
cp src/activate.sh "${PREFIX}/etc/conda/activate.d/activate-mpich-external-cray.sh"
cp src/deactivate.sh "${PREFIX}/etc/conda/deactivate.d/deactivate-mpich-external-cray.sh"
