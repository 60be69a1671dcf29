"""FSDP145: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import PlainModuleUsed, Sharded, Trace
from fsdplint.trace.queries.common import class_name


class MethodOfPlainModule(Rule):
    """A method of sharded modules is called on a part of a model that is not sharded itself.

    ## What it does
    Finds `set_modules_to_forward_prefetch`, `set_requires_gradient_sync`, `unshard` and other methods that
    `fully_shard` gives to a module, on a module whose parameters belong to the unit of a parent. It also finds such
    a module in the list that `set_modules_to_forward_prefetch` or `set_modules_to_backward_prefetch` gets.

    Calls under a test that the sharding is not under, or in a `try`, are not reported.

    ## Why is this bad?
    Only the modules that `fully_shard` has sharded have these methods:

        AttributeError: 'Conv1d' object has no attribute 'set_modules_to_forward_prefetch'
        ValueError: Expects FSDPModule but got <class 'torch.nn.modules.linear.Linear'>

    Leave the module out, or shard it before the model. The parameters of a module that is not sharded itself are
    gathered with those of the parent.

    ## Since
    torch 2.4, the first with FSDP2; the lists of modules to prefetch came with torch 2.5.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`FSDPModule`)
    """

    code = "FSDP145"
    name = "method-of-plain-module"
    severity = Severity.ERROR
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(PlainModuleUsed):
            shard = _sharded_parent(trace, event)
            if shard is None or event.site in seen:
                continue
            seen.add(event.site)
            name = class_name(trace, event.module)
            yield self.finding(
                event,
                f"`{event.method}` gets `{name}`, which `fully_shard` has not sharded"
                if event.given
                else f"`{event.method}` is called on `{name}`, which `fully_shard` has not sharded",
                help=f"Leave `{name}` out, or shard it before the model that contains it.",
                because=[(shard, "only the parent is sharded")],
            )


def _sharded_parent(trace: Trace, event: PlainModuleUsed) -> Sharded | None:
    """Where a parent is sharded under the same tests; None if the module may be sharded somewhere."""
    above = set(trace.ancestors(event.module))
    shards = list(trace.of(Sharded))
    if any(event.module in (one.module, *one.group) for one in shards):
        return None
    for one in shards:
        inside = above & {one.module, *one.group} and one.index < event.index
        if inside and all(guard in one.guards for guard in event.guards):
            return one
    return None
