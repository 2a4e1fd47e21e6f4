# SPDX-License-Identifier: BSD-3-Clause
"""The compiled operators, models and image codecs work: beside a PyTorch of another kind the operators do not exist."""

import os

import torch
import torchvision
from torchvision.io import decode_jpeg, decode_png, encode_jpeg, encode_png


def main() -> None:
    """Nothing is downloaded: the model's weights are random."""
    assert torchvision.__version__ == os.environ["EXPECTED_VERSION"], torchvision.__version__
    assert torch.__version__.startswith(os.environ["EXPECTED_PYTORCH"] + "."), torch.__version__
    torch.manual_seed(0)
    operators()
    model()
    images()


def operators() -> None:
    """Boxes of which two overlap, and an operator with a gradient."""
    boxes = torch.tensor([[0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0]])
    kept = torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5)
    assert kept.tolist() == [0, 2], kept
    features = torch.ones(1, 1, 32, 32, requires_grad=True)
    pooled = torchvision.ops.roi_align(features, [boxes], output_size=2)
    assert torch.equal(pooled, torch.ones(3, 1, 2, 2)), pooled
    pooled.sum().backward()
    assert features.grad is not None
    assert abs(features.grad.sum().item() - 12.0) < 1e-3, features.grad.sum()


def model() -> None:
    """One step forward and backward."""
    resnet = torchvision.models.resnet18()
    logits = resnet(torch.rand(2, 3, 64, 64))
    assert logits.shape == (2, 1000), logits.shape
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in resnet.parameters())


def images() -> None:
    """PNG keeps every pixel, JPEG nearly."""
    image = torch.arange(64, dtype=torch.uint8).mul(3).reshape(1, 8, 8).repeat(3, 1, 1)
    assert torch.equal(decode_png(encode_png(image)), image)
    differences = decode_jpeg(encode_jpeg(image, quality=100)).int() - image.int()
    assert differences.abs().max() <= 4, differences


if __name__ == "__main__":
    main()
