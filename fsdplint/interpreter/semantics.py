"""Everything that a run can follow: importing this registers all constructs and models."""

from __future__ import annotations

from fsdplint.interpreter.constructs import (
    branches,
    calls,
    comprehensions,
    contexts,
    expressions,
    literals,
    loops,
    operators,
    statements,
)
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

CONSTRUCTS = (
    branches, calls, comprehensions, contexts, expressions, literals, loops, operators, statements,
)  # fmt: skip
MODELS = (
    checkpoint, data, datasets, distributed, frameworks, fsdp1, fsdp2, iterators, launcher, mixing,
    nn, optim, python, randomness, raw, tensors,
)  # fmt: skip
