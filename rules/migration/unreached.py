"""Names of wrapped models in code that the program as given does not reach.

`if args.clip:` with a setting that is off unless the command line says otherwise: nothing is known
there of the values. A name that stands for a wrapped model earlier in the same function, and is not
given another value in between, stands for it there too, and so does the parameter that it is given to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import libcst as cst

from fsdplint.editing.layout import descend
from fsdplint.program.names import walk
from fsdplint.program.source import Source
from fsdplint.program.values import Value
from fsdplint.rules.migration.calls import arguments
from fsdplint.rules.migration.scopes import function_of

Known = dict[tuple[cst.CSTNode, str], tuple[int, str]]  # from which offset on, and how
Values = Callable[[cst.CSTNode], list[Value]]


class Unreached:
    """Finds those names in some files.

    Attributes:
        found: the nodes, and whether they stand for one "always" or "sometimes".
    """

    def __init__(
        self, sources: Sequence[Source], values: Values, is_wrapped: Callable[[Value], bool]
    ) -> None:
        self.sources = sources
        self.values = values
        self.found: dict[cst.CSTNode, str] = {}
        self.functions = self._functions()
        known: Known = {}
        for source in sources:
            for node in (*walk(source, skip_imports=True), *_names(source)):
                if not isinstance(node, cst.Name | cst.Attribute):
                    continue
                found = values(node)
                if any(map(is_wrapped, found)):
                    key = function_of(source, node), source.code(node)
                    how = "always" if all(map(is_wrapped, found)) else "sometimes"
                    start, before = known.get(key, (source.span(node)[0], how))
                    how = how if how == before else "sometimes"
                    known[key] = min(start, source.span(node)[0]), how
        while known:
            known = self._given(self._names(known))

    def _functions(self) -> dict[str, list[tuple[Source, cst.FunctionDef]]]:
        functions: dict[str, list[tuple[Source, cst.FunctionDef]]] = {}
        for source in self.sources:
            for node in walk(source, skip_imports=True):
                if isinstance(node, cst.FunctionDef):
                    functions.setdefault(node.name.value, []).append((source, node))
        return functions

    def _names(self, known: Known) -> list[tuple[Source, cst.CSTNode]]:
        """The names that are found, where others are known."""
        new: list[tuple[Source, cst.CSTNode]] = []
        for source in self.sources:
            for node in _names(source):
                if node in self.found or self.values(node):
                    continue
                # What torch.compile holds is what it is given.
                key = function_of(source, node), source.code(node).removesuffix("._orig_mod")
                first, how = known.get(key, (None, ""))
                if first is None or first >= source.span(node)[0]:
                    continue
                if not _bound_again(source, *key, first, source.span(node)[0]):
                    self.found[node] = how
                    new.append((source, node))
        return new

    def _given(self, names: list[tuple[Source, cst.CSTNode]]) -> Known:
        """The parameters that get one of the names, in functions that nothing else reaches."""
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
                if given is arg and not self._is_reached(function, parameter):
                    how = self.found[node]
                    _, before = known.get((function, parameter), (0, how))
                    how = how if how == before else "sometimes"
                    known[function, parameter] = other.span(function)[0], how
        return known

    def _is_reached(self, function: cst.FunctionDef, parameter: str) -> bool:
        return any(
            isinstance(node, cst.Name) and node.value == parameter and bool(self.values(node))
            for node in descend(function.body)
        )


def _names(source: Source) -> Iterator[cst.Name | cst.Attribute]:
    """The names and the dotted names that something is asked of, or that are given to something."""
    for node in walk(source, skip_imports=True):
        if isinstance(node, cst.Attribute):
            while isinstance(node, cst.Attribute):
                if isinstance(node.value, cst.Name | cst.Attribute):
                    yield node.value
                node = node.value
        if isinstance(node, cst.Arg) and isinstance(node.value, cst.Name | cst.Attribute):
            yield node.value


def _parameters(function: cst.FunctionDef) -> list[str]:
    return [p.name.value for p in (*function.params.posonly_params, *function.params.params)]


def _bound_again(source: Source, function: cst.CSTNode, name: str, start: int, end: int) -> bool:
    """Whether a function gives a name another value between two places."""
    for node in descend(function):
        if not start < source.span(node)[0] < end:
            continue
        if isinstance(
            node, cst.AssignTarget | cst.AnnAssign | cst.AugAssign | cst.For | cst.NamedExpr
        ):
            targets = source.code(node.target).strip("()[]").split(",")
            if name in (target.strip(" *") for target in targets):
                return True
        elif isinstance(node, cst.Del | cst.Global | cst.Nonlocal) and name in source.code(node):
            return True
    return False
