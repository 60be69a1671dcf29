"""Gradients that are set to zero before an optimizer step has used them, or never."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.trace import (
    BackwardRun,
    Called,
    Clipped,
    Event,
    GradientsZeroed,
    GuardKind,
    OptimizerBuilt,
    OptimizerStepped,
    ParameterMarked,
    Sharding,
    SyncSwitched,
    Trace,
)
from fsdplint.trace.predicates import AllOf, Predicate, truth
from fsdplint.trace.queries.clipping import is_counter, turns_of
from fsdplint.trace.queries.common import sharded_module_of
from fsdplint.trace.queries.last_backward import conditions_of


@dataclass(frozen=True)
class Dropped:
    """What drops gradients.

    Attributes:
        module: a sharded module of the optimizer.
        backward: the backward pass that computed them.
        zeroed: where they are set to zero.
        step: the step that does not get them.
    """

    module: str
    backward: BackwardRun
    zeroed: GradientsZeroed
    step: OptimizerStepped


def zeroed_before_step(trace: Trace) -> Iterator[Dropped]:
    """Steps between which and their backward passes all gradients are certainly set to zero.

    Code that cannot be followed may have the model: it makes no gradients between the two unless it
    runs there, and then the step does not count as one without gradients.
    """
    for step in trace.of(OptimizerStepped):
        if not step.without_gradients or not trace.complete:
            continue
        module = _sharded_module(trace, step)
        between = _zeroings_since_backward(trace, step)
        zeroed = next((one for one in between if _happens_with(one, step)), None)
        if module is None or zeroed is None:
            continue
        backward = _last_backward(trace, between[0], step.optimizer)
        if backward is not None and truth(_condition(backward), conditions_of(step)) is not False:
            yield Dropped(module, backward, zeroed, step)


def zeroed_in_accumulation(trace: Trace) -> Iterator[Dropped]:
    """Steps of FSDP1's models that get the gradients of the last micro-batch alone.

    A backward pass under `no_sync()` accumulates; its gradients are set to zero before the next.
    Those of FSDP2 without synchronisation are elsewhere, and stay.
    """
    for step in trace.of(OptimizerStepped):
        module = _sharded_module(trace, step)
        zeroed = _last_zeroing(trace, step)
        if module is None or zeroed is None or trace.sharding(module) is not Sharding.FSDP1:
            continue
        if any(trace.escaped(one, trace.last_step) for one in _modules_of(trace, step)):
            continue
        backward = _last_backward(trace, step, step.optimizer)
        if backward is None or backward.index < zeroed.index:
            continue
        if _is_paused_only_before(trace, module, backward, step) and _happens_in_each(
            trace, zeroed, backward
        ):
            yield Dropped(module, backward, zeroed, step)
        earlier = _last_backward(trace, zeroed, step.optimizer)
        if earlier is not None and any(
            trace.contains(one, module) for one in earlier.unsynchronized
        ):
            yield Dropped(module, earlier, zeroed, step)


def zeroed_in_each_turn(trace: Trace) -> Iterator[Dropped]:
    """Steps after a loop whose turns each set the gradients to zero and compute new ones.

    All turns run before the step, so that it gets the gradients of the last one alone. Gradients
    that no backward pass of a turn synchronises under FSDP2 are elsewhere, and stay.
    """
    for step in trace.of(OptimizerStepped):
        module = _accumulating_module(trace, step)
        turns = _turns_before(trace, step) if module is not None else []
        if module is None or len(turns) < 2 or not _are_alike(turns, step):
            continue
        if _reaches(trace, module, [backward for _, backward in turns[-2:]]):
            yield Dropped(module, turns[-1][1], turns[-1][0], step)


def zeroed_between_steps(trace: Trace) -> Iterator[Dropped]:
    """Steps in every Nth turn of a loop, all turns of which zero and compute the gradients.

    What the other turns compute is never used.
    """
    for step in trace.of(OptimizerStepped):
        module = _accumulating_module(trace, step)
        zeroed, backward = _last_zeroing(trace, step), _last_backward(trace, step, step.optimizer)
        if module is None or zeroed is None or backward is None or zeroed.index > backward.index:
            continue
        counted = {g.site or g.text for g in step.guards if is_counter(g)}
        turns = turns_of(backward)
        if not counted or counted & {test for test, _ in turns} or not turns <= turns_of(step):
            continue
        same = turns_of(zeroed) == turns and zeroed.callbacks == backward.callbacks
        if same and _repeats(trace, zeroed, backward) and _reaches(trace, module, [backward]):
            yield Dropped(module, backward, zeroed, step)


def _repeats(trace: Trace, zeroed: GradientsZeroed, backward: BackwardRun) -> bool:
    """Whether the turn before has computed gradients, too, which nothing read."""
    if not zeroed.unused:
        return False
    before = list(trace.before(zeroed, BackwardRun, GradientsZeroed))
    earlier = [e for e in before if getattr(e, "optimizer", zeroed.optimizer) == zeroed.optimizer]
    return [e.site for e in earlier[-2:]] == [zeroed.site, backward.site]


_Turn = tuple[GradientsZeroed, BackwardRun]


def _turns_before(trace: Trace, step: OptimizerStepped) -> list[_Turn]:
    """The pairs of a zeroing and a backward pass after it that come next before a step.

    They end at the first event of another kind: a step, clipping, or two backward passes in a row.
    """
    kinds = BackwardRun, Clipped, GradientsZeroed, OptimizerStepped
    events = [
        event
        for event in trace.before(step, *kinds)
        if getattr(event, "optimizer", step.optimizer) == step.optimizer
    ]
    while events and isinstance(events[-1], Clipped):
        events.pop()
    turns: list[_Turn] = []
    while len(events) > 1:
        backward, zeroed = events.pop(), events.pop()
        if not isinstance(backward, BackwardRun) or not isinstance(zeroed, GradientsZeroed):
            break
        turns.insert(0, (zeroed, backward))
    return turns


def _are_alike(turns: list[_Turn], step: OptimizerStepped) -> bool:
    """Whether the last two turns are those of one loop that a step certainly follows."""
    (first, one), (second, two) = turns[-2:]
    if first.site != second.site or one.site != two.site:
        return False
    if not second.unused or second.retried:
        return False
    if first.stack != second.stack or first.callbacks != second.callbacks:
        return False
    if one.stack != two.stack or one.callbacks != step.callbacks or two.callbacks != step.callbacks:
        return False
    around = turns_of(step)
    return all(turns_of(event) <= around for event in (first, one, second, two))


def _accumulating_module(trace: Trace, step: OptimizerStepped) -> str | None:
    """A sharded module of an optimizer whose gradients are certainly those of its parameters.

    Hooks may keep gradients elsewhere, and so does FSDP2 where it does not synchronise them.
    """
    module = _sharded_module(trace, step)
    if module is None or not trace.complete or any(m.hook for m in trace.of(ParameterMarked)):
        return None
    modules = _modules_of(trace, step)
    if any(trace.any_escaped(trace.family(one), trace.last_step) for one in modules):
        return None
    return None if any(_is_paused(trace, one) for one in modules) else module


def _reaches(trace: Trace, module: str, passes: list[BackwardRun]) -> bool:
    """Whether the next zeroing reaches the gradients of backward passes.

    It does under FSDP1, whose `no_sync()` keeps them in the parameters.
    """
    if trace.sharding(module) is Sharding.FSDP1:
        return not passes[-1].unsynchronized
    return not any(one.unsynchronized or one.perhaps_unsynchronized for one in passes)


def _is_paused(trace: Trace, module: str) -> bool:
    """Whether the program may switch the synchronisation of a module of FSDP2."""
    return any(
        event.api == "set_requires_gradient_sync" and trace.related(event.module, module)
        for event in trace.of(SyncSwitched)
    )


def _is_paused_only_before(
    trace: Trace, module: str, backward: BackwardRun, step: OptimizerStepped
) -> bool:
    """Whether a backward pass synchronises in the turns with a step and in no others."""
    tests = [
        test
        for one, test in backward.perhaps_unsynchronized
        if trace.contains(one, module) and test is not None
    ]
    return len(tests) == 1 and truth(tests[0], conditions_of(step)) is False


def _happens_in_each(trace: Trace, zeroed: GradientsZeroed, backward: BackwardRun) -> bool:
    """Whether gradients are set to zero in each turn of the loop with a backward pass."""
    turns = 0
    last: Event | None = None
    for event in trace.of(BackwardRun, GradientsZeroed):
        if isinstance(event, BackwardRun):
            if event.site == backward.site:
                if last is None or last.site != zeroed.site:
                    return False
                turns += 1
            last = event
        elif isinstance(event, GradientsZeroed) and event.optimizer == zeroed.optimizer:
            last = event
    same = turns_of(zeroed) <= turns_of(backward) and set(zeroed.facts) <= set(backward.facts)
    return turns > 1 and same


def _happens_with(zeroed: GradientsZeroed, step: OptimizerStepped) -> bool:
    """Whether gradients are set to zero each time that a step comes next."""
    if zeroed.callbacks != step.callbacks or zeroed.ranks.partial:
        return False
    known = {guard.site or guard.text for guard in step.guards}
    unknown = [g for g in zeroed.guards if g.kind is GuardKind.VARYING and g.predicate is None]
    if any((guard.site or guard.text) not in known for guard in unknown):
        return False
    return truth(_condition(zeroed), conditions_of(step)) is True


def _condition(event: Event) -> Predicate:
    return AllOf(tuple(conditions_of(event)))


def _last_zeroing(trace: Trace, step: OptimizerStepped) -> GradientsZeroed | None:
    """The last place before a step that sets the optimizer's gradients to zero."""
    found = [one for one in trace.before(step, GradientsZeroed) if one.optimizer == step.optimizer]
    return found[-1] if found else None


def _zeroings_since_backward(trace: Trace, step: OptimizerStepped) -> list[GradientsZeroed]:
    """The places between the last backward pass and a step that set the gradients to zero."""
    found: list[GradientsZeroed] = []
    for event in trace.before(step, BackwardRun, GradientsZeroed):
        if isinstance(event, BackwardRun):
            found.clear()
        elif isinstance(event, GradientsZeroed) and event.optimizer == step.optimizer:
            found.append(event)
    return found


def _last_backward(trace: Trace, before: Event, optimizer: str) -> BackwardRun | None:
    """The last backward pass before an event, if neither a step nor another zeroing follows it."""
    last: BackwardRun | None = None
    for event in trace.before(before, BackwardRun, OptimizerStepped, GradientsZeroed):
        if isinstance(event, BackwardRun):
            last = event
        elif isinstance(event, OptimizerStepped | GradientsZeroed) and event.optimizer == optimizer:
            last = None
    return last


def _sharded_module(trace: Trace, step: OptimizerStepped) -> str | None:
    """A module that is sharded and whose parameters the optimizer has; None if one is not seen.

    The forward of a model that a framework shards communicates.
    """
    if step.ranks.partial:
        return None
    communicating = {one.module for one in trace.before(step, Called) if one.collective}
    modules = _modules_of(trace, step)
    by_framework = next((one for one in modules if one in communicating), None)
    return by_framework or sharded_module_of(trace, modules, step)


def _modules_of(trace: Trace, step: OptimizerStepped) -> list[str]:
    """The modules whose parameters the optimizer of a step has."""
    built = [one for one in trace.before(step, OptimizerBuilt) if one.optimizer == step.optimizer]
    return [module for one in built for module in one.modules]


def steps_with_used_gradients(trace: Trace) -> Iterator[tuple[str, BackwardRun, OptimizerStepped]]:
    """Steps that get the gradients of the last step again, with a sharded module and the pass.

    Only optimizers of torch count: those of a program may set the gradients to zero themselves.
    """
    for step in trace.of(OptimizerStepped):
        if not step.adds_to_used or not trace.complete or step.ranks.partial:
            continue
        module = _module_of_torch(trace, step)
        backward = [*trace.before(step, BackwardRun)][-1]
        if module is not None and isinstance(backward, BackwardRun):
            yield module, backward, step


def _module_of_torch(trace: Trace, step: OptimizerStepped) -> str | None:
    """A sharded module that an optimizer of torch has, if no other code may use its gradients."""
    for built in trace.before(step, OptimizerBuilt):
        if built.optimizer != step.optimizer or built.library != "torch" or not built.complete:
            continue
        if any(trace.any_escaped(trace.family(one), trace.last_step) for one in built.modules):
            return None
        module = sharded_module_of(trace, built.modules, step)
        if module is not None:
            return module
    return None
