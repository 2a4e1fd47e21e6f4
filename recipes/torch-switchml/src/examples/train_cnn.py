# SPDX-License-Identifier: BSD-3-Clause
"""Trains a small convolutional network on images it makes itself, on CPU with DistributedDataParallel.

An ordinary script that knows nothing of SwitchML: what its gradients travel over is the environment's choice.

    torchrun --nproc-per-node 2 train_cnn.py                                        # gloo
    SWITCHML_CONTROLLER=switch.example:50099 torchrun --nproc-per-node 2 train_cnn.py    # the host's memory
    SWITCHML_CONTROLLER=switch.example:50099 SWITCHML_HOST_REDUCTION=off torchrun --nproc-per-node 2 train_cnn.py
"""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CLASSES, SIDE, BATCH, STEPS = 4, 12, 32, 20


def make_batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of noise with a bright square, and in which quarter it is."""
    labels = torch.randint(CLASSES, (BATCH,), generator=generator)
    images = torch.rand(BATCH, 1, SIDE, SIDE, generator=generator)
    half = SIDE // 2
    for image, label in zip(images, labels.tolist(), strict=True):
        top, left = half * (label // 2), half * (label % 2)
        image[0, top + 1 : top + half - 1, left + 1 : left + half - 1] += 1.0
    return images, labels


def make_model() -> nn.Module:
    """The same on every rank, and in every run."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 8, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * (SIDE // 2) ** 2, CLASSES),
    )


def train() -> list[float]:
    """The mean loss over all ranks after each step."""
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank())
    losses = []
    for _ in range(STEPS):
        images, labels = make_batch(generator)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        losses.append(mean.item())
    return losses


def main() -> None:
    """Print the losses of all steps as one line of JSON."""
    dist.init_process_group("gloo")
    losses = train()
    if dist.get_rank() == 0:
        json.dump({"losses": losses}, sys.stdout)
        print()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
