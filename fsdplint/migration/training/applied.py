"""`model.apply(fn)` on a wrapped model: FSDP1 gathers the parameters of each unit for it.

A function that needs no whole parameters stays on the sharded model. One that only writes the parameters
of the module that it gets, such as an initialisation, runs in a block that gives the modules whole
parameters. Each rank draws the same random numbers there as with FSDP1, and keeps its own part of them.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.fixes.summon import writes
from fsdplint.interpreter.values import Bound, Function, Value
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.training import APPLY_ON_WHOLE, APPLY_UNSEEN, APPLY_USE
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.rewriters import rewrites_member
from fsdplint.migration.training import full_parameters
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.layout import descend, statement_of
from fsdplint.trace import Called, Fsdp1Used

CONSTANTS = {"constant_", "zeros_", "ones_", "fill_", "zero_"}
# Calls that only read, and those that write the parameters of the module itself.
READING = {"isinstance", "type", "hasattr", "getattr", "len", "print", "float", "int", "min", "max"}
WRITING = {"reset_parameters"}
NOT_IN_PLACE = {"requires_grad_", "apply_", "share_memory_", "swap_tensors"}


@rewrites_member("apply")
def rewrite_apply(migration: Migration, source: Source, node: cst.Attribute) -> None:
    """Keep `model.apply(fn)`, or put it into a block with whole parameters if `fn` needs them.

    Raises:
        Blocked: `fn` needs whole parameters, and the block would not do the same.
    """
    call = source.parent(node)
    if not isinstance(call, cst.Call) or call.func is not node or len(call.args) != 1:
        raise Blocked(source, node, APPLY_USE())
    values = migration.values(call.args[0].value)
    functions = [one for one in map(_function_of, values) if one is not None]
    if not functions or len(functions) != len(values):
        raise Blocked(source, node, APPLY_UNSEEN())
    needy = [one for one, _ in functions if _needs_whole(migration, call, one)]
    if not needy:
        migration.step(source, node, "Apply to the sharded model")
        return
    if not _is_statement(source, call) or not all(
        _writes_own_parameters(migration, one, index) for one, index in functions
    ):
        raise Blocked(source, node, APPLY_ON_WHOLE())
    migration.blocks.applied.append((source, call))


def options_in(migration: Migration, source: Source) -> tuple[dict[str, str], ...]:
    """The options of the blocks that the calls of a file get: the defaults."""
    return tuple({} for one, _ in migration.blocks.applied if one is source)


def write(
    migration: Migration, options: full_parameters.Options, at: tuple[Source, cst.Call]
) -> None:
    """Put a call into a block in which the modules have whole parameters."""
    source, call = at
    assert isinstance(call.func, cst.Attribute)
    helper = full_parameters.helper(migration, source, call, options)
    model = expression(migration, source, call.func.value)
    statement = statement_of(source, call)
    given = ", ".join([model, *options.arguments({})])
    lines = [f"with {helper}({given}):", "\t" + migration.text(source, statement)]
    migration.replace_statement(source, call, lines)
    migration.step(source, call, full_parameters.TITLE)
    migration.note(
        "each rank keeps its own part of what `apply` writes, and the parts are cut differently",
        source,
        call,
        detail="Draw the same random numbers on all ranks, so that the whole values are the same as before.",
    )


def _function_of(value: Value) -> tuple[cst.FunctionDef | cst.Lambda, int] | None:
    """A function of the program, and the position of the parameter that gets the module."""
    if isinstance(value, Function):
        return value.node, 0
    if isinstance(value, Bound) and isinstance(value.function, Function):
        return value.function.node, 1
    return None


def _needs_whole(
    migration: Migration, call: cst.Call, function: cst.FunctionDef | cst.Lambda
) -> bool:
    """Whether a function does something else on sharded parameters than on whole ones."""
    if not writes(function.body) and not _reads_parameters(function):
        return False
    return not _constant(function) or _is_called_before(migration, call)


def _is_statement(source: Source, call: cst.Call) -> bool:
    """Whether a call is a line by itself, and its model a variable or an attribute."""
    line = source.parent(source.parent(call) or call)
    alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
    assert isinstance(call.func, cst.Attribute)
    return alone and isinstance(call.func.value, cst.Name | cst.Attribute)


def _writes_own_parameters(
    migration: Migration, function: cst.FunctionDef | cst.Lambda, index: int
) -> bool:
    """Whether a function only writes parameters of the module that it gets, in place.

    It must ask for the module's class: FSDP1 also calls it with the wrapper, which has the attributes
    of the module inside. The parts of the module are sharded when FSDP1 calls it.
    """
    parameters = function.params.params
    if len(parameters) <= index:
        return False
    name = parameters[index].name.value
    asks = False
    for node in descend(function.body):
        if migration.any_name(node):
            return False
        if isinstance(node, cst.AugAssign | cst.Return | cst.Yield | cst.Global | cst.Nonlocal):
            return False
        if isinstance(node, cst.AssignTarget) and not isinstance(node.target, cst.Name):
            return False
        if isinstance(node, cst.Call):
            if not _is_harmless(migration, node):
                return False
            asks = asks or _asks_for_class(node, name)
    return asks


def _asks_for_class(call: cst.Call, name: str) -> bool:
    if not isinstance(call.func, cst.Name) or call.func.value not in ("isinstance", "type"):
        return False
    first = call.args[0].value if call.args else None
    return isinstance(first, cst.Name) and first.value == name


def _is_harmless(migration: Migration, call: cst.Call) -> bool:
    """Whether a call reads, or writes in place the parameters that it names."""
    if isinstance(call.func, cst.Name) and call.func.value in READING:
        return True
    symbol = migration.symbol(call.func)
    if symbol.startswith(("torch.nn.init.", "math.")) or symbol == "torch.no_grad":
        return True
    if symbol.startswith("torch.") and symbol.count(".") == 1:
        return not symbol.endswith("_")
    if not isinstance(call.func, cst.Attribute):
        return False
    method = call.func.attr.value
    in_place = method.endswith("_") and not method.endswith("__")
    return method in WRITING or (in_place and method not in NOT_IN_PLACE)


def _reads_parameters(function: cst.CSTNode) -> bool:
    return any(
        isinstance(part, cst.Attribute)
        and part.attr.value in ("weight", "bias", "parameters", "named_parameters", "data", "grad")
        for part in descend(function)
    )


def _constant(function: cst.FunctionDef | cst.Lambda) -> bool:
    """Whether a function writes only constants into parameters."""
    for part in descend(function):
        if isinstance(part, cst.Call) and isinstance(part.func, cst.Attribute):
            name = part.func.attr.value
            if name.endswith("_") and not name.endswith("__") and name not in CONSTANTS:
                return False
        if isinstance(part, cst.AugAssign | cst.Subscript):
            return False
        if isinstance(part, cst.AssignTarget) and isinstance(part.target, cst.Attribute):
            return False
    names = {p.attr.value for p in descend(function) if isinstance(p, cst.Attribute)}
    return bool(names & CONSTANTS) and not names & {"copy_", "normal_", "uniform_"}


def _is_called_before(migration: Migration, call: cst.Call) -> bool:
    """Whether the model may have been called before, so that its root may be gathered."""
    for trace in migration.program.traces:
        for event in trace.of(Fsdp1Used):
            if isinstance(event.site, NodeSite) and event.site.node is call:
                if any(True for _ in trace.before(event, Called)):
                    return True
    return False
