"""Names of wrapped models in code that no run reaches.

In `if args.clip:` with a setting that is off by default, no values are known. A name that is a
wrapped model earlier in the same function, and is not rebound in between, is one there too. So is the
parameter that it is passed to. If a branch in between unwraps DDP (`model = model.module`), the name
is a wrapped model "sometimes".

The parameter of a method that nothing calls is a wrapped model if parameters of the same name always
are in other methods of the class. So is an attribute of the object (`self.model`) that is one in the
methods that runs reach.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence

import libcst as cst

from fsdplint.interpreter.values import ModuleValue, Value
from fsdplint.migration.analysis.unreached_attributes import unreached_attributes
from fsdplint.migration.analysis.variables import home_of
from fsdplint.source.source import Source, once
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import walk

Known = dict[
    tuple[cst.CSTNode, str], tuple[list[int], str]
]  # the offsets of the uses; "always" or "sometimes"
Values = Callable[[cst.CSTNode], list[Value]]


class UnreachedNames:
    """Finds names of wrapped models in unreached code.

    Args:
        callers: all files that may call methods of the sources, if not only the sources.

    Attributes:
        found: the nodes, and whether they are a wrapped model "always" or "sometimes".
    """

    def __init__(
        self,
        sources: Sequence[Source],
        values: Values,
        is_wrapped: Callable[[Value], bool],
        callers: Collection[Source] = (),
    ) -> None:
        self.sources = sources
        self.callers = callers or sources
        self.values = values
        self.found: dict[cst.CSTNode, str] = {}
        self.functions = self._functions()
        self._bindings: dict[cst.CSTNode, dict[str, list[cst.CSTNode]]] = {}
        known: Known = {}
        for source in sources:
            for node in (*walk(source, skip_imports=True), *_names(source)):
                if not isinstance(node, cst.Name | cst.Attribute):
                    continue
                found = values(node)
                if any(map(is_wrapped, found)):
                    key = function_around(source, node), source.code(node)
                    how = "always" if all(map(is_wrapped, found)) else "sometimes"
                    uses, before = known.get(key, ([], how))
                    how = how if how == before else "sometimes"
                    known[key] = [*uses, source.span(node)[0]], how
        while known:
            known = self._parameters_given(self._names(known))
        for source in sources:
            for node in walk(source, skip_imports=True):
                if isinstance(node, cst.ClassDef):
                    self._find_in_uncalled_methods(source, node, is_wrapped)
                    self.found.update(unreached_attributes(source, node, values, is_wrapped))

    def _functions(self) -> dict[str, list[tuple[Source, cst.FunctionDef]]]:
        functions: dict[str, list[tuple[Source, cst.FunctionDef]]] = {}
        for source in self.sources:
            for node in walk(source, skip_imports=True):
                if isinstance(node, cst.FunctionDef):
                    functions.setdefault(node.name.value, []).append((source, node))
        return functions

    def _names(self, known: Known) -> list[tuple[Source, cst.CSTNode]]:
        """The unreached names that follow from known ones."""
        new: list[tuple[Source, cst.CSTNode]] = []
        for source in self.sources:
            for node in _names(source):
                if node in self.found or self.values(node):
                    continue
                # torch.compile's `_orig_mod` is the model that it compiles.
                key = function_around(source, node), source.code(node).removesuffix("._orig_mod")
                uses, how = known.get(key, ([], ""))
                place = source.span(node)[0]
                earlier = [use for use in uses if use < place]
                again = self._rebinding(source, *key, min(earlier), place) if earlier else "always"
                if again == "always" and len(earlier) > 1:  # by then it is a wrapped model again
                    again = self._rebinding(source, *key, max(earlier), place)
                if again != "always":
                    self.found[node] = again or how
                    new.append((source, node))
        return new

    def _rebinding(
        self, source: Source, function: cst.CSTNode, name: str, start: int, end: int
    ) -> str:
        """Whether a name is rebound between two places: "always", "sometimes" or "" for never."""
        if function not in self._bindings:
            self._bindings[function] = bindings(source, function)
        again = ""
        for node in self._bindings[function].get(name, ()):
            if start < source.span(node)[0] < end and not _is_in_bound_value(source, node, end):
                if not _takes_inner(source, node) or _in_every_case(source, node, function, end):
                    return "always"
                again = "sometimes"
        return again

    def _parameters_given(self, names: list[tuple[Source, cst.CSTNode]]) -> Known:
        """The parameters that get one of the names, in functions that no run reaches."""
        known: Known = {}
        for source, node in names:
            arg = source.parent(node)
            call = source.parent(arg) if isinstance(arg, cst.Arg) else None
            if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Name):
                continue
            targets = self.functions.get(call.func.value, [])
            if len(targets) != 1:
                continue
            other, function = targets[0]
            for parameter, given in arguments(call, _parameters(function))[0].items():
                if given is arg and not self._has_value(function, parameter):
                    how = self.found[node]
                    _, before = known.get((function, parameter), ([], how))
                    how = how if how == before else "sometimes"
                    known[function, parameter] = [other.span(function)[0]], how
        return known

    def _has_value(self, function: cst.FunctionDef, parameter: str) -> bool:
        return any(
            isinstance(node, cst.Name) and node.value == parameter and bool(self.values(node))
            for node in descend(function.body)
        )

    # Methods that nothing calls -----------------------------------------------------------------

    def _find_in_uncalled_methods(
        self, source: Source, klass: cst.ClassDef, is_wrapped: Callable[[Value], bool]
    ) -> None:
        """Find parameters of uncalled methods with the names of wrapped models in other methods."""
        given: dict[str, bool] = {}  # parameters of called methods: are they always wrapped models?
        uncalled: list[tuple[str, list[cst.Name]]] = []
        for method in klass.body.body:
            if not isinstance(method, cst.FunctionDef):
                continue
            for name, uses in _uses(source, method).items():
                found = [(node, value) for node in uses for value in self.values(node)]
                if not found:
                    continue
                if not all(is_synthetic(value, node) for node, value in found):
                    always = all(is_wrapped(value) for _, value in found)
                    given[name] = given.get(name, True) and always
                elif not self._is_mentioned(method) and not bindings(source, method).get(name):
                    uncalled.append((name, uses))
        for name, uses in uncalled:
            if given.get(name):
                self.found.update(dict.fromkeys(uses, "always"))

    def _is_mentioned(self, method: cst.FunctionDef) -> bool:
        """Whether any file mentions a method of this name."""
        name = method.name.value
        return any(
            isinstance(node, cst.Attribute) and node.attr.value == name
            for source in self.callers
            for node in walk(source, skip_imports=True)
        )


def is_synthetic(value: Value, node: cst.CSTNode) -> bool:
    """Whether a value is a synthetic argument of the class or function that contains a node."""
    if not isinstance(value, ModuleValue) or value.synthetic_for is None:
        return False
    return node in _nodes_of(value.synthetic_for)


@functools.lru_cache(maxsize=64)
def _nodes_of(node: cst.CSTNode) -> frozenset[cst.CSTNode]:
    return frozenset(descend(node))


def _uses(source: Source, method: cst.FunctionDef) -> dict[str, list[cst.Name]]:
    """The places where a method reads its parameters, by parameter."""
    found: dict[str, list[cst.Name]] = {name: [] for name in _parameters(method)}
    for node in source.descend(method.body):
        if not isinstance(node, cst.Name) or node.value not in found:
            continue
        parent = source.parent(node)
        if isinstance(parent, cst.Attribute) and parent.attr is node:
            continue
        if isinstance(parent, cst.Arg) and parent.keyword is node:
            continue
        if home_of(source, node) is method:
            found[node.value].append(node)
    return found


@once
def _names(source: Source) -> Sequence[cst.Name | cst.Attribute]:
    """The names and dotted names that have an attribute read or are passed as arguments."""
    found: list[cst.Name | cst.Attribute] = []
    for node in walk(source, skip_imports=True):
        if isinstance(node, cst.Attribute):
            while isinstance(node, cst.Attribute):
                if isinstance(node.value, cst.Name | cst.Attribute):
                    found.append(node.value)
                node = node.value
        if isinstance(node, cst.Arg) and isinstance(node.value, cst.Name | cst.Attribute):
            found.append(node.value)
    return tuple(found)


def _parameters(function: cst.FunctionDef) -> list[str]:
    return [p.name.value for p in (*function.params.posonly_params, *function.params.params)]


def bindings(source: Source, function: cst.CSTNode) -> dict[str, list[cst.CSTNode]]:
    """The places where a function binds names, by name."""
    found: dict[str, list[cst.CSTNode]] = {}
    for node in source.descend(function):
        names: set[str] = set()
        if isinstance(
            node, cst.AssignTarget | cst.AnnAssign | cst.AugAssign | cst.For | cst.NamedExpr
        ):
            targets = source.code(node.target).strip("()[]").split(",")
            names = {target.strip(" *") for target in targets}
        elif isinstance(node, cst.Del | cst.Global | cst.Nonlocal):
            names = set(re.findall(r"[\w.]+", source.code(node)))
        for name in names:
            found.setdefault(name, []).append(node)
    return found


def _is_in_bound_value(source: Source, binding: cst.CSTNode, place: int) -> bool:
    """Whether a place is in the value of a binding, which is evaluated before it."""
    statement = source.parent(binding) if isinstance(binding, cst.AssignTarget) else binding
    value = getattr(statement, "iter" if isinstance(binding, cst.For) else "value", None)
    if not isinstance(value, cst.CSTNode):
        return False
    start, end = source.span(value)
    return start <= place < end


def _takes_inner(source: Source, binding: cst.CSTNode) -> bool:
    """Whether a binding is `model = model.module`, which unwraps DDP."""
    statement = source.parent(binding)
    if not isinstance(binding, cst.AssignTarget) or not isinstance(statement, cst.Assign):
        return False
    return source.code(statement.value) == f"{source.code(binding.target)}.module"


def _in_every_case(source: Source, node: cst.CSTNode, function: cst.CSTNode, place: int) -> bool:
    """Whether a statement always runs before a later place in the same function."""
    for outer in ancestors(source, node):
        if outer is function or source.span(outer)[1] > place:
            return True
        if isinstance(outer, cst.For | cst.While | cst.Try | cst.TryStar | cst.Match | cst.If):
            return False
    return True
