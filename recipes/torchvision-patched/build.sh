#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

# Messages of assertions name source files and headers.
maps="-ffile-prefix-map=${SRC_DIR}=torchvision -ffile-prefix-map=${PREFIX}=host -ffile-prefix-map=${BUILD_PREFIX}=build"
export CFLAGS="${CFLAGS:-} ${maps}" CXXFLAGS="${CXXFLAGS:-} ${maps}"
export MAX_JOBS="${CPU_COUNT:-1}"

# PyTorch's build helper warns of compilers that are not named like the ones it knows.
export TORCH_DONT_CHECK_COMPILER_ABI=1

# Images, but no video and no decoders of the GPU: what those need is not in the channel.
export TORCHVISION_INCLUDE="${PREFIX}/include" TORCHVISION_LIBRARY="${PREFIX}/lib"
export TORCHVISION_USE_FFMPEG=0 TORCHVISION_USE_VIDEO_CODEC=0 TORCHVISION_USE_NVJPEG=0 TORCHVISION_USE_PNG=1
if [[ "${FORCE_CUDA}" == 1 ]]; then
  if [[ "${PYTORCH_VERSION}" == 1.7.1 ]]; then
    architectures="5.0;6.0;6.1;7.0;7.5;8.0;8.6+PTX"
  else
    architectures="5.0;6.0;7.0;7.5;8.0;8.6;9.0+PTX"
  fi
  export TORCH_CUDA_ARCH_LIST="${TORCH_CUDA_ARCH_LIST:-${architectures}}"
fi

"${PYTHON}" -m pip install . --no-deps --no-build-isolation --no-index --no-compile -v
