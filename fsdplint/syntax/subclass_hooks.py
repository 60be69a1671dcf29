"""`__init_subclass__` methods that change nothing but the class that is defined."""

from __future__ import annotations

import builtins

import libcst as cst

from fsdplint.source.positions import code_children
from fsdplint.syntax.dotted import dotted_name

_READERS = frozenset(
    "all any callable dict fields getattr hasattr is_dataclass isinstance issubclass len list set "
    "sorted str super tuple type".split()
)
_READING_METHODS = frozenset("__init_subclass__ get items keys startswith endswith values".split())
_ERRORS = frozenset(
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
)
_STATEMENTS = (
    cst.AnnAssign, cst.Assign, cst.Assert, cst.BaseExpression, cst.Continue, cst.Break, cst.Else,
    cst.Expr, cst.For, cst.If, cst.IndentedBlock, cst.Pass, cst.Raise, cst.Return,
    cst.SimpleStatementLine, cst.SimpleStatementSuite,
)  # fmt: skip
_NOT_PLAIN = (cst.Await, cst.Lambda, cst.NamedExpr, cst.Yield)


def changed_names(hook: cst.FunctionDef) -> frozenset[str] | None:
    """The names of the new class whose objects a hook changes; None if it may do anything else.

    It may set attributes of the class, too.
    """
    params = hook.params.params
    if not params or hook.decorators and dotted_name(hook.decorators[0].decorator) != "classmethod":
        return None
    changed: set[str] = set()
    own = {params[0].name.value}
    stack: list[cst.CSTNode] = [hook.body]
    while stack:
        node = stack.pop(0)  # in order, for the names that are bound on the way
        if isinstance(node, cst.BaseStatement | cst.BaseSmallStatement | cst.BaseExpression):
            if not isinstance(node, _STATEMENTS) or isinstance(node, _NOT_PLAIN):
                return None
        if isinstance(node, cst.Call) and not _only_reads(node):
            return None
        if isinstance(node, cst.Assign | cst.AnnAssign) and not _binds_own(node, own, changed):
            return None
        if isinstance(node, cst.For) and not isinstance(node.target, cst.Name | cst.Tuple):
            return None
        stack = [*code_children(node), *stack]
    return frozenset(changed)


def _only_reads(node: cst.Call) -> bool:
    if isinstance(node.func, cst.Name):
        return node.func.value in _READERS or node.func.value in _ERRORS
    if isinstance(node.func, cst.Attribute):
        name = node.func.attr.value
        return name in _READING_METHODS or dotted_name(node.func) in ("dataclasses.fields",)
    return False


def _binds_own(node: cst.Assign | cst.AnnAssign, own: set[str], changed: set[str]) -> bool:
    """Whether an assignment binds local names, or attributes of what only the new class holds.

    own: the names of the new class, and of what its body binds.
    changed: gets the names by which the class holds that.
    """
    targets = (
        [one.target for one in node.targets] if isinstance(node, cst.Assign) else [node.target]
    )
    of_class = _name_in_its_body(node.value, own)
    for target in targets:
        if isinstance(target, cst.Name):
            (own.discard if of_class is None else own.add)(target.value)
            changed |= set() if of_class is None else {of_class}
        elif not isinstance(target, cst.Attribute):
            return False
        elif not isinstance(target.value, cst.Name) or target.value.value not in own:
            return False
    return True


def _name_in_its_body(node: cst.BaseExpression | None, own: set[str]) -> str | None:
    """The name in `cls.__dict__["name"]`, which no base class provides."""
    if not isinstance(node, cst.Subscript) or not isinstance(node.slice[0].slice, cst.Index):
        return None
    head, _, rest = dotted_name(node.value).partition(".")
    key = node.slice[0].slice.value
    if head not in own or rest != "__dict__" or not isinstance(key, cst.SimpleString):
        return None
    return str(key.evaluated_value)
