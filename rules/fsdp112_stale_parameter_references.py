"""FSDP112: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import BackwardRun, Clipped, Site, Trace, Wrapped, first
from fsdplint.trace.groups import Groups, shard_events


class StaleParameterReferences(Rule):
    """Gradient clipping gets parameters that sharding has replaced.

    ## What it does
    Finds `clip_grad_norm_` and `clip_grad_value_` of `torch.nn.utils` on parameters that were taken
    from a model (into a list, a tuple, a dict) before `fully_shard`, or FSDP1 without
    `use_orig_params=True`, was applied to the model.

    A generator such as `model.parameters()` is fine: it gives the parameters that the model has when
    it is used. For optimizers see FSDP103.

    ## Why is this bad?
    Sharding puts new parameters into the module. The parameters in the list never get a gradient. There
    is no error: the norm is 0.0 (the correct one was 66.99), and nothing is clipped.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - torch docs, `FullyShardedDataParallel`: references to parameters that are saved before wrapping
      are stale afterwards.
    """

    code = "FSDP112"
    name = "stale-parameter-references"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[Site] = set()
        for event in trace.of(Clipped):
            if not event.stale or event.site in seen or event.ranks.partial:
                continue
            if first(trace.before(event, BackwardRun)) is None:
                continue
            shards = [
                shard
                for shard in shard_events(trace, before=event)
                if any(trace.related(shard.module, module) for module in event.stale)
            ]
            if not shards:
                continue
            seen.add(event.site)
            how = "FSDP" if isinstance(shards[-1], Wrapped) else "fully_shard"
            yield self.finding(
                event,
                f"these parameters of {groups.name(event.stale[0])} were taken before `{how}` replaced "
                f"them: they have no gradients, and nothing is clipped",
                help="Pass `model.parameters()`, or take the list after the last sharding.",
                because=[(shards[-1], "parameters replaced here")],
            )
