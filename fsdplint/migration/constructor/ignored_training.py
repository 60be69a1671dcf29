"""Ignored parameters that the program trains: plain tensors beside sharded ones.

An optimizer of torch updates both one by one: it takes its functions for lists of tensors by itself
only if all of them are plain (seen with torch 2.13). What is not able to mix the two raises: `foreach`
and `fused`, clipping, and a gradient scaler. FSDP1's states of optimizers have other entries for such
parameters.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import ModuleValue, Sequence
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.names import FSDP
from fsdplint.source.source import NodeSite, Source
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
    plain = all(map(_updates_one_by_one, built))
    return bool(built) and plain and not any(map(_mixes, migration.program.sources.values()))


def _updates_one_by_one(built: OptimizerBuilt) -> bool:
    """Whether an optimizer is one of torch, and its call shows all of its options."""
    call = built.site.node if isinstance(built.site, NodeSite) else None
    known = isinstance(call, cst.Call) and not any(map(_is_unsuitable, call.args))
    return known and built.library == "torch" and built.class_name in OPTIMIZERS


def _is_unsuitable(arg: cst.Arg) -> bool:
    """Whether an argument may ask for functions for lists of tensors."""
    return bool(arg.star == "**") or (arg.keyword is not None and arg.keyword.value in MIXING)


def _mixes(source: Source) -> bool:
    """Whether code of a file names what is not able to mix plain and sharded tensors."""
    words = (node.value for node in nodes(source) if isinstance(node, cst.Name | cst.SimpleString))
    return any(one in word for word in words for one in MIXING)


def ignored_modules(migration: Migration) -> set[str]:
    """The modules that constructor calls ignore, with their parts."""
    given = [
        arg.value
        for source in migration.sources
        for node in nodes(source)
        if isinstance(node, cst.Call) and migration.fsdp1(node.func) == FSDP
        for arg in node.args
        if arg.keyword is not None and arg.keyword.value == "ignored_modules"
    ]
    held = [
        item.id
        for node in given
        for value in migration.values(node)
        if isinstance(value, Sequence)
        for item in value.items
        if isinstance(item, ModuleValue)
    ]
    return {
        part for trace in migration.program.traces for part in (*held, *trace.submodules(*held))
    }
