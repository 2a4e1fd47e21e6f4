# SPDX-License-Identifier: BSD-3-Clause
"""A PyTorch of another minor version is one error that says what to install."""

import torch

built_with = torch.__version__
torch.__version__ = "2.99.1"
said = ""
try:
    import oneccl_bindings_for_pytorch  # noqa: F401
except ImportError as err:
    said = str(err)
assert f"for PyTorch {'.'.join(built_with.split('.')[:2])}, found PyTorch 2.99.1 in " in said, said
