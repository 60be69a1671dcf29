"""Gradient clipping with FSDP1's method, or with torch's function on sharded parameters."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from fsdplint.fixes.clipping import CLIP, plain_result_wanted
from fsdplint.fixes.syntax import library_name
from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.analysis.parameters import origins
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.training import LARGEST_GRADIENT, NORM_SOMETIMES_DTENSOR
from fsdplint.migration.context import Migration, expression, is_fsdp1
from fsdplint.migration.names import FSDP
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import descend
from fsdplint.trace import Wrapped

_INFINITE = re.compile(r"\binf\b", re.IGNORECASE)


def rewrite_clipping(migration: Migration, source: Source, node: cst.Call) -> None:
    """Rewrite `model.clip_grad_norm_(x)` to `torch.nn.utils.clip_grad_norm_(model.parameters(), x)`."""
    assert isinstance(node.func, cst.Attribute)
    owner, more = node.func.value, node.args
    if is_of_class(migration, node):
        owner, more = node.args[0].value, node.args[1:]
        migration.account_for(source, node.func)
    norm_type = _norm_type(more)
    if norm_type is not None and _may_be_infinite(migration, source, norm_type):
        raise Blocked(source, node, LARGEST_GRADIENT())
    model = expression(migration, source, owner)
    function = library_name(migration.rewrite, source, CLIP, node)
    given = [f"{model}.parameters()", *(_argument(migration, source, arg) for arg in more)]
    tail = ".full_tensor()" if plain_result_wanted(migration.program, source, node) else ""
    migration.put_call(source, node, function, given, tail)
    migration.step(source, node, "Clip with torch.nn.utils.clip_grad_norm_")


def _may_be_infinite(migration: Migration, source: Source, norm_type: cst.BaseExpression) -> bool:
    """Whether a norm may be `float("inf")`, `math.inf`, "inf" or the like."""
    found = origins(migration.program.sources.values(), source, norm_type)
    return any(_INFINITE.search(home.code(value)) for home, value in found)


def is_of_class(migration: Migration, node: cst.Call) -> bool:
    """Whether a call is `FSDP.clip_grad_norm_(model, x)`, on the class."""
    if migration.fsdp1(node.func) != f"{FSDP}.clip_grad_norm_" or not node.args:
        return False
    first = node.args[0]
    return first.keyword is None and not first.star and bool(migration.wrapping_of(first.value))


def clips_configured(migration: Migration, function: cst.Attribute) -> bool:
    """Whether a method is that of FSDP1's wrapper, which a strategy has put around a module.

    The program has the new strategy by now, with which the module wraps itself.
    """
    values = migration.values(function.value)
    traces = migration.program.traces
    inner = {event.inner for trace in traces for event in trace.of(Wrapped)}
    return bool(values) and all(
        isinstance(value, ModuleValue)
        and value.id in inner
        and not value.wrapper
        and (value.cls is None or value.cls.lookup("clip_grad_norm_") is None)
        for value in values
    )


def _norm_type(given: Sequence[cst.Arg]) -> cst.BaseExpression | None:
    for number, arg in enumerate(given):
        if arg.keyword.value == "norm_type" if arg.keyword is not None else number == 1:
            return arg.value
    return None


def clips_own(migration: Migration, source: Source, node: cst.Call) -> bool:
    """Whether `self.model.clip_grad_norm_(x)` in an unreached method is a call of FSDP1's method.

    Another method of the class wraps `self.model`, and no other module has such a method.
    """
    if not isinstance(node.func, cst.Attribute) or len(node.args) > 2:
        return False
    model = node.func.value
    if not isinstance(model, cst.Attribute) or migration.values(model):
        return False
    if migration.in_other_arm(node):
        return False
    klass = next((x for x in ancestors(source, node) if isinstance(x, cst.ClassDef)), None)
    code = source.code(model)
    return (
        klass is not None
        and code.startswith("self.")
        and any(
            isinstance(part, cst.Attribute)
            and migration.wrapping_of(part)
            and source.code(part) == code
            for part in descend(klass)
        )
    )


def complete_norm(migration: Migration, source: Source, node: cst.Call) -> None:
    """Make the norm that `torch.nn.utils.clip_grad_norm_` returns a plain tensor where needed.

    With FSDP2 it is a DTensor, which cannot be formatted, for example.

    Raises:
        Blocked: the model is not sharded in some configurations, and the norm is not in a variable.
    """
    values = migration.values(node.args[0].value) if node.args else []
    held = [m for v in values if isinstance(v, ParametersOf) for m in v.modules]
    if not any(map(is_fsdp1, held)) or not plain_result_wanted(migration.program, source, node):
        return
    if all(map(is_fsdp1, held)):
        migration.substitute(source, node, migration.text(source, node) + ".full_tensor()")
        return
    assign = source.parent(node)
    name = assign.targets[0].target if isinstance(assign, cst.Assign) else None
    several = isinstance(assign, cst.Assign) and len(assign.targets) != 1
    if assign is None or several or not isinstance(name, cst.Name | cst.Attribute):
        raise Blocked(
            source,
            node,
            NORM_SOMETIMES_DTENSOR(),
        )
    text = source.code(name)
    kind = migration.need(source, "torch.distributed.tensor", "DTensor", assign)
    lines = [f"if isinstance({text}, {kind}):", f"\t{text} = {text}.full_tensor()"]
    migration.rewrite.insert_after(source, assign, lines)


def _argument(migration: Migration, source: Source, arg: cst.Arg) -> str:
    text = expression(migration, source, arg.value)
    if arg.keyword is not None:
        return f"{arg.keyword.value}={text}"
    return arg.star + text
