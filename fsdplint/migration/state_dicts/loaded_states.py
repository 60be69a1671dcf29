"""The calls that load an optimizer's state, found by the code or by the values of the traces."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.torch_values import StateValue
from fsdplint.migration.analysis.variables import definitions, home_of, reads
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import OPTIMIZER_STATE_UNSEEN
from fsdplint.migration.context import Migration
from fsdplint.migration.state_dicts import branch_loads
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import descend, statement_of

# What passes a value on and does nothing else with it.
_CARRIERS = (cst.Assign, cst.AssignTarget, cst.AnnAssign, cst.NamedExpr, cst.Return)


class LoadReader:
    """Finds the calls of one file that load an optimizer's state."""

    def __init__(self, migration: Migration, source: Source) -> None:
        self.migration = migration
        self.source = source

    def load_call(self, node: cst.Call) -> cst.Call:
        """The `optimizer.load_state_dict(...)` that gets a call's result, directly or in a variable."""
        parent = self.source.parent(node)
        if isinstance(parent, cst.Arg):
            outer = self.source.parent(parent)
            if isinstance(outer, cst.Call) and loads(outer):
                return outer
        statement = statement_of(self.source, node)
        if isinstance(statement, cst.Assign) and statement.value is node:
            target = statement.targets[0].target
            uses = self._uses_after(target, node) if len(statement.targets) == 1 else []
            if len(uses) == 1:
                arg = self.source.parent(uses[0])
                outer = self.source.parent(arg) if isinstance(arg, cst.Arg) else None
                if isinstance(outer, cst.Call) and loads(outer):
                    if self._same_block(node, outer):
                        return outer
        branch = self.branch_load(node)
        if branch is not None:
            return branch.load
        raise Blocked(self.source, node, OPTIMIZER_STATE_UNSEEN())

    def branch_load(self, node: cst.Call) -> branch_loads.BranchLoad | None:
        """The load after the branches, one of which converts the state, if nothing else reads it."""
        found = branch_loads.find(self.source, node, self.migration.blocks.unwrapped)
        if found is None or not loads(found.load):
            return None
        given = found.load.args[0].value
        return found if self._uses_after(given, found.choice) == [given] else None

    def any_load(self, node: cst.Call) -> cst.Call:
        """The call that loads a call's result, found by the code or by the values."""
        return self.load_by_value(node) or self.load_call(node)

    def load_by_value(self, node: cst.Call) -> cst.Call | None:
        """The call that loads a call's result if only the values show it."""
        try:
            self.load_call(node)
        except Blocked:
            load = only_load(self.migration, self.source, node)
            return load if load is not None and self._comes_before(node, load) else None
        return None

    def _comes_before(self, node: cst.Call, load: cst.Call) -> bool:
        """Whether a call is executed wherever a later one is: in its block, or in one around it."""
        statement = statement_of(self.source, node)
        is_head = isinstance(statement, cst.BaseCompoundStatement)
        block = self.source.parent(statement) if is_head else self.block_of(node)
        around = self.block_of(load)
        while around is not None and around is not block:
            around = self.source.parent(around)
        return around is not None and self.source.span(node) < self.source.span(load)

    def _uses_after(self, target: cst.BaseExpression, node: cst.CSTNode) -> list[cst.CSTNode]:
        """The reads of a variable, or of an entry like `state["optimizer"]`, until it is rebound."""
        after, end = self.source.span(node)[1], len(self.source.text)
        uses: list[cst.CSTNode] = []
        if isinstance(target, cst.Name):
            home = home_of(self.source, target)
            others = definitions(self.source, target) or []
            starts = [self.source.span(other.statement)[0] for other in others]
            end = min((start for start in starts if start > after), default=end)
            uses += reads(self.source, home or self.source.tree, target.value)
            if any(self._is_bound_before(one, node) for one in self._targets(target)):
                uses = [use for use in uses if not isinstance(self.source.parent(use), cst.Del)]
        elif isinstance(target, cst.Subscript) and isinstance(target.value, cst.Name):
            text = self.source.code(target)
            uses += [
                part
                for part in descend(function_around(self.source, node))
                if isinstance(part, cst.Subscript) and self.source.code(part) == text
            ]
        return [use for use in uses if after < self.source.span(use)[0] < end]

    def _targets(self, name: cst.Name) -> list[cst.CSTNode]:
        """The places that assign a variable."""
        bindings = bindings_of(self.source)
        scope = bindings.owner(bindings.scope_at(name), name.value)
        targets = scope.others.get(name.value, ()) if scope is not None else ()
        return [one for one in targets if isinstance(self.source.parent(one), cst.AssignTarget)]

    def _is_bound_before(self, target: cst.CSTNode, node: cst.CSTNode) -> bool:
        """Whether an assignment runs before a node in any case, so that its variable exists."""
        statement = statement_of(self.source, target)
        block = self.block_of(statement)
        start = self.source.span(statement_of(self.source, node))[0]
        inside = block in (self.source.tree, *ancestors(self.source, node))
        return inside and self.source.span(statement)[1] <= start

    def _same_block(self, one: cst.CSTNode, other: cst.CSTNode) -> bool:
        """Whether two statements are in the same block after blocks are unwrapped."""
        return self.block_of(one) is self.block_of(other)

    def block_of(self, node: cst.CSTNode) -> cst.CSTNode | None:
        line = self.source.parent(statement_of(self.source, node))
        body = self.source.parent(line) if line is not None else None
        owner = self.source.parent(body) if body is not None else None
        while isinstance(owner, cst.With) and owner in self.migration.blocks.unwrapped:
            body = self.source.parent(owner)
            owner = self.source.parent(body) if body is not None else None
        return body


def only_load(migration: Migration, source: Source, node: cst.Call) -> cst.Call | None:
    """The only `optimizer.load_state_dict(x)` whose x is a call's result, in the same function.

    None if any other code reads the result.
    """
    function = function_around(source, node)
    found = only_loads(migration, node, mixed=False)
    if any(function_around(file, load) is not function for file, load in found):
        return None
    return found[0][1] if len(found) == 1 else None


def only_loads(
    migration: Migration, node: cst.Call, *, mixed: bool = True
) -> list[tuple[Source, cst.Call]]:
    """The calls `optimizer.load_state_dict(x)` whose x is a call's result.

    Empty if any other code reads the result.

    mixed: whether x may also be another state.
    """
    states = migration.values(node)
    if not states or not all(isinstance(state, StateValue) for state in states):
        return []
    made = {id(state) for state in states}
    found: list[tuple[Source, cst.Call]] = []
    for file, part in _expressions(migration):
        known = [id(value) in made for value in migration.values(part)]
        if not any(known):
            continue
        load = _loading_call(file, part)
        if load is not None and (mixed or all(known)):
            found.append((file, load))
        elif not _carries(migration, file, part, made):
            return []
    return found


def _expressions(migration: Migration) -> Iterator[tuple[Source, cst.BaseExpression]]:
    for source in migration.sources:
        for part in descend(source.tree):
            if isinstance(part, cst.BaseExpression):
                yield source, part


def _loading_call(source: Source, node: cst.CSTNode) -> cst.Call | None:
    argument = source.parent(node)
    call = source.parent(argument) if isinstance(argument, cst.Arg) else None
    return call if isinstance(call, cst.Call) and loads(call) else None


def loads(node: cst.Call) -> bool:
    """Whether a call is `x.load_state_dict(state)`."""
    is_method = isinstance(node.func, cst.Attribute) and node.func.attr.value == "load_state_dict"
    return is_method and len(node.args) == 1


def _carries(migration: Migration, source: Source, node: cst.CSTNode, made: set[int]) -> bool:
    """Whether the place of a node only passes its value on."""
    parent = source.parent(node)
    if isinstance(parent, cst.IfExp):
        other = parent.orelse if parent.body is node else parent.body
        return parent.test is not node and is_constant(other, "None")
    if isinstance(parent, cst.Arg):  # of a function that returns what it gets
        results = migration.values(source.parent(parent) or parent)
        return bool(results) and all(id(result) in made for result in results)
    if isinstance(parent, cst.Element):
        return _is_unpacked(source, source.parent(parent))
    if isinstance(parent, cst.Comparison):  # what converts a state never returns None
        return parent.left is node and _asks_for_none(parent)
    if isinstance(parent, cst.ListComp):
        return isinstance(source.parent(parent), cst.Subscript)
    if not isinstance(parent, _CARRIERS):
        return False
    root: cst.CSTNode = node if isinstance(parent, cst.AssignTarget) else cst.Name("variable")
    while isinstance(root, cst.Attribute):
        root = root.value
    return isinstance(root, cst.Name) and root.value != "self"


def _is_unpacked(source: Source, display: cst.CSTNode | None) -> bool:
    """Whether a list or tuple is unpacked at once, so that nothing else reads it."""
    assigned = source.parent(display) if display is not None else None
    if isinstance(assigned, cst.AssignTarget):  # a target itself
        return True
    return isinstance(assigned, cst.Assign) and all(
        isinstance(target.target, cst.Tuple | cst.List) for target in assigned.targets
    )


def _asks_for_none(test: cst.Comparison) -> bool:
    operators = [one.operator for one in test.comparisons]
    return len(operators) == 1 and (
        isinstance(operators[0], cst.Is | cst.IsNot)
        and is_constant(test.comparisons[0].comparator, "None")
    )
