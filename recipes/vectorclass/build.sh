#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

found=$(sed -n 's/^#define INSTRSET_H \([0-9]*\).*/\1/p' instrset.h)
if [[ "${found}" != "${HEADER_VERSION}" ]]; then
  echo "instrset.h says ${found}, recipe.yaml says ${HEADER_VERSION}: set context.header_version" >&2
  exit 1
fi

cmake -G Ninja -S package -B _build \
  -DCMAKE_INSTALL_PREFIX="${PREFIX}" \
  -DVECTORCLASS_SOURCE="${SRC_DIR}" \
  -DVECTORCLASS_VERSION="${PKG_VERSION}"
cmake --install _build
