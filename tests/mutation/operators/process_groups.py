"""Process groups, meshes and the launch."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m
from file_syntax import FSDP2, FileSyntax, argument, with_argument, without
from mutation_operator import Plan, operator
from planting import text_of

_NEEDS_GROUP = ("get_rank", "get_world_size", "barrier", "all_reduce", "DistributedSampler")


@operator("FSDP514")
def group_late(syntax: FileSyntax) -> Iterator[Plan]:
    """The process group is made after a call that needs it."""
    calls = list(syntax.calls("init_process_group"))
    for call in calls:
        statement = syntax.statement(call)
        if statement is None or not m.matches(statement.body[0], m.Expr()):
            continue
        own = syntax.chain(statement)
        if any(isinstance(one, cst.With | cst.Try | cst.For | cst.While) for one in own):
            continue
        if len(own) > 1 and syntax.line(call) != min(map(syntax.line, calls)):
            continue  # one plan for all branches
        if "is_initialized" in syntax.tests(call):
            continue
        after = _needing(syntax, own[-1])
        if after is not None:
            yield Plan(statement, {own[-1]: [after], after: [own[-1]]})  # type: ignore[list-item]


def _needing(syntax: FileSyntax, statement: cst.CSTNode) -> cst.SimpleStatementLine | None:
    """The next statement of the block, if it needs the group and nothing that is bound here."""
    needing = {call for call in syntax.calls(*_NEEDS_GROUP) if argument(call, "rank") is None}
    block = syntax.block(statement)
    place = block.index(statement)  # type: ignore[arg-type]
    after = block[place + 1] if place + 1 < len(block) else None
    if not isinstance(after, cst.SimpleStatementLine):
        return None
    bound = {
        text_of(target.target)  # type: ignore[attr-defined]
        for target in m.findall(statement, m.AssignTarget())
    }
    read = {text_of(name) for name in m.findall(after, m.Name() | m.Attribute())}
    needs = set(m.findall(after, m.Call())) & needing
    return after if needs and bound.isdisjoint(read) else None


@operator("FSDP504")
def group_twice(syntax: FileSyntax) -> Iterator[Plan]:
    """The process group is made twice."""
    for call in syntax.calls("init_process_group"):
        statement = syntax.statement(call)
        if statement is not None and m.matches(statement.body[0], m.Expr()):
            again = statement.with_changes(leading_lines=[])
            yield Plan(statement, {statement: [statement, again]})


@operator("FSDP514")
def collective_after_group(syntax: FileSyntax) -> Iterator[Plan]:
    """The process group is destroyed before a last collective."""
    for call in syntax.calls("destroy_process_group"):
        statement = syntax.statement(call)
        if statement is None or syntax.is_guarded_by_rank(statement) or call.args:
            continue
        block = syntax.block(statement)
        place = block.index(statement)
        before = block[place - 1] if place else None
        if isinstance(before, cst.SimpleStatementLine):
            if set(m.findall(before, m.Call())) & set(syntax.calls("barrier", "all_reduce")):
                yield Plan(statement, {statement: [before], before: [statement]})


@operator("FSDP513")
def timeout_number(syntax: FileSyntax) -> Iterator[Plan]:
    """The timeout of the process group is a number."""
    for call in syntax.calls("init_process_group"):
        if "**" not in text_of(call):
            changed = with_argument(without(call, "timeout"), "timeout=1800")
            yield Plan(call, {call: changed})


@operator("FSDP513")
def device_as_backend(syntax: FileSyntax) -> Iterator[Plan]:
    """The process group gets a kind of device as its backend."""
    for call in syntax.calls("init_process_group"):
        backend = argument(call, "backend", 0)
        if backend is not None and m.matches(backend.value, m.SimpleString()):
            yield Plan(call, {backend.value: cst.SimpleString('"cuda"')})


@operator("FSDP503")
def indexed_device(syntax: FileSyntax) -> Iterator[Plan]:
    """The mesh gets a device with an index."""
    for call in syntax.calls("init_device_mesh"):
        device = argument(call, "device_type", 0)
        if device is not None:
            text = "f\"cuda:{int(os.environ['LOCAL_RANK'])}\""
            yield Plan(call, {device.value: cst.parse_expression(text)}, "import os\n")


@operator("FSDP515")
def names_of_other_mesh(syntax: FileSyntax) -> Iterator[Plan]:
    """The mesh gets one name too many."""
    for call in syntax.calls("init_device_mesh"):
        names = argument(call, "mesh_dim_names")
        if names is not None and isinstance(names.value, cst.Tuple | cst.List):
            further = cst.Element(cst.SimpleString('"other"'))
            changed = names.value.with_changes(elements=[*names.value.elements, further])
            yield Plan(call, {names.value: changed})


@operator("FSDP123")
def names_dropped(syntax: FileSyntax) -> Iterator[Plan]:
    """The mesh of two dimensions has no names."""
    for call in syntax.calls("init_device_mesh"):
        names = argument(call, "mesh_dim_names")
        if names is None or not isinstance(names.value, cst.Tuple | cst.List):
            continue
        targets = syntax.targets(call)
        uses = [text_of(c) for c in syntax.calls("fully_shard")]
        whole = any(f"mesh={target}" in use for use in uses for target in targets)
        if len(names.value.elements) == 2 and whole:
            if not any(f"{target}[" in syntax.text for target in targets):
                yield Plan(call, {call: without(call, "mesh_dim_names")})


@operator("FSDP124")
def names_swapped(syntax: FileSyntax) -> Iterator[Plan]:
    """The mesh names its dimensions in the other order."""
    for call in syntax.calls("init_device_mesh"):
        names = argument(call, "mesh_dim_names")
        if names is None or not isinstance(names.value, cst.Tuple | cst.List):
            continue
        words = [text_of(one.value) for one in names.value.elements]
        if (
            syntax.version == FSDP2
            and len(words) == 2
            and "replicate" in words[0]
            and "shard" in words[1]
        ):
            text = f"({words[1]}, {words[0]})"
            yield Plan(call, {names.value: cst.parse_expression(text)})


@operator("FSDP506")
def rank_by_argument(syntax: FileSyntax) -> Iterator[Plan]:
    """The local rank comes from an argument that torchrun does not pass."""
    parsers = {
        target: call
        for call in syntax.calls("ArgumentParser", of="argparse.")
        for target in syntax.targets(call)
    }
    reads = [
        call
        for call in syntax.all_calls
        if text_of(call) in ('int(os.environ["LOCAL_RANK"])', "int(os.environ['LOCAL_RANK'])")
    ]
    for read in reads:
        for parser, made in parsers.items():
            statement = syntax.statement(made)
            args = [
                (target, parsed)
                for parsed in syntax.method_calls("parse_args", [parser])
                for target in syntax.targets(parsed)
            ]
            if statement is None or not args or syntax.scope(read) is not syntax.scope(made):
                continue
            if syntax.line(args[0][1]) > syntax.line(read):
                continue
            text = f'{parser}.add_argument("--local_rank", type=int, default=0)\n'
            added = cst.parse_module(text).body[0]
            changes = {
                statement: [statement, added],
                read: cst.parse_expression(f"{args[0][0]}.local_rank"),
            }
            yield Plan(read, changes)  # type: ignore[arg-type]
