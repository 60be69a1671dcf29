"""Execution of statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import libcst as cst

from fsdplint.program import meta
from fsdplint.program.conditions import (
    Outcome,
    Verdict,
    compare_rank,
    decide,
    rank_guard,
    truth,
    varying_guard,
)
from fsdplint.program.expressions import either
from fsdplint.program.frames import SUITE, Frame, GuardEntry
from fsdplint.program.models.data import loader_in
from fsdplint.program.models.datasets import alike_on_all_ranks
from fsdplint.program.scopes import Scope
from fsdplint.program.values import (
    Class,
    Condition,
    Const,
    Context,
    Dict,
    Function,
    GeneratorContext,
    Instance,
    LazyImport,
    Made,
    ModuleValue,
    OptimizerValue,
    ParametersOf,
    RankTest,
    RankValue,
    SamplerValue,
    StateValue,
    Symbol,
    TensorValue,
    Unknown,
    Value,
    each_parameter,
)
from fsdplint.program.values import Sequence as SequenceValue
from fsdplint.trace import EpochSet, Fsdp1Used, Layout, LoaderIterated, LoaderLeft, WeightsSet

if TYPE_CHECKING:
    from fsdplint.program.interpreter import Interpreter

_EXECUTORS: dict[type, str] = {}
FSDP1 = "torch.distributed.fsdp.FullyShardedDataParallel"
MAX_ITEMS = 64  # elements of a known sequence that a loop visits


@dataclass
class Signal:
    """Control leaves the block: kind is "return", "break", "continue", "raise" or "exit"."""

    kind: str
    value: Value | None = None


def terminates(body: cst.BaseSuite | cst.BaseCompoundStatement | None) -> str | None:
    """How a suite certainly leaves its block (the kind of a Signal), or None."""
    if not isinstance(body, cst.BaseSuite) or not body.body:
        return None
    last = body.body[-1]
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    if isinstance(last, cst.Return):
        return "return"
    if isinstance(last, cst.Raise):
        return "raise"
    if isinstance(last, cst.Break):
        return "break"
    if isinstance(last, cst.Continue):
        return "continue"
    if isinstance(last, cst.Expr) and isinstance(last.value, cst.Call) and _is_exit(last.value):
        return "exit"
    if isinstance(last, cst.If) and last.orelse is not None:
        other = last.orelse.body if isinstance(last.orelse, cst.Else) else None
        one, two = terminates(last.body), terminates(other)
        return one if two is not None else None
    return None


def _is_exit(call: cst.Call) -> bool:
    function = call.func
    if isinstance(function, cst.Attribute) and isinstance(function.value, cst.Name):
        return (function.value.value, function.attr.value) in {("sys", "exit"), ("os", "_exit")}
    return isinstance(function, cst.Name) and function.value in {"exit", "quit"}


class Statements:
    """The part of the interpreter that executes statements."""

    def execute_block(self: Interpreter, body: Sequence[cst.CSTNode]) -> Signal | None:
        for statement in body:
            signal = self.execute(statement)
            if signal is not None:
                return signal
        return None

    def execute(self: Interpreter, node: cst.CSTNode) -> Signal | None:
        self.step()
        kind = type(node)
        name = _EXECUTORS.get(kind)
        if name is None:
            name = _EXECUTORS[kind] = f"execute_{kind.__name__}"
        method = getattr(self, name, None)
        if method is None:
            return None
        outer, self.executing = self.executing, node
        signal: Signal | None = method(node)
        self.executing = outer
        return signal

    def execute_suite(self: Interpreter, suite: cst.BaseSuite) -> Signal | None:
        outer = self.guards
        signal = self.execute_block(suite.body)
        if self.guards is not outer and any(entry.until == SUITE for entry in self.guards):
            known = {id(entry) for entry in outer}
            self.guards = [e for e in self.guards if e.until != SUITE or id(e) in known]
        return signal

    def execute_SimpleStatementLine(
        self: Interpreter, node: cst.SimpleStatementLine
    ) -> Signal | None:
        return self.execute_block(node.body)

    # Simple statements -------------------------------------------------------------------------

    def execute_Expr(self: Interpreter, node: cst.Expr) -> Signal | None:
        self.eval(node.value)
        exits = isinstance(node.value, cst.Call) and _is_exit(node.value)
        return Signal("exit") if exits else None

    def execute_Assign(self: Interpreter, node: cst.Assign) -> None:
        value = self.eval(node.value)
        for target in node.targets:
            self.assign(target.target, value)

    def execute_AnnAssign(self: Interpreter, node: cst.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, self.eval(node.value))

    def execute_AugAssign(self: Interpreter, node: cst.AugAssign) -> None:
        left, right = self.eval(node.target), self.eval(node.value)
        if isinstance(left, SequenceValue):
            if isinstance(right, SequenceValue):
                left.items.extend(right.items)
                left.open = left.open or right.open
            else:
                left.open = True
            return
        if isinstance(left, Dict) and isinstance(right, Dict):
            left.items.update(right.items)
            return
        divides = cst.Divide() if isinstance(node.operator, cst.DivideAssign) else None
        self.assign(node.target, self.arithmetic(left, right, divides))

    def execute_Return(self: Interpreter, node: cst.Return) -> Signal:
        return Signal("return", self.eval(node.value) if node.value is not None else Const(None))

    def execute_Raise(self: Interpreter, node: cst.Raise) -> Signal:
        if node.exc is not None:
            self.eval(node.exc)
        return Signal("raise")

    def execute_Break(self: Interpreter, node: cst.Break) -> Signal:
        return Signal("break")

    def execute_Continue(self: Interpreter, node: cst.Continue) -> Signal:
        return Signal("continue")

    def execute_Assert(self: Interpreter, node: cst.Assert) -> None:
        """`assert rank == 0`: only these ranks come here, for reasons that may not be seen."""
        test = self.eval(node.test)
        if isinstance(test, RankTest) and test.true_on.partial:
            guard = replace(rank_guard(self, node.test, test, True), asserted=True)
            self.guards = [*self.guards, GuardEntry(guard, "", SUITE)]

    def execute_Del(self: Interpreter, node: cst.Del) -> None:
        if isinstance(node.target, cst.Name):
            self.scope.names.pop(node.target.value, None)

    def execute_Global(self: Interpreter, node: cst.Global) -> None:
        for item in node.names:
            self.scope.aliases[item.name.value] = self.scope.module

    def execute_Nonlocal(self: Interpreter, node: cst.Nonlocal) -> None:
        for item in node.names:
            owner = self.scope.owner(item.name.value)
            if owner is not None:
                self.scope.aliases[item.name.value] = owner

    def execute_Import(self: Interpreter, node: cst.Import) -> None:
        for alias in node.names:
            full = alias.evaluated_name
            if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
                self.scope.assign(alias.asname.name.value, self.import_module(full))
            else:
                head = full.partition(".")[0]
                self.scope.assign(head, self.import_module(head))
            self.note_import(node, full, ())

    def execute_ImportFrom(self: Interpreter, node: cst.ImportFrom) -> None:
        base = self.absolute_name(node)
        if isinstance(node.names, cst.ImportStar):
            module = self.import_module(base)
            for name, value in self.public_names(module):
                self.scope.assign(name, value)
            self.note_import(node, base, ("*",))
            return
        for alias in node.names:
            local = alias.evaluated_alias or alias.evaluated_name
            self.scope.assign(local, self.import_from(base, alias.evaluated_name))
        self.note_import(node, base, tuple(alias.evaluated_name for alias in node.names))

    # Definitions -------------------------------------------------------------------------------

    def execute_FunctionDef(self: Interpreter, node: cst.FunctionDef) -> None:
        self.scope.assign(node.name.value, self.decorated(self.make_function(node), node))

    def execute_ClassDef(self: Interpreter, node: cst.ClassDef) -> None:
        bases = [self.eval(arg.value) for arg in node.bases if not arg.star]
        for arg, base in zip(node.bases, bases, strict=False):
            if isinstance(base, Symbol) and base.name == FSDP1:
                self.emit(Fsdp1Used, arg.value, api="subclass")
        klass = Class(node.name.value, node, self.scope, self.site(node), bases)
        klass.dataclass = any(
            "dataclass" in self.text(decorator.decorator) for decorator in node.decorators
        )
        scope = Scope(self.source, self.scope, "class", self.scope.module_name, klass.attributes)
        frame = Frame(None, scope, owner=klass)
        self.frames.append(frame)
        try:
            self.execute_block(node.body.body)
        finally:
            self.frames.pop()
        self.scope.assign(node.name.value, klass)

    # Branches ----------------------------------------------------------------------------------

    def execute_If(self: Interpreter, node: cst.If) -> Signal | None:
        ends = terminates(node.body)
        orelse = node.orelse
        other = orelse.body if isinstance(orelse, cst.Else) else None
        prefer = ends is None or terminates(other) is not None
        self.decisions.leaving = (ends is None) != (terminates(other) is None)
        verdict = truth(self, node.test, prefer)
        self.decisions.leaving = False
        self._note_branches(node, verdict)
        return self.branch(
            node.test,
            verdict,
            lambda: self.execute_suite(node.body),
            lambda: self._orelse(orelse),
            ends,
            terminates(other),
        )

    def _note_branches(self: Interpreter, node: cst.If, verdict: Verdict) -> None:
        """A decision is worth looking at both ways if either branch does something that counts."""
        if verdict.guards and self.project.worth_exploring(node, self.source):
            keys = [key for _, key in verdict.guards]
            self.decisions.relevant.update(keys)
            if self.project.mentions_fsdp(node, self.source):
                self.decisions.urgent.update(keys)

    def _orelse(self: Interpreter, node: cst.If | cst.Else | None) -> Signal | None:
        if isinstance(node, cst.If):
            return self.execute_If(node)
        return self.execute_suite(node.body) if node is not None else None

    def branch(
        self: Interpreter,
        test: cst.BaseExpression,
        verdict: Verdict,
        then: Callable[[], Signal | None],
        orelse: Callable[[], Signal | None],
        then_ends: str | None = None,
        else_ends: str | None = None,
    ) -> Signal | None:
        """Execute the side or the sides of a branch that its test's verdict asks for."""
        if verdict.outcome is Outcome.RANK and verdict.rank_test is not None:
            return self._rank_branch(test, verdict, then, orelse)
        if verdict.outcome is Outcome.VARYING:
            with self.guarded([*verdict.guards, (varying_guard(self, test, False), "")]):
                one = orelse()
            with self.guarded([*verdict.guards, (varying_guard(self, test, True), "")]):
                two = then()
            if one is not None and two is not None:
                return two if two.kind == "return" else one
            for signal in (one, two):
                if signal is not None and signal.kind == "return" and signal.value is not None:
                    self.frames[-1].partial.append((None, signal.value))
            return None
        taken, skipped_ends = (
            (then, else_ends) if verdict.outcome is Outcome.TRUE else (orelse, then_ends)
        )
        with self.guarded(verdict.guards):
            signal = taken()
        leaves = skipped_ends in {"return", "break", "continue"}  # a failing check is no way to run
        if signal is None and leaves and skipped_ends is not None and verdict.guards:
            self.leave_guards(verdict.guards, _until(skipped_ends))
        return signal

    def _rank_branch(
        self: Interpreter,
        test: cst.BaseExpression,
        verdict: Verdict,
        then: Callable[[], Signal | None],
        orelse: Callable[[], Signal | None],
    ) -> Signal | None:
        rank_test = verdict.rank_test
        assert rank_test is not None
        here = self.ranks()
        if here.partial and here is rank_test.true_on is not rank_test.false_on:
            return then()  # only the ranks for which the test holds come here
        if here.partial and here is rank_test.false_on is not rank_test.true_on:
            return orelse()
        yes = [*verdict.guards, (rank_guard(self, test, rank_test, True), "")]
        no = [*verdict.guards, (rank_guard(self, test, rank_test, False), "")]
        names = dict(self.scope.names)
        with self.guarded(yes):
            one = then()
        kept = {
            name: value
            for name, value in self.scope.names.items()
            if names.get(name) is not value and self.matters(value)
        }
        with self.guarded(no):
            two = orelse()
        for name, value in kept.items():
            if not self.matters(self.scope.names.get(name)):
                self.scope.names[name] = value
        if one is not None and two is not None:
            if one.kind == two.kind == "return":
                return Signal("return", self.join(rank_test, one.value, two.value))
            return one if one.kind == "return" else two
        for signal, rest, left in ((one, no, True), (two, yes, False)):
            if signal is not None:
                if signal.kind == "return" and signal.value is not None:
                    key = rank_test if left else RankTest(rank_test.false_on, rank_test.true_on)
                    self.frames[-1].partial.append((key, signal.value))
                if signal.kind != "raise":  # a check that fails, not ranks that part
                    self.leave_guards(rest, _until(signal.kind))
        return None

    def execute_Match(self: Interpreter, node: cst.Match) -> Signal | None:
        subject = self.eval(node.subject)
        text = self.text(node.subject)
        for number, case in enumerate(node.cases):
            pattern = self._pattern(case.pattern)
            if isinstance(case.pattern, cst.MatchAs) and case.pattern.pattern is None:
                return self.execute_suite(case.body)
            if isinstance(subject, Const) and isinstance(pattern, Const):
                if subject.value == pattern.value:
                    return self.execute_suite(case.body)
                continue
            if isinstance(subject, RankValue) and isinstance(pattern, Const):
                return self._match_rank(node, subject, number)
            origin = subject.origin if isinstance(subject, Unknown) else text
            operand = pattern.value if isinstance(pattern, Const) else number
            key = f"{origin or text} == {operand!r}"
            condition = Condition(key, f"{text} == {operand!r}", False, origin, "==", operand)
            verdict = decide(self, condition, node.subject, True)
            if verdict.outcome is Outcome.TRUE:
                with self.guarded(verdict.guards):
                    return self.execute_suite(case.body)
        return None

    def _match_rank(
        self: Interpreter, node: cst.Match, rank: RankValue, number: int
    ) -> Signal | None:
        """The cases of `match rank` from one with a number on."""
        if number == len(node.cases):
            return None
        case = node.cases[number]
        pattern = self._pattern(case.pattern)
        test = compare_rank(rank, cst.Equal(), pattern) if isinstance(pattern, Const) else None
        if not isinstance(test, RankTest):
            return self.execute_suite(case.body)
        return self.branch(
            node.subject,
            Verdict(Outcome.RANK, [], test),
            lambda: self.execute_suite(case.body),
            lambda: self._match_rank(node, rank, number + 1),
        )

    def _pattern(self: Interpreter, pattern: cst.MatchPattern) -> Value:
        if isinstance(pattern, cst.MatchValue):
            return self.eval(pattern.value)
        return Unknown()

    # Loops -------------------------------------------------------------------------------------

    def execute_For(self: Interpreter, node: cst.For) -> Signal | None:
        iterable = self.eval(node.iter)
        elements, exact = self.iterate(iterable)
        if not exact:
            elements = elements * 2 if len(elements) == 1 else elements
        if _all_parameters(node.iter):
            elements = [each_parameter(element) for element in elements]
        counted = not exact
        loader = loader_in(iterable)
        if loader is not None:
            self.emit(
                LoaderIterated,
                node.iter,
                loader=loader.id,
                sampler=loader.sampler.id if loader.sampler is not None else None,
                alike=alike_on_all_ranks(self, loader),
            )
        signal = self._loop(
            node.body, counted, [lambda e=e: self.assign(node.target, e) for e in elements]
        )
        if loader is not None:
            self.emit(LoaderLeft, node.iter, loader=loader.id)
        if node.orelse is not None and signal is None:
            signal = self.execute_suite(node.orelse.body)
        return signal

    def execute_While(self: Interpreter, node: cst.While) -> Signal | None:
        test = self.eval(node.test)
        turns: list[Callable[[], None]] = [lambda: None, lambda: None]
        if isinstance(test, RankTest):
            with self.guarded([(rank_guard(self, node.test, test, True), "")]):
                return self._loop(node.body, True, turns)
        return self._loop(node.body, True, turns)

    def _loop(
        self: Interpreter,
        body: cst.BaseSuite,
        counted: bool,
        turns: list[Callable[[], None]],
    ) -> Signal | None:
        outer = list(self.guards)
        self.loop_depth += counted
        try:
            for turn in turns[:MAX_ITEMS]:
                turn()
                signal = self.execute_suite(body)
                self._drop_guards(outer, "loop")
                if signal is not None and signal.kind in {"return", "raise", "exit"}:
                    return signal
                if signal is not None and signal.kind == "break":
                    break
        finally:
            self.loop_depth -= counted
        return None

    def _drop_guards(self: Interpreter, outer: list[Any], until: str) -> None:
        """Forget the guards that were left behind in a loop body or function which ends here."""
        known = {id(entry) for entry in outer}
        ended = {"loop": {"block", "loop"}, "function": {"block", "loop", "function"}}[until]
        self.guards = [e for e in self.guards if id(e) in known or e.until not in ended]

    # with, try ---------------------------------------------------------------------------------

    def execute_With(self: Interpreter, node: cst.With) -> Signal | None:
        return self._with_items(list(node.items), node.body)

    def _with_items(
        self: Interpreter, items: list[cst.WithItem], body: cst.BaseSuite
    ) -> Signal | None:
        if not items:
            return self.execute_suite(body)
        item, rest = items[0], items[1:]
        context = self.eval(item.item)
        if isinstance(context, GeneratorContext):
            return self._with_generator(context, item, lambda: self._with_items(rest, body))
        target = item.asname.name if item.asname is not None else None
        with self.entered(context, target):
            return self._with_items(rest, body)

    @contextmanager
    def entered(
        self: Interpreter, context: Value, target: cst.BaseExpression | None = None
    ) -> Iterator[None]:
        if target is not None:
            self.assign(
                target,
                context.module
                if isinstance(context, Context) and context.module
                else _entered_as(context),
            )
        if isinstance(context, Instance):
            self.call_method_if_any(context, "__enter__")
        self.contexts.append(context)
        try:
            yield
        finally:
            self.contexts.pop()
            if isinstance(context, Context) and context.on_exit is not None:
                context.on_exit()
            if isinstance(context, Instance):
                self.call_method_if_any(context, "__exit__")

    def _with_generator(
        self: Interpreter,
        context: GeneratorContext,
        item: cst.WithItem,
        body: Callable[[], Signal | None],
    ) -> Signal | None:
        """Run a @contextmanager's function with the `with` block in the place of its `yield`."""
        signals: list[Signal | None] = []
        here = self.frames[-1]
        source = self.source

        def on_yield(value: Value) -> None:
            if signals:
                return
            inner = self.frames[-1], self.source
            self.frames.append(here)
            self.source = source
            try:
                if item.asname is not None:
                    self.assign(item.asname.name, value)
                signals.append(body())
            finally:
                self.frames.pop()
                self.source = inner[1]

        function = context.function
        self.call_with_yield(function, context, item.item, on_yield)
        if not signals:
            signals.append(body())
        return signals[0]

    def execute_Try(self: Interpreter, node: cst.Try) -> Signal | None:
        optional = self._optional_import(node)
        if optional is not None:
            text = f"{optional} is installed"
            condition = Condition(text, text, False, text, "truth")
            verdict = decide(self, condition, cst.Name("installed"), True)
            if self.project.worth_exploring(node, self.source):
                self.decisions.relevant.add(text)
            if verdict.outcome is Outcome.FALSE:
                with self.guarded(verdict.guards):
                    signal = self.execute_suite(node.handlers[0].body)
                    if node.finalbody is not None:
                        signal = self.execute_suite(node.finalbody.body) or signal
                return signal
        signal = self.execute_suite(node.body)
        if signal is not None and signal.kind == "raise":
            signal = None
            for handler in node.handlers:
                signal = self.execute_suite(handler.body)
                break
        elif node.orelse is not None and signal is None:
            signal = self.execute_suite(node.orelse.body)
        if node.finalbody is not None:
            final = self.execute_suite(node.finalbody.body)
            signal = final or signal
        return signal

    def _optional_import(self: Interpreter, node: cst.Try) -> str | None:
        """The library that a `try: import ... except ImportError: ...` can do without."""
        if not node.handlers or not isinstance(node.body, cst.IndentedBlock):
            return None
        caught = node.handlers[0].type
        if (
            caught is None
            or "Import" not in self.text(caught)
            and "Module" not in self.text(caught)
        ):
            return None
        for line in node.body.body:
            for statement in line.body if isinstance(line, cst.SimpleStatementLine) else ():
                name = ""
                if isinstance(statement, cst.Import):
                    name = statement.names[0].evaluated_name
                elif isinstance(statement, cst.ImportFrom):
                    name = self.absolute_name(statement)
                top = name.partition(".")[0]
                # torch is always there; the project's own files are too
                if top and top != "torch" and self._locate(name) is None:
                    return top
        return None

    def execute_TryStar(self: Interpreter, node: cst.TryStar) -> Signal | None:
        return self.execute_suite(node.body)

    # Assignment --------------------------------------------------------------------------------

    def assign(self: Interpreter, target: cst.CSTNode, value: Value) -> None:
        """Bind a target (name, attribute, subscript, tuple) to a value."""
        if self.decisive(value):
            self.mark_relevant()
        if isinstance(target, cst.Name):
            if isinstance(value, Unknown) and not value.label:
                value.label = target.value
            self.scope.assign(target.value, value)
            self.evaluations[target] = value
        elif isinstance(target, cst.Attribute):
            owner = self.eval(target.value)
            if isinstance(owner, SamplerValue):
                self.emit(EpochSet, target, sampler=owner.id)  # `sampler.epoch = epoch`, `.seed`
            if isinstance(owner, ParametersOf) and target.attr.value == "data":
                self.emit(WeightsSet, target, modules=tuple(m.id for m in owner.modules))
                meta.left(self, owner.modules)
            self.note_tied(owner, target.attr.value, value, target)
            self.set_attribute(owner, target.attr.value, value)
            self.evaluations[target] = value
        elif isinstance(target, cst.Subscript):
            self._assign_subscript(target, value)
        elif isinstance(target, cst.Tuple | cst.List):
            self._unpack(target, value)
        elif isinstance(target, cst.StarredElement):
            self.assign(target.value, value)

    def _unpack(self: Interpreter, target: cst.Tuple | cst.List, value: Value) -> None:
        count = len(target.elements)
        items = self.unpack(value, count)
        for element, item in zip(target.elements, items, strict=True):
            if isinstance(element, cst.StarredElement):
                self.assign(element.value, SequenceValue([item], open=True))
            else:
                self.assign(element.value, item)

    def _assign_subscript(self: Interpreter, target: cst.Subscript, value: Value) -> None:
        container = self.eval(target.value)
        keys = [
            self.eval(item.slice.value)
            for item in target.slice
            if isinstance(item.slice, cst.Index)
        ]
        key = keys[0] if len(keys) == 1 else Unknown()
        if isinstance(container, ModuleValue):
            self.set_element(container, key, value)
        elif isinstance(container, Dict):
            if container.optimizer is not None and (
                not isinstance(key, Const) or key.value == "params"
            ):
                self.replace_parameters(container.optimizer)
            if isinstance(key, Const) and _hashable(key.value):
                container.items[key.value] = value
            else:
                container.open = True
                if isinstance(value, StateValue | ParametersOf | TensorValue | Unknown):
                    text = self.text(target.slice[0])
                    known = container.tensors.get(text, value)
                    container.tensors[text] = either(known, value, self)
        elif isinstance(container, SequenceValue):
            index = key.value if isinstance(key, Const) else None
            if isinstance(index, int) and -len(container.items) <= index < len(container.items):
                container.items[index] = value
            elif self.matters(value):
                container.items.append(value)
        elif isinstance(container, StateValue):
            # Tensors put into a state dict may be of another layout: it is another one now.
            same = isinstance(value, StateValue) and value.id == container.id
            if not same and not isinstance(value, Const):
                container.id, container.layout = self.new_id("state"), Layout.UNKNOWN
        elif isinstance(container, Unknown):
            module = self.as_module(container) if isinstance(value, ModuleValue) else None
            if module is not None:
                self.set_element(module, key, value)
            elif isinstance(key, Const):
                container.parts[f"[{key.value!r}]"] = value
            else:
                container.parts["[]"] = value

    def set_attribute(self: Interpreter, target: Value, name: str, value: Value) -> None:
        if isinstance(target, Unknown) and target.promoted is not None:
            target = target.promoted
        if isinstance(target, ModuleValue):
            self.set_module_attribute(target, name, value)
        elif isinstance(target, OptimizerValue) and name == "param_groups":
            self.replace_parameters(target)
        elif isinstance(target, Instance):
            target.attributes[name] = value
        elif isinstance(target, Class):
            target.attributes[name] = value
        elif isinstance(target, Unknown):
            target.parts[name] = value
        elif isinstance(target, Made):
            self.mark(target, name)
        elif isinstance(target, ParametersOf):
            self.mark(target, name)
            if name == "requires_grad":
                self.freeze_parameters(target, value)
        elif isinstance(target, Function | Symbol | LazyImport):
            return


def _all_parameters(node: cst.BaseExpression) -> bool:
    """Whether an expression is `m.parameters()` or `m.named_parameters()`, no part of them."""
    return (
        isinstance(node, cst.Call)
        and not node.args
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value in ("parameters", "named_parameters")
    )


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _entered_as(context: Value) -> Unknown:
    """What `with context as name` binds: an opened file is as much one per rank as its path."""
    if isinstance(context, Unknown) and context.origin.startswith("open("):
        return context
    return Unknown(origin="")


def _until(kind: str) -> str:
    return {"return": "function", "break": "loop", "continue": "loop"}.get(kind, "program")
