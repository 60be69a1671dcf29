"""Stands in for a program's own `datasets`: images that are noise, for training and testing."""

import torch
from torch.utils.data import TensorDataset


def load_dataset():
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(16, 3, 224, 224, generator=generator)
    labels = torch.randint(10, (16,), generator=generator)
    return TensorDataset(images, labels), TensorDataset(images[:4], labels[:4])
