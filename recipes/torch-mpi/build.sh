#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail

export MPI_HOME="${PREFIX}"
export MAX_JOBS="${CPU_COUNT:-1}"

# PyTorch's build helper warns of compilers that are not named like the ones it knows.
export TORCH_DONT_CHECK_COMPILER_ABI=1

# In two steps and by name: pip would record the folder of a build it installs directly.
"${PYTHON}" -m pip wheel . --wheel-dir dist --no-deps --no-build-isolation --no-index -v
"${PYTHON}" -m pip install torch-mpi --find-links dist --no-deps --no-index --no-compile -v
