"""FSDP703: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.diagnostics.wording import names
from fsdplint.registry.rule import Rule
from fsdplint.trace import Refused, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import class_name


class MixedDtypesInGroup(Rule):
    """A group of `fully_shard` has trainable parameters of several dtypes.

    ## What it does
    Finds the `fully_shard` call whose group holds trainable parameters of more than one dtype (float32
    norms next to bfloat16 layers, a new float32 adapter on a bfloat16 checkpoint), after the first forward
    has failed because of it. A check without a run knows the dtypes of the layers of `torch.nn`.

    A group holds the parameters of a module that no earlier `fully_shard` has taken. Frozen parameters
    may have any dtype.

    ## Why is this bad?
    The gradients of a group are reduced together, in one dtype. The first forward raises
    "AssertionError: FSDP expects uniform original parameter dtype but got {torch.bfloat16,
    torch.float32}", which names neither the module nor the parameters.

    ## Since
    torch 2.4.

    ## References
    - pytorch/pytorch#156784.
    - torch docs, `torch.distributed.fsdp.fully_shard` and `MixedPrecisionPolicy`.
    """

    code = "FSDP703"
    name = "mixed-dtypes-in-group"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        for event in trace.of(Refused):
            if event.reason != "dtypes":
                continue
            shards = groups.shards(event.module)
            at = shards[-1] if shards else event
            by_type: dict[str, list[str]] = {}
            for name, kind in event.parameters:
                by_type.setdefault(kind, []).append(name)
            # The smaller part first: usually, it is the unintended one.
            kinds = sorted(by_type, key=lambda kind: len(by_type[kind]))
            parts = [
                f"{names(by_type[kind], 'parameter', limit=2)} in {kind.removeprefix('torch.')}"
                for kind in kinds
            ]
            yield self.finding(
                at,
                f"the group of `{class_name(trace, event.module)}` has {' and '.join(parts)}; its "
                "gradients can only be reduced in one dtype",
                help="Cast the trainable parameters to one dtype before sharding and let a "
                "`MixedPrecisionPolicy` choose the dtype of the computation, or shard the modules of "
                "the other dtype separately first.",
                because=[(event, "error raised here")],
            )
