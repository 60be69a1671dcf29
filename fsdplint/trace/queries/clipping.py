"""What gradient clipping belongs to."""

from __future__ import annotations

from fsdplint.trace import (
    Clipped,
    Event,
    GradientScaled,
    Guard,
    GuardKind,
    OptimizerBuilt,
    Trace,
)
from fsdplint.trace.numbers import division
from fsdplint.trace.predicates import AnyOf, Zero
from fsdplint.trace.queries.wrappers import prepared_by_framework


def optimizers_of(trace: Trace, event: Clipped | GradientScaled) -> set[str]:
    """The optimizers over the clipped parameters; empty if a module is not sharded."""
    if not event.modules or not all(_is_sharded(trace, m, event) for m in event.modules):
        return set()
    return {
        built.optimizer
        for built in trace.before(event, OptimizerBuilt)
        if any(trace.related(held, module) for held in built.modules for module in event.modules)
    }


def _is_sharded(trace: Trace, module: str, event: Event) -> bool:
    by_framework = prepared_by_framework(trace, module, event)
    return trace.sharded_within(module, event) is not None or by_framework is not None


_LARGE = 1e6  # a bound for which programs also write infinity


def may_only_measure(event: Clipped) -> bool:
    """Whether the bound of a clipping is one that no norm reaches, or may be."""
    bound = event.max_norm
    return bound == "?" or (isinstance(bound, int | float) and bound >= _LARGE)


def turns_of(event: Event) -> set[tuple[object, bool]]:
    """The tests that decide in which turns of a loop an event happens, with their outcomes."""
    tests = (guard for guard in event.guards if guard.kind is GuardKind.VARYING)
    return {(guard.site or guard.text, guard.holds) for guard in tests}


def is_counter(guard: Guard) -> bool:
    """Whether a test holds in every Nth turn of a loop (and perhaps in the last one)."""
    if guard.kind is not GuardKind.VARYING or not guard.holds:
        return False
    test = guard.predicate
    tests = test.parts if isinstance(test, AnyOf) else (test,)
    found = [division(one.number) for one in tests if isinstance(one, Zero)]
    return any(one is not None and one.by.constant != 1 for one in found)
