# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's own tests of process groups, as they come with it: `mpiexec -n 3 python pytorch_tests.py [NAME ...]`.

All ranks of one launch run each test whose name holds one of the words given, all without any; the tests meet in files
below TEMP_DIR. A rank writes what became of each to rank-N.json there: "passed", "skipped: ..." or "failed: ...".
"""

import json
import os
import sys
import unittest
from pathlib import Path

import torch.distributed as dist

dist.init_process_group("mpi")
FOLDER = Path(os.environ["TEMP_DIR"])
# what PyTorch's tests read when they are imported
os.environ.update(BACKEND="mpi", WORLD_SIZE=str(dist.get_world_size()), RANK=str(dist.get_rank()))
for name in ("barrier", "test_dir", "init_dir"):
    (FOLDER / name).mkdir(exist_ok=True)

from torch.testing._internal.common_utils import TestCase  # noqa: E402
from torch.testing._internal.distributed.distributed_test import DistributedTest  # noqa: E402


class TestGroups(TestCase, DistributedTest._DistTestBase):  # type: ignore[misc]  # torch is not there to check
    """Each test on the default group of all ranks."""

    @property
    def rank(self) -> int:
        return int(dist.get_rank())

    @property
    def world_size(self) -> int:
        return int(dist.get_world_size())


def outcome_of(test: str) -> str:
    result = unittest.TestResult()
    try:
        TestGroups(test).run(result)
    except SystemExit as end:  # how these tests skip in a process of their own
        return f"skipped: exit code {end.code}"
    if result.skipped:
        return f"skipped: {result.skipped[0][1]}"
    problems = [*result.errors, *result.failures]
    return f"failed: {problems[0][1]}" if problems else "passed"


def main() -> None:
    words = sys.argv[1:] or [""]
    outcomes = {}
    for test in unittest.defaultTestLoader.getTestCaseNames(TestGroups):
        if any(word in test for word in words):
            outcomes[test] = outcome_of(test)
            dist.barrier()
    (FOLDER / f"rank-{dist.get_rank()}.json").write_text(json.dumps(outcomes))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
