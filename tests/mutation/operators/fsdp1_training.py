"""Bugs of programs that use FSDP1."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m
from file_syntax import FSDP1, FileSyntax, argument
from mutation_operator import Plan, operator
from planting import statements, text_of

from operators.sharding import after_sharding


@operator("FSDP404")
def clip_function(syntax: FileSyntax) -> Iterator[Plan]:
    """Gradients of a model of FSDP1 are clipped by the function for plain models."""
    if "NO_SHARD" in syntax.text:
        return
    for call in syntax.method_calls("clip_grad_norm_", syntax.roots_of(FSDP1)):
        assert isinstance(call.func, cst.Attribute)
        first = cst.Arg(cst.parse_expression(f"{text_of(call.func.value)}.parameters()"))
        function = cst.parse_expression("torch.nn.utils.clip_grad_norm_")
        changed = call.with_changes(func=function, args=[first, *call.args])
        yield Plan(call, {call: changed}, "import torch\n")


@operator("FSDP407")
def plain_scaler(syntax: FileSyntax) -> Iterator[Plan]:
    """A plain `GradScaler` scales the loss of a model of FSDP1."""
    if "NO_SHARD" in syntax.text:
        return
    for call in syntax.calls("ShardedGradScaler"):
        function = cst.parse_expression("torch.cuda.amp.GradScaler")
        kept = [a for a in call.args if a.keyword is not None and a.keyword.value == "enabled"]
        yield Plan(call, {call: call.with_changes(func=function, args=kept)}, "import torch\n")


@operator("FSDP107")
def deep_copy_fsdp1(syntax: FileSyntax) -> Iterator[Plan]:
    """The wrapped model of FSDP1 is copied."""
    for statement, root in after_sharding(syntax, FSDP1):
        text = f"average = copy.deepcopy({root})\n"
        yield Plan(statement, {statement: [statement, *statements(text)]}, "import copy\n")


@operator("FSDP129")
def partly_frozen(syntax: FileSyntax) -> Iterator[Plan]:
    """One layer of a unit of FSDP1 is frozen."""
    for call in syntax.calls("FullyShardedDataParallel"):
        statement = syntax.statement(call)
        if statement is None or not call.args or "**" in text_of(call):
            continue
        if argument(call, "use_orig_params") is not None or argument(call, "ignored_states"):
            continue
        model = text_of(call.args[0].value)
        built = syntax.class_built(model)
        for name, _, _ in syntax.linears.get(built or "", ()):
            text = f"{model}.{name}.requires_grad_(False)\n"
            yield Plan(statement, {statement: [*statements(text), statement]})


@operator("FSDP126")
def groups_by_name(syntax: FileSyntax) -> Iterator[Plan]:
    """The parameters of flattened modules are put into groups by their names."""
    calls = list(syntax.calls("FullyShardedDataParallel"))
    if any(argument(c, "use_orig_params") is not None or "**" in text_of(c) for c in calls):
        return
    for call in syntax.optimizers.values():
        statement = syntax.statement(call)
        for root in syntax.roots_of(FSDP1):
            if statement is None or not call.args:
                continue
            if text_of(call.args[0].value) != f"{root}.parameters()":
                continue
            text = (
                f'decay = [p for n, p in {root}.named_parameters() if "bias" not in n]\n'
                f'no_decay = [p for n, p in {root}.named_parameters() if "bias" in n]\n'
                'parts = [{"params": decay}, {"params": no_decay, "weight_decay": 0.0}]\n'
            )
            changes = {statement: [*statements(text), _with_first(statement, call)]}
            yield Plan(statement, changes)


def _with_first(statement: cst.SimpleStatementLine, call: cst.Call) -> cst.SimpleStatementLine:
    changed = statement.deep_replace(call.args[0].value, cst.Name("parts"))
    assert isinstance(changed, cst.SimpleStatementLine)
    return changed


@operator("FSDP403")
def never_synchronized(syntax: FileSyntax) -> Iterator[Plan]:
    """Every micro-batch runs under FSDP1's `no_sync`."""
    for item in m.findall(syntax.module, m.WithItem()) if syntax.version == FSDP1 else ():
        assert isinstance(item, cst.WithItem)
        value = item.item
        if isinstance(value, cst.IfExp) and "no_sync()" in text_of(value):
            parts = [p for p in (value.body, value.orelse) if "no_sync()" in text_of(p)]
            if len(parts) == 1:
                yield Plan(value, {value: parts[0]})
