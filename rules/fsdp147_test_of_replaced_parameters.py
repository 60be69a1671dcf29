"""FSDP147: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import ReplacedParametersTested, Site, Trace, Wrapped
from fsdplint.trace.groups import Groups, shard_events


class TestOfReplacedParameters(Rule):
    """A test looks for the parameters of a sharded model among those that sharding has replaced.

    ## What it does
    Finds `id(p) in ids`, and `p in parameters` with a set, where all ids or parameters were taken from a model before
    `fully_shard`, or FSDP1 without `use_orig_params=True`, replaced them, and `p` is a parameter of the sharded
    model. Such tests usually select the parameters of a group of the optimizer.

    ## Why is this bad?
    Sharding puts new parameters into the module. None of them is among the old ones, and none has the `id` of an old
    one, unless Python has used its memory again. There is no error: the selected group is empty, and another group
    gets its parameters, with the wrong learning rate or weight decay.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1 (seen with torch 2.13).

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (parameters become DTensors)
    - https://docs.python.org/3/library/functions.html#id
    """

    code = "FSDP147"
    name = "test-of-replaced-parameters"
    severity = Severity.ERROR
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[Site] = set()
        for event in trace.of(ReplacedParametersTested):
            shards = [
                shard
                for shard in shard_events(trace, before=event)
                if any(trace.related(shard.module, module) for module in event.modules)
            ]
            if not shards or event.site in seen:
                continue
            seen.add(event.site)
            how = "FSDP" if isinstance(shards[-1], Wrapped) else "fully_shard"
            yield self.finding(
                event,
                f"these parameters of {groups.name(event.modules[0])} were taken before `{how}` replaced them, so that "
                "no parameter of the sharded model is among them",
                help="Take them after the last sharding.",
                because=[(shards[-1], "parameters replaced here")],
            )
