"""Ignored parameters that the program trains: plain tensors beside sharded ones.

An optimizer of torch updates both one by one: it takes its functions for lists of tensors by itself
only if all of them are plain (seen with torch 2.13). What is not able to mix the two raises: `foreach`
and `fused`, clipping, and a gradient scaler. FSDP1's states of optimizers have other entries for such
parameters.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.context import Migration, nodes
from fsdplint.source.source import Source
from fsdplint.trace import OptimizerBuilt

# Each updates its parameters one by one.
OPTIMIZERS = frozenset(
    {
        "ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop",
        "Rprop", "SGD",
    }
)  # fmt: skip
MIXING = (
    "foreach", "fused", "clip_grad", "get_total_norm", "GradScaler", "optim_state_dict",
    "optimizer_state_dict", "get_state_dict",
)  # fmt: skip


def is_supported(migration: Migration) -> bool:
    """Whether all that the program does with ignored parameters works beside sharded ones."""
    built = [one for trace in migration.program.traces for one in trace.of(OptimizerBuilt)]
    plain = all(one.library == "torch" and one.class_name in OPTIMIZERS for one in built)
    return bool(built) and plain and not any(map(_mixes, migration.program.sources.values()))


def _mixes(source: Source) -> bool:
    """Whether code of a file names what is not able to mix plain and sharded tensors."""
    words = (node.value for node in nodes(source) if isinstance(node, cst.Name | cst.SimpleString))
    return any(one in word for word in words for one in MIXING)
