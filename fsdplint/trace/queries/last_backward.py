"""Whether the last backward pass before an optimizer step synchronises the gradients.

The conditions of the step, of the backward passes and of the switches are compared. An inverted
condition leaves the last backward of each step without synchronisation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fsdplint.trace import (
    BackwardRun,
    Event,
    GuardKind,
    OptimizerStepped,
    SyncSwitched,
    Trace,
)
from fsdplint.trace.assignments import may_hold, may_hold_in_last_window
from fsdplint.trace.numbers import of_atom
from fsdplint.trace.predicates import (
    ALWAYS,
    NEVER,
    AllOf,
    Not,
    Positive,
    Predicate,
    Zero,
    negated,
    tokens_in,
    truth,
    truths,
)
from fsdplint.trace.queries.common import optimizers_over
from fsdplint.trace.queries.sync_switches import (
    LeftOff,
    out_of_sight,
    reduced_by_fsdp1,
    reduces_fsdp2,
    waits_for_turn,
)


def off_in_last_backward(trace: Trace) -> Iterator[LeftOff]:
    """The optimizer steps before which the last backward pass certainly runs without
    synchronisation, because of a condition."""
    seen = set()
    for event in trace.of(SyncSwitched):
        if event.api == "no_sync":
            concerns = reduced_by_fsdp1(trace, event.module)
        else:
            concerns = reduces_fsdp2(trace, event)
        if concerns and (event.api, event.module) not in seen:
            seen.add((event.api, event.module))
            if not out_of_sight(trace, event.api, event.module):
                yield from _Steps(trace, event.api, event.module).without_synchronisation()


@dataclass(frozen=True)
class _Switch:
    """What decides whether a backward pass is without synchronisation.

    at: the call of the switch. off: when it is off; None if that is not known.
    by_condition: whether a condition in the program decides it.
    """

    at: SyncSwitched
    off: Predicate | None
    by_condition: bool


class _Steps:
    """The optimizer steps of one module."""

    def __init__(self, trace: Trace, api: str, module: str) -> None:
        self.trace, self.api, self.module = trace, api, module
        self.optimizers = optimizers_over(trace, module)
        kinds = SyncSwitched, BackwardRun, OptimizerStepped
        self.events = [event for event in trace.of(*kinds) if self._concerns(event)]

    def _concerns(self, event: Event) -> bool:
        if isinstance(event, OptimizerStepped):
            return event.optimizer in self.optimizers
        if isinstance(event, SyncSwitched):
            return event.api == self.api and self.trace.related(event.module, self.module)
        return True

    def without_synchronisation(self) -> Iterator[LeftOff]:
        for number, event in enumerate(self.events):
            if isinstance(event, OptimizerStepped) and not event.ranks.partial:
                if waits_for_turn(self.trace, event):
                    continue
                found = self._last_backward(event, self.events[:number])
                if found is not None:
                    yield found

    def _last_backward(self, step: OptimizerStepped, before: Sequence[Event]) -> LeftOff | None:
        facts = conditions_of(step)
        for number in reversed(range(len(before))):
            event = before[number]
            if isinstance(event, SyncSwitched):
                continue
            conditions = conditions_of(event)
            happens = truth(AllOf(tuple(conditions)), _with_ends(step, facts, conditions))
            if isinstance(event, OptimizerStepped):
                if happens:
                    return None
                facts.append(Not(AllOf(tuple(conditions))))
            elif isinstance(event, BackwardRun) and happens is not False:
                if happens is None or event.ranks.partial or event.callbacks != step.callbacks:
                    return None
                return self._judge(step, event, before[:number], facts)
        return None

    def _judge(
        self,
        step: OptimizerStepped,
        backward: BackwardRun,
        before: Sequence[Event],
        facts: list[Predicate],
    ) -> LeftOff | None:
        if self.api == "no_sync":
            switch = self._no_sync_around(backward, before)
        else:
            switch = self._last_switch(step, backward, before, facts)
        if switch is None or switch.off is None:
            return None
        if not switch.by_condition and _follows_another(backward, before):
            return None
        facts += conditions_of(backward)
        known = _with_ends(step, facts, [switch.off])
        outcomes = truths(switch.off, known)
        if True in outcomes and None not in outcomes:
            return LeftOff(switch.at, backward, step)
        if may_hold_in_last_window(switch.off, facts, step.index):
            return LeftOff(switch.at, backward, step, in_last_window=True)
        if not facts and _repeats(before) and _is_followed(step, backward, switch.at):
            return LeftOff(switch.at, backward, step) if may_hold(switch.off, step.index) else None
        return None

    def _no_sync_around(self, backward: BackwardRun, before: Sequence[Event]) -> _Switch | None:
        at = next((one for one in reversed(before) if isinstance(one, SyncSwitched)), None)
        if at is None:
            return None
        if any(self.trace.contains(one, self.module) for one in backward.unsynchronized):
            return _Switch(at, ALWAYS, True)
        tests = [
            test
            for one, test in backward.perhaps_unsynchronized
            if self.trace.contains(one, self.module)
        ]
        return _Switch(at, tests[0], True) if len(tests) == 1 else None

    def _last_switch(
        self,
        step: OptimizerStepped,
        backward: BackwardRun,
        before: Sequence[Event],
        facts: list[Predicate],
    ) -> _Switch | None:
        """The switch that decides in the turn of the last backward before a step; None if several
        may."""
        for event in reversed(before):
            if not isinstance(event, SyncSwitched):
                continue
            conditions = conditions_of(event)
            known = _with_ends(step, facts, conditions)
            happens = truth(AllOf(tuple(conditions)), known)
            if happens is False:
                continue
            whole = self.trace.contains(event.module, self.module)
            if happens is None or not whole or event.ranks.partial:
                return None
            own = [guard for guard in event.guards if all(guard is not g for g in backward.guards)]
            by_condition = bool(own) or event.enabled is None
            return _Switch(event, _disabled_if(event), by_condition)
        return None


def _disabled_if(switch: SyncSwitched) -> Predicate | None:
    if switch.enabled is None:
        return negated(switch.test)
    return NEVER if switch.enabled else ALWAYS


def _repeats(before: Sequence[Event]) -> bool:
    """Whether another backward pass comes first in the same step."""
    for event in reversed(before):
        if isinstance(event, BackwardRun | OptimizerStepped):
            return isinstance(event, BackwardRun)
    return False


def _is_followed(*events: Event) -> bool:
    """Whether all tests around some events that may differ from turn to turn are known."""
    return all(
        guard.predicate is not None
        for event in events
        for guard in event.guards
        if guard.kind is not GuardKind.RANK
    )


def conditions_of(event: Event) -> list[Predicate]:
    """What is known where an event happens."""
    known = [guard.predicate for guard in event.guards if guard.kind is not GuardKind.RANK]
    return [*(one for one in known if one is not None), *event.facts]


def _with_ends(at: Event, facts: Sequence[Predicate], more: Sequence[Predicate]) -> list[Predicate]:
    """Facts, and those about the last turns of the loops that have ended before an event."""
    ends: list[Predicate] = []
    for token in tokens_in([*facts, *more]):
        if token.last is not None and token.ended is not None and token.ended <= at.index:
            ends.append(Zero(of_atom(token).plus(token.last, -1)))
            if token.last.parts:
                ends.append(Positive(token.last))  # a loop is no loop for one turn
    return [*facts, *ends]


def _follows_another(backward: BackwardRun, before: Sequence[Event]) -> bool:
    """Whether another backward comes first, under the same conditions and in the same step.

    The later one may be of a part of the loss that has no gradients for the module.
    """
    for event in reversed(before):
        if isinstance(event, OptimizerStepped):
            return False
        if isinstance(event, BackwardRun) and event.guards == backward.guards:
            return event.site != backward.site
    return False
