"""`FSDP.set_state_dict_type(...)`, which sets the type of states outside of blocks."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.analysis.components import files_run_together
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import SET_TYPE_RESULT, SET_TYPES_AMBIGUOUS
from fsdplint.migration.context import Migration
from fsdplint.migration.state_dicts.called_states import kind_in_function
from fsdplint.migration.state_dicts.kinds import Kind
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import statement_of


@dataclass
class SetType:
    """One call, its kind, and the modules whose type it sets (empty if they are not known)."""

    source: Source
    call: cst.Call
    kind: Kind
    modules: set[str]


class SetTypes:
    """The calls of some files."""

    def __init__(self, migration: Migration) -> None:
        self.migration = migration
        self.calls: list[SetType] = []

    def add(self, source: Source, call: cst.Call, kind: Kind) -> None:
        """Delete a call, and record its kind.

        Raises:
            Blocked: the code uses its result.
        """
        if not isinstance(source.parent(call), cst.Expr):
            raise Blocked(source, call, SET_TYPE_RESULT())
        given = arguments(call, ("module",))[0].get("module")
        modules = self._ids(given.value) if given is not None else set()
        self.calls.append(SetType(source, call, kind, modules))
        self.migration.account_for(source, call)
        self.migration.delete_statement(source, call)
        self.migration.step(
            source, call, "Take and load the state with torch.distributed.checkpoint"
        )

    def kind(
        self, source: Source, node: cst.Call, model: cst.BaseExpression | None = None
    ) -> Kind | None:
        """The kind of state at a call of `state_dict` or `load_state_dict`; None if none is set.

        model: the model whose state it is, None for the object whose method is called.

        Raises:
            Blocked: several kinds are possible.
        """
        assert isinstance(node.func, cst.Attribute)
        modules = self._ids(node.func.value if model is None else model)
        calls = [one for one in self.calls if not self._are_different_models(one.modules, modules)]
        if any(one.source is not source for one in calls):
            together = files_run_together(self.migration.program, source)
            calls = [one for one in calls if one.source in together]
        function = function_around(source, node)
        start = source.span(node)[0]
        last: SetType | None = None
        for one in calls:
            if one.source is source and function_around(source, one.call) is function:
                if source.span(one.call)[0] < start and self._precedes(one, node):
                    last = one
        if last is not None:
            between = source.span(last.call)[0]
            later = (
                one
                for one in calls
                if one.source is source and between < source.span(one.call)[0] < start
            )
            calls = [last, *later]
        if any(not calls[0].kind.is_equivalent(one.kind) for one in calls[1:]):
            reason = SET_TYPES_AMBIGUOUS()
            raise Blocked(source, node, reason)
        if not calls:
            return None
        one = calls[0]
        maker = function_around(one.source, one.call)
        if one.source is source and maker in (function, source.tree):
            return one.kind
        return kind_in_function(self.migration, one.kind, source, node)

    def _precedes(self, one: SetType, node: cst.Call) -> bool:
        line = one.source.parent(statement_of(one.source, one.call))
        block = one.source.parent(line) if line is not None else None
        return block is not None and block in ancestors(one.source, node)

    def _ids(self, node: cst.BaseExpression) -> set[str]:
        return {v.id for v in self.migration.values(node) if isinstance(v, ModuleValue)}

    def _are_different_models(self, one: set[str], other: set[str]) -> bool:
        """Whether two sets of modules certainly belong to different models."""
        return bool(one and other) and not any(
            trace.related(a, b)
            for trace in self.migration.program.traces
            for a in one
            for b in other
        )
