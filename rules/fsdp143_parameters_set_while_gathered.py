"""FSDP143: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Gathered, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.lost_edits import lost_edits
from fsdplint.trace.queries.replaced_data import replaced_data
from fsdplint.trace.queries.stale_roots import stale_edits


class ParametersSetWhileGathered(Rule):
    """Parameters are changed in place while they are gathered, and sharded again without the change.

    ## What it does
    Finds in-place changes of parameters, such as `p.copy_(average)` in a loop over `model.parameters()`,
    after a forward of a model that `fully_shard` shards, such as the last one of an evaluation, that no
    backward pass follows. The forward leaves the parameters of the root gathered, and those of modules with
    `reshard_after_forward=False`.

    The change is fine if the parameters are sharded again before it: by a backward pass of a later
    forward, by `reshard()`, or because of `reshard_after_forward=True`. Parameters that are changed for an
    evaluation and changed back after it are not reported, and neither are changes in `forward` itself.

    Also finds changes between `unshard()` and `reshard()` that no forward uses.

    Under FSDP1, finds such changes between two forwards of a model of which the first has no backward. They
    matter where the outermost wrapper has parameters of its own, as without `auto_wrap_policy`. A change under
    `summon_full_params` is fine.

    ## Why is this bad?
    The loop changes the gathered copies. The next sharding drops them without writing them into the shards,
    and there is no error. On two ranks, a program set all weights of two layers to zero after a validation,
    and printed the sums of their absolute values later:

        first 0.0, last 11.2

    If the new values are sharded, such as those of an average of the weights, the first change ends with

        RuntimeError: aten.copy_.default got mixed torch.Tensor and DTensor, need to convert all
        torch.Tensor to DTensor before calling distributed operators!

    Call `model.reshard()` after the evaluation.

    FSDP1 gives the program the shards again, and keeps the gathered copies of the outermost wrapper until a
    backward. The next forward computes with these: a target network that the program updates and never trains
    stays as it was in its first forward. On two ranks, the outputs before and after all weights were halved
    were the same.

    ## Since
    Always for FSDP1. torch 2.4, the first with FSDP2. Until 2.7 the root stayed gathered with
    `reshard_after_forward=True` as well.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`reshard_after_forward`)
    """

    code = "FSDP143"
    name = "parameters-set-while-gathered"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[object] = {event.site for event, _ in replaced_data(groups)}  # FSDP144
        for event, module, call in lost_edits(groups):
            if event.site in seen:
                continue
            seen.add(event.site)
            name = groups.name(trace.unwrap(module))
            if isinstance(call, Gathered):
                yield self.finding(
                    event,
                    f"`unshard()` has gathered the parameters of {name}, so this does not change the "
                    "sharded ones",
                    help="Change the sharded parameters, without `unshard()`.",
                    because=[(call, "gathered here")],
                )
                continue
            outer = [call, *groups.enclosing_calls(call)][-1]
            yield self.finding(
                event,
                f"a forward has left parameters of {name} gathered, so this does not change the "
                "sharded ones",
                help="Call `reshard()` on the model after the evaluation.",
                because=[(outer, "gathered here")],
            )
        for stale in stale_edits(groups):
            if stale.edit.site in seen:
                continue
            seen.add(stale.edit.site)
            name = groups.name(trace.unwrap(stale.module))
            yield self.finding(
                stale.edit,
                f"a forward has left parameters of {name} gathered, so the next one does not see this "
                "change",
                help="Wrap all layers with parameters as units of their own, or change them under "
                "`summon_full_params`.",
                because=[
                    (stale.call, "gathered here"),
                    (stale.use, "computes with the old values"),
                ],
            )
