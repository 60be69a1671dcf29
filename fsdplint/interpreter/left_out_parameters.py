"""The parameters that the tests of a program certainly leave out of a list.

A list of parameters that the program filters (`[p for n, p in model.named_parameters() if ...]`)
stands for all of them in the interpreter. Here, the tests are evaluated for each known parameter.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import libcst as cst

from fsdplint.interpreter.identities import is_among
from fsdplint.interpreter.parameter_sizes import parameters_below
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParameterName, ParametersOf
from fsdplint.interpreter.values import Const, Sequence, Value
from fsdplint.trace import Checkpointed, KnownParameter

_COMPARE: dict[type[cst.BaseCompOp], Callable[[int, int], bool]] = {
    cst.Equal: operator.eq,
    cst.NotEqual: operator.ne,
    cst.LessThan: operator.lt,
    cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt,
    cst.GreaterThanEqual: operator.ge,
}
# What wrappers put into the names of parameters.
_PREFIXES = ("_checkpoint_wrapped_module", "_orig_mod")
# A test, and its result where the parameter is taken; None if that is not known.
Held = tuple[cst.CSTNode, bool | None]


def left_out(run: Run, element: ParametersOf, tests: Iterable[Held]) -> frozenset[KnownParameter]:
    """The parameters that tests certainly leave out, of those that an element stands for."""
    tests = [(test, holds) for test, holds in tests if holds is not None]
    if len(element.modules) != 1 or element.name or element.derived or not tests:
        return element.left_out
    found = set(element.left_out)
    for parameter in parameters_below(run, element.modules[0]):
        for name in _names(run, parameter.path):
            case = _Case(run, element, parameter, name)
            if not any(case.result(test) is (not holds) for test, holds in tests):
                break
        else:
            found.add(parameter)
    return frozenset(found)


def _names(run: Run, path: str) -> list[str]:
    """The names that a parameter may have: wrappers may have added theirs."""
    path = ".".join("0" if part == "*" else part for part in path.split("."))
    wrapped = any(run.trace.of(Checkpointed)) or any(
        module.wrapper for module in run.trace.modules.values()
    )
    if not wrapped:
        return [path]
    parts = path.split(".")
    return [path, *(f"{one}." + f".{one}.".join(parts) for one in _PREFIXES)]


@dataclass(frozen=True)
class _Case:
    """Evaluates tests for one parameter. A result is None if it is not known."""

    run: Run
    element: ParametersOf
    parameter: KnownParameter
    name: str

    def result(self, test: cst.CSTNode) -> bool | None:
        if isinstance(test, cst.BooleanOperation):
            sides = [self.result(test.left), self.result(test.right)]
            decisive = isinstance(test.operator, cst.Or)
            if decisive in sides:
                return decisive
            return None if None in sides else not decisive
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            result = self.result(test.expression)
            return None if result is None else not result
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
            only = test.comparisons[0]
            return self._truth_of_comparison(test.left, only.operator, only.comparator)
        if isinstance(test, cst.Call):
            return self._truth_of_call(test)
        if isinstance(test, cst.Attribute) and test.attr.value == "requires_grad":
            return True if self._is_parameter(test.value) else None
        return None

    def _truth_of_comparison(
        self, left: cst.BaseExpression, compare: cst.BaseCompOp, right: cst.BaseExpression
    ) -> bool | None:
        dimensions = self.parameter.dimensions
        if self._is_dimensions(left):
            number = self._constant(right)
            operation = _COMPARE.get(type(compare))
            if dimensions is None or operation is None or type(number) is not int:
                return None
            return operation(dimensions, number)
        if isinstance(compare, cst.In | cst.NotIn):
            if self._is_identity(left):
                held = is_among(self.run, self.parameter, self._read(right))
                return held if isinstance(compare, cst.In) or held is None else not held
            if not self._is_name(right):
                return None
            text = self._constant(left)
            found = self._texts(lambda one: one in self.name, [text])
            return found if isinstance(compare, cst.In) or found is None else not found
        return None

    def _truth_of_call(self, call: cst.Call) -> bool | None:
        function = call.func
        if isinstance(function, cst.Name) and function.value in ("any", "all"):
            if len(call.args) == 1 and isinstance(call.args[0].value, cst.GeneratorExp):
                return self._of_each(call.args[0].value, every=function.value == "all")
            return None
        if not isinstance(function, cst.Attribute) or len(call.args) != 1:
            return None
        if function.attr.value not in ("endswith", "startswith"):
            return None
        if not self._is_name(function.value) or call.args[0].keyword is not None:
            return None
        texts = self._constants(call.args[0].value)
        at_end = function.attr.value == "endswith"
        return self._texts(self.name.endswith if at_end else self.name.startswith, texts)

    def _of_each(self, elements: cst.GeneratorExp, *, every: bool) -> bool | None:
        """`any(text in name for text in texts)`"""
        source, test = elements.for_in, elements.elt
        if source.ifs or source.inner_for_in is not None or not isinstance(source.target, cst.Name):
            return None
        texts = self._constants(source.iter)
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
            only = test.comparisons[0]
            tested = isinstance(only.operator, cst.In) and self._is_name(only.comparator)
            if every or not tested or not _reads(test.left, source.target):
                return None
            return self._texts(lambda one: one in self.name, texts)
        if every or not isinstance(test, cst.Call) or not isinstance(test.func, cst.Attribute):
            return None
        if test.func.attr.value != "endswith" or len(test.args) != 1:
            return None
        if not self._is_name(test.func.value) or not _reads(test.args[0].value, source.target):
            return None
        return self._texts(self.name.endswith, texts)

    def _texts(self, holds: Callable[[str], bool], texts: list[object] | None) -> bool | None:
        """Whether a test of the name holds for one of several texts."""
        known = [text for text in texts or () if isinstance(text, str)]
        if texts is None or len(known) < len(texts):
            return None
        numbered = any(part.isdigit() for part in self.name.split("."))
        if numbered and any(any(map(str.isdigit, text)) for text in known):
            return None  # the number may be that of another element
        return any(map(holds, known))

    def _constant(self, node: cst.BaseExpression) -> object:
        found = self._constants(node)
        return found[0] if found is not None and len(found) == 1 else None

    def _constants(self, node: cst.BaseExpression) -> list[object] | None:
        """The constants that an expression has; None if they are not all known."""
        if isinstance(node, cst.SimpleString):
            return [node.evaluated_value]
        if isinstance(node, cst.Integer):
            return [node.evaluated_value]
        if isinstance(node, cst.Tuple | cst.List | cst.Set):
            parts = [self._constants(one.value) for one in node.elements]
            known = [part for part in parts if part is not None and len(part) == 1]
            return [part[0] for part in known] if len(known) == len(parts) else None
        if not isinstance(node, cst.Name):
            return None
        held = self.run.scope.lookup(node.value)
        return self._constants_in(self.run.settle(held)) if held is not None else None

    def _constants_in(self, value: Value) -> list[object] | None:
        if isinstance(value, Const):
            inner = value.value
            return list(inner) if isinstance(inner, tuple) else [inner]
        if not isinstance(value, Sequence) or value.open:
            return None
        parts = [self.run.settle(one) for one in value.items]
        known: list[object] = [one.value for one in parts if isinstance(one, Const)]
        return known if len(known) == len(parts) else None

    def _read(self, node: cst.BaseExpression) -> Value | None:
        if not isinstance(node, cst.Name):
            return None
        return self.run.evaluations.get(node) or self.run.scope.lookup(node.value)

    def _is_name(self, node: cst.BaseExpression) -> bool:
        """Whether an expression is the whole name of the parameter."""
        value = self._read(node)
        return isinstance(value, ParameterName) and value.of == self.element.modules

    def _is_parameter(self, node: cst.BaseExpression) -> bool:
        value = self._read(node)
        return (
            isinstance(value, ParametersOf)
            and value.element
            and not (value.derived or value.name)
            and value.modules == self.element.modules
        )

    def _is_identity(self, node: cst.BaseExpression) -> bool:
        """Whether an expression is `id(p)`."""
        if not isinstance(node, cst.Call) or len(node.args) != 1:
            return False
        named = isinstance(node.func, cst.Name) and node.func.value == "id"
        return named and self._is_parameter(node.args[0].value)

    def _is_dimensions(self, node: cst.BaseExpression) -> bool:
        """Whether an expression is `p.ndim`, `p.dim()` or `len(p.shape)`."""
        if isinstance(node, cst.Call):
            function = node.func
            if isinstance(function, cst.Attribute) and not node.args:
                return function.attr.value in ("dim", "ndimension") and self._is_parameter(
                    function.value
                )
            if not isinstance(function, cst.Name) or function.value != "len" or len(node.args) != 1:
                return False
            node = node.args[0].value
            return (
                isinstance(node, cst.Attribute)
                and node.attr.value == "shape"
                and self._is_parameter(node.value)
            )
        return (
            isinstance(node, cst.Attribute)
            and node.attr.value == "ndim"
            and self._is_parameter(node.value)
        )


def _reads(node: cst.BaseExpression, target: cst.Name) -> bool:
    return isinstance(node, cst.Name) and node.value == target.value
