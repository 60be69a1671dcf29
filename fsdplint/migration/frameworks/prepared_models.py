"""Uses of Accelerate that work with FSDP1 only."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter import Program
from fsdplint.interpreter.values import ModuleValue, OptimizerValue
from fsdplint.migration.analysis.components import files_run_together
from fsdplint.source.source import Source
from fsdplint.syntax.qualified_names import references, walk

_MODEL = re.compile(r"model|net\b|network|actor|critic|encoder|decoder|policy|lm\b", re.I)
_OPTIMIZER = re.compile(r"optim|\bopt\b", re.I)
_OTHER = re.compile(r"loader|data|sched|sampler|\bdl\b", re.I)
ONE_PREPARE = "FSDP2 takes one model and its optimizer, in one call of `prepare`"


def obstacles(program: Program, configured: Source) -> Iterator[tuple[Source, cst.CSTNode, str]]:
    """The source, node and reason of each use that FSDP2 rejects.

    configured: the file that sets up Accelerate.
    """
    for source in files_run_together(program, configured):
        for _, node, full in references(source, "torch.distributed.fsdp"):
            if full.startswith("torch.distributed.fsdp.FullyShardedDataParallel"):
                yield source, node, "FSDP1 is used here without Accelerate"
        for node in walk(source):
            if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
                continue
            if "accelerator" not in source.code(node.func.value).lower():
                continue
            if node.func.attr.value == "prepare_model":
                yield source, node, ONE_PREPARE
            elif node.func.attr.value == "prepare" and not _is_valid_prepare(program, source, node):
                yield source, node, ONE_PREPARE


def _is_valid_prepare(program: Program, source: Source, call: cst.Call) -> bool:
    """Whether a call of `prepare` has one model and an optimizer, or neither, if its kinds are
    known.
    """
    kinds = [_kind(program, source, arg) for arg in call.args]
    models, optimizers = kinds.count("model"), kinds.count("optimizer")
    if models > 1:
        return False
    return bool(models) == bool(optimizers) or "unknown" in kinds


def _kind(program: Program, source: Source, arg: cst.Arg) -> str:
    if arg.star:
        return "unknown"
    values = program.values(arg.value)
    if any(isinstance(value, ModuleValue) for value in values):
        return "model"
    if any(isinstance(value, OptimizerValue) for value in values):
        return "optimizer"
    text = source.code(arg.value)
    for kind, words in (("optimizer", _OPTIMIZER), ("other", _OTHER), ("model", _MODEL)):
        if words.search(text):
            return kind
    return "unknown"
