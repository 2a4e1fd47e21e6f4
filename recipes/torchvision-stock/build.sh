#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

# Messages of assertions name source files and headers.
maps="-ffile-prefix-map=${SRC_DIR}=torchvision -ffile-prefix-map=${PREFIX}=host -ffile-prefix-map=${BUILD_PREFIX}=build"
export CFLAGS="${CFLAGS:-} ${maps}" CXXFLAGS="${CXXFLAGS:-} ${maps}"
export MAX_JOBS="${CPU_COUNT:-1}"

# PyTorch's build helper warns of compilers that are not named like the ones it knows.
export TORCH_DONT_CHECK_COMPILER_ABI=1

# The same operators beside any build of this PyTorch: no device code, also where PyTorch has CUDA or a GPU is at hand.
export FORCE_CUDA=0 CUDA_VISIBLE_DEVICES=""

# Images by libjpeg-turbo and libpng; WebP would be taken from the host where that has its headers.
export TORCHVISION_INCLUDE="${PREFIX}/include" TORCHVISION_LIBRARY="${PREFIX}/lib"
export TORCHVISION_USE_JPEG=1 TORCHVISION_USE_PNG=1 TORCHVISION_USE_WEBP=0 TORCHVISION_USE_NVJPEG=0
export TORCHVISION_USE_FFMPEG=0 TORCHVISION_USE_VIDEO_CODEC=0

# setup.py asks this program, which a host may have for a libpng of its own.
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

# Its version would name the commit of whichever repository lies around the build.
export GIT_DIR="${tools}/no-repository"

# What the wheel's metadata ask for: any release of the minor version, as the package does.
minor="${PYTORCH_MINOR#*.}"
export PYTORCH_VERSION_GE="${PYTORCH_MINOR}" PYTORCH_VERSION_LT="${PYTORCH_MINOR%%.*}.$((minor + 1))"

# In two steps and by name: pip would record the folder of a build it installs directly.
"${PYTHON}" -m pip wheel . --wheel-dir dist --no-deps --no-build-isolation --no-index -v
"${PYTHON}" -m pip install torchvision --find-links dist --no-deps --no-index --no-compile -v
