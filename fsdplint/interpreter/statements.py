"""Execution of statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.interpreter import lazy
from fsdplint.interpreter.branch_conditions import rank_guard
from fsdplint.interpreter.frames import SUITE, Frame, GuardEntry
from fsdplint.interpreter.scopes import Scope
from fsdplint.interpreter.values import Class, Const, Dict, RankTest, Symbol
from fsdplint.interpreter.values import Sequence as SequenceValue
from fsdplint.trace import Fsdp1Used

if TYPE_CHECKING:
    from fsdplint.interpreter.run import Interpreter
from fsdplint.interpreter.signals import Signal, is_exit, raises

_EXECUTORS: dict[type, str] = {}
FSDP1 = "torch.distributed.fsdp.FullyShardedDataParallel"


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
        exits = isinstance(node.value, cst.Call) and is_exit(node.value)
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
        self.regroup(left)
        if isinstance(left, SequenceValue):
            right = lazy.consume(self, right)
            if isinstance(right, SequenceValue):
                left.extend(right.items)
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
        return Signal(raises(node))

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
        elif isinstance(node.target, cst.Subscript):
            self.regroup(self.eval(node.target.value))
        elif isinstance(node.target, cst.Attribute):
            self.unmark(self.eval(node.target.value), node.target.attr.value)

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
