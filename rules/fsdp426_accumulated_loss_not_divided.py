"""FSDP426: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace
from fsdplint.trace.queries.undivided_losses import undivided_losses


class AccumulatedLossNotDivided(Rule):
    """Gradients of several micro-batches are added up, and nothing divides by their number.

    ## What it does
    Finds the backward passes of a loop that accumulates gradients, which a switch of synchronisation shows
    (`no_sync()`, `set_requires_gradient_sync`), if each of their losses is a mean of torch (`F.cross_entropy`,
    `nn.MSELoss()`, `.mean()`) that nothing divides or multiplies.

    A program that scales its gradients, sets a factor of FSDP for the division, or sums its losses
    (`reduction="sum"`) is not reported.

    ## Why is this bad?
    There is no error. FSDP divides by the number of ranks, and not by the number of micro-batches: with four of
    them, the gradient is four times that of the whole batch. A bound of `clip_grad_norm_` then cuts more, and a
    change of the number of micro-batches changes the training. Two ranks print the norm of the gradient of
    the same samples:

        gradient of 4 micro-batches: 1.7139, of one batch: 0.4285

    Divide the loss: `(loss / micro_batches).backward()`.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/notes/amp_examples.html (gradient accumulation: `loss / iters_to_accumulate`)
    """

    code = "FSDP426"
    name = "accumulated-loss-not-divided"
    severity = Severity.WARNING
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for switch, backward in undivided_losses(trace):
            if backward.site in seen:
                continue
            seen.add(backward.site)
            yield self.finding(
                backward,
                "the gradients of the micro-batches are added up, and nothing divides the loss by their number",
                help="Divide the loss by the number of micro-batches before `backward()`.",
                because=[(switch, "no synchronisation before the last micro-batch")],
            )
