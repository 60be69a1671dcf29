"""Which modules cast their inputs: the root in FSDP1, every sharded module in FSDP2.

The difference matters if a module gets more than the one tensor that the module before it returns.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.interpreter.values import Class, ModuleValue
from fsdplint.migration.constructor.library_layers import gets_hidden_type_only
from fsdplint.migration.constructor.policy import Policy
from fsdplint.migration.context import Migration
from fsdplint.migration.facts import Precision
from fsdplint.source.source import NodeSite
from fsdplint.trace import Wrapped

# Layers of torch.nn that get further tensors, such as masks and states.
SEVERAL_INPUTS = (
    *("Attention", "Transformer", "EncoderLayer", "DecoderLayer", "TransformerEncoder"),
    *("TransformerDecoder", "Bilinear", "EmbeddingBag", "RNN", "LSTM", "GRU", "Cell", "Loss"),
)


def wraps_parts(migration: Migration, call: cst.Call) -> set[bool]:
    """Whether a constructor call wraps a part of a wrapped module, for each time that it runs."""
    found = set()
    for trace in migration.program.traces:
        wrapped = list(trace.of(Wrapped))
        for event in wrapped:
            if isinstance(event.site, NodeSite) and event.site.node is call:
                found.add(
                    any(
                        other.module != event.module and trace.contains(other.inner, event.inner)
                        for other in wrapped
                    )
                )
    return found


def holds_parts(migration: Migration, call: cst.Call) -> bool:
    """Whether a constructor call may wrap a module that has wrapped parts already."""
    for trace in migration.program.traces:
        wrapped = list(trace.of(Wrapped))
        for number, event in enumerate(wrapped):
            if isinstance(event.site, NodeSite) and event.site.node is call:
                parts = (other for other in wrapped[:number] if other.module != event.module)
                if any(trace.contains(event.inner, other.inner) for other in parts):
                    return True
    return False


def fits_part(migration: Migration, precision: Precision, module: cst.CSTNode) -> bool:
    """Whether a part that is wrapped by hand may cast its inputs without a difference."""
    if precision.own_casts:
        return False
    if precision.casts_inner or not precision.lowers:
        return True
    found = [value for value in migration.values(module) if isinstance(value, ModuleValue)]
    return bool(found) and all(map(_gets_one_input, found))


def fits_policy(
    migration: Migration, precision: Precision, policy: Policy | None, module: cst.CSTNode
) -> bool:
    """Whether the modules of a model that a policy picks may cast their inputs without a
    difference."""
    if precision.casts_inner or not precision.lowers or policy is None:
        return True
    if precision.own_casts:
        return False
    parts = policy.parts if policy.units is not None else parts_of(migration, module)
    if policy.classes is None:  # it may pick any module
        return parts is not None and all(map(_gets_one_input, parts))
    for node in policy.classes:
        if gets_hidden_type_only(migration.symbol(node)):
            continue
        found = [v for v in migration.values(node) if isinstance(v, Class)]
        derived = [
            part.cls
            for part in parts or ()
            if part.cls is not None and any(klass in part.cls.mro() for klass in found)
        ]
        if not found or not all(map(_one_input, [*found, *derived])):
            return False
    return True


def parts_of(migration: Migration, module: cst.CSTNode) -> list[ModuleValue] | None:
    """The modules below a model; None if some may be unknown."""
    found = [value for value in migration.values(module) if isinstance(value, ModuleValue)]
    roots = [_innermost_module(value) for value in found]
    parts = modules_below(migration, found) if roots else None
    return None if parts is None else [value for value in parts if value not in roots]


def modules_below(migration: Migration, modules: Sequence[ModuleValue]) -> list[ModuleValue] | None:
    """Some modules and those below them; None if some may be unknown."""
    stack = list(modules)
    traces = migration.program.traces
    seen: list[ModuleValue] = []
    while stack:
        value = _innermost_module(stack.pop())
        if value in seen:
            continue
        seen.append(value)
        children = [*value.attributes.values(), *(value.elements.items if value.elements else ())]
        below = [child for child in children if isinstance(child, ModuleValue)]
        known = {_innermost_module(child).id for child in below} | {child.id for child in below}
        for trace in traces:
            info = trace.modules.get(value.id)
            if info is not None and not (
                info.children_known and known.issuperset(info.children.values())
            ):
                return None
        stack += below
    return seen


def _innermost_module(value: ModuleValue) -> ModuleValue:
    while value.inner is not None:
        value = value.inner
    return value


def _gets_one_input(value: ModuleValue) -> bool:
    """Whether a module gets one tensor. A container gets none: nothing calls it."""
    if value.cls is not None:
        return _one_input(value.cls)
    library = value.library_class or ""
    return library.startswith("torch.nn.") and not library.endswith(SEVERAL_INPUTS)


def _one_input(klass: Class) -> bool:
    """Whether the class's own forward takes one argument."""
    definition = getattr(klass.lookup("forward"), "node", None)
    if not isinstance(definition, cst.FunctionDef):
        return False
    parameters = definition.params
    return not (
        len(parameters.params) > 2
        or parameters.kwonly_params
        or parameters.star_kwarg
        or isinstance(parameters.star_arg, cst.Param)
    )
