"""FSDP711: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Event, Refused, Sharded, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import class_name


class InputOfOtherDtype(Rule):
    """A layer of a sharded model gets an input of another dtype than its parameters.

    ## What it does
    Finds the `fully_shard` call of a unit with a `Linear`, convolution or norm that gets a tensor of another
    dtype, because the `mp_policy` of the units differs, or one has `cast_forward_inputs=False`.

    A check without a run follows the dtypes through the forwards of the program, from the layers of `torch.nn` and
    new tensors, and through the casts of units. A tensor whose dtype it does not know makes no finding. Nothing
    is reported in a program that uses autocast or hooks of forwards, or shards with `ignored_params` or under a test.

    ## Why is this bad?
    A unit casts its own parameters and the inputs of its forward to its `param_dtype`. A unit without `mp_policy`
    casts neither: it gets what the units before it return, which is bfloat16 if they compute in bfloat16. The forward
    raises an error, such as "RuntimeError: mat1 and mat2 must have the same dtype, but got BFloat16 and Float".
    A common case is a policy for the blocks of a model, and none for its root, which has the embedding and the head.

    FSDP1 gives all units that its `auto_wrap_policy` wraps the options of the root. With FSDP2, each call of
    `fully_shard` has its own.

    ## Since
    torch 2.4, the first with FSDP2 (seen with torch 2.13).

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`MixedPrecisionPolicy`)
    """

    code = "FSDP711"
    name = "input-of-other-dtype"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        for event in trace.of(Refused):
            owner = groups.owner(event.module, before=event)
            if event.reason != "input" or owner is None:
                continue
            shards = groups.shards(owner)
            if any(map(_has_policy_of_fsdp1, shards)):
                continue  # FSDP117
            types = {name: kind.removeprefix("torch.") for name, kind in event.parameters}
            at: Event = shards[-1] if shards else event
            yield self.finding(
                at,
                f"a `{class_name(trace, event.module)}` in the group of `{class_name(trace, owner)}` computes in "
                f"{types['weight']}, and gets an input in {types['input']}",
                help="Give all units a `MixedPrecisionPolicy` with one `param_dtype`, and leave "
                "`cast_forward_inputs` at True, or cast the input.",
                because=[(event, "error raised here")],
            )


def _has_policy_of_fsdp1(event: Event) -> bool:
    options = event.options if isinstance(event, Sharded) else {}
    policy = str(options.get("mp_policy", "")).partition("(")[0]
    return policy == "torch.distributed.fsdp.MixedPrecision"
