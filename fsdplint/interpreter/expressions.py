"""Evaluation of expressions."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import libcst as cst

from fsdplint.interpreter import branch_conditions, lazy
from fsdplint.interpreter.branch_conditions import Outcome, truth
from fsdplint.interpreter.models import mixing, tensors
from fsdplint.interpreter.module_calls import WRAPPER_ATTRIBUTES
from fsdplint.interpreter.ranks import depends_on_process, depends_on_rank, named, used
from fsdplint.interpreter.values import (
    MAX_BITS,
    MAX_ELEMENTS,
    Condition,
    Const,
    Context,
    Dict,
    Function,
    Lazy,
    LazyImport,
    Made,
    ModulesOf,
    ModuleValue,
    OptimizerValue,
    ParametersOf,
    Partial,
    RankTest,
    RankValue,
    Sequence,
    ShardTensor,
    StateValue,
    Symbol,
    TensorValue,
    Unknown,
    Value,
)
from fsdplint.trace import Layout, PickedByRank

if TYPE_CHECKING:
    from fsdplint.interpreter.run import Interpreter

_DEVICE = re.compile(r"""f["'](cuda|cpu|xpu|npu):""", re.I)
_EVALUATORS: dict[type, str] = {}

BUILTINS = frozenset(
    "abs all any bool bytes callable classmethod delattr dict dir divmod enumerate eval "
    "exit filter float format frozenset getattr globals hasattr hash id input int "
    "isinstance issubclass iter len list locals map max min next object open ord pow "
    "print property quit range repr reversed round set setattr slice sorted staticmethod "
    "str sum super tuple type vars zip Exception ValueError RuntimeError "
    "NotImplementedError KeyError TypeError ImportError AssertionError StopIteration "
    "KeyboardInterrupt OSError FileNotFoundError AttributeError __import__".split()
)


class Expressions:
    """The part of the interpreter that evaluates expressions."""

    def eval(self: Interpreter, node: cst.CSTNode) -> Value:
        """The value of an expression; remembered for the node where it is more than Unknown."""
        self.step()
        kind = type(node)
        name = _EVALUATORS.get(kind)
        if name is None:
            name = _EVALUATORS[kind] = f"eval_{kind.__name__}"
        method = getattr(self, name, None)
        if method is None:
            for child in node.children:
                if isinstance(child, cst.BaseExpression):
                    self.eval(child)
            return Unknown()
        value = self.settle(method(node))
        if not isinstance(value, Const):
            if isinstance(value, ModuleValue):
                self._keep_earlier(node, value)
            self.evaluations[node] = value
        return value

    def _keep_earlier(self: Interpreter, node: cst.CSTNode, value: ModuleValue) -> None:
        """A function may be called for a wrapped model and for another: both are to be known."""
        before = self.evaluations.get(node)
        if isinstance(before, ModuleValue) and before.wrapper != value.wrapper:
            self.earlier.setdefault(node, {})[before.wrapper] = before

    def settle(self: Interpreter, value: Value) -> Value:
        """The value behind a lazy import, what an unknown one turned out to be, or the elements of
        an iterator that was consumed."""
        if isinstance(value, LazyImport):
            if value.loaded is None:
                value.loaded = Unknown()  # what an import that goes round in a circle comes to
                value.loaded = self.settle(value.load())
            value = value.loaded
        if isinstance(value, Unknown) and value.promoted is not None:
            return value.promoted
        if isinstance(value, Lazy) and value.elements is not None:
            return value.elements
        return value

    # Literals ----------------------------------------------------------------------------------

    def eval_Integer(self: Interpreter, node: cst.Integer) -> Value:
        return self._literal(node)

    def eval_Float(self: Interpreter, node: cst.Float) -> Value:
        return self._literal(node)

    def eval_SimpleString(self: Interpreter, node: cst.SimpleString) -> Value:
        return self._literal(node)

    def _literal(self: Interpreter, node: cst.Integer | cst.Float | cst.SimpleString) -> Value:
        """A literal's constant, worked out once for all runs."""
        literals = self.project.literals
        if node not in literals:
            literals[node] = Const(_evaluated(node.value), made_at=self.site(node))
        return literals[node]

    def eval_ConcatenatedString(self: Interpreter, node: cst.ConcatenatedString) -> Value:
        value = node.evaluated_value
        return Const(value) if value is not None else Unknown()

    def eval_FormattedString(self: Interpreter, node: cst.FormattedString) -> Value:
        result = Unknown(origin=self.text(node))
        for part in node.parts:
            if isinstance(part, cst.FormattedStringExpression):
                value = self.eval(part.expression)
                result.by_rank = depends_on_rank(value) or result.by_rank
                result.by_process = depends_on_process(value) or result.by_process
                if _DEVICE.match(self.text(node)):
                    used(self, node, value)
        return result

    def eval_Ellipsis(self: Interpreter, node: cst.Ellipsis) -> Value:
        return Const(...)

    def eval_Tuple(self: Interpreter, node: cst.Tuple) -> Value:
        return self._sequence(node, "tuple")

    def eval_List(self: Interpreter, node: cst.List) -> Value:
        return self._sequence(node, "list")

    def eval_Set(self: Interpreter, node: cst.Set) -> Value:
        return self._sequence(node, "set")

    def _sequence(self: Interpreter, node: cst.Tuple | cst.List | cst.Set, kind: str) -> Sequence:
        result = Sequence([], kind, made_at=self.site(node))
        for element in node.elements:
            value = self.eval(element.value)
            if isinstance(element, cst.StarredElement):
                items, exact = self.iterate(value)
                result.extend(items)
                result.open = result.open or not exact
            else:
                result.items.append(value)
        return result

    def eval_Dict(self: Interpreter, node: cst.Dict) -> Value:
        result = Dict(made_at=self.site(node))
        for element in node.elements:
            if isinstance(element, cst.DictElement):
                key, value = self.eval(element.key), self.eval(element.value)
                if isinstance(key, Const):
                    result.items[key.value] = value
                elif isinstance(key, Symbol):
                    result.items[key.name] = value
                else:
                    result.items[f"<{self.text(element.key)}>"] = value
                    result.open = True
            elif isinstance(element, cst.StarredDictElement):
                value = self.eval(element.value)
                if isinstance(value, Dict):
                    result.items.update(value.items)
                    result.tensors.update(value.tensors)
                    result.open = result.open or value.open
                else:
                    result.open = True
                    if isinstance(value, StateValue):
                        result.tensors[f"**{value.id}"] = value
                    elif isinstance(value, Unknown):
                        result.items.update(_known_elements(value))
        return result

    # Names, attributes, subscripts -------------------------------------------------------------

    def eval_Name(self: Interpreter, node: cst.Name) -> Value:
        name = node.value
        if name in {"True", "False", "None"}:
            return Const(
                {"True": True, "False": False, "None": None}[name], made_at=self.site(node)
            )
        value = self.scope.lookup(name)
        if value is not None:
            return value
        if name in BUILTINS:
            return Symbol(f"builtins.{name}")
        return named(name, name)

    def eval_Attribute(self: Interpreter, node: cst.Attribute) -> Value:
        value = self.eval(node.value)
        if node.attr.value in WRAPPER_ATTRIBUTES and self.lacks_wrapper_attribute(value, node):
            return value  # as the program goes on once this is mended
        return self.get_attribute(value, node.attr.value, node)

    def eval_Subscript(self: Interpreter, node: cst.Subscript) -> Value:
        value = self.eval(node.value)
        index: Value = Unknown()
        is_slice = False
        for item in node.slice:
            if isinstance(item.slice, cst.Index):
                index = self.eval(item.slice.value)
            else:
                is_slice = True
                self._slice(item.slice, node)
        if isinstance(value, ShardTensor):
            return TensorValue("derived", value.modules)
        if is_slice:
            return value
        return self.subscript(value, index, node)

    def _slice(self: Interpreter, item: cst.CSTNode, node: cst.Subscript) -> None:
        bounds = [part for part in item.children if isinstance(part, cst.BaseExpression)]
        if any(depends_on_rank(self.eval(bound)) for bound in bounds):
            self.emit(PickedByRank, node)

    # Operators ---------------------------------------------------------------------------------

    def eval_Comparison(self: Interpreter, node: cst.Comparison) -> Value:
        return branch_conditions.compare(self, node)

    def eval_BooleanOperation(self: Interpreter, node: cst.BooleanOperation) -> Value:
        """`a or b` and `a and b` give an operand; where both are tests, a test."""
        left = self.eval(node.left)
        is_and = isinstance(node.operator, cst.And)
        if isinstance(left, Const):
            return self.eval(node.right) if bool(left.value) == is_and else left
        if isinstance(left, RankTest | RankValue | Condition):
            verdict = branch_conditions.truth_of(self, left, node.left, True)
            return self._boolean_value(left, verdict, node, is_and)
        if isinstance(left, Unknown):
            right = self.eval(node.right)
            if isinstance(right, RankValue) and not is_and:
                return right  # `settings.rank_number or dist.get_rank()`
            if isinstance(right, RankTest):
                return right if is_and else left
            return right if self.matters(right) else left
        return self.eval(node.right) if is_and else left

    def _boolean_value(
        self: Interpreter,
        value: Value,
        left: branch_conditions.Verdict,
        node: cst.BooleanOperation,
        is_and: bool,
    ) -> Value:
        if left.outcome in {Outcome.TRUE, Outcome.FALSE}:
            if (left.outcome is Outcome.TRUE) != is_and:
                return Const(not is_and)
            with self.guarded(left.guards):
                return self.eval(node.right)
        guards = list(left.guards)
        if left.rank_test is not None:
            guards.append(
                (branch_conditions.rank_guard(self, node.left, left.rank_test, is_and), "")
            )
        with self.guarded(guards):
            right = self.eval(node.right)
        if isinstance(value, RankValue) and not is_and and _is_rank(right, value.scope):
            return value
        if isinstance(right, Const) and bool(right.value) != is_and:
            return right
        return left.rank_test if left.rank_test is not None else Unknown(varying=True)

    def eval_UnaryOperation(self: Interpreter, node: cst.UnaryOperation) -> Value:
        value = self.eval(node.expression)
        if isinstance(node.operator, cst.Not):
            if isinstance(value, Const):
                return Const(not value.value)
            if isinstance(value, RankTest):
                return RankTest(value.false_on, value.true_on)
            if isinstance(value, RankValue):
                sets = branch_conditions._rank_sets(value.scope)
                return RankTest(*sets)
            if isinstance(value, Condition):
                return Condition(
                    value.key,
                    value.text,
                    not value.negated,
                    value.subject,
                    value.relation,
                    value.operand,
                )
            if isinstance(value, Unknown) and value.promoted is None and not value.varying:
                made = branch_conditions.condition(self, value, node.expression)
                made.negated = not made.negated
                return made
            return value if isinstance(value, Unknown) else Const(False)
        if isinstance(value, Const) and isinstance(node.operator, cst.Minus):
            return Const(-value.value) if isinstance(value.value, int | float) else Unknown()
        return value

    def eval_BinaryOperation(self: Interpreter, node: cst.BinaryOperation) -> Value:
        left, right = self.eval(node.left), self.eval(node.right)
        return self.arithmetic(left, right, node.operator, node)

    def arithmetic(
        self: Interpreter,
        left: Value,
        right: Value,
        op: cst.BaseBinaryOp | None = None,
        node: cst.CSTNode | None = None,
    ) -> Value:
        if isinstance(left, Const) and isinstance(right, Const) and op is not None:
            return _fold(op, left.value, right.value)
        if isinstance(left, Sequence) and isinstance(right, Sequence):
            result = Sequence(list(left.items), left.kind, left.open or right.open)
            result.extend(right.items)
            return result
        if isinstance(left, Sequence) and isinstance(op, cst.Multiply):
            return Sequence(left.items, left.kind, True)
        if isinstance(left, RankValue) and isinstance(op, cst.Modulo):
            return RankValue("group")
        of_shards = tensors.combined(left, right)
        if of_shards is not None:
            return of_shards
        for value in (left, right):
            if isinstance(value, TensorValue):
                other = right if value is left else left
                return tensors.scaled(value, op, other) if value is left else tensors.fresh(value)
        if isinstance(left, ParametersOf) and isinstance(right, ParametersOf) and node is not None:
            mixing.note_mixed(self, "arithmetic", [left, right], node)
        for value in (left, right):
            if isinstance(value, ParametersOf):
                return value
        varying = any(isinstance(v, Unknown) and v.varying for v in (left, right))
        by_rank = depends_on_rank(left) or depends_on_rank(right)
        origin = self.text(node) if node is not None and not varying else ""
        library = _library(left, right) or _library(right, left)
        return Unknown(
            origin=origin,
            varying=varying,
            by_rank=by_rank,
            by_process=depends_on_process(left) or depends_on_process(right),
            library=library,
        )

    def eval_IfExp(self: Interpreter, node: cst.IfExp) -> Value:
        verdict = truth(self, node.test)
        if verdict.outcome is Outcome.TRUE:
            with self.guarded(verdict.guards):
                value = self.eval(node.body)
        elif verdict.outcome is Outcome.FALSE:
            with self.guarded(verdict.guards):
                value = self.eval(node.orelse)
        elif verdict.outcome is Outcome.RANK and verdict.rank_test is not None:
            test = verdict.rank_test
            with self.guarded([(branch_conditions.rank_guard(self, node.test, test, True), "")]):
                one = self.eval(node.body)
            with self.guarded([(branch_conditions.rank_guard(self, node.test, test, False), "")]):
                two = self.eval(node.orelse)
            value = self.join(test, one, two)
        else:
            value = either(self.eval(node.body), self.eval(node.orelse), self)
        if verdict.guards and self.decisive(value):
            with self.guarded(verdict.guards):
                self.mark_relevant()
        return value

    def eval_NamedExpr(self: Interpreter, node: cst.NamedExpr) -> Value:
        value = self.eval(node.value)
        self.assign(node.target, value)
        return value

    def eval_Lambda(self: Interpreter, node: cst.Lambda) -> Value:
        return Function(node, self.scope, self.site(node), made_at=self.site(node))

    def eval_Await(self: Interpreter, node: cst.Await) -> Value:
        return self.eval(node.expression)

    def eval_Yield(self: Interpreter, node: cst.Yield) -> Value:
        value: Value = Const(None)
        frame = self.frames[-1]
        if isinstance(node.value, cst.From):
            value = lazy.consume(self, self.eval(node.value.item))
            if frame.on_yield is None and isinstance(value, Sequence):
                frame.yields.extend(value.items)
                return Unknown()
        elif node.value is not None:
            value = self.eval(node.value)
        if frame.on_yield is not None:
            frame.on_yield(value)
        else:
            frame.yields.append(value)
        return Unknown()

    def eval_StarredElement(self: Interpreter, node: cst.StarredElement) -> Value:
        return self.eval(node.value)

    # Helpers -----------------------------------------------------------------------------------

    def join(
        self: Interpreter, test: RankTest | None, one: Value | None, two: Value | None
    ) -> Value:
        """The value of something that is `one` on the ranks of a test and `two` on the others."""
        one = one if one is not None else Const(None)
        two = two if two is not None else Const(None)
        if (
            test is not None
            and isinstance(one, Const)
            and isinstance(two, Const)
            and isinstance(one.value, bool)
            and bool(one.value) != bool(two.value)
        ):
            if one.value:
                return test
            return RankTest(test.false_on, test.true_on)
        if self.matters(one) or not self.matters(two):
            return one
        return two

    def matters(self: Interpreter, value: Value | None) -> bool:
        """Whether a value is one that the contract speaks of: losing it may lose a finding."""
        if value is None:
            return False
        value = value.loaded or value if isinstance(value, LazyImport) else value
        if isinstance(value, Unknown):
            return value.promoted is not None or value.within is not None
        if isinstance(value, Sequence):
            return any(self.matters(item) for item in value.items)
        if isinstance(value, Dict):
            return any(self.matters(item) for item in value.items.values())
        if isinstance(value, Symbol):
            return value.name.startswith("torch.") and not _is_dtype(value.name)
        return not isinstance(value, Const | Condition | Unknown)

    def decisive(self: Interpreter, value: Value | None) -> bool:
        """Whether it is worth a configuration of its own that a name holds this value."""
        if isinstance(value, LazyImport):
            value = value.loaded
        if isinstance(value, Lazy):
            return self.decisive(value.source)
        if isinstance(value, Symbol):
            return value.name.startswith("torch.distributed")
        if isinstance(value, Sequence):
            return any(self.decisive(item) for item in value.items)
        return isinstance(
            value,
            ModuleValue
            | OptimizerValue
            | StateValue
            | ParametersOf
            | ModulesOf
            | Partial
            | Context
            | Made,
        )


def either(one: Value, two: Value, run: Interpreter) -> Value:
    """One value for what is `one` at times and `two` at others: where both are states, the one
    that nothing is wrong with; what some tensors go through may change the others alike."""
    if isinstance(one, StateValue) and isinstance(two, StateValue):
        return two if two.layout in (Layout.FULL, Layout.UNKNOWN) else one
    for value, other in ((one, two), (two, one)):
        if _one_tensor(value) and isinstance(other, Unknown) and other.promoted is None:
            return other
    if isinstance(one, ShardTensor) != isinstance(two, ShardTensor):
        return TensorValue("derived")  # made a plain tensor in one of the cases
    return one if run.matters(one) else two


def _is_rank(other: Value, scope: str) -> bool:
    """Whether `rank or other` is the rank: the other is it too, or what the rank is if false."""
    if isinstance(other, Const):
        return other.value in (0, "0") and other.value is not False
    return isinstance(other, RankValue) and other.scope == scope


def _one_tensor(value: Value) -> bool:
    if isinstance(value, ParametersOf):
        return value.element
    if isinstance(value, ShardTensor):
        return not value.reduction
    return isinstance(value, StateValue) and value.tensor


def _library(one: Value, other: Value) -> str:
    """The library's function that a value computed from two comes from, where one decides it."""
    if not isinstance(one, Unknown) or not one.library:
        return ""
    alike = isinstance(other, Const) or (isinstance(other, Unknown) and other.library)
    return one.library if alike else ""


def _is_large(value: object) -> bool:
    if isinstance(value, int):
        return value.bit_length() > MAX_BITS
    return isinstance(value, str | bytes | tuple) and len(value) > MAX_ELEMENTS


def _is_dtype(name: str) -> bool:
    return name.count(".") == 1 and name != "torch.compile"


def _evaluated(text: str) -> object:
    """What a literal means; one that Python does not take (an unknown name) is its own text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _fold(op: cst.BaseBinaryOp, left: Any, right: Any) -> Value:
    if _is_large(left) or _is_large(right):
        return Unknown()  # the result of doing it again and again would be larger than the memory
    try:
        if isinstance(op, cst.Add):
            return Const(left + right)
        if isinstance(op, cst.Subtract):
            return Const(left - right)
        if isinstance(op, cst.Multiply) and isinstance(left, int | float):
            return Const(left * right) if isinstance(right, int | float) else Unknown()
        if isinstance(op, cst.Divide):
            return Const(left / right)
        if isinstance(op, cst.FloorDivide):
            return Const(left // right)
    except (TypeError, ZeroDivisionError, OverflowError):
        return Unknown()
    return Unknown()


def _known_elements(value: Unknown) -> Iterator[tuple[object, Value]]:
    """What is known of the elements of an unknown mapping, by their keys."""
    for key, part in value.parts.items():
        if key.startswith("[") and key != "[]":
            with contextlib.suppress(ValueError, SyntaxError):  # a key that is no plain constant
                yield ast.literal_eval(key[1:-1]), part
