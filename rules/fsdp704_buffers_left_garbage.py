"""FSDP704: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.diagnostics.wording import names
from fsdplint.registry.rule import Rule
from fsdplint.trace import ModuleMoved, Trace
from fsdplint.trace.queries.common import class_name


class BuffersLeftGarbage(Rule):
    """Buffers of a model that was built on the meta device are never initialised.

    ## What it does
    Finds buffers that `to_empty()` allocated and that nothing has written to by the end of the first
    forward: frequencies of rotary embeddings, masks, running statistics.

    Buffers that are loaded, set by the program or computed in the forward are not reported. A check without
    a run finds buffers with `persistent=False` that a forward reads.

    ## Why is this bad?
    `to_empty()` allocates memory and writes nothing to it. `reset_parameters()` sets parameters,
    and a checkpoint has no buffers that were registered with `persistent=False`. So the forward computes
    with uninitialised memory: in one run -1.6e-18 and 3.1e-41 instead of frequencies between 0 and 1, in
    others NaN. The values differ on each rank and in each run. There is no error.

    ## Since
    Always (`to_empty`: torch 1.13).

    ## References
    - https://docs.pytorch.org/docs/stable/meta.html (`to_empty`)
    - huggingface/transformers#45902.
    """

    code = "FSDP704"
    name = "buffers-left-garbage"
    severity = Severity.ERROR
    all_configurations = True  # users may always choose the configuration that sets the buffers

    def check(self, trace: Trace) -> Iterator[Finding]:
        if not trace.complete:
            return
        for event in trace.of(ModuleMoved):
            if not event.untouched_buffers:
                continue
            which = names(event.untouched_buffers, "buffer")
            verb = "was" if len(event.untouched_buffers) == 1 else "were"
            yield self.finding(
                event,
                f"{which} of `{class_name(trace, event.module)}` {verb} never written to after "
                "`to_empty`, and the model computes with uninitialised memory",
                help="Compute them again after `to_empty`, for instance in the module's "
                "`reset_parameters`, or copy them from a model that was not built on meta. Loading a "
                "checkpoint does not set buffers that are not persistent.",
            )
