"""FSDP418: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.zeroed_gradients import (
    Dropped,
    zeroed_before_step,
    zeroed_between_steps,
    zeroed_in_accumulation,
    zeroed_in_each_turn,
)


class GradientsZeroedTooEarly(Rule):
    """The gradients of a sharded model are set to zero before the optimizer step uses them.

    ## What it does
    Finds `optimizer.zero_grad()` between the backward pass and `optimizer.step()`, with no backward pass
    and no gradients of the program's own in between. A clipping that the program computes itself makes none.

    It also finds `zero_grad()` in each turn of a loop of backward passes with the step after the loop, or
    in every Nth turn of it (`if (i + 1) % accumulation == 0:`).
    Under FSDP1, it finds `zero_grad()` in each turn of a loop that accumulates gradients under
    `no_sync()`. FSDP2 keeps the gradients of a backward pass without synchronisation elsewhere, and
    `zero_grad()` does not reach them there.

    ## Why is this bad?
    There is no error. In the first case, the step has no gradients: on two ranks, the parameters after two
    steps were the same as before. In the second case, it has those of the last micro-batch alone: with four
    micro-batches, the sum of the squared gradients was 45 where it should be 579.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html
    - https://docs.pytorch.org/docs/stable/fsdp.html (`no_sync`)
    """

    code = "FSDP418"
    name = "gradients-zeroed-too-early"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for found in zeroed_before_step(trace):
            if found.zeroed.site not in seen:
                seen.add(found.zeroed.site)
                yield self._finding(
                    trace,
                    found,
                    "between the backward pass and the optimizer step, so the step has no gradients",
                    "Call `zero_grad()` after the step, or before the first backward pass of a step.",
                )
        for found in chain(
            zeroed_in_accumulation(trace), zeroed_in_each_turn(trace), zeroed_between_steps(trace)
        ):
            if found.zeroed.site not in seen:
                seen.add(found.zeroed.site)
                yield self._finding(
                    trace,
                    found,
                    "for each micro-batch, so the step has the gradients of the last one alone",
                    "Call `zero_grad()` once for each step.",
                )

    def _finding(self, trace: Trace, found: Dropped, what: str, help: str) -> Finding:
        return self.finding(
            found.zeroed,
            f"the gradients of `{class_name(trace, found.module)}` are set to zero {what}",
            help=help,
            because=[(found.backward, "computed here"), (found.step, "stepped here")],
        )
