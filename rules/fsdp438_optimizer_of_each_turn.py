"""FSDP438: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Event, LoaderIterated, OptimizerBuilt, OptimizerStepped, Trace
from fsdplint.trace.queries.clipping import turns_of
from fsdplint.trace.queries.common import class_name, sharded_module_of


class OptimizerOfEachTurn(Rule):
    """The optimizer of a sharded model is built again in each turn of a loop, without its moments.

    ## What it does
    Finds an optimizer with moments (Adam, SGD with momentum) that each turn of a training loop builds with the
    same parameters and the same options. Each of them makes one step only, or each turn is a pass over
    the same `DataLoader`.

    A loop that builds, loads or resets the model in each turn, freezes parameters, or changes the options is
    not reported, nor is one whose turns have other data, such as the tasks of a curriculum.

    ## Why is this bad?
    There is no error. The moments begin at zero again, and so does the number of steps, by which Adam corrects
    them. With one step for each optimizer, Adam moves each weight by the learning rate, however small its
    gradient is. Two ranks print the number of steps that Adam knows of after three passes of four batches:

        steps in the state: 4 of 12

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html (the moments and their correction)
    """

    code = "FSDP438"
    name = "optimizer-of-each-turn"
    severity = Severity.WARNING
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for built in trace.of(OptimizerBuilt):
            if not built.again or built.site in seen or built.ranks.partial or turns_of(built):
                continue
            before = _last(trace, built)
            if before is None or not trace.complete or _may_be_plain(trace, built):
                continue
            step = _single_step(trace, before, built)
            pass_ = _same_pass(trace, before, built)
            if step is None and pass_ is None:
                continue
            seen.add(built.site)
            reason: list[tuple[Event, str]] = []
            if step is not None:
                reason = [(step, "the only step of each optimizer")]
            if pass_ is not None:
                reason = [(pass_, "each turn is a pass over the same data")]
            yield self.finding(
                built,
                f"each turn of the loop builds the optimizer of `{class_name(trace, built.modules[0])}` again, "
                f"without the moments of the turn before",
                help="Build the optimizer once, before the loop.",
                because=reason,
            )


def _may_be_plain(trace: Trace, built: OptimizerBuilt) -> bool:
    """Whether the model is not certainly sharded, or code out of sight gets it."""
    if sharded_module_of(trace, built.modules, built) is None:
        return True
    return any(trace.escaped(one, built) for one in built.modules)


def _last(trace: Trace, built: OptimizerBuilt) -> OptimizerBuilt | None:
    earlier = [e for e in trace.before(built, OptimizerBuilt) if e.site == built.site]
    return earlier[-1] if earlier and isinstance(earlier[-1], OptimizerBuilt) else None


def _single_step(
    trace: Trace, before: OptimizerBuilt, built: OptimizerBuilt
) -> OptimizerStepped | None:
    """The step, if the first optimizer and the one that replaces it make one step each."""
    found = []
    for optimizer in (before, built):
        steps = [e for e in trace.of(OptimizerStepped) if e.optimizer == optimizer.optimizer]
        if len(steps) != 1 or turns_of(steps[0]):
            return None
        found.append(steps[0])
    return found[1] if found[0].site == found[1].site else None


def _same_pass(
    trace: Trace, before: OptimizerBuilt, built: OptimizerBuilt
) -> LoaderIterated | None:
    """The pass with which the new optimizer begins, if the one before began with the same data."""
    first, second = _first_pass(trace, before), _first_pass(trace, built)
    if first is None or second is None or first.index >= built.index:
        return None
    return second if first.loader == second.loader and first.site == second.site else None


def _first_pass(trace: Trace, built: OptimizerBuilt) -> LoaderIterated | None:
    found = next(iter(trace.after(built, LoaderIterated)), None)
    return found if isinstance(found, LoaderIterated) else None
