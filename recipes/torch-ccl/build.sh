#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

# setup.py hands every variable that begins with BUILD_, USE_ or CMAKE_ to CMake as an option.
unset CMAKE_ARGS
export USE_SYSTEM_ONECCL=ON
export CCL_ROOT="${PREFIX}"
export CMAKE_PREFIX_PATH="${PREFIX}"
export CMAKE_POLICY_VERSION_MINIMUM=3.5

# The release's own suffix names the hardware that upstream built it for; this is the build for processors.
printf '%s\n' "${PKG_VERSION}" >version.txt
export ONECCL_BINDINGS_FOR_PYTORCH_BACKEND=cpu

# Headers of the extension's own sources would go into site-packages.
sed -i "/^ *'\*\/\*\.h',$/d" setup.py

# Another PyTorch than that of the build is refused before the library is loaded.
pytorch=$("${PYTHON}" -c 'import torch; print(".".join(torch.__version__.split(".")[:2]))')
sed "s/@PYTORCH@/${pytorch}/" package/pytorch_version.py >oneccl_bindings_for_pytorch/pytorch_version.py
sed -i 's/^from \. import _C as ccl_lib$/from . import pytorch_version\n&/' oneccl_bindings_for_pytorch/__init__.py
grep -q '^from \. import pytorch_version$' oneccl_bindings_for_pytorch/__init__.py

# Code for processors needs no CUDA, also where PyTorch has it.
mkdir -p cmake/Modules
cp package/FindTorch.cmake cmake/Modules/
TORCH_ROOT=$("${PYTHON}" -c 'import torch; print(*torch.__path__)')
TORCH_CXX11_ABI=$("${PYTHON}" -c 'import torch; print(int(torch.compiled_with_cxx11_abi()))')
export TORCH_ROOT TORCH_CXX11_ABI

# version.py would name the commit of whatever repository the build lies in.
export GIT_CEILING_DIRECTORIES="${SRC_DIR%/*}"

# Messages name source files and headers of the host environment.
map="-ffile-prefix-map=${SRC_DIR}=torch-ccl -ffile-prefix-map=${PREFIX}=host"
export CFLAGS="${CFLAGS:-} ${map}" CXXFLAGS="${CXXFLAGS:-} ${map}"

export MAX_JOBS="${CPU_COUNT:-1}"
# PyTorch's build helper warns of compilers that are not named like the ones it knows.
export TORCH_DONT_CHECK_COMPILER_ABI=1

# In two steps and by name: pip would record the folder of a build it installs directly.
"${PYTHON}" -m pip wheel . --wheel-dir dist --no-deps --no-build-isolation --no-index -v
"${PYTHON}" -m pip install oneccl-bind-pt --find-links dist --no-deps --no-index --no-compile -v
