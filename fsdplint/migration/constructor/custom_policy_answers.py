"""What the function of a CustomPolicy returns, through variables and functions of the file.

`kwargs = block_kwargs(reshard)` and `return kwargs if kwargs else True` stand for the dicts that
`block_kwargs` returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.migration.analysis.variables import (
    calls_of,
    definitions,
    is_exported,
    reads,
    return_values,
)
from fsdplint.migration.constructor.policy_scope import PolicyScope
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend, statement_of

MAX_DEPTH = 3  # functions that return what one another returns


@dataclass
class Answers:
    """The answers of one function.

    Attributes:
        leaves: the expressions that make the answers.
        helpers: the other functions that return some of them.
        tested: the answers of variables that the function also tests.
        variables: the assignments of variables that stand for answers.
    """

    leaves: list[cst.BaseExpression] = field(default_factory=list)
    helpers: list[cst.FunctionDef] = field(default_factory=list)
    tested: list[cst.BaseExpression] = field(default_factory=list)
    variables: list[cst.CSTNode] = field(default_factory=list)


def answers_of(scope: PolicyScope, function: cst.FunctionDef) -> Answers:
    """The answers of a function.

    A call of a function that has other uses, and a variable that has, is an answer itself.
    """
    found = Answers()
    reader = _Reader(scope, found)
    for value in return_values(function):
        reader.read(function, value, MAX_DEPTH)
    found.leaves += reader.other_calls([function, *found.helpers])
    return found


def arms(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The values that an expression may have."""
    if isinstance(node, cst.IfExp):
        yield from arms(node.body)
        yield from arms(node.orelse)
    else:
        yield node


@dataclass
class _Reader:
    scope: PolicyScope
    found: Answers

    def read(self, function: cst.FunctionDef, value: cst.BaseExpression, depth: int) -> None:
        for one in arms(value):
            if isinstance(one, cst.Call) and self._read_call(one, depth):
                continue
            if isinstance(one, cst.Name) and self._read_variable(function, one, depth):
                continue
            if one not in self.found.leaves:
                self.found.leaves.append(one)

    def _read_call(self, call: cst.Call, depth: int) -> bool:
        """Read what a function of the file returns; False for another function."""
        if not isinstance(call.func, cst.Name) or depth == 0:
            return False
        functions = self.scope.functions(call.func.value)
        if len(functions) != 1 or not self._only_answers(functions[0]):
            return False
        (helper,) = functions
        if helper not in self.found.helpers:
            self.found.helpers.append(helper)
            for value in return_values(helper):
                self.read(helper, value, depth - 1)
        return True

    def _only_answers(self, helper: cst.FunctionDef) -> bool:
        """Whether a function makes dicts, and code only calls it."""
        sources = self.scope.migration.program.sources.values()
        if helper.decorators or helper.asynchronous or is_exported(sources, helper):
            return False
        if any(isinstance(part, cst.Yield) for part in descend(helper)):
            return False
        makes = any(isinstance(part, cst.Dict) or is_dict_call(part) for part in descend(helper))
        return makes and all(
            call is not None and source is self.scope.source and self._is_answer(call)
            for source, call in calls_of(sources, helper)
        )

    def other_calls(self, functions: list[cst.FunctionDef]) -> list[cst.Call]:
        """The calls of the helpers that give something else than answers of these functions."""
        source, found = self.scope.source, []
        for helper in self.found.helpers:
            for _, call in calls_of([source], helper):
                if call is None:
                    continue
                statement = statement_of(source, call)
                returns = isinstance(statement, cst.Return)
                if statement not in self.found.variables and not (
                    returns and function_around(source, call) in functions
                ):
                    found.append(call)
        return found

    def _is_answer(self, call: cst.Call) -> bool:
        """Whether a function returns what a call gives, at once or through a variable."""
        node: cst.CSTNode = call
        parent = self.scope.source.parent(node)
        while isinstance(parent, cst.IfExp) and parent.test is not node:
            node, parent = parent, self.scope.source.parent(parent)
        return isinstance(parent, cst.Return | cst.Assign)

    def _read_variable(self, function: cst.FunctionDef, name: cst.Name, depth: int) -> bool:
        """Read the value of a variable that the function only returns and tests."""
        source = self.scope.source
        found = definitions(source, name)
        if found is None or len(found) != 1 or function_around(source, name) is not function:
            return False
        if function_around(source, found[0].statement) is not function:
            return False
        is_tested = False
        for use in reads(source, function, name.value):
            parent = source.parent(use)
            tests = isinstance(parent, cst.IfExp | cst.If) and parent.test is use
            is_tested = is_tested or tests
            if not tests and not isinstance(parent, cst.Return | cst.IfExp):
                return False
        self.found.variables.append(found[0].statement)
        known = Answers(helpers=self.found.helpers, variables=self.found.variables)
        inner = _Reader(self.scope, known)
        inner.read(function, found[0].value, depth)
        self.found.leaves += [one for one in inner.found.leaves if one not in self.found.leaves]
        self.found.tested += [*inner.found.tested, *(inner.found.leaves if is_tested else [])]
        return True


def is_dict_call(node: cst.CSTNode) -> bool:
    """Whether a node is `dict(...)`."""
    if not isinstance(node, cst.Call):
        return False
    return isinstance(node.func, cst.Name) and node.func.value == "dict"
