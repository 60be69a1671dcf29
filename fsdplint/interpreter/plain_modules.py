"""Methods of FSDPModule that are called on modules which `fully_shard` certainly has not sharded.

A parameter of a loop stands for each element of a list. It is followed only if the loop certainly
visits all of them, or pairs each element with the next one and uses both.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.error_handling import catches_errors
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.loop_certainty import iterates_over_all
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import ModuleValue, Sequence
from fsdplint.syntax.dotted import dotted_name
from fsdplint.trace import PlainModuleUsed, Sharded

_OF_LISTS = frozenset({"set_modules_to_forward_prefetch", "set_modules_to_backward_prefetch"})


def note_method(run: Run, receiver: ModuleValue, name: str, call: Call) -> None:
    """A method that only sharded modules have is called, perhaps with a list of such modules."""
    if not isinstance(call.node, cst.Call) or run.callbacks or catches_errors(run, call.node):
        return
    given = run.settle(call.values[0]) if name in _OF_LISTS and call.values else None
    items = given.items if isinstance(given, Sequence) and not given.open else []
    held = [run.settle(item) for item in items]
    plain = next((one for one in (receiver, *held) if _is_plain(run, one)), None)
    if isinstance(plain, ModuleValue) and _is_certain(run, call.node):
        in_list = plain is not receiver or _is_of_pairs(run, call.node)
        run.emit(PlainModuleUsed, call.node, module=plain.id, method=name, given=in_list)


def _is_plain(run: Run, value: object) -> bool:
    """Whether a value is a part of a sharded module, and certainly not sharded itself."""
    if not isinstance(value, ModuleValue) or value.sharded or value.wrapper or value.framework:
        return False
    if value.stands_for_parts or value.synthetic_for is not None or run.assumes_sharding:
        return False
    if value.cls is not None:
        bases = value.cls.library_bases()
        of_torch = not value.cls.has_unknown_base() and all(
            base.startswith("torch.nn.") for base in bases
        )
    else:
        of_torch = (value.library_class or "").startswith("torch.nn.")
    above = set(run.trace.ancestors(value.id))
    shards = [one for one in run.trace.of(Sharded) if above & {one.module, *one.group}]
    inside = any(not one.ranks.partial for one in shards)
    return of_torch and inside and not run.trace.family_escaped(value.id)


def _is_certain(run: Run, call: cst.Call) -> bool:
    """Whether the modules at a call are certainly those for which it is executed."""
    operands = list(_operands(call))
    chains = [dotted_name(node) for node in operands]
    names = {chain.partition(".")[0] for chain in chains if chain}
    loops = list(_loops_around(run, call))
    if not all(chains) or any(isinstance(loop, cst.While | cst.BaseComp) for loop in loops):
        return False
    visited: set[str] = set()
    for loop in loops:
        targets = _names_in(run, loop.target) if isinstance(loop, cst.For) else set()
        if isinstance(loop, cst.For) and iterates_over_all(loop.iter):
            visited |= targets
        elif isinstance(loop, cst.For) and _pairs_neighbours(loop.iter) and targets <= names:
            visited |= targets
    bare = {chain for chain in chains if chain and "." not in chain}
    assigned = {name for loop in loops for name in _names_assigned(run, loop)}
    return bare <= visited and names - visited <= names - assigned


def _is_of_pairs(run: Run, call: cst.Call) -> bool:
    """Whether it is not certain which module of a pair is meant."""
    loops = _loops_around(run, call)
    return any(isinstance(loop, cst.For) and _pairs_neighbours(loop.iter) for loop in loops)


def _names_assigned(run: Run, loop: cst.CSTNode) -> Iterator[str]:
    """The names that a loop assigns."""
    for node in run.source.descend(loop):
        if isinstance(node, cst.AssignTarget | cst.For | cst.NamedExpr | cst.AnnAssign):
            yield from _names_in(run, node.target)


def _loops_around(run: Run, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    around = run.source.parent(node)
    while around is not None and not isinstance(around, cst.FunctionDef | cst.Lambda):
        if isinstance(around, cst.For | cst.While | cst.BaseComp):
            yield around
        around = run.source.parent(around)


def _names_in(run: Run, node: cst.CSTNode) -> set[str]:
    return {one.value for one in run.source.descend(node) if isinstance(one, cst.Name)}


def _operands(call: cst.Call) -> Iterator[cst.BaseExpression]:
    """The expressions of the modules: the receiver, and the elements of a list."""
    if isinstance(call.func, cst.Attribute):
        yield call.func.value
    for arg in call.args:
        if isinstance(arg.value, cst.List | cst.Tuple):
            yield from (element.value for element in arg.value.elements)


def _pairs_neighbours(node: cst.BaseExpression) -> bool:
    """Whether an expression gives each element of a list with the next one."""
    if not isinstance(node, cst.Call):
        return False
    name = (dotted_name(node.func) or "").rpartition(".")[2]
    if name == "pairwise":
        return True
    values = [arg.value for arg in node.args if arg.keyword is None]
    if name != "zip" or len(values) != 2:
        return False
    first, second = values
    sliced = isinstance(second, cst.Subscript) and second.value.deep_equals(first)
    return sliced and _begins_at_one(second)


def _begins_at_one(node: cst.BaseExpression) -> bool:
    """`[1:]`"""
    if not isinstance(node, cst.Subscript) or len(node.slice) != 1:
        return False
    part = node.slice[0].slice
    if not isinstance(part, cst.Slice) or part.upper is not None or part.step is not None:
        return False
    return isinstance(part.lower, cst.Integer) and part.lower.evaluated_value == 1
