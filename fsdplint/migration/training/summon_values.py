"""`summon_full_params(...)` as a value that a `with` statement enters elsewhere.

It may be one side of a choice, wait in a variable, be the result of a lambda, or be given to
`enter_context`. A context manager that gathers the parameters with FSDP2 replaces it.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.fixes.syntax import uses
from fsdplint.migration.analysis.variables import top_level
from fsdplint.migration.context import Migration
from fsdplint.migration.state_dicts.state_functions import write_once
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import function_around

Blocks = list[cst.With]


def entered_blocks(source: Source, call: cst.Call) -> Blocks | None:
    """The `with` blocks that may run in the context that a call makes; None if that is not known."""
    value: cst.CSTNode = call
    parent = source.parent(value)
    while isinstance(parent, cst.IfExp) and parent.test is not value:
        value, parent = parent, source.parent(parent)
    if isinstance(parent, cst.WithItem):
        return _block(source, parent)
    if isinstance(parent, cst.Arg):
        return _exit_stack(source, parent)
    if isinstance(parent, cst.Lambda):
        if parent.params.params or parent.body is not value:
            return None
        return _variable(source, parent, called=True)
    return _variable(source, value, called=False)


def _block(source: Source, item: cst.WithItem) -> Blocks | None:
    block = source.parent(item)
    if not isinstance(block, cst.With) or block.asynchronous or item.asname is not None:
        return None
    return [block]


def _exit_stack(source: Source, arg: cst.Arg) -> Blocks | None:
    """The block of `with ExitStack() as stack:` whose stack enters the context."""
    call = source.parent(arg)
    func = call.func if isinstance(call, cst.Call) else None
    if not isinstance(func, cst.Attribute) or func.attr.value != "enter_context":
        return None
    node: cst.CSTNode | None = call
    while node is not None and not isinstance(node, cst.FunctionDef | cst.Lambda):
        for item in node.items if isinstance(node, cst.With) else ():
            name = item.asname.name if item.asname is not None else None
            if isinstance(name, cst.Name) and name.value == source.code(func.value):
                assert isinstance(node, cst.With)
                return [node]
        node = source.parent(node)
    return None


def _variable(source: Source, value: cst.CSTNode, *, called: bool) -> Blocks | None:
    """The blocks that a variable of a function enters, as `with name:` or `with name():`."""
    assign = source.parent(value)
    if not isinstance(assign, cst.Assign) or assign.value is not value or len(assign.targets) != 1:
        return None
    target = assign.targets[0].target
    if not isinstance(target, cst.Name):
        return None
    reads = [
        use
        for use in uses(function_around(source, assign), target.value)
        if not isinstance(source.parent(use), cst.AssignTarget)
    ]
    return _headed_blocks(source, reads, called=called)


def _headed_blocks(source: Source, reads: list[cst.Name], *, called: bool) -> Blocks | None:
    """The blocks whose heads are these reads, each with a call if `called`."""
    found: Blocks = []
    for read in reads:
        head: cst.CSTNode | None = read
        if called:
            head = source.parent(read)
            if not isinstance(head, cst.Call) or head.func is not read:
                return None
        item = source.parent(head) if head is not None else None
        block = _block(source, item) if isinstance(item, cst.WithItem) else None
        if block is None:
            return None
        found += block
    return found or None


def context_helper(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    """The name of the context manager that gathers parameters, which the file gets if it has none."""
    top = top_level(source, at)
    decorator = migration.need(source, "contextlib", "contextmanager", top)
    kind = migration.need(source, "torch.distributed.fsdp", "FSDPModule", top)
    return write_once(
        migration,
        source,
        top,
        "gathered_parameters",
        [
            f"@{decorator}",
            "def gathered_parameters(model, recurse=True):",
            '\t"""Gather the parameters of a sharded model, for the time of a block."""',
            "\tmodules = list(model.modules()) if recurse else [model]",
            f"\tmodules = [module for module in modules if isinstance(module, {kind})]",
            "\tfor module in modules:",
            "\t\tmodule.unshard()",
            "\ttry:",
            "\t\tyield",
            "\tfinally:",
            "\t\tfor module in modules:",
            "\t\t\tmodule.reshard()",
        ],
    )
