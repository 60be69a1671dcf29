"""FSDP407: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import BackwardRun, Collective, ScalerBuilt, ScalerStepped, Trace, Wrapped
from fsdplint.trace.queries.common import class_name, optimizer_of
from fsdplint.trace.queries.wrappers import outermost, shards, wrappers_of

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class PlainGradScalerWithFsdp1(Rule):
    """A plain `GradScaler` steps the optimizer of a model that FSDP1 shards.

    ## What it does
    Finds `torch.amp.GradScaler` (and `torch.cuda.amp.GradScaler`) whose `step` is called with an
    optimizer over the parameters of a model that `FullyShardedDataParallel` wraps with a strategy that
    shards (all but `NO_SHARD`).

    A scaler is not reported if `enabled` is false, or if the program reduces something over the ranks
    between the backward and the step that may tell all of them of an overflow. A finding names the test that `enabled` depends on.

    ## Why is this bad?
    The scaler skips a step and lowers the scale when it finds an infinite gradient. Under FSDP1, each rank
    sees only its own part of the gradients. If one part overflows, only that rank skips the step, and from
    then on the ranks scale their losses differently. There is no error: after three steps, the scales of
    two ranks were 131072 and 16384. FSDP1 then adds up gradients of different scales, and the parts of a
    parameter are trained by different steps.

    ## Fix safety
    Safe: `ShardedGradScaler` of `torch.distributed.fsdp.sharded_grad_scaler` lets all ranks agree on an
    overflow. There is no fix for arguments that have another position in it, if the model is wrapped in
    some configurations only, or for a wrapper with its own process group.

    ## Since
    Always for FSDP1. FSDP2's gradients are DTensors, for which the plain scaler is correct since torch 2.5.

    ## References
    - torch docs, `torch.distributed.fsdp.sharded_grad_scaler`.
    - https://github.com/pytorch/pytorch/pull/132816
    - facebookresearch/fairscale#754
    """

    code = "FSDP407"
    name = "plain-grad-scaler-with-fsdp1"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for built in trace.of(ScalerBuilt):
            if built.class_name != "GradScaler" or built.enabled is not True:
                continue
            for stepped in trace.after(built, ScalerStepped):
                if stepped.scaler != built.scaler:
                    continue
                found = _sharded_module(trace, stepped)
                if found is not None and not _may_agree(trace, stepped, found[0]):
                    yield self._finding(trace, built, stepped, *found)
                    break

    def _finding(
        self, trace: Trace, built: ScalerBuilt, stepped: ScalerStepped, module: str, by: Wrapped
    ) -> Finding:
        return self.finding(
            built,
            f"each rank looks for overflows in its own part of the gradients of "
            f"`{class_name(trace, module)}`, which FSDP1 shards: the ranks may disagree on a step",
            help="Use `torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler`.",
            because=[(by, "sharded here"), (stepped, "stepped here")],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at
        from fsdplint.fixes.wrapper_options import forget_name, rely_on_wrapping

        found = call_at(finding.site)
        wrapper = finding.events[1]
        if found is None or finding.configuration or not isinstance(wrapper, Wrapped):
            return None
        if any(option in wrapper.options for option in ("process_group", "**")):
            return None
        source, call = found
        positional = [arg for arg in call.args if arg.keyword is None]
        # `torch.cuda.amp.GradScaler` has no leading device, and its factors have another order.
        if any(arg.star for arg in call.args) or len(positional) > _shared_positional_count(
            program, call
        ):
            return None
        rewrite = Rewrite()
        name = rewrite.need_import(
            source,
            "torch.distributed.fsdp.sharded_grad_scaler",
            "ShardedGradScaler",
            at=call,
        )
        rewrite.replace(source, call.func, name)
        forget_name(rewrite, source, call.func)
        rely_on_wrapping(rewrite, finding.events)
        return rewrite.fix("Scale with ShardedGradScaler", Safety.SAFE)


def _may_agree(trace: Trace, stepped: ScalerStepped, module: str) -> bool:
    """Whether the ranks reduce something between the backward and the step that tells of an overflow.

    A loss does not, and neither does a gradient of a part of the module, such as one that FSDP1
    ignores: it is the same on all ranks afterwards, but the sharded gradients are not.
    """
    for event in reversed(trace.events[: stepped.index]):
        if isinstance(event, BackwardRun):
            return False
        if isinstance(event, Collective) and "reduce" in event.api and not event.of_output:
            if not event.gradient_of or module in event.gradient_of:
                return True
    return False


def _sharded_module(trace: Trace, stepped: ScalerStepped) -> tuple[str, Wrapped] | None:
    """The module that the optimizer updates, and the wrapper that shards it."""
    optimizer = optimizer_of(trace, stepped.optimizer)
    for module in optimizer.modules if optimizer is not None else ():
        wrappers = wrappers_of(trace, module, stepped)
        if wrappers and all(map(shards, wrappers)):
            return module, outermost(trace, wrappers)[0]
    return None


def _shared_positional_count(program: Program, call: object) -> int:
    """How many positional arguments mean the same to both scalers."""
    import libcst as cst

    from fsdplint.interpreter.values import Symbol

    assert isinstance(call, cst.Call)
    values = program.values(call.func)
    names = {value.name for value in values if isinstance(value, Symbol)}
    return 2 if names == {"torch.amp.GradScaler"} else 0
