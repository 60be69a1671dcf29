"""FSDP405: see the class."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Collective,
    Event,
    GradientScaled,
    GuardKind,
    PartialRead,
    Trace,
)
from fsdplint.trace.queries.common import perhaps_one_rank
from fsdplint.trace.torch_versions import WHOLE_ANY_SINCE, WHOLE_NORM_SINCE

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class LocalNorm(Rule):
    """A norm or sum of a sharded parameter or gradient is read without a reduction over the ranks.

    ## What it does
    Finds numbers (`.item()`, `float()`, `bool()`, a test) made of a reduction (`norm`, `sum`, `mean`,
    `max`, `min`, `any`, `all`, ...) over a parameter or gradient that `fully_shard` has sharded.

    Also finds gradients that each rank multiplies or divides by a number of its own: a norm of the parts
    that it holds (`p.grad.to_local().norm()`, or FSDP1's gradients) that no collective has added up. So are gradients
    that are scaled by the sum of these norms: an `all_reduce` has to add the squares, before the root.

    ## Why is this bad?
    Parameters and gradients are DTensors after `fully_shard`. A reduction of one gives a DTensor that is
    not reduced over the ranks yet (`Partial`), and `.item()` returns the value of this rank's shard. With
    two ranks, `p.grad.norm().item()` was 0.138 on one and 0.126 on the other, while the norm is 0.187: the
    logged norm is too small by about the root of the number of ranks, and values that depend on it
    (clipping, a skipped step) differ between ranks. `torch.isnan(p.grad).any()` is true only on the rank
    that holds the bad value: that rank skips the step and the others do not.

    A gradient that each rank scales by its own norm loses its direction: of one gradient on two ranks, one
    rank multiplied its part by 0.5 and the other left its part as it was. The sum of the norms of two ranks was 1.41
    times the norm, so that the gradients were clipped too early and too much.

    Before torch 2.10, the norm that `torch.nn.utils.clip_grad_norm_` and `get_total_norm` return is such a
    DTensor: on 2.9.1 and two ranks, its `.item()` was 0.408 on one and 0.426 on the other, while the norm is 0.590 (the
    clipping is correct). This is found only if the program certainly runs on a torch before 2.10
    (`target-torch`, or a pin or an upper bound of torch in the requirements of its project).

    Values that torch reduces itself are fine: arithmetic such as `p.grad.norm() ** 2` and, since torch
    2.10, `torch.stack` of norms. So are local values that the program adds up by `all_reduce`.

    ## Fix safety
    Safe: `.full_tensor()` is called before the conversion to a number. It is a collective: the fix is
    unsafe if perhaps only some ranks reach the place, and there is no fix under a test of the rank.

    ## Since
    torch 2.4, the first with FSDP2. Since torch 2.14, `any()` and `all()` give the result of all ranks.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.tensor.html (`Partial`, `DTensor.full_tensor`)
    - pytorch/torchtitan#766, pytorch/pytorch#170862
    """

    code = "FSDP405"
    name = "local-norm"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        seen = set()
        for event in trace.of(PartialRead):
            if not event.partial or event.site in seen or _is_reduced_by_hand(trace, event):
                continue
            if event.reduction == PartialRead.CLIPPED and not trace.lacks(WHOLE_NORM_SINCE):
                continue
            if event.reduction in ("any", "all") and _has_whole_tests(trace):
                continue
            seen.add(event.site)
            what = f"`{event.reduction}` of a sharded tensor"
            if event.reduction == PartialRead.CLIPPED:
                what = "the norm of sharded gradients from torch.nn.utils"
            yield self.finding(
                event,
                f"{what} is not reduced over the ranks: each rank reads the value of its own shard",
                help="Call `.full_tensor()` on the result, on all ranks, before it becomes a number.",
            )
        for scaled in trace.of(GradientScaled):
            if scaled.differs and scaled.site not in seen:
                seen.add(scaled.site)
                yield self.finding(
                    scaled,
                    "each rank scales its part of the gradients by a number of its own",
                    why="The parts of one gradient get different factors, so that its direction changes.",
                    help="Clip with `torch.nn.utils.clip_grad_norm_` (FSDP1: `model.clip_grad_norm_`), or add up "
                    "the squared norms of all ranks with `all_reduce` first.",
                )
            elif scaled.by_norms and scaled.site not in seen:
                seen.add(scaled.site)
                yield self.finding(
                    scaled,
                    "the gradients are scaled by a sum of norms: each rank takes the root of its own squares "
                    "before the `all_reduce`",
                    why="The sum is larger than the norm of the whole gradients, by up to the root of the number "
                    "of ranks.",
                    help="Add up the squares with `all_reduce`, and take the root of their sum.",
                )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.source.source import NodeSite

        event, site = finding.events[0], finding.site
        if not isinstance(event, PartialRead) or not isinstance(site, NodeSite):
            return None
        everywhere = [e for t in program.traces for e in t.of(PartialRead) if e.site == site]
        if finding.configuration or not all(e.partial for e in everywhere):
            return None  # the value may also be a plain tensor
        if any(perhaps_one_rank(e) for e in everywhere):
            return None
        value: cst.CSTNode = site.node
        if event.api == "item":
            function = value.func if isinstance(value, cst.Call) else None
            if not isinstance(function, cst.Attribute):
                return None
            value = function.value
        elif event.api != "bool" or isinstance(_number_type(value), str):
            if not isinstance(value, cst.Call) or len(value.args) != 1:
                return None
            value = value.args[0].value
        if not isinstance(value, cst.Call | cst.Name | cst.Attribute):
            return None
        rewrite = Rewrite()
        rewrite.insert(site.source, site.source.span(value)[1], ".full_tensor()")
        together = all(_on_all_ranks(e) for e in everywhere)
        safety = Safety.SAFE if together else Safety.UNSAFE
        return rewrite.fix("Reduce the result over the ranks", safety)


def _has_whole_tests(trace: Trace) -> bool:
    return trace.target is not None and trace.target.has(WHOLE_ANY_SINCE)


def _number_type(node: object) -> str | None:
    """The name of the builtin in `bool(x)`; None for a test that is no such call."""
    import libcst as cst

    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name):
        return node.func.value if node.func.value in ("bool", "float", "int") else None
    return None


def _is_reduced_by_hand(trace: Trace, event: PartialRead) -> bool:
    """Whether values are reduced or gathered over the ranks before the next backward.

    They may be the ones that were read, unless they are known to come from a model's output.
    """
    for other in trace.after(event, BackwardRun, Collective):
        if isinstance(other, BackwardRun):
            return False
        if isinstance(other, Collective) and re.search(r"reduce|gather", other.api):
            if not other.of_output:
                return True
    return False


_SAME_ON_ALL = re.compile(
    r"[\w.\[\]]+ is (not )?None|[\w.]+\.requires_grad|[\w.() +]+ % [\w.]+ == \w+"
)


def _on_all_ranks(event: Event) -> bool:
    """Whether the conditions that the event stands under are the same on all ranks."""
    return all(
        guard.kind is not GuardKind.VARYING or _SAME_ON_ALL.fullmatch(guard.text)
        for guard in event.guards
    )
