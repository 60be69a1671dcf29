"""Settings that are literals, or certainly integers, by the code that makes them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter import Program
from fsdplint.migration.analysis.object_classes import (
    attribute_targets,
    classes_of,
    functions,
    is_self,
    with_bases,
)
from fsdplint.migration.analysis.object_search import ObjectSearch
from fsdplint.migration.analysis.variables import definition_at, definitions
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.qualified_names import symbols_in, walk

_BACKENDS = ("accelerator", "cpu", "cuda", "mps", "npu", "xpu")
_FUNCTIONS = frozenset(
    {"torch.distributed.get_world_size"} | {f"torch.{name}.device_count" for name in _BACKENDS}
)
_OF_PYTHON = ("int", "len")
_PARSERS = frozenset({"argparse.ArgumentParser"})
_PARSED = frozenset({"argparse.Namespace"})
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
            return _returns_integer(program, source, node.func)
        case cst.BooleanOperation():
            return both(node.left, node.right)
        case cst.BinaryOperation():
            return not isinstance(node.operator, cst.Divide) and both(node.left, node.right)
        case cst.IfExp():
            return both(node.body, node.orelse)
        case cst.Name():
            return _is_integer_variable(program, source, node, depth, at)
        case cst.Attribute():
            return _is_integer_attribute(program, source, node, depth)
    return False


def _returns_integer(program: Program, source: Source, func: cst.BaseExpression) -> bool:
    """Whether a function of Python or torch, or of the program by its annotation, gives an integer."""
    if symbols_in(source).get(func) in _FUNCTIONS:
        return True
    if isinstance(func, cst.Name) and func.value in _OF_PYTHON:
        bindings = bindings_of(source)
        if bindings.owner(bindings.scope_at(func), func.value) is None:
            return True
    found = functions(program, source, func)
    return bool(found) and all(_is_annotated(where, one.returns) for where, one in found)


def _is_annotated(source: Source, annotation: cst.Annotation | None) -> bool:
    return annotation is not None and source.code(annotation.annotation) == "int"


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
        return _is_annotated(source, param.annotation)
    return isinstance(param.default, cst.Integer)


def _is_integer_attribute(
    program: Program, source: Source, node: cst.Attribute, depth: int
) -> bool:
    """Whether all that sets an attribute of an object sets an integer.

    The object is one of a class of the program, or holds the options of a parser.
    """
    name = node.attr.value
    classes = classes_of(program, source, node.value)
    if classes:
        places = [place for one in classes for place in with_bases(program, one)]
        found = [
            _sets_integer(program, where, target, depth)
            for where, klass in places
            for target in attribute_targets(where, klass, name)
        ]
    elif _Options(program, _PARSED).is_one(source, node.value):
        found = list(_kinds_of_option(program, name))
    else:
        return False
    found += [
        _sets_integer(program, where, target, depth)
        for where in program.sources.values()
        if f".{name}" in where.text
        for target in _outer_targets(where, name)
    ]
    return bool(found) and all(found)


def _sets_integer(program: Program, source: Source, target: cst.CSTNode, depth: int) -> bool:
    parent = source.parent(target)
    if isinstance(parent, cst.AnnAssign):
        return _is_annotated(source, parent.annotation)
    found = definition_at(source, target)
    return found is not None and is_integer(program, source, found.value, depth - 1)


def _outer_targets(source: Source, name: str) -> Iterator[cst.Attribute]:
    """The places outside of its class that may set an attribute of an object."""
    for node in walk(source, skip_imports=True):
        target = node.target if isinstance(node, cst.AssignTarget | cst.AugAssign) else None
        if isinstance(target, cst.Attribute) and target.attr.value == name:
            if not isinstance(target.value, cst.Name) or not is_self(source, target.value):
                yield target


class _Options(ObjectSearch):
    """The search for the result of `parser.parse_args()`."""

    def _is_call(self, source: Source, node: cst.Call) -> bool:
        func = node.func
        if isinstance(func, cst.Attribute) and func.attr.value == "parse_args":
            return ObjectSearch(self.program, _PARSERS).is_one(source, func.value)
        return super()._is_call(source, node)

    def _is_target(self, source: Source, target: cst.CSTNode) -> bool:
        """Also the first target of `options, rest = parser.parse_known_args()`."""
        element = source.parent(target)
        targets = source.parent(element) if isinstance(element, cst.Element) else None
        place = source.parent(targets) if isinstance(targets, cst.Tuple) else None
        assign = source.parent(place) if isinstance(place, cst.AssignTarget) else None
        if isinstance(targets, cst.Tuple) and isinstance(assign, cst.Assign):
            func = assign.value.func if isinstance(assign.value, cst.Call) else None
            if not isinstance(func, cst.Attribute) or func.attr.value != "parse_known_args":
                return False
            first = targets.elements[0] is element
            return first and ObjectSearch(self.program, _PARSERS).is_one(source, func.value)
        return super()._is_target(source, target)


def _kinds_of_option(program: Program, name: str) -> Iterator[bool]:
    """Whether each option of a name is an integer."""
    for source in program.sources.values():
        for node in walk(source, skip_imports=True):
            if isinstance(node, cst.Call) and _adds_argument(node, name):
                kinds = [arg.value for arg in node.args if _is_keyword(arg, "type")]
                yield len(kinds) == 1 and is_constant(kinds[0], "int")


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
