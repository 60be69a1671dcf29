"""The order of sharding and what has to come before or after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst
import libcst.matchers as m
from file_syntax import FSDP1, FSDP2, FileSyntax, first_argument, without
from mutation_operator import Plan, operator
from planting import Statement, statements, text_of


def sharding_statements(
    syntax: FileSyntax,
) -> Iterator[tuple[cst.SimpleStatementLine, str, cst.Call]]:
    """The statements that shard a root in place, its name and the call."""
    for call in syntax.sharding:
        statement = syntax.statement(call)
        root = first_argument(call) or ""
        if statement is None or not isinstance(
            syntax.parent(statement), cst.IndentedBlock | cst.Module
        ):
            continue
        if syntax.loop(statement) is None and "layer" not in root and "block" not in root:
            yield statement, root, call


def sharding_loop(
    syntax: FileSyntax, block: Sequence[Statement], root: str, statement: cst.CSTNode
) -> cst.For | None:
    """The last loop before a statement that shards parts of a root, in the same block."""
    own = set(syntax.calls("fully_shard"))
    place = list(block).index(statement)  # type: ignore[arg-type]
    for one in reversed(block[:place]):
        if isinstance(one, cst.For) and own & set(m.findall(one, m.Call())):
            inner = [first_argument(c) for c in own & set(m.findall(one, m.Call()))]
            if root in text_of(one.iter) and root not in inner:
                return one
    return None


@operator("FSDP103")
def optimizer_first(syntax: FileSyntax) -> Iterator[Plan]:
    """The optimizer is built before the sharding."""
    for call in syntax.optimizers.values():
        statement = syntax.statement(call)
        if statement is None or "parameters()" not in text_of(call):
            continue
        for sharding, root, made in sharding_statements(syntax):
            block = syntax.block(statement)
            if sharding not in block or f"{root}.parameters()" not in text_of(call):
                continue
            if made in syntax.calls("FullyShardedDataParallel"):
                targets = syntax.targets(made)
                if (
                    root not in targets
                    or "use_orig_params" in text_of(made)
                    or "**" in text_of(made)
                ):
                    continue
            loop = sharding_loop(syntax, block, root, sharding)
            first: cst.CSTNode = loop or sharding
            start, end = block.index(first), block.index(statement)  # type: ignore[arg-type]
            between = block[start:end]
            if end < start or _binds(between, _read(statement) - {root.partition(".")[0]}):
                continue
            yield Plan(statement, {first: [statement, first], statement: []})  # type: ignore[list-item]


def _read(statement: cst.CSTNode) -> set[str]:
    return {node.value for node in m.findall(statement, m.Name())}  # type: ignore[attr-defined]


def _binds(block: Sequence[Statement], names: set[str]) -> bool:
    """Whether statements assign one of these names."""
    assigned = set()
    for one in block:
        for target in m.findall(one, m.AssignTarget() | m.For() | m.AnnAssign()):
            assigned |= {n.value for n in m.findall(target.target, m.Name())}  # type: ignore[attr-defined]
    return not assigned.isdisjoint(names)


@operator("FSDP105")
def root_dropped(syntax: FileSyntax) -> Iterator[Plan]:
    """The root is not sharded, only its parts."""
    for statement, root, call in sharding_statements(syntax):
        if syntax.roots.get(root) == FSDP2 and call in syntax.calls("fully_shard"):
            if sharding_loop(syntax, syntax.block(statement), root, statement) is None:
                continue
            if m.matches(statement.body[0], m.Expr()):
                yield Plan(statement, {statement: []})
            elif not isinstance(statement.body[0], cst.Return):
                yield Plan(statement, {call: cst.parse_expression(root)})
            else:
                yield Plan(statement, {call: cst.parse_expression(root)})


@operator("FSDP106")
def root_first(syntax: FileSyntax) -> Iterator[Plan]:
    """The parts are sharded after the root."""
    for statement, root, call in sharding_statements(syntax):
        loop = sharding_loop(syntax, syntax.block(statement), root, statement)
        if loop is None or call not in syntax.calls("fully_shard"):
            continue
        if m.matches(statement.body[0], m.Expr()):
            yield Plan(statement, {statement: [], loop: [statement, loop]})


@operator("FSDP104")
def parts_dropped(syntax: FileSyntax) -> Iterator[Plan]:
    """Only the root is sharded, not the blocks in its list."""
    for statement, root, call in sharding_statements(syntax):
        loop = sharding_loop(syntax, syntax.block(statement), root, statement)
        if (
            loop is not None
            and "=" not in text_of(loop.iter)
            and call in syntax.calls("fully_shard")
        ):
            if len(set(syntax.calls("fully_shard"))) == 2:
                yield Plan(loop, {loop: []}, rules=("FSDP104",))


@operator("FSDP104")
def policy_dropped(syntax: FileSyntax) -> Iterator[Plan]:
    """FSDP1 wraps a model of blocks as one unit: its policy is missing."""
    calls = list(syntax.calls("FullyShardedDataParallel"))
    if len(calls) == 1 and "transformer_layer_cls" in syntax.text:
        changed = without(calls[0], "auto_wrap_policy")
        if len(changed.args) < len(calls[0].args):
            yield Plan(calls[0], {calls[0]: changed})


@operator("FSDP108")
def list_sharded(syntax: FileSyntax) -> Iterator[Plan]:
    """`fully_shard` gets the list of the blocks in the place of each of them."""
    lists = {
        target[5:]
        for call in syntax.calls("ModuleList", of="torch.nn.")
        for target in syntax.targets(call)
        if target.startswith("self.")
    }
    for statement, root, _ in sharding_statements(syntax):
        loop = sharding_loop(syntax, syntax.block(statement), root, statement)
        if loop is None or not isinstance(loop.iter, cst.Attribute):
            continue
        if loop.iter.attr.value not in lists or not isinstance(loop.target, cst.Name):
            continue
        shard = [c for c in m.findall(loop, m.Call()) if c in set(syntax.calls("fully_shard"))]
        if len(shard) == 1 and len(loop.body.body) == 1:
            call = shard[0]
            assert isinstance(call, cst.Call)
            argument = call.args[0].with_changes(value=loop.iter)
            changed = cst.Expr(call.with_changes(args=[argument, *call.args[1:]]))
            yield Plan(loop, {loop: [cst.SimpleStatementLine([changed])]})


@operator("FSDP111")
def sharded_again(syntax: FileSyntax) -> Iterator[Plan]:
    """The root is sharded twice."""
    for statement, root, call in sharding_statements(syntax):
        if call in syntax.calls("fully_shard") and m.matches(statement.body[0], m.Expr()):
            yield Plan(statement, {statement: [statement, *statements(text_of(call) + "\n")]})
        elif syntax.roots.get(root) == FSDP1:
            continue


@operator("FSDP116")
def never_materialized(syntax: FileSyntax) -> Iterator[Plan]:
    """The model is built on the meta device, and nothing materialises it."""
    words = ("to_empty", "param_init_fn", "meta", "load_state_dict", "set_model_state_dict")
    if any(word in syntax.text for word in words):
        return
    for root in syntax.roots_of(FSDP2):
        if syntax.class_built(root) is None:
            continue
        for call in syntax.all_calls:
            if text_of(call.func) == syntax.class_built(root):
                statement = syntax.statement(call)
                if statement is not None and root in text_of(statement).partition("=")[0]:
                    block = cst.parse_module('with torch.device("meta"):\n    pass\n').body[0]
                    assert isinstance(block, cst.With)
                    inner = statement.with_changes(leading_lines=[])
                    whole = block.with_changes(body=cst.IndentedBlock([inner]))
                    yield Plan(statement, {statement: [whole]}, "import torch\n")


@operator("FSDP308", "FSDP309")
def seed_of_rank(syntax: FileSyntax) -> Iterator[Plan]:
    """The model is initialised with another seed on each rank."""
    if "sync_module_states" in syntax.text or "load_state_dict" in syntax.text:
        return
    name, head = syntax.dist
    for call in syntax.calls("manual_seed"):
        statement = syntax.statement(call)
        if statement is None or not call.args or "enerator" in text_of(statement):
            continue
        if not m.matches(statement.body[0], m.Expr()) or syntax.loop(statement) is not None:
            continue
        if not _model_follows(syntax, statement):
            continue
        value = text_of(call.args[0].value)
        seed = cst.parse_expression(f"{value} + {name}.get_rank()")
        yield Plan(statement, {call.args[0].value: seed}, head)


def _model_follows(syntax: FileSyntax, statement: cst.SimpleStatementLine) -> bool:
    """Whether a model of the file is built below a statement in its block, and the group above."""
    classes = {n.name.value for n in m.findall(syntax.module, m.ClassDef())}  # type: ignore[attr-defined]
    block = syntax.block(statement)
    place = block.index(statement)
    after = "".join(text_of(one) for one in block[place + 1 :])
    before = "".join(text_of(one) for one in block[:place])
    built = any(f"{name}(" in after for name in classes if syntax.linears.get(name))
    return built and ("init_process_group" in before or "setup" in before)
