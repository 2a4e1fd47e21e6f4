# SPDX-License-Identifier: BSD-3-Clause
"""Refuses a PyTorch of another minor version than the one that this package was built with.

c10d's C++ interface changes with each, so that the library would lack symbols, or crash in the first collective.
"""

import torch

BUILT_FOR = "@PYTORCH@"
_FOUND = ".".join(torch.__version__.split(".")[:2])

if _FOUND != BUILT_FOR:
    raise ImportError(
        f"this build of torch-ccl is for PyTorch {BUILT_FOR}, "
        f"found PyTorch {torch.__version__} in {torch.__path__[0]}: "
        f"install 'torch-ccl' and 'pytorch={BUILT_FOR}' from one channel, or a torch-ccl that is for PyTorch {_FOUND}"
    )
