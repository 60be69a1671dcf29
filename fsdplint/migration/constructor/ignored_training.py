"""Ignored parameters that the program trains: plain tensors beside sharded ones.

An optimizer of torch with `foreach=False` updates both one by one. On the CPU, this is the default. On
GPUs, the default is to take functions for lists of tensors, which refuse to mix the two (seen with
torch 2.11): the migration adds the argument. Clipping and a gradient scaler are not able to mix the two
at all. States of optimizers have the same entries in both versions (seen with torch 2.13).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import libcst as cst

from fsdplint.migration.constructor.ignored_values import (
    given_ignored,
    ignored_modules,
    modules_in,
)
from fsdplint.migration.context import Migration, nodes
from fsdplint.source.source import NodeSite, Source
from fsdplint.trace import OptimizerBuilt, ProcessGroupInit, Trace
from fsdplint.trace.queries.optimizers import STEPPING_SINGLY

_CPU_BACKENDS = {"gloo", "mpi"}
MIXING = (
    "foreach", "fused", "clip_grad", "get_total_norm", "GradScaler",
)  # fmt: skip


def is_supported(migration: Migration) -> bool:
    """Whether all that the program does with ignored parameters works beside sharded ones."""
    built = [one for trace in migration.program.traces for one in trace.of(OptimizerBuilt)]
    plain = all(map(_updates_one_by_one, built))
    return bool(built) and plain and not any(map(_mixes, migration.program.sources.values()))


def mixing(migration: Migration) -> str:
    """The only obstacle: code that gets plain tensors beside sharded ones; "" if there are others."""
    built = [one for trace in migration.program.traces for one in trace.of(OptimizerBuilt)]
    if not built or not all(map(_updates_one_by_one, built)):
        return ""
    for source in migration.program.sources.values():
        for node in nodes(source):
            if isinstance(node, cst.Call) and any(_is_mixing(word) for word in _words(node.func)):
                line = source.location(node).line
                return f"`{source.code(node.func)}` ({Path(source.path).name}:{line})"
    return ""


def _is_mixing(word: str) -> bool:
    return any(one in word for one in MIXING)


def step_singly(migration: Migration) -> None:
    """Add `foreach=False` to the optimizers that may get both kinds of tensors on accelerators."""
    ignored, single = ignored_modules(migration), _has_single_parameters(migration)
    for trace in migration.program.traces:
        if runs_on_cpu(trace):
            continue
        for built in trace.of(OptimizerBuilt):
            parts = set(trace.submodules(*built.modules))
            mixes = bool(parts & ignored and parts - ignored) or not built.complete or single
            if mixes and isinstance(built.site, NodeSite) and isinstance(built.site.node, cst.Call):
                add_foreach(migration, built.site.source, built.site.node)


def runs_on_cpu(trace: Trace) -> bool:
    """Whether a run certainly uses no accelerator."""
    backends = {event.backend for event in trace.of(ProcessGroupInit)}
    return bool(backends) and backends <= _CPU_BACKENDS


def add_foreach(migration: Migration, source: Source, call: cst.Call) -> None:
    """Let an optimizer update its parameters one by one, also on accelerators."""
    end = source.span(call.args[-1])[1]
    if migration.add_helper(f"foreach {source.path}", str(end)):
        migration.substitute_span(source, end, end, ", foreach=False")


def _updates_one_by_one(built: OptimizerBuilt) -> bool:
    """Whether an optimizer is one of torch, and its call shows all of its options."""
    call = built.site.node if isinstance(built.site, NodeSite) else None
    known = isinstance(call, cst.Call) and not any(map(_is_unsuitable, call.args))
    return known and built.library == "torch" and built.class_name in STEPPING_SINGLY


def _is_unsuitable(arg: cst.Arg) -> bool:
    """Whether an argument may ask for functions for lists of tensors."""
    return bool(arg.star == "**") or (arg.keyword is not None and arg.keyword.value in MIXING)


def _mixes(source: Source) -> bool:
    """Whether code of a file names what is not able to mix plain and sharded tensors."""
    return any(_is_mixing(word) for node in nodes(source) for word in _words(node))


def _words(node: cst.CSTNode) -> Iterator[str]:
    """The name or text of a node, and the names of its attributes."""
    while isinstance(node, cst.Attribute):
        yield node.attr.value
        node = node.value
    if isinstance(node, cst.Name | cst.SimpleString):
        yield node.value


def _has_single_parameters(migration: Migration) -> bool:
    """Whether a constructor call may ignore parameters of a module that has others."""
    return any(
        not values or any(not list(modules_in(value)) for value in values)
        for _, values in given_ignored(migration)
    )
