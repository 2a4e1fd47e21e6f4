#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

# Messages of assertions name source files and headers.
maps="-ffile-prefix-map=${SRC_DIR}=torchvision -ffile-prefix-map=${PREFIX}=host -ffile-prefix-map=${BUILD_PREFIX}=build"
export CFLAGS="${CFLAGS:-} ${maps}" CXXFLAGS="${CXXFLAGS:-} ${maps}"
# The patched PyTorch has its libraries in its own folder; what the engine makes of this holds in every environment.
export LDFLAGS="${LDFLAGS:-} -Wl,-rpath,${SP_DIR}/torch/lib"
export MAX_JOBS="${CPU_COUNT:-1}"

# PyTorch's build helper warns of compilers that are not named like the ones it knows.
export TORCH_DONT_CHECK_COMPILER_ABI=1

# Images, but no video and no decoders of the GPU: what those need is not in the channel.
export TORCHVISION_INCLUDE="${PREFIX}/include" TORCHVISION_LIBRARY="${PREFIX}/lib"
export TORCHVISION_USE_FFMPEG=0 TORCHVISION_USE_VIDEO_CODEC=0 TORCHVISION_USE_NVJPEG=0
export TORCHVISION_USE_PNG=1 TORCHVISION_USE_WEBP=0

# setup.py asks this program, which a host may have for a libpng of its own (as in torchvision-stock).
tools="${SRC_DIR}/_tools"
mkdir -p "${tools}"
cat >"${tools}/libpng-config" <<'PROGRAM'
#!/bin/sh
case $1 in
  --version) sed -n 's/^#define PNG_LIBPNG_VER_STRING "\(.*\)"/\1/p' "${PREFIX}/include/libpng16/png.h" ;;
  --I_opts) echo "-I${PREFIX}/include/libpng16" ;;
  --libdir) echo "${PREFIX}/lib" ;;
esac
PROGRAM
chmod +x "${tools}/libpng-config"
export PATH="${tools}:${PATH}"

if [[ "${FORCE_CUDA}" == 1 ]]; then
  if [[ "${PYTORCH_VERSION}" == 1.7.1 ]]; then
    architectures="5.0;6.0;6.1;7.0;7.5;8.0;8.6+PTX"
  else
    architectures="5.0;6.0;7.0;7.5;8.0;8.6;9.0+PTX"
  fi
  export TORCH_CUDA_ARCH_LIST="${TORCH_CUDA_ARCH_LIST:-${architectures}}"
fi

"${PYTHON}" -m pip install . --no-deps --no-build-isolation --no-index --no-compile -v
