"""What the functions and methods of Python and torch mean for a trace.

Each module registers its models when it is imported; see `registry`.
"""

from __future__ import annotations

from fsdplint.interpreter.models import (
    checkpoint,
    data,
    datasets,
    distributed,
    frameworks,
    fsdp1,
    fsdp2,
    iterators,
    launcher,
    mixing,
    nn,
    optim,
    python,
    randomness,
    raw,
    tensors,
)

__all__ = [
    "checkpoint",
    "data",
    "datasets",
    "distributed",
    "frameworks",
    "fsdp1",
    "fsdp2",
    "iterators",
    "launcher",
    "mixing",
    "nn",
    "optim",
    "python",
    "randomness",
    "raw",
    "tensors",
]
