"""Calls of a model that go around its hooks, and parameters that sharding has replaced."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m
from file_syntax import FSDP1, FSDP2, FileSyntax
from mutation_operator import Plan, operator
from planting import statements, text_of

from operators.sharding import after_sharding
from operators.sharding_order import sharding_loop, sharding_statements


def forward_calls(syntax: FileSyntax, version: int | None = None) -> Iterator[cst.Call]:
    """The calls of the sharded models of a file."""
    for call in syntax.all_calls:
        own = syntax.roots.get(text_of(call.func))
        if own is not None and version in (None, own):
            yield call


@operator("FSDP101")
def forward_called(syntax: FileSyntax) -> Iterator[Plan]:
    """`forward` of a sharded model is called in the place of the model."""
    for call in forward_calls(syntax, FSDP2):
        changed = cst.Attribute(call.func, cst.Name("forward"))
        yield Plan(call, {call.func: changed})


@operator("FSDP122")
def inner_module_called(syntax: FileSyntax) -> Iterator[Plan]:
    """The module inside of FSDP1's wrapper is called."""
    if syntax.version == FSDP1 and "NO_SHARD" not in syntax.text:
        for call in forward_calls(syntax, FSDP1):
            yield Plan(call, {call.func: cst.Attribute(call.func, cst.Name("module"))})


@operator("FSDP112")
def stale_parameters(syntax: FileSyntax) -> Iterator[Plan]:
    """Clipping gets a list of the parameters that was made before the sharding."""
    for sharding, root, call in sharding_statements(syntax):
        if call not in syntax.calls("fully_shard"):
            continue
        loop = sharding_loop(syntax, syntax.block(sharding), root, sharding)
        first = loop or sharding
        for clip in syntax.calls("clip_grad_norm_", of="torch.nn.utils."):
            if syntax.scope(clip) is not syntax.scope(sharding) or not clip.args:
                continue
            if text_of(clip.args[0].value) == f"{root}.parameters()":
                made = statements(f"clipped = list({root}.parameters())\n")
                changes = {first: [*made, first], clip.args[0].value: cst.Name("clipped")}
                yield Plan(clip, changes)


@operator("FSDP109")
def dry_run(syntax: FileSyntax) -> Iterator[Plan]:
    """A forward runs between the sharding and the optimizer."""
    for statement, root in after_sharding(syntax):
        for optimizer in syntax.optimizers.values():
            built = syntax.statement(optimizer)
            block = syntax.block(statement)
            if built not in block[block.index(statement) :] or f"{root}.p" not in text_of(
                optimizer
            ):
                continue
            inputs = _inputs(syntax, root)
            if inputs is not None:
                text = f"with torch.no_grad():\n    {root}({inputs})\n"
                changes = {statement: [statement, *statements(text)]}
                yield Plan(statement, changes, "import torch\n")


def _inputs(syntax: FileSyntax, root: str) -> str | None:
    """Inputs of the forward, made of constants, where the program makes them in a call as well."""
    for call in forward_calls(syntax, FSDP2):
        if text_of(call.func) == root and len(call.args) == 1:
            value = call.args[0].value
            if m.matches(value, m.Call(func=m.Attribute(attr=m.Name("randn") | m.Name("randint")))):
                return text_of(value)
    return None


@operator("FSDP118")
def inference_first(syntax: FileSyntax) -> Iterator[Plan]:
    """The first forward of the sharded model runs under `torch.inference_mode()`."""
    for statement, root in after_sharding(syntax):
        inputs = _inputs(syntax, root)
        if inputs is not None:
            text = f"with torch.inference_mode():\n    {root}({inputs})\n"
            changes = {statement: [statement, *statements(text)]}
            yield Plan(statement, changes, "import torch\n")
