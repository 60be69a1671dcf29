"""FSDP423: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Collective, Trace


class GatheredWithoutGradient(Rule):
    """A loss over the outputs of all ranks has no gradient for what `all_gather` collected.

    ## What it does
    Finds a backward pass of a loss that was computed from the result of `dist.all_gather` or
    `dist.all_gather_into_tensor`, if the gathered tensor carries gradients: it was computed from the output of a
    sharded model, outside of `torch.no_grad()` and without `detach()`.

    A program that puts the rank's own tensor back into the result (`parts[rank] = x`), concatenates its own tensor
    with those of other ranks, or gathers in a `torch.autograd.Function` is not reported.

    ## Why is this bad?
    There is no error. A collective of `torch.distributed` copies values and no history, so that autograd takes the
    gathered tensor for a constant. A contrastive loss then pulls each output toward the others, and pushes none
    of the others: a part of the gradient is missing. Two ranks print the gradient of a weight for the same global
    batch, and the one that the loss has when one process computes it:

        gradient with all_gather: 0.6872, of the same loss in one process: 1.3638

    Gather with a function that has a backward pass:

        from torch.distributed.nn.functional import all_gather

        everyone = torch.cat(all_gather(features))

    or with a `torch.autograd.Function` of your own whose backward sums the gradients over the ranks. A rank that
    puts its own rows back (`parts[dist.get_rank()] = features`) has at least the gradient of these. Write
    `features.detach()` if the others are meant to be constants. With gloo, `all_gather_into_tensor` of a tensor
    with gradients raises an error instead (torch 2.13).

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.html (collectives are not differentiable)
    - https://github.com/pytorch/pytorch/blob/main/torch/distributed/nn/functional.py
    """

    code = "FSDP423"
    name = "gathered-without-gradient"
    severity = Severity.WARNING
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(Collective):
            if event.gradient_lost is None or event.site in seen:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"`{event.api}` takes the gradient away from outputs of the model that the loss depends on",
                help="Gather with a function that has a backward pass, such as "
                "`torch.distributed.nn.functional.all_gather`. Call `detach()` on the tensor if the result is "
                "meant to be a constant.",
                because=[(trace.events[event.gradient_lost], "the backward pass of the loss")],
            )
