"""FSDP705: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Event, Refused, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import class_name


class BatchNormInLowPrecision(Rule):
    """A BatchNorm is sharded with a low `param_dtype`, which its running statistics do not follow.

    ## What it does
    Finds the `fully_shard` call with a `MixedPrecisionPolicy(param_dtype=...)` that takes a BatchNorm
    into its group, once the forward was refused for it.

    ## Why is this bad?
    The policy casts parameters and inputs, and no buffers: the running mean and variance
    stay in float32 while weight and bias come in bfloat16. The forward raises "RuntimeError: expected
    scalar type BFloat16 but found Float", in training and in evaluation. FSDP1 left BatchNorm out of
    mixed precision by itself; FSDP2 does not.

    ## Since
    torch 2.4.

    ## References
    - pytorch/torchtitan#674 and #671.
    - torch docs, `torch.distributed.fsdp.MixedPrecisionPolicy`.
    """

    code = "FSDP705"
    name = "batchnorm-in-low-precision"
    severity = Severity.ERROR
    runtime_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        for event in trace.of(Refused):
            owner = groups.owner(event.module, before=event)
            if event.reason != "batchnorm" or owner is None:
                continue
            shards = groups.shards(owner)
            types = {name: kind.removeprefix("torch.") for name, kind in event.parameters}
            at: Event = shards[-1] if shards else event
            yield self.finding(
                at,
                f"the group of `{class_name(trace, owner)}` has a "
                f"`{class_name(trace, event.module)}`, whose parameters come in {types['weight']} "
                f"while its running statistics are {types['running_mean']}",
                help="Shard each BatchNorm by itself first, with a policy that leaves its parameters "
                "alone: `fully_shard(norm, mp_policy=MixedPrecisionPolicy())`.",
                because=[(event, "refused here")],
            )
