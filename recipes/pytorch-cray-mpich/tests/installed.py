# SPDX-License-Identifier: BSD-3-Clause
"""The PyTorch and the plugin in this environment are the ones that the package says."""

import os
from importlib.metadata import version

import torch
import torch_mpi._C  # loads only into the PyTorch minor version it was built for

assert torch_mpi.__version__ == version("torch-mpi") == os.environ["EXPECTED_PLUGIN"]
minor = ".".join(torch.__version__.split(".")[:2])
assert minor == os.environ["EXPECTED_PYTORCH"], torch.__version__
print(f"torch {torch.__version__}, torch-mpi {torch_mpi.__version__}")
