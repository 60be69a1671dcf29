"""FSDP707: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.diagnostics.wording import names
from fsdplint.registry.rule import Rule
from fsdplint.trace import Refused, Trace
from fsdplint.trace.queries.common import class_name


class UnshardableParameter(Rule):
    """A parameter cannot be sharded: it is a scalar, or not contiguous.

    ## What it does
    Finds the `fully_shard` call that failed because of a scalar parameter (0 dimensions) or of parameters
    that are not contiguous, such as transposed ones and convolutions in `channels_last`, and names all of
    them. A check without a run finds scalars only, and only those that are certainly made of numbers.

    ## Why is this bad?
    `fully_shard` cuts each parameter along its first dimension. It raises "ValueError: fully_shard
    doesn't support scalar parameters. Change scale to a 1D tensor with numel equal to 1." or
    "NotImplementedError: FSDP does not support non-contiguous parameters yet", which names only the
    shape, and only one parameter at a time.

    ## Since
    torch 2.4; parameters that are not contiguous raise an error since 2.6.

    ## References
    - pytorch/pytorch#132934 and #137000.
    - pytorch/torchtitan#1180.
    """

    code = "FSDP707"
    name = "unshardable-parameter"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        for event in trace.of(Refused):
            if event.reason not in ("scalar", "strides"):
                continue
            which = names([name for name, _ in event.parameters], "parameter")
            verb = "is" if len(event.parameters) == 1 else "are"
            module = class_name(trace, event.module)
            if event.reason == "scalar":
                what = "a scalar" if verb == "is" else "scalars"
                text = f"{which} of `{module}` {verb} {what}; there is no dimension to shard"
                help = "Give it one element in one dimension: `nn.Parameter(torch.ones(1))`."
            else:
                how = event.parameters[0][1]
                text = f"{which} of `{module}` {verb} not contiguous ({how})"
                help = (
                    "Make it contiguous before sharding: build the parameter from "
                    "`tensor.contiguous()`, and ask for `channels_last` of the inputs only."
                )
            yield self.finding(event, text, help=help)
