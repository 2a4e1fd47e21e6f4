# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's own tests of process groups, as they come with it, in the environment's own way: `python pytorch_tests.py`.

With names (`TestGroups.test_all_reduce_sum`) only those. The ranks are forked, since each would otherwise import
PyTorch again; everything else is as PyTorch's own runner of these tests has it.
"""

import os
import tempfile

os.environ.setdefault("BACKEND", "gloo")
os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp(prefix="pytorch_tests."))

import torch.multiprocessing
from torch.testing._internal.common_utils import run_tests
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend


class TestGroups(TestDistBackend, DistributedTest._DistTestBase):  # type: ignore[misc]  # torch is not there to check
    """Each test in processes of its own, with a default group of all of them."""

    def setUp(self) -> None:
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


if __name__ == "__main__":
    run_tests()
