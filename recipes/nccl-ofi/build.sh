#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

if [[ ${CUDART_LINKAGE} == static ]]; then bash compiled-in.sh cuda-cudart-static; fi

# messages name source files, and headers of the host environment name themselves
map="-ffile-prefix-map=${SRC_DIR}=. -ffile-prefix-map=${PREFIX}=host -ffile-prefix-map=${BUILD_PREFIX}=build"
export CFLAGS="${CFLAGS:-} ${map}" CXXFLAGS="${CXXFLAGS:-} ${map}"

# The toolkit in the shape that configure knows: conda's packages have it below targets/, links into lib.
targets=("${PREFIX}"/targets/*/include)
[[ -f ${targets[0]}/cuda.h ]] || { echo "no cuda.h below ${PREFIX}/targets" >&2; exit 1; }
mkdir -p cuda
ln -sfn "${targets[0]}" cuda/include
ln -sfn "${targets[0]%/include}/lib" cuda/lib64
cuda=${PWD}/cuda

# what m4/get_version.sh would ask git for
echo "${PKG_VERSION}" > .release_version
autoreconf --install --force

options=(
  --prefix="${PREFIX}"
  --with-libfabric="${PREFIX}"
  --with-cuda="${cuda}"
  # stated, or it would depend on whether this build runs on EC2
  "$([[ ${PLATFORM} == aws ]] && echo --enable-platform-aws || echo --disable-platform-aws)"
  --disable-dependency-tracking
)
case ${PKG_VERSION} in
  1.6.0)
    options+=(--disable-tests)
    # a macro that libfabric's own headers have no more since 2.0
    cat > container_of.h <<'HEADER'
#include <stddef.h>
#ifndef container_of
#define container_of(member, type, name) ((type *)((char *)(member) - offsetof(type, name)))
#endif
HEADER
    CFLAGS+=" -include ${SRC_DIR}/container_of.h"
    if [[ ${CUDART_LINKAGE} == static ]]; then
      # its configure knows the shared runtime only
      export ac_cv_search_cudaPointerGetAttributes="-lcudart_static -lrt -ldl -lpthread"
    fi
    ;;
  *)
    options+=(--with-hwloc="${PREFIX}" --with-mpi=no --disable-picky-compiler)
    if [[ ${CUDART_LINKAGE} == dynamic ]]; then options+=(--enable-cudart-dynamic); fi
    ;;
esac
./configure "${options[@]}" || { cat config.log; exit 1; }
make -j"${CPU_COUNT:-1}"
if [[ ${PKG_VERSION} != 1.6.0 && ${CONDA_BUILD_CROSS_COMPILATION:-0} != 1 ]]; then
  make -C tests/unit check
fi
make install
rm -f "${PREFIX}"/lib/libnccl*.la

if [[ ${PKG_VERSION} == 1.6.0 ]]; then
  # As a plugin is installed: no versioned name for the loader's cache, and the name that NCCL_NET_PLUGIN=ofi means.
  library=$(readlink -f "${PREFIX}/lib/libnccl-net.so")
  rm "${PREFIX}/lib/libnccl-net.so" "${PREFIX}/lib/libnccl-net.so.0"
  mv "${library}" "${PREFIX}/lib/libnccl-net.so"
  ln -s libnccl-net.so "${PREFIX}/lib/libnccl-net-ofi.so"
fi
"${STRIP:-strip}" --strip-unneeded "${PREFIX}"/lib/libnccl-*.so
