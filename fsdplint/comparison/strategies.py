"""The strategies that a run may have, given its conditions.

A program may read the name of its strategy from a setting. Its tests of the name
(`strategy == "SHARD_GRAD_OP"`, `"HYBRID" in args.strategy`) say which strategies a run can have.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable

from fsdplint.migration.names import STRATEGIES
from fsdplint.trace import Event, GuardKind, Trace

Condition = tuple[str, bool]  # its text, and whether it holds
_ENUM = "ShardingStrategy"


def conditions_of(trace: Trace) -> frozenset[Condition]:
    """The conditions that a run decided."""
    return config_conditions(trace) | frozenset(trace.decisions.items())


def config_conditions(events: Iterable[Event]) -> frozenset[Condition]:
    """The conditions of the configuration under which events happen."""
    return frozenset(
        (guard.text, guard.holds)
        for event in events
        for guard in event.guards
        if guard.kind is GuardKind.CONFIG
    )


def allowed_strategies(conditions: Iterable[Condition]) -> tuple[str, ...] | None:
    """The strategies that conditions allow; None if no condition is about a strategy."""
    tests = [(_test(text), holds) for text, holds in conditions]
    known = [(test, holds) for test, holds in tests if test is not None]
    if not known:
        return None
    return tuple(name for name in STRATEGIES if all(test(name) is holds for test, holds in known))


@functools.lru_cache(maxsize=1024)
def _test(text: str) -> Callable[[str], bool] | None:
    """What a condition says of the name of a strategy; None if it is about something else."""
    if not any(part in text for part in ("SHARD", "HYBRID")):
        return None
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return None
    left, operator, right = node.left, node.ops[0], node.comparators[0]
    negated = isinstance(operator, ast.NotEq | ast.NotIn)
    if isinstance(operator, ast.In | ast.NotIn) and (part := _text(left)) and not _names(right):
        # A part of a name, such as "HYBRID"
        if not 0 < sum(part in name for name in STRATEGIES) < len(STRATEGIES):
            return None
        return lambda name: (part in name) is not negated
    names = _names(right) or _names(left)
    if not names or not names <= {*STRATEGIES}:
        return None
    return lambda name: (name in names) is not negated


def _text(node: ast.expr) -> str:
    found = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return str(node.value) if found and isinstance(node, ast.Constant) else ""


def _names(node: ast.expr) -> set[str]:
    """The names of strategies that an expression lists; empty if it is something else."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        parts = [_names(one) for one in node.elts]
        return set().union(*parts) if all(parts) else set()
    if isinstance(node, ast.Attribute):
        owner = node.value.attr if isinstance(node.value, ast.Attribute) else ""
        owner = node.value.id if isinstance(node.value, ast.Name) else owner
        return {node.attr} if owner == _ENUM else set()
    return {_text(node)} - {""}
