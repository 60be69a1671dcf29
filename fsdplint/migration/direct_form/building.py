"""Expressions that only build objects: it makes no difference when they are evaluated.

The functions of the program that an expression calls may assign their own variables, and fill dicts
and lists that they made. Whatever else they do counts as an effect.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import Bound, Class, Function, Value
from fsdplint.migration.context import Migration
from fsdplint.migration.direct_form.meaning import BUILDERS, BUILDING, CONTEXTS, WITH_EFFECT
from fsdplint.migration.names import PREFIX, fsdp1_name
from fsdplint.source.source import Source
from fsdplint.syntax.layout import descend

MAX_DEPTH = 4  # functions that call one another
FUNCTIONS = BUILDERS | {
    *("bool", "int", "float", "str", "len", "min", "max", "sorted", "isinstance", "hasattr"),
    *("zip", "enumerate", "any", "all", "super", "vars", "type"),
}
METHODS = {
    *("get", "items", "keys", "values", "copy", "lower", "upper", "strip", "split", "startswith"),
    *("endswith", "removeprefix", "removesuffix"),
}
FILLING = {"update", "setdefault", "pop", "append", "extend", "add"}  # of an object of the function
LIBRARY = BUILDING | {
    *("torch.cuda.is_available", "torch.cuda.current_device", "copy.copy", "copy.deepcopy"),
    *("dataclasses.asdict", "dataclasses.fields", "dataclasses.replace"),
    *(f"torch.distributed.{name}" for name in ("get_rank", "get_world_size", "is_initialized")),
}
EXPRESSIONS = (
    *(cst.Name, cst.Attribute, cst.BaseNumber, cst.BaseString, cst.Lambda, cst.Subscript),
    *(cst.Tuple, cst.List, cst.Set, cst.Dict, cst.ListComp, cst.SetComp, cst.DictComp),
    *(cst.GeneratorExp, cst.UnaryOperation, cst.BinaryOperation, cst.BooleanOperation),
    *(cst.Comparison, cst.IfExp, cst.Call, cst.FormattedString),
)
STATEMENTS = (
    *(cst.SimpleStatementLine, cst.If, cst.For, cst.Pass, cst.Break, cst.Continue, cst.Return),
    *(cst.Assign, cst.AnnAssign, cst.AugAssign, cst.Expr, cst.Import, cst.ImportFrom),
)


def only_builds(migration: Migration, source: Source, node: cst.CSTNode, depth: int = 0) -> bool:
    """Whether an expression has no effect but to make an object."""
    return all(
        isinstance(part, EXPRESSIONS)
        and (not isinstance(part, cst.Call) or _builds(migration, source, part, depth))
        and (not isinstance(part, cst.Attribute) or _is_plain(migration, part, depth))
        for part in descend(node)
        if isinstance(part, cst.BaseExpression)
    )


def is_computed(migration: Migration, node: cst.Attribute) -> bool:
    """Whether a method of the program with this name is a property."""
    return bool(_properties(migration, node.attr.value))


def _is_plain(migration: Migration, node: cst.Attribute, depth: int) -> bool:
    """Whether the read of an attribute has no effect."""
    return all(
        _body_builds(migration, source, function, depth)
        for source, function in _properties(migration, node.attr.value)
    )


def _properties(migration: Migration, name: str) -> list[tuple[Source, cst.FunctionDef]]:
    return [
        (source, node)
        for source in migration.program.sources.values()
        if name in source.text
        for node in source.descend(source.tree)
        if isinstance(node, cst.FunctionDef) and node.name.value == name and node.decorators
    ]


def _builds(migration: Migration, source: Source, call: cst.Call, depth: int) -> bool:
    func = call.func
    symbol = migration.symbol(func)
    name = fsdp1_name(symbol)
    if name is not None:
        return bool(CONTEXTS.fullmatch(name)) or not WITH_EFFECT.match(name)
    if symbol in LIBRARY or symbol.startswith(f"{PREFIX}.wrap."):
        return True
    values = migration.values(func)
    if values and all(isinstance(_function(value), Function | Class) for value in values):
        return all(_is_building_function(migration, value, depth) for value in values)
    if isinstance(func, cst.Attribute):
        return func.attr.value in METHODS
    return isinstance(func, cst.Name) and func.value in FUNCTIONS


def _function(value: Value) -> Value:
    return value.function if isinstance(value, Bound) else value


def _is_building_function(migration: Migration, value: Value, depth: int) -> bool:
    function = _function(value)
    if isinstance(function, Class):
        return _has_plain_objects(function)
    if not isinstance(function, Function) or depth >= MAX_DEPTH:
        return False
    if isinstance(function.node, cst.Lambda):
        return only_builds(migration, function.site.source, function.node.body, depth + 1)
    return _body_builds(migration, function.site.source, function.node, depth)


def _has_plain_objects(klass: Class) -> bool:
    """Whether a dataclass only sets the attributes of a new object."""
    names = {name for one in klass.mro() for name in one.attributes}
    return klass.dataclass and not klass.has_unknown_base() and "__post_init__" not in names


def _body_builds(
    migration: Migration, source: Source, function: cst.FunctionDef, depth: int
) -> bool:
    """Whether the statements of a function only compute what it returns."""
    own = _own_variables(function)
    for part in descend(function.body):
        if isinstance(part, cst.BaseStatement | cst.BaseSmallStatement):
            if not isinstance(part, STATEMENTS):
                return False
        if isinstance(part, cst.AssignTarget | cst.AugAssign | cst.AnnAssign):
            if not _is_own(part.target, own):
                return False
        elif isinstance(part, cst.Call) and isinstance(part.func, cst.Attribute):
            if part.func.attr.value in FILLING and not _is_own(part.func.value, own):
                return False
            if part.func.attr.value in FILLING:
                continue
        if isinstance(part, cst.Call) and not _builds(migration, source, part, depth + 1):
            return False
        if isinstance(part, cst.Await | cst.Yield | cst.NamedExpr):
            return False
    return True


def _own_variables(function: cst.FunctionDef) -> set[str]:
    """The variables that a function makes, without its parameters but `**kwargs`."""
    targets = (
        part.target
        for part in descend(function.body)
        if isinstance(part, cst.AssignTarget | cst.AnnAssign)
    )
    made = {target.value for target in targets if isinstance(target, cst.Name)}
    stars = function.params.star_kwarg
    given = {part.name.value for part in descend(function.params) if isinstance(part, cst.Param)}
    return made - given | ({stars.name.value} if stars is not None else set())


def _is_own(target: cst.BaseExpression, own: set[str]) -> bool:
    """Whether a target is a variable of the function, or an item of one."""
    while isinstance(target, cst.Subscript):
        target = target.value
    if isinstance(target, cst.Tuple | cst.List):
        return all(_is_own(element.value, own) for element in target.elements)
    return isinstance(target, cst.Name) and target.value in own
