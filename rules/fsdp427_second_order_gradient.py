"""FSDP427: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import DifferentiableGradient, SyncSwitched, Trace

_SWITCHES = frozenset({"set_reshard_after_backward", "no_sync"})


class SecondOrderGradient(Rule):
    """A gradient through a sharded model is differentiated again.

    ## What it does
    Finds `torch.autograd.grad(outputs, inputs, create_graph=True)` if a sharded model has computed the outputs
    and a loss that contains the gradients is differentiated: a gradient penalty, forces that are the gradient of
    an energy, score matching.

    A program that switches the resharding off before (`set_reshard_after_backward`) is not reported.

    ## Why is this bad?
    The first gradient is a backward pass for FSDP. Its hooks free the gathered parameters, and the graph of the
    gradient still needs them. The second backward pass raises an error, with FSDP1 and FSDP2:

        RuntimeError: setStorage: sizes [8, 8], strides [1, 8], storage offset 0, and itemsize 4 requiring a
        storage size of 256 are out of bounds for storage of size 0

    Switch the resharding off for the first gradient, and on again before the last backward pass:

        model.set_reshard_after_backward(False)
        (gradient,) = torch.autograd.grad(scores.sum(), inputs, create_graph=True)
        model.set_reshard_after_backward(True)
        (loss + gradient.pow(2).sum()).backward()

    On two ranks, the gradients of the parameters are then those of the model without FSDP. If it stays off, the
    parameters are still gathered after the last backward pass, and their `grad` is None (FSDP410). A model that
    computes its own gradient in its forward can be sharded as one unit, without sharded parts.

    ## Since
    All versions, with FSDP1 and FSDP2 (seen with torch 2.13). FSDP1 has no switch for the resharding after a
    backward pass.

    ## References
    - https://github.com/pytorch/pytorch/issues/172543
    """

    code = "FSDP427"
    name = "second-order-gradient"
    severity = Severity.ERROR
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(DifferentiableGradient):
            switched = any(one.api in _SWITCHES for one in trace.before(event, SyncSwitched))
            if event.backward is None or event.site in seen or switched:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                "FSDP frees the parameters after this gradient, and a later backward pass still needs them",
                help="Call `set_reshard_after_backward(False)` on the model before it, and "
                "`set_reshard_after_backward(True)` before the last backward pass.",
                because=[(trace.events[event.backward], "the backward pass that needs them")],
            )
