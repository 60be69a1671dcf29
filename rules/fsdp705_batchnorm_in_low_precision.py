"""FSDP705: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Event, Refused, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import class_name


class BatchNormInLowPrecision(Rule):
    """A BatchNorm is sharded with a low `param_dtype`, which does not cast its running statistics.

    ## What it does
    Finds the `fully_shard` call with a `MixedPrecisionPolicy(param_dtype=...)` that takes a BatchNorm
    into its group, after the forward has failed because of it.

    ## Why is this bad?
    The policy casts parameters and inputs, but not buffers: the running mean and variance
    stay in float32 while weight and bias are bfloat16. The forward raises "RuntimeError: expected
    scalar type BFloat16 but found Float", in training and in evaluation. FSDP1 excludes BatchNorm
    from mixed precision by default; FSDP2 does not.

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
                f"`{class_name(trace, event.module)}`, whose parameters are cast to {types['weight']} "
                f"while its running statistics are {types['running_mean']}",
                help="Shard each BatchNorm separately first, with a policy that does not cast its "
                "parameters: `fully_shard(norm, mp_policy=MixedPrecisionPolicy())`.",
                because=[(event, "error raised here")],
            )
