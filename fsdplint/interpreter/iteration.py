"""What a loop, a comprehension or an unpacking visits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import libcst as cst

from fsdplint.interpreter import lazy
from fsdplint.interpreter.branch_conditions import Outcome, truth
from fsdplint.interpreter.frames import Frame
from fsdplint.interpreter.scopes import Scope
from fsdplint.interpreter.values import (
    Const,
    Dict,
    ModulesOf,
    ModuleValue,
    ParameterName,
    ParametersOf,
    Sequence,
    ShardTensor,
    StateValue,
    TensorValue,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from fsdplint.interpreter.run import Interpreter


class Iteration:
    """The part of the interpreter that iterates."""

    def eval_ListComp(self: Interpreter, node: cst.ListComp) -> Value:
        return self._comprehension(node.elt, node.for_in, "list", node)

    def eval_SetComp(self: Interpreter, node: cst.SetComp) -> Value:
        return self._comprehension(node.elt, node.for_in, "set", node)

    def eval_GeneratorExp(self: Interpreter, node: cst.GeneratorExp) -> Value:
        """A generator does its work when it is consumed; only what it runs over is there before."""
        source = self.eval(node.for_in.iter)

        def elements() -> Sequence:
            return self._comprehension(node.elt, node.for_in, "list", node, source)

        return lazy.lazy(self, node, elements, source)

    def eval_DictComp(self: Interpreter, node: cst.DictComp) -> Value:
        result = self._comprehension(node.value, node.for_in, "list", node)
        states = [v for v in result.items if isinstance(v, StateValue)]
        if states:
            return states[0]
        if result.items and all(_of_parameters(item) for item in result.items):
            return Dict(open=True, tensors={"*": result.items[0]})
        return Dict({f"*{n}": item for n, item in enumerate(result.items)}, open=True)

    def _comprehension(
        self: Interpreter,
        element: cst.BaseExpression,
        for_in: cst.CompFor,
        kind: str,
        node: Any,
        source: Value | None = None,
    ) -> Sequence:
        result = Sequence([], kind, made_at=self.site(node))
        frame = self.frames[-1]
        scope = Scope(self.source, self.scope, "function", self.scope.module_name)
        self.frames.append(Frame(frame.function, scope, frame.receiver, frame.owner))
        try:
            exact = self._comprehend(element, for_in, result, source)
        finally:
            self.frames.pop()
        result.open = not exact
        return result

    def _comprehend(
        self: Interpreter,
        element: cst.BaseExpression,
        for_in: cst.CompFor,
        result: Sequence,
        source: Value | None = None,
    ) -> bool:
        """Add the elements of one `for` of a comprehension; whether they are exactly known."""
        items, exact = self.iterate(source if source is not None else self.eval(for_in.iter))
        for item in items[:64]:
            self.assign(for_in.target, item)
            verdicts = [truth(self, condition.test) for condition in for_in.ifs]
            if any(v.outcome is Outcome.FALSE for v in verdicts):
                continue
            exact = exact and not any(v.outcome is Outcome.VARYING for v in verdicts)
            if for_in.inner_for_in is not None:
                exact = self._comprehend(element, for_in.inner_for_in, result) and exact
            else:
                tests = [condition.test for condition in for_in.ifs]
                chosen = self.chosen(self.eval(element), tests)
                if any(v.guards or v.outcome is Outcome.VARYING for v in verdicts):
                    self.doubt_choice(chosen)
                result.items.append(chosen)
        return exact

    def iterate(self: Interpreter, value: Value) -> tuple[list[Value], bool]:
        """The elements that a loop over a value visits, and whether these are all of them (then the
        loop runs once for each; else it is a loop of unknown length)."""
        value = lazy.consume(self, value)
        if isinstance(value, Sequence):
            if value.items and (not value.open or any(self.matters(i) for i in value.items)):
                return list(value.items), True
            return (
                list(value.items) or [Unknown(varying=True)]
            ), not value.items and not value.open
        if isinstance(value, Dict):
            keys: list[Value] = [Const(key) for key in value.items]
            if value.tensors:
                return [*keys, Unknown(varying=True)], True
            return keys, not value.open
        if isinstance(value, ModulesOf | ModuleValue):
            return self.submodule_values(value), True
        if isinstance(value, ParametersOf):
            one = self.take(value, element=True)
            called: Value = ParameterName(varying=True)
            return [Sequence([called, one], "tuple") if value.named else one], True
        if isinstance(value, StateValue):
            name = Unknown(varying=True)
            if value.view == "items":
                return [Sequence([name, value.element()], "tuple")], True
            return [value.element() if value.view == "values" else name], True
        if isinstance(value, Const) and isinstance(value.value, str | tuple):
            characters: list[Value] = [Const(item) for item in value.value[:64]]
            return characters, True
        if isinstance(value, Unknown):
            if value.within is not None:
                return [self._unknown_element(value)], True
            return [Unknown(varying=True, origin="", by_rank=value.by_rank)], False
        return [Unknown(varying=True)], False

    def _unknown_element(self: Interpreter, value: Unknown) -> Value:
        if "[]" not in value.parts:
            value.parts["[]"] = Unknown(origin="", varying=True, within=value.within)
        return self.settle(value.parts["[]"])

    def unpack(self: Interpreter, value: Value, count: int) -> list[Value]:
        """The values that `a, b = value` gives to `count` targets."""
        value = lazy.consume(self, value)
        if isinstance(value, Sequence) and len(value.items) == count and not value.open:
            return list(value.items)
        if isinstance(value, Sequence) and len(value.items) == count:
            return list(value.items)
        if isinstance(value, ModulesOf):
            return [Unknown(varying=True) for _ in range(count)]
        if isinstance(value, StateValue | TensorValue):
            return [value for _ in range(count)]
        if isinstance(value, Unknown):
            return [self.subscript_unknown(value, number) for number in range(count)]
        return [Unknown() for _ in range(count)]

    def subscript_unknown(self: Interpreter, value: Unknown, number: int) -> Value:
        key = f"[{number}]"
        if key not in value.parts:
            origin = f"{value.origin}{key}" if value.origin else ""
            value.parts[key] = Unknown(
                origin=origin, varying=value.varying, by_rank=value.by_rank, within=value.within
            )
        return self.settle(value.parts[key])


def _of_parameters(value: Value) -> bool:
    if isinstance(value, ShardTensor):
        return not value.reduction
    return isinstance(value, ParametersOf) and value.element
