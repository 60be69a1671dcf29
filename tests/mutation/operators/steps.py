"""What a training step does in which order: gradients set to zero, clipping, errors."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m
from file_syntax import FileSyntax
from mutation_operator import Plan, operator
from planting import text_of

from operators.gradients import backwards


def _alone(syntax: FileSyntax, call: cst.Call) -> cst.SimpleStatementLine | None:
    """The statement that is a call and nothing else."""
    statement = syntax.statement(call)
    if statement is None or not m.matches(statement, m.SimpleStatementLine(body=[m.Expr()])):
        return None
    assert isinstance(statement.body[0], cst.Expr)
    return statement if statement.body[0].value is call else None


@operator("FSDP431")
def never_zeroed(syntax: FileSyntax) -> Iterator[Plan]:
    """Nothing sets the gradients to zero any more."""
    statements = [_alone(syntax, call) for call in syntax.method_calls("zero_grad")]
    known = [one for one in statements if one is not None]
    if known and len(known) == len(statements) and ".grad" not in syntax.text:
        yield Plan(known[0], {one: [] for one in known})


@operator("FSDP432")
def clipped_early(syntax: FileSyntax) -> Iterator[Plan]:
    """The gradients are clipped before the backward pass of the same block."""
    backward = {statement: loss for statement, loss, _ in backwards(syntax)}
    for call in syntax.calls("clip_grad_norm_", of="torch.nn.utils."):
        clip = _alone(syntax, call)
        if clip is None or "inf" in text_of(call):
            continue
        block = list(syntax.block(clip))
        earlier = [one for one in block[: block.index(clip)] if one in backward]
        zeroed = any("zero_grad" in text_of(one) for one in block)
        if len(earlier) == 1 and zeroed and text_of(clip).count("clip_grad") == 1:
            first = earlier[0]
            moved = clip.with_changes(leading_lines=[])
            yield Plan(call, {first: [moved, first], clip: []})


@operator("FSDP528")
def error_caught(syntax: FileSyntax) -> Iterator[Plan]:
    """An error of the backward pass is caught, and the loop goes on."""
    for statement, _, _ in backwards(syntax):
        if syntax.loop(statement) is None or syntax.is_guarded_by_rank(statement):
            continue
        block = cst.parse_module(
            "try:\n    pass\nexcept RuntimeError:\n    print('skipped')\n"
        ).body[0]
        assert isinstance(block, cst.Try)
        inner = statement.with_changes(leading_lines=[])
        yield Plan(statement, {statement: [block.with_changes(body=cst.IndentedBlock([inner]))]})


@operator("FSDP523")
def one_buffer(syntax: FileSyntax) -> Iterator[Plan]:
    """All results of a gathering go to the same tensor."""
    for call in syntax.calls("all_gather", of="torch.distributed."):
        given = call.args[0].value if call.args else None
        name = given.value if isinstance(given, cst.Name) else None
        for made in m.findall(syntax.scope(call), m.Assign(value=m.ListComp())):
            assert isinstance(made, cst.Assign) and isinstance(made.value, cst.ListComp)
            ranges = made.value.for_in.iter
            count = (
                text_of(ranges.args[0].value) if m.matches(ranges, m.Call(args=[m.Arg()])) else ""
            )  # type: ignore[attr-defined]
            if count and name == text_of(made.targets[0].target):
                new = cst.parse_expression(f"[{text_of(made.value.elt)}] * {count}")
                yield Plan(call, {made.value: new})
