"""Averages of the weights whose class can save its state, which the program never asks for."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import (
    HelperState,
    ParametersOf,
    SamplerValue,
    ScalerValue,
    SchedulerValue,
    StateValue,
)
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Const,
    Dict,
    Function,
    Instance,
    LibraryObject,
    Method,
    ModuleValue,
    OptimizerValue,
    Sequence,
    Symbol,
    Value,
)
from fsdplint.source.positions import descend
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.state_names import STATE, STATES, last_name, nodes_by_name
from fsdplint.trace import AverageUnsaved

_OTHERS = (
    ModuleValue, OptimizerValue, SchedulerValue, ScalerValue, SamplerValue, Instance, Symbol, Class,
    LibraryObject, StateValue, HelperState, Const, Function, Bound, Method,
)  # fmt: skip


def note_holder(run: Run, average: ParametersOf, parameter: ParametersOf) -> None:
    """Note the object of the program whose method updates an average of parameters."""
    holder = run.frames[-1].receiver
    if not isinstance(holder, Instance) or not average.derived:
        return
    if all(isinstance(holder.cls.lookup(name), Function) for name in STATES):
        run.averages.setdefault(holder, parameter.modules)


def note_unsaved_averages(run: Run) -> None:
    """Record the averages of a finished run whose states no code asks for."""
    for holder, modules in run.averages.items():
        made = holder.created_at
        if isinstance(made, NodeSite) and not _may_be_saved(run, holder):
            run.source = made.source
            run.emit(
                AverageUnsaved,
                made.node,
                modules=tuple(module.id for module in modules),
                class_name=holder.cls.name,
            )


def _may_be_saved(run: Run, holder: Instance) -> bool:
    names = set(_names_of(run, holder))
    own = {id(node) for klass in holder.cls.mro() for node in descend(klass.node)}
    for source in run.project.sources.values():
        nodes = nodes_by_name(source)
        if any(_asks_for_state(run, node, holder, own, names) for node in nodes.get(STATE, ())):
            return True
        for node in (one for name in names for one in nodes.get(name, ())):
            if id(node) not in own and not _is_other(run, node, holder):
                if _is_out_of_sight(run, source, node, holder):
                    return True
    return False


def _names_of(run: Run, holder: Instance) -> Iterator[str]:
    """The last names of the expressions that are the object."""
    for node, value in run.evaluations.items():
        if value is holder and isinstance(node, cst.Name | cst.Attribute):
            name = last_name(node)
            if name and name != "self":
                yield name


def _is_other(run: Run, node: cst.CSTNode, holder: Instance) -> bool:
    """Whether an expression is certainly another object."""
    value = run.evaluations.get(node)
    value = run.settle(value) if value is not None else None
    if isinstance(value, Instance):
        return value.cls is not holder.cls  # code may run for several objects of a class
    return isinstance(value, _OTHERS)


def _asks_for_state(
    run: Run, node: cst.CSTNode, holder: Instance, own: set[int], names: set[str]
) -> bool:
    """Whether a name or text `state_dict` may read or set the state of the object."""
    if isinstance(node, cst.SimpleString):
        return True  # `getattr(part, "state_dict")`
    assert isinstance(node, cst.Attribute)
    name = last_name(node.value)
    if run.evaluations.get(node.value) is not None:
        return not _is_other(run, node.value, holder)
    return name in names or (name == "self" and id(node) in own)


def _is_out_of_sight(run: Run, source: Source, node: cst.CSTNode, holder: Instance) -> bool:
    """Whether code that is not followed may save the object, which an expression is."""
    parent = source.parent(node)
    if isinstance(parent, cst.Attribute):
        if parent.attr is node:
            return False
        return _may_read(source, parent, holder)
    if isinstance(parent, cst.Arg):
        call = source.parent(parent)
        if parent.keyword is node:
            return False
        called = run.evaluations.get(call.func) if isinstance(call, cst.Call) else None
        return not isinstance(called, Function | Bound | Class)
    if isinstance(parent, cst.Assign):
        return not all(isinstance(one.target, cst.Name | cst.Attribute) for one in parent.targets)
    if isinstance(parent, cst.Element):
        above = ancestors(source, parent)
        return not any(isinstance(one, cst.Return | cst.AssignTarget) for one in above)
    allowed = (
        cst.AssignTarget, cst.AnnAssign, cst.Param, cst.Return, cst.Comparison, cst.If, cst.IfExp,
        cst.BooleanOperation, cst.UnaryOperation, cst.Del, cst.Global, cst.Nonlocal, cst.NameItem,
        cst.ImportAlias, cst.ImportFrom, cst.FunctionDef, cst.AsName,
    )  # fmt: skip
    return not isinstance(parent, allowed)


def _may_read(source: Source, attribute: cst.Attribute, holder: Instance) -> bool:
    """Whether code outside of the class may get the tensors of the object: `ema.shadow`."""
    name, parent = attribute.attr.value, source.parent(attribute)
    method = holder.cls.lookup(name)
    if isinstance(method, Function) and isinstance(parent, cst.Call) and parent.func is attribute:
        without = cst.Expr | cst.WithItem | cst.FormattedStringExpression | cst.Comparison
        return not isinstance(source.parent(parent), without)
    held: Value | None = holder.attributes.get(name)
    return held is None or isinstance(held, Dict | Sequence | Instance | ModuleValue)
