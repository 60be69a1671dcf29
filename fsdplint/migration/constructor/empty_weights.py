"""The function of `param_init_fn` that only gives a module memory: a lambda or a function."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.called_functions import called_function
from fsdplint.migration.constructor import reading
from fsdplint.migration.context import Migration, expression
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import Scope, bindings_of
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import symbols_in

TORCH = "torch"
WITHOUT_EFFECT = {"torch.cuda.empty_cache"}


def device_text(
    migration: Migration, source: Source, at: cst.CSTNode, function: cst.BaseExpression
) -> str | None:
    """The device on which a `param_init_fn` allocates, as text for a call; None for other functions.

    A function may test its rank: the migrated program asks which parameters are on the meta device.
    """
    target = reading.to_empty_device(function)
    if target is not None:
        return expression(migration, source, target)
    found = called_function(migration.program, source, function)
    if found is None:
        return None
    home, definition = found
    device = _device_of(home, definition)
    if device is None:
        return None
    text = _written_elsewhere(migration, source, at, home, device)
    if text is not None and home is source and _is_read_once(migration, definition):
        migration.delete_statement(source, definition)
        migration.step(source, definition, "Remove a function that nothing uses")
    return text


def _is_read_once(migration: Migration, function: cst.FunctionDef) -> bool:
    """Whether a single place of the program names a function."""
    own = set(descend(function))
    name = function.name.value
    mentions = (
        node
        for source in migration.program.sources.values()
        if name in source.text
        for node in source.descend(source.tree)
        if isinstance(node, cst.Name) and node.value == name and node not in own
    )
    return sum(1 for _ in mentions) == 1


def _device_of(source: Source, function: cst.FunctionDef) -> cst.BaseExpression | None:
    """The device of the only `to_empty` of a function that does nothing else."""
    parameters = function.params.params
    if len(parameters) != 1 or function.decorators or function.asynchronous is not None:
        return None
    module = parameters[0].name.value
    devices: list[cst.BaseExpression] = []
    only = all(_only_allocates(source, part, module, devices) for part in function.body.body)
    return devices[0] if only and len(devices) == 1 else None


def _only_allocates(
    source: Source, node: cst.CSTNode, module: str, devices: list[cst.BaseExpression]
) -> bool:
    """Whether a statement allocates the module, or has no effect. Adds the devices to a list."""
    match node:
        case cst.SimpleStatementLine():
            return all(_only_allocates(source, part, module, devices) for part in node.body)
        case cst.If():
            parts = [*node.body.body, *([node.orelse] if node.orelse is not None else [])]
            return all(_only_allocates(source, part, module, devices) for part in parts)
        case cst.Else():
            return all(_only_allocates(source, part, module, devices) for part in node.body.body)
        case cst.Assign():
            targets = [item.target for item in node.targets]
            same = len(targets) == 1 and _is_name(targets[0], module)
            return same and _is_allocation(node.value, module, devices)
        case cst.Return():
            value = node.value
            return (
                value is None or _is_name(value, module) or _is_allocation(value, module, devices)
            )
        case cst.Expr():
            if isinstance(node.value, cst.SimpleString):
                return True
            if isinstance(node.value, cst.Call):
                symbol = symbols_in(source).get(node.value.func)
                return symbol in WITHOUT_EFFECT or _is_allocation(node.value, module, devices)
        case cst.Pass():
            return True
    return False


def _is_name(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def _is_allocation(
    node: cst.BaseExpression, module: str, devices: list[cst.BaseExpression]
) -> bool:
    """Whether a node is `module.to_empty(device=...)`. Adds the device to a list."""
    device = reading.device_of_to_empty(node, module)
    if device is None:
        return False
    devices.append(device)
    return True


def _written_elsewhere(
    migration: Migration,
    source: Source,
    at: cst.CSTNode,
    home: Source,
    device: cst.BaseExpression,
) -> str | None:
    """The text of a device for another place; None if it has names that mean something else there."""
    for part in descend(device):
        if isinstance(part, cst.Name) and _is_read(home, part):
            owner = _owner(home, part, part.value)
            if owner is None:
                return None
            if any(i.full == TORCH for i in owner.imports if i.local == part.value):
                if part.value != migration.torch(source, at):
                    return None
            elif home is not source or owner is not _owner(source, at, part.value):
                return None
    return home.code(device)


def _owner(source: Source, at: cst.CSTNode, name: str) -> Scope | None:
    """The scope that binds a name at a place."""
    bindings = bindings_of(source)
    return bindings.owner(bindings.scope_at(at), name)


def _is_read(source: Source, name: cst.Name) -> bool:
    """Whether a name is read as a variable: neither an attribute nor a keyword."""
    parent = source.parent(name)
    if isinstance(parent, cst.Attribute):
        return parent.value is name
    return not (isinstance(parent, cst.Arg) and parent.keyword is name)
