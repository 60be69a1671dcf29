"""Gradients: synchronisation, clipping, norms, the loss and the optimizer's step."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m
from file_syntax import FSDP2, FileSyntax, argument, without
from mutation_operator import Plan, operator
from planting import statements, text_of

from operators.forwards import forward_calls


def backwards(
    syntax: FileSyntax, version: int | None = None
) -> Iterator[tuple[cst.SimpleStatementLine, str, str]]:
    """The statements `loss.backward()` of sharded models, with the names of loss and model."""
    roots = {syntax.scope(c): text_of(c.func) for c in forward_calls(syntax, version)}
    for call in syntax.method_calls("backward"):
        statement = syntax.statement(call)
        root = roots.get(syntax.scope(call))
        if statement is not None and root is not None and m.matches(statement.body[0], m.Expr()):
            assert isinstance(call.func, cst.Attribute)
            yield statement, text_of(call.func.value), root


@operator("FSDP403")
def sync_never_on(syntax: FileSyntax) -> Iterator[Plan]:
    """Gradient synchronisation is switched off and never on again."""
    for call in syntax.all_calls:
        name = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        if name == "set_requires_gradient_sync" and call.args:
            value = call.args[0].value
            if not m.matches(value, m.Name("False")):
                others = [c for c in syntax.method_calls("set_requires_gradient_sync")]
                if len(others) == 1:
                    yield Plan(call, {value: cst.Name("False")})


@operator("FSDP403")
def sync_off(syntax: FileSyntax) -> Iterator[Plan]:
    """Gradient synchronisation is switched off before the only backward."""
    if "set_requires_gradient_sync" in syntax.text or "accum" in syntax.text:
        return
    for statement, _, root in backwards(syntax, FSDP2):
        off = statements(f"{root}.set_requires_gradient_sync(False)\n")
        yield Plan(statement, {statement: [*off, statement]})


@operator("FSDP401")
def no_sync(syntax: FileSyntax) -> Iterator[Plan]:
    """The backward runs under DDP's `no_sync`."""
    for statement, _, root in backwards(syntax, FSDP2):
        block = cst.parse_module(f"with {root}.no_sync():\n    pass\n").body[0]
        assert isinstance(block, cst.With)
        inner = statement.with_changes(leading_lines=[])
        yield Plan(statement, {statement: [block.with_changes(body=cst.IndentedBlock([inner]))]})


@operator("FSDP402")
def clip_method(syntax: FileSyntax) -> Iterator[Plan]:
    """Gradients are clipped by FSDP1's method on a model of FSDP2."""
    for call in syntax.calls("clip_grad_norm_", of="torch.nn.utils."):
        for root in syntax.roots_of(FSDP2):
            if call.args and text_of(call.args[0].value) == f"{root}.parameters()":
                function = cst.parse_expression(f"{root}.clip_grad_norm_")
                yield Plan(call, {call: call.with_changes(func=function, args=call.args[1:])})


@operator("FSDP405")
def local_gradient_norm(syntax: FileSyntax) -> Iterator[Plan]:
    """The largest norm of a gradient is read on each rank for itself."""
    for statement, _, root in backwards(syntax, FSDP2):
        text = f"largest = max(p.grad.norm().item() for p in {root}.parameters() if p.grad is not None)\n"
        yield Plan(statement, {statement: [statement, *statements(text)]})


@operator("FSDP306", "FSDP405")
def local_instead_of_full(syntax: FileSyntax) -> Iterator[Plan]:
    """The local part of a sharded tensor is read as if it were the whole."""
    for call in syntax.all_calls:
        if m.matches(call.func, m.Attribute(attr=m.Name("full_tensor"))):
            assert isinstance(call.func, cst.Attribute)
            if "norm" in text_of(call.func):
                continue  # since torch 2.10, the norm of clipping is the same on all ranks
            changed = call.func.with_changes(attr=cst.Name("to_local"))
            yield Plan(call, {call.func: changed})


@operator("FSDP408")
def loss_averaged(syntax: FileSyntax) -> Iterator[Plan]:
    """The loss is averaged over the ranks before the backward."""
    name, head = syntax.dist
    for statement, loss, _ in backwards(syntax):
        if loss.isidentifier():
            text = f"{name}.all_reduce({loss})\n{loss} = {loss} / {name}.get_world_size()\n"
            yield Plan(statement, {statement: [*statements(text), statement]}, head)


@operator("FSDP413")
def gathered(syntax: FileSyntax) -> Iterator[Plan]:
    """The model is gathered after the backward and stays so."""
    for statement, _, root in backwards(syntax, FSDP2):
        block = syntax.block(statement)
        after = "".join(text_of(one) for one in block[block.index(statement) :])
        if any(f"{name}.step(" in after for name in syntax.optimizers):
            text = f"{root}.unshard()\n"
            yield Plan(statement, {statement: [statement, *statements(text)]})


def _reads_own_data(syntax: FileSyntax) -> bool:
    return "DistributedSampler" in syntax.text


@operator("FSDP414")
def step_by_own_loss(syntax: FileSyntax) -> Iterator[Plan]:
    """The optimizer steps if the rank's own loss is finite."""
    losses = {syntax.scope(s): loss for s, loss, _ in backwards(syntax)}
    for call in syntax.method_calls("step", syntax.optimizers):
        statement = syntax.statement(call)
        loss = losses.get(syntax.scope(call), "")
        if statement is None or not loss.isidentifier() or not _reads_own_data(syntax):
            continue
        test = cst.parse_module(f"if torch.isfinite({loss}):\n    pass\n").body[0]
        assert isinstance(test, cst.If)
        inner = statement.with_changes(leading_lines=[])
        changed = test.with_changes(body=cst.IndentedBlock([inner]))
        yield Plan(statement, {statement: [changed]}, "import torch\n")


@operator("FSDP501")
def batch_left_out(syntax: FileSyntax) -> Iterator[Plan]:
    """A rank leaves out the backward if its own loss is not a number."""
    for statement, loss, _ in backwards(syntax):
        if not loss.isidentifier() or not _reads_own_data(syntax):
            continue
        if syntax.loop(statement) is not None:
            text = f"if torch.isnan({loss}):\n    continue\n"
            changes = {statement: [*statements(text), statement]}
            yield Plan(statement, changes, "import torch\n")


@operator("FSDP412")
def reduced_in_low_precision(syntax: FileSyntax) -> Iterator[Plan]:
    """Gradients of many micro-batches are added in bfloat16: `reduce_dtype` is missing."""
    if "set_requires_gradient_sync" not in syntax.text:
        return
    for call in syntax.calls("MixedPrecisionPolicy"):
        if argument(call, "reduce_dtype") is not None and "bfloat16" in text_of(call):
            yield Plan(call, {call: without(call, "reduce_dtype")})


@operator("FSDP307", "FSDP107")
def average_of_copy(syntax: FileSyntax) -> Iterator[Plan]:
    """An average of the weights is a copy from before the sharding."""
    from operators.sharding_order import sharding_loop, sharding_statements

    for sharding, root, made in sharding_statements(syntax):
        if made not in syntax.calls("fully_shard"):
            continue
        first = sharding_loop(syntax, syntax.block(sharding), root, sharding) or sharding
        for call in syntax.method_calls("step", syntax.optimizers):
            step = syntax.statement(call)
            if step is None or syntax.scope(step) is not syntax.scope(sharding):
                continue
            copied = statements(f"average = copy.deepcopy({root})\n")
            update = statements(
                "with torch.no_grad():\n"
                f"    for kept, current in zip(average.parameters(), {root}.parameters()):\n"
                "        kept.lerp_(current, 0.01)\n"
            )
            changes = {first: [*copied, first], step: [step, *update]}
            yield Plan(step, changes, "import copy\nimport torch\n")  # type: ignore[arg-type]
