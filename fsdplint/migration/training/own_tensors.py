"""Tensors that a function makes for itself, which no model holds and FSDP does not shard."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.torch_values import ParametersOf, TensorValue
from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.analysis.called_functions import local_function
from fsdplint.migration.analysis.class_hierarchy import defines, own_class, positional_parameters
from fsdplint.migration.analysis.variables import definitions, home_of, reads
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.qualified_names import symbols_in

MAKERS = {
    f"torch.{name}"
    for name in (
        "nn.Parameter tensor zeros ones rand randn empty full zeros_like ones_like rand_like "
        "randn_like empty_like full_like normal"
    ).split()
}
COPIES = {"clone", "detach", "requires_grad_", "to", "cuda", "float"}


def is_own_tensor(
    migration: Migration,
    source: Source,
    node: cst.BaseExpression,
    symbols: dict[cst.CSTNode, str],
) -> bool:
    """Whether a name is a variable of a function that holds a tensor which the function makes.

    A variable that is assigned on may be a parameter of a model, and so may one that a call gets which
    calls neither a function of torch nor a model.
    """
    if not isinstance(node, cst.Name):
        return False
    home = home_of(source, node)
    found = definitions(source, node)
    if not isinstance(home, cst.FunctionDef) or not found:
        return False
    if not all(
        _is_made(one.value, symbols) or _is_leaf(migration, source, one.value) for one in found
    ):
        return False
    return not _is_given_away(migration, source, home, node.value, frozenset())


def _is_made(value: cst.BaseExpression, symbols: dict[cst.CSTNode, str]) -> bool:
    """Whether an expression makes a tensor, or a copy of one that it makes."""
    if not isinstance(value, cst.Call):
        return False
    if symbols.get(value.func) in MAKERS:
        return True
    func = value.func
    return (
        isinstance(func, cst.Attribute)
        and func.attr.value in COPIES
        and _is_made(func.value, symbols)
    )


def _is_leaf(migration: Migration, source: Source, value: cst.BaseExpression) -> bool:
    """Whether an expression is `result.detach().requires_grad_()`, with the result of a module.

    A detached parameter would still be a part of a model, so the value of the name must be known to
    be a result.
    """
    methods: set[str] = set()
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        if value.func.attr.value not in COPIES:
            break
        methods.add(value.func.attr.value)
        value = value.func.value
    return {"detach", "requires_grad_"} <= methods and _is_result(migration, source, value)


def _is_result(migration: Migration, source: Source, value: cst.BaseExpression) -> bool:
    """Whether an expression is what a module, or an object of the program, computes from a value."""
    if any(isinstance(one, ParametersOf) for one in migration.values(value)):
        return False
    if isinstance(value, cst.Name):
        found = definitions(source, value)
        return bool(found) and all(_is_result(migration, source, one.value) for one in found or ())
    if not isinstance(value, cst.Call):
        return False
    if isinstance(value.func, cst.Attribute) and value.func.attr.value in COPIES:
        return _is_result(migration, source, value.func.value)
    results = migration.values(value)
    return (
        bool(value.args) and bool(results) and all(isinstance(one, TensorValue) for one in results)
    )


def _is_given_away(
    migration: Migration,
    source: Source,
    home: cst.FunctionDef,
    name: str,
    seen: frozenset[cst.FunctionDef],
) -> bool:
    """Whether a function may make the tensor of one of its variables a parameter of a model."""
    symbols = symbols_in(source)
    return any(
        _gives_away(migration, source, read, symbols, seen | {home})
        for read in reads(source, home, name)
    )


def _gives_away(
    migration: Migration,
    source: Source,
    read: cst.Name,
    symbols: dict[cst.CSTNode, str],
    seen: frozenset[cst.FunctionDef],
) -> bool:
    """Whether a read may make a tensor a parameter of a model."""
    node: cst.CSTNode = read
    parent = source.parent(node)
    while isinstance(parent, cst.Element | cst.List | cst.Tuple | cst.Set):
        node, parent = parent, source.parent(parent)
    if isinstance(parent, cst.Assign | cst.AnnAssign | cst.NamedExpr):
        return parent.value is node
    if isinstance(parent, cst.Arg):
        call = source.parent(parent)
        if not isinstance(call, cst.Call):
            return True
        name, called = symbols.get(call.func, ""), migration.values(call.func)
        if called and all(isinstance(value, ModuleValue) for value in called):
            return False
        if _is_own_module(source, call.func):
            return False
        function = local_function(source, call.func)
        if function is not None and node is read:
            number = _parameter_of(source, call, parent, function)
            return (
                number is None
                or function in seen
                or _is_given_away(migration, source, function, number, seen)
            )
        return not name.startswith("torch.") or name.startswith("torch.nn.Parameter")
    return isinstance(parent, cst.Return | cst.Yield | cst.DictElement)


def _is_own_module(source: Source, func: cst.BaseExpression) -> bool:
    """Whether a call in a method of a module is `self(...)`, or calls a part of the module.

    A method of the module's own class is no part.
    """
    klass = own_class(source, func)
    if klass is None or not defines(klass, "forward"):
        return False
    if isinstance(func, cst.Attribute) and not defines(klass, func.attr.value):
        func = func.value
    home = home_of(source, func) if isinstance(func, cst.Name) else None
    if not isinstance(func, cst.Name) or not isinstance(home, cst.FunctionDef):
        return False
    params = [*home.params.posonly_params, *home.params.params]
    return source.parent(home) is klass.body and bool(params) and params[0].name.value == func.value


def _parameter_of(
    source: Source, call: cst.Call, arg: cst.Arg, function: cst.FunctionDef
) -> str | None:
    """The parameter of a function that an argument of a call fills; None if it is not certain."""
    if arg.keyword is not None:
        return arg.keyword.value
    before = call.args[: call.args.index(arg)]
    params = positional_parameters(source, function)
    if any(one.star or one.keyword for one in (*before, arg)) or len(before) >= len(params):
        return None
    return params[len(before)].name.value
