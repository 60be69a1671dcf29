"""FSDP403: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import MeshBuilt, SyncSwitched, Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.last_backward import off_in_last_backward
from fsdplint.trace.queries.sync_switches import (
    fsdp1_left_off,
    left_off,
    mesh_with_replicas,
    reduces_fsdp2,
)

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class SyncNeverReenabled(Rule):
    """Gradient synchronisation is off in the last backward before an optimizer step.

    ## What it does
    Finds `model.set_requires_gradient_sync(False)` where no backward pass up to the optimizer's step
    runs with synchronisation on again. Also finds FSDP1's `no_sync()`, or Fabric's
    `no_backward_sync()`, around every backward pass of a step, and `set_requires_all_reduce(False)` of a
    model with replicas.

    The condition of the switch is compared with that of the step. If one is the opposite of the other
    (`no_sync()` for the last micro-batch), if they count from different numbers (`step % 4 == 0` and
    `(step + 1) % 4 == 0`), or if the step after the last, incomplete accumulation has no switch, the last
    backward before the step does not synchronise. So it is if the program takes up to `n` micro-batches at a
    time (`list(islice(loader, n))`, `batches[start : start + n]`) and synchronises in the n-th one, which the
    last time may not have. Conditions whose relation is not known are no finding.

    ## Why is this bad?
    With synchronisation off, a backward keeps whole, unreduced gradients for a later backward that
    reduces them. Until then, the parameters that the optimizer holds have no gradient (`p.grad` is None).
    There is no error: the step changes nothing, `clip_grad_norm_` returns 0, and the loss stays the same.
    If only the last backward is without synchronisation, its gradients are missing in this step and are
    added to those of the next one: weights differed by 0.002 after two steps on two ranks.

    `set_requires_all_reduce` keeps the gradients in the same way if the mesh has replicas. Without
    replicas it has no effect. Neither has `set_is_last_backward`, whose opposite gave the same weights.

    FSDP1 leaves whole gradients at its flat parameters, and the step of an optimizer fails:

        RuntimeError: The size of tensor a (113) must match the size of tensor b (225)

    ## Fix safety
    Unsafe: if the step is under a condition (`if (step + 1) % accumulate == 0:`) that can be evaluated
    before the backward, the condition becomes the argument of the switch.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
      (`FSDPModule.set_requires_gradient_sync`)
    - pytorch/pytorch#118298, verl-project/verl#7095
    """

    code = "FSDP403"
    name = "sync-never-reenabled"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        seen = set()
        switched = [*left_off(trace, "set_requires_gradient_sync")]
        switched += left_off(trace, "set_requires_all_reduce")
        for found in switched:
            if found.switch.site in seen or not reduces_fsdp2(trace, found.switch):
                continue
            seen.add(found.switch.site)
            yield self.finding(
                found.switch,
                f"no backward before the optimizer step synchronises the gradients of "
                f"`{class_name(trace, found.switch.module)}`, so the step changes nothing",
                help=f"Call `{found.switch.api}(True)` before the last backward of each step.",
                because=[
                    (found.backward, "backward without synchronisation here"),
                    (found.step, "stepped without gradients here"),
                    *_replicas(trace, found.switch),
                ],
            )

        for found in fsdp1_left_off(trace):
            if found.switch.site not in seen:
                seen.add(found.switch.site)
                yield self.finding(
                    found.switch,
                    f"every backward before the optimizer step is under `{found.switch.api}()`, so the gradients of "
                    f"`{class_name(trace, found.switch.module)}` are never reduced",
                    help=f"Run the last backward of each step without `{found.switch.api}()`.",
                    because=[
                        (found.backward, "backward without synchronisation here"),
                        (found.step, "stepped here"),
                    ],
                )

        for found in off_in_last_backward(trace):
            if found.switch.site not in seen:
                seen.add(found.switch.site)
                where = " if the last micro-batches are fewer" if found.in_last_window else ""
                yield self.finding(
                    found.switch,
                    f"the last backward before the optimizer step does not synchronise the gradients "
                    f"of `{class_name(trace, found.switch.module)}`{where}",
                    help="Synchronise in the last backward of each step.",
                    because=[
                        (found.backward, "backward without synchronisation here"),
                        (found.step, "stepped here"),
                    ],
                )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.places import common_block
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at
        from fsdplint.syntax.dotted import bound_by, dotted_name, dotted_names, part_of

        found = call_at(finding.site)
        if found is None:
            return None
        source, call = found
        switch, backward, step, *_ = finding.events
        place = common_block(switch, step)
        if place is None or place.source is not source or len(call.args) != 1:
            return None
        first, branch = place.first, place.second
        plain = isinstance(first, cst.SimpleStatementLine) and len(first.body) == 1
        if not plain or not isinstance(branch, cst.If) or branch.orelse is not None:
            return None
        tested_names = [dotted_name(name) for name in dotted_names(branch.test)]
        if not isinstance(branch.test, cst.Comparison | cst.Name) or not all(tested_names):
            return None
        body = list(place.block.body)
        start, end = body.index(first), body.index(branch)
        between = body[start:end]
        bound = {path for statement in between for path in bound_by(statement)}
        if any(part_of(name, path) for name in tested_names for path in bound):
            return None
        other = common_block(switch, backward)
        if other is None or other.second not in between:
            return None
        rewrite = Rewrite()
        rewrite.replace(source, call.args[0].value, source.code(branch.test))
        return rewrite.fix("Synchronise before the step", Safety.UNSAFE)


def _replicas(trace: Trace, switch: SyncSwitched) -> list[tuple[MeshBuilt, str]]:
    """The mesh because of which a switch of the all-reduce has an effect."""
    if switch.api != "set_requires_all_reduce":
        return []
    mesh = mesh_with_replicas(trace, switch.module)
    return [(mesh, "mesh with replicas built here")] if mesh is not None else []
