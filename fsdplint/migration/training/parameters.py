"""Arithmetic on a rank's part of the parameters or gradients, which are whole DTensors in FSDP2.

Elementwise operations are the same in both. A norm, a sum, a value on the CPU or a collective is not:
in FSDP1 it uses only this rank's part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.migration.analysis.unreached_parameters import unreached_parameters
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.training import GRADIENT_NORM, GRADIENT_PART, PARAMETER_PART
from fsdplint.migration.constructor.ignored_values import ignored_modules, is_ignored
from fsdplint.migration.context import Migration, is_fsdp1, nodes
from fsdplint.migration.training.read_parameters import is_read_from_wrapped
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import statement_of
from fsdplint.syntax.qualified_names import symbols_in
from fsdplint.trace import Wrapped

REDUCING = {
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "dot",
    "flatten",
    "histc",
    "item",
    "max",
    "mean",
    "median",
    "min",
    "norm",
    "numpy",
    "prod",
    "quantile",
    "ravel",
    "reshape",
    "sort",
    "std",
    "sum",
    "tolist",
    "topk",
    "var",
    "vector_norm",
    "view",
}
FUNCTIONS = re.compile(
    r"torch\.(distributed\.\w+|linalg\.\w+|_foreach_norm|nn\.utils\.(parameters_to_vector|"
    r"get_total_norm|vector_to_parameters)|isnan|isinf|isfinite|cat|stack|"
    + "|".join(sorted(REDUCING))
    + r")|numpy\.\w+"
)


def check(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Add a blocker for each statement that computes with one rank's part."""
    if any(one.blocker in (GRADIENT_NORM, GRADIENT_PART) for one in migration.blockers):
        return
    wrapped = _wrapped_modules(migration)
    for source in migration.program.sources.values():
        symbols = symbols_in(source)
        seen: set[cst.CSTNode] = set()
        unreached = unreached_parameters(migration, source)
        for node in _expressions(source):
            found = _use(migration, source, node, symbols, wrapped, node in unreached)
            if found is None or (statement := statement_of(source, found)) in seen:
                continue
            around = {*source.descend(found), *ancestors(source, found)}
            if (
                around & migration.blocks.whole_parameters
                or around & migration.blocks.local_shard_functions
            ):
                continue
            seen.add(statement)
            text = " ".join(source.code(found).split())
            reason = PARAMETER_PART(code=text)
            migration.blockers.append(Blocked(source, found, reason))


def _wrapped_modules(migration: Migration) -> set[str]:
    """The modules that FSDP1 wraps, and their submodules but for those that it ignores."""
    wrapped = {
        module
        for trace in migration.program.traces
        for event in trace.of(Wrapped)
        for module in (event.module, *trace.submodules(event.inner))
    }
    return wrapped - ignored_modules(migration)


def _expressions(source: Source) -> Iterator[cst.Name | cst.Attribute]:
    """The names and attributes of a file, including the inner ones of chains."""
    for node in nodes(source):
        current = node
        while isinstance(current, cst.Attribute):
            yield current
            current = current.value
        if isinstance(current, cst.Name):
            yield current


def _use(
    migration: Migration,
    source: Source,
    node: cst.Name | cst.Attribute,
    symbols: dict[cst.CSTNode, str],
    wrapped: set[str],
    is_unreached: bool,
) -> cst.CSTNode | None:
    """The expression that computes a different value from one rank's part of a parameter, or None.

    is_unreached: whether the node is a parameter of a wrapped model in code that no run reaches.
    """
    values = [
        v
        for v in migration.values(node)
        if isinstance(v, ParametersOf) and v.element and not v.unsharded_copy
    ]
    if not is_unreached and (not values or is_ignored(migration, source, _first_name(node))):
        return None
    outer = isinstance(node, cst.Attribute) and migration.wrapping_of(node.value)
    sure = is_unreached or bool(
        outer
        or any(is_fsdp1(module) for value in values for module in value.modules)
        or is_read_from_wrapped(migration, source, node)
    )
    ids = {module.id for value in values for module in value.modules}
    current: cst.CSTNode = node
    while True:
        parent = source.parent(current)
        if isinstance(parent, cst.Attribute) and parent.value is current:
            name = parent.attr.value
            if name == "grad" and ids & wrapped:
                sure = True  # there are no gradients before the model is wrapped
            call = source.parent(parent)
            if isinstance(call, cst.Call) and call.func is parent:
                if sure and name in REDUCING:
                    return call
                current = call
            else:
                current = parent
        elif isinstance(parent, cst.Arg):
            call = source.parent(parent)
            if sure and isinstance(call, cst.Call) and call.func is not current:
                if FUNCTIONS.fullmatch(symbols.get(call.func, "")):
                    return call
            return None
        elif isinstance(parent, cst.BinaryOperation):
            current = parent
        else:
            return None


def _first_name(node: cst.BaseExpression) -> cst.BaseExpression:
    """The expression with which a chain of attributes begins."""
    while isinstance(node, cst.Attribute):
        node = node.value
    return node
