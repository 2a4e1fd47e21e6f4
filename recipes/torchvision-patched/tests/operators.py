# SPDX-License-Identifier: BSD-3-Clause
"""The compiled operators are there and work: beside another build of torch than the one built with they are missing."""

import os

import torch
import torchvision


def main() -> None:
    """Two boxes that overlap, and one that does not."""
    assert torchvision.__version__ == os.environ["EXPECTED_VERSION"], torchvision.__version__
    assert torch.__version__ == os.environ["EXPECTED_PYTORCH"], torch.__version__
    boxes = torch.tensor([[0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0]])
    kept = torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5)
    assert kept.tolist() == [0, 2], kept


if __name__ == "__main__":
    main()
