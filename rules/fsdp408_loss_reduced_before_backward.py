"""FSDP408: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Collective,
    Escaped,
    Event,
    Fsdp1Used,
    Fsdp2Used,
    GradientScaled,
    OptimizerStepped,
    SyncSwitched,
    Trace,
)
from fsdplint.trace.queries.data_parallelism import other_parallelism

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class LossReducedBeforeBackward(Rule):
    """The loss is averaged over the ranks before `backward`, which makes the gradients too small.

    ## What it does
    Finds `loss.backward()` if `dist.all_reduce(loss)` has summed the loss, and the program has divided
    it by the number of ranks. Also finds it if each rank divides its own loss by the number of ranks, or
    by a number that `dist.all_reduce` has summed over the ranks, such as the tokens of all ranks, and if the
    program divides the gradients by such a number, or by the number of ranks, after the backward.

    A loss that the program also multiplies (`loss * world_size / tokens`) is not reported, nor are programs that
    read or reduce the gradients themselves, or call `set_gradient_divide_factor`.

    ## Why is this bad?
    FSDP averages the gradients of the ranks. `all_reduce` changes the value of the loss but not its
    graph. The division after it is in the graph, and divides the gradients a second time. There is no
    error: on two ranks, the gradient norm was 0.247 instead of 0.494, as if the learning rate were divided
    by the number of ranks. (`all_reduce` alone does not change the gradients of a mean, but torch warns that a
    backward through it "may silently lead to incorrect behavior".)

    A loss that is divided by the tokens of all ranks is one part of the mean: the sum of the ranks would be
    the mean, and FSDP divides the sum by the number of ranks. The gradients are too small by this factor.

    ## Fix safety
    Unsafe: `loss.backward()` moves before the `all_reduce`. The gradients grow by a factor of the number
    of ranks, and a learning rate that was tuned with the mistake may be too high.

    ## Since
    torch 2.0.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.html (`all_reduce` is not differentiable)
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
      (`set_gradient_divide_factor`)
    - meta-pytorch/torchtune#2172
    """

    code = "FSDP408"
    name = "loss-reduced-before-backward"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        if _sets_own_factor(trace):
            return
        seen = set()
        for event in trace.of(BackwardRun):
            if not event.averaged or not event.collective or event.site in seen:
                continue
            seen.add(event.site)
            because: list[tuple[Event, str]] = [
                (other, "summed over the ranks here")
                for other in trace.before(event, Collective)
                if isinstance(other, Collective) and other.api.endswith("all_reduce")
            ]
            yield self.finding(
                event,
                "the loss is averaged over the ranks before `backward`: FSDP averages the gradients "
                "again, so they are divided by the number of ranks twice",
                help="Run backward on each rank's own loss, and average a copy for the log.",
                because=because[-1:],
            )
        yield from self._check_divided(trace)
        yield from self._gradients(trace)

    def _check_divided(self, trace: Trace) -> Iterable[Finding]:
        if other_parallelism(trace):
            return
        seen = set()
        for event in trace.of(BackwardRun):
            if not event.divided_by or event.averaged or not event.collective:
                continue
            if event.site in seen or _scaled_afterwards(trace, event):
                continue
            seen.add(event.site)
            by = "by the number of ranks"
            if event.divided_by == "total":
                by = "by a number that `all_reduce` summed over the ranks"
            yield self.finding(
                event,
                f"each rank divides its loss {by}: FSDP averages the gradients, so that they are divided "
                f"by the number of ranks twice",
                help="Remove the division by the number of ranks."
                if event.divided_by == "ranks"
                else "Multiply the loss by the number of ranks before backward.",
            )

    def _gradients(self, trace: Trace) -> Iterable[Finding]:
        """Gradients that the program divides by a total itself."""
        if other_parallelism(trace):
            return
        seen = set()
        for event in trace.of(GradientScaled):
            backward = _scaled_backward(trace, event)
            if backward is None or event.site in seen:
                continue
            seen.add(event.site)
            by, advice = "a number that `all_reduce` summed over the ranks", "Multiply them by the"
            effect = "they are divided by the number of ranks, too"
            if event.by_ranks:
                by, advice = "the number of ranks", "Remove the division by the"
                effect = "they are divided by it twice"
            yield self.finding(
                event,
                f"the gradients are divided by {by}: FSDP averages them, so that {effect}",
                help=f"{advice} number of ranks{'' if event.by_ranks else ' as well'}.",
                because=[(backward, "FSDP averages the gradients here")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.places import common_block
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at
        from fsdplint.syntax.dotted import bound_by, dotted_name, dotted_names, part_of

        found = call_at(finding.site)
        if found is None or len(finding.events) != 2:
            return None
        source, call = found
        backward, summed = finding.events
        if not isinstance(backward, BackwardRun):
            return None
        place, other = common_block(summed, backward), call_at(summed.site)
        if place is None or other is None or place.source is not source:
            return None
        for statement, node in ((place.first, other[1]), (place.second, call)):
            if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
                return None
            if not isinstance(source.parent(node), cst.Expr):
                return None
        loss = dotted_name(other[1].args[0].value) if other[1].args else ""
        body = list(place.block.body)
        between = body[body.index(place.first) + 1 : body.index(place.second)]
        bound = {path for statement in between for path in bound_by(statement)}
        read = {dotted_name(name) for name in dotted_names(call)}
        if not loss or not bound <= {loss} or not any(part_of(path, loss) for path in read):
            return None
        rewrite = Rewrite()
        rewrite.insert_before(source, place.first, [source.code(call)])
        rewrite.delete_statement(source, call)
        return rewrite.fix("Run backward on the rank's own loss", Safety.UNSAFE)


def _scaled_backward(trace: Trace, event: GradientScaled) -> BackwardRun | None:
    """The backward whose gradients are too small then; None if another factor may undo FSDP's."""
    if not (event.by_total or event.by_ranks):
        return None
    backward = None
    for other in trace.before(event, BackwardRun):
        backward = other
    if backward is None or backward.multiplied or backward.averaged or backward.divided_by:
        return None
    for later in trace.after(backward, GradientScaled, OptimizerStepped, Escaped, Collective):
        if isinstance(later, OptimizerStepped):
            break
        if isinstance(later, Collective):
            if event.by_ranks and _may_reduce_gradients(later) and later.index < event.index:
                return None
        elif not isinstance(later, GradientScaled) or not (later.by_total or later.by_ranks):
            return None
    return backward


def _sets_own_factor(trace: Trace) -> bool:
    """Whether the program itself says how FSDP divides the gradients."""
    used: list[SyncSwitched | Fsdp2Used | Fsdp1Used] = [
        *trace.of(SyncSwitched),
        *trace.of(Fsdp2Used),
        *trace.of(Fsdp1Used),
    ]
    return any(event.api.endswith(("divide_factor", "comm_hook")) for event in used)


def _may_reduce_gradients(event: Event) -> bool:
    return isinstance(event, Collective) and "reduce" in event.api and not event.of_metric


def _scaled_afterwards(trace: Trace, backward: BackwardRun) -> bool:
    """Whether the program or unknown code may scale the gradients before the next step."""
    scaled = False
    for event in trace.after(backward, Escaped, OptimizerStepped, Collective, BackwardRun):
        if isinstance(event, OptimizerStepped):
            break
        scaled = not isinstance(event, BackwardRun) and (
            scaled or isinstance(event, Escaped) or _may_reduce_gradients(event)
        )
    return scaled
