# SPDX-License-Identifier: BSD-3-Clause
"""The PyTorch and the plugin in this environment are the ones that the package says."""

import json
import os
from importlib.metadata import version

import torch
import torch_switchml._C  # loads only into the PyTorch minor version it was built for

assert torch_switchml.__version__ == version("torch-switchml") == os.environ["EXPECTED_PLUGIN"]
minor = ".".join(torch.__version__.split(".")[:2])
assert minor == os.environ["EXPECTED_PYTORCH"], torch.__version__

library = json.loads(torch_switchml._C.Library.load("libswitchml.so.1").describe())
assert library["abi_version"] == 1
print(f"torch {torch.__version__}, torch-switchml {torch_switchml.__version__}, libswitchml {library['version']}")
