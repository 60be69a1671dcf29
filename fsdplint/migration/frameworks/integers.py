"""Settings that are literals, or certainly integers, judged by the code."""

from __future__ import annotations

import ast

import libcst as cst

from fsdplint.interpreter import Program
from fsdplint.migration.analysis.variables import definitions
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.qualified_names import walk

_FUNCTIONS = ("int", "len", "device_count", "get_world_size")
MAX_DEPTH = 4  # of variables and operators


def literal(source: Source, node: cst.BaseExpression) -> object:
    """The value of a literal, or of a variable that is only assigned one; `...` for others."""
    if isinstance(node, cst.Name) and not is_constant(node, "None", "True", "False"):
        found = definitions(source, node)
        return literal(source, found[0].value) if found and len(found) == 1 else ...
    try:
        value: object = ast.literal_eval(source.code(node))
    except (ValueError, SyntaxError):
        return ...
    return value


def is_integer(
    program: Program,
    source: Source,
    node: cst.BaseExpression,
    depth: int = MAX_DEPTH,
    at: cst.CSTNode | None = None,
) -> bool:
    """Whether an expression is certainly an integer.

    at: a place in the same file, where it is one. Assignments in other arms do not count.
    """

    def both(*parts: cst.BaseExpression) -> bool:
        return all(is_integer(program, source, part, depth - 1) for part in parts)

    if depth <= 0:
        return False
    match node:
        case cst.Integer():
            return True
        case cst.Call():
            func = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
            name = func.value if isinstance(func, cst.Name) else ""
            return name in _FUNCTIONS or _returns_integer(program, name)
        case cst.BooleanOperation():
            return both(node.left, node.right)
        case cst.BinaryOperation():
            return not isinstance(node.operator, cst.Divide) and both(node.left, node.right)
        case cst.IfExp():
            return both(node.body, node.orelse)
        case cst.Name():
            return _is_integer_variable(program, source, node, depth, at)
        case cst.Attribute():
            return _is_integer_setting(program, node.attr.value, depth)
    return False


def _returns_integer(program: Program, name: str) -> bool:
    """Whether the functions of the program with a name have the result `int`."""
    found = [
        part.returns is not None and source.code(part.returns.annotation) == "int"
        for source in program.sources.values()
        if f"def {name}(" in source.text
        for part in source.descend(source.tree)
        if isinstance(part, cst.FunctionDef) and part.name.value == name
    ]
    return bool(found) and all(found)


def _is_integer_variable(
    program: Program, source: Source, node: cst.Name, depth: int, at: cst.CSTNode | None
) -> bool:
    bindings = bindings_of(source)
    scope = bindings.owner(bindings.scope_at(node), node.value)
    targets = scope.others.get(node.value, ()) if scope is not None else ()
    params = [one for one in (_param(source, target) for target in targets) if one is not None]
    if params:
        return all(_is_integer_parameter(source, one) for one in params)
    found = [
        one
        for one in definitions(source, node) or ()
        if at is None or not _in_other_arm(source, one.statement, at)
    ]
    return bool(found) and all(is_integer(program, source, x.value, depth - 1) for x in found)


def _in_other_arm(source: Source, node: cst.CSTNode, at: cst.CSTNode) -> bool:
    """Whether a node runs only where a place does not: in another arm of an `if`."""
    around = [at, *ancestors(source, at)]
    inner = node
    for outer in ancestors(source, node):
        if isinstance(outer, cst.If) and outer in around:
            other = around[around.index(outer) - 1]
            return other is not inner and {inner, other} == {outer.body, outer.orelse}
        inner = outer
    return False


def _param(source: Source, target: cst.CSTNode) -> cst.Param | None:
    param = target if isinstance(target, cst.Param) else source.parent(target)
    return param if isinstance(param, cst.Param) else None


def _is_integer_parameter(source: Source, param: cst.Param) -> bool:
    if param.annotation is not None:
        return source.code(param.annotation.annotation) == "int"
    return isinstance(param.default, cst.Integer)


def _is_integer_setting(program: Program, name: str, depth: int) -> bool:
    """Whether everything that sets an attribute of a name sets an integer."""
    found: list[bool] = []
    for source in program.sources.values():
        if name not in source.text and name.replace("_", "-") not in source.text:
            continue
        for node in walk(source, skip_imports=True):
            if isinstance(node, cst.AnnAssign) and is_constant(node.target, name):
                found.append(source.code(node.annotation.annotation) == "int")
            elif isinstance(node, cst.Call) and _adds_argument(node, name):
                kinds = [arg.value for arg in node.args if _is_keyword(arg, "type")]
                found.append(len(kinds) == 1 and is_constant(kinds[0], "int"))
            elif isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Attribute):
                assign = source.parent(node)
                if node.target.attr.value == name and isinstance(assign, cst.Assign):
                    found.append(is_integer(program, source, assign.value, depth - 1))
    return bool(found) and all(found)


def _adds_argument(node: cst.Call, name: str) -> bool:
    """Whether a call of `add_argument` adds an option with this name."""
    func = node.func
    if not isinstance(func, cst.Attribute) or func.attr.value != "add_argument":
        return False
    texts = [
        arg.value.evaluated_value for arg in node.args if isinstance(arg.value, cst.SimpleString)
    ]
    return any(str(text).lstrip("-").replace("-", "_") == name for text in texts)


def _is_keyword(arg: cst.Arg, name: str) -> bool:
    return arg.keyword is not None and arg.keyword.value == name
