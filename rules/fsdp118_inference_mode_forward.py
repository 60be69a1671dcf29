"""FSDP118: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Called,
    Gathered,
    GradMode,
    Sharded,
    Sharding,
    Site,
    Trace,
    Wrapped,
)
from fsdplint.trace.groups import Groups, sharded_by
from fsdplint.trace.queries.common import is_under_varying_test

if TYPE_CHECKING:
    import libcst as cst

    from fsdplint.interpreter import Program
    from fsdplint.source.source import Source


class InferenceModeForward(Rule):
    """The first forward of a sharded model runs under `torch.inference_mode()`.

    ## What it does
    Finds programs that first call a sharded module under `torch.inference_mode()` (a context or a
    decorator), and later call it outside of inference mode to train it.

    Later calls under inference mode are fine, and so is a program that only runs inference.

    ## Why is this bad?
    The first forward allocates the buffers into which parameters are gathered. Under inference mode
    they become inference tensors, and the first training step ends with `RuntimeError: Inplace update to
    inference tensor outside InferenceMode is not allowed`, or with `Inference tensors cannot be saved
    for backward` if the parameters stayed gathered. FSDP1 ends with `AssertionError: The grad_fn is
    needed to access the AccumulateGrad`.

    ## Fix safety
    Safe: `torch.inference_mode()` becomes `torch.no_grad()`, which records no gradients either.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - pytorch/pytorch#113203, #95957 and #126032.
    """

    code = "FSDP118"
    name = "inference-mode-forward"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        last = _last_backward(trace)
        sharded: dict[str, Sharding] = {}
        begun: dict[str, Called | None] = {}
        seen: set[Site] = set()
        for event in trace:
            if isinstance(event, Sharded | Wrapped):
                kind = Sharding.FSDP2 if isinstance(event, Sharded) else Sharding.FSDP1
                sharded.update(dict.fromkeys(sharded_by(event), kind))
            elif isinstance(event, Gathered) and event.gathered:
                begun.setdefault(event.module, None)
            elif isinstance(event, Called) and groups.gathers(event):
                module = trace.unwrapped_to(event.module, sharded)
                if module is None:
                    continue
                start = begun.setdefault(module, event)
                if start is None or not _fails_after_inference(event, last, sharded[module]):
                    continue
                begun[module] = None
                if _is_inference_call(groups, start, module):
                    outer = [start, *groups.enclosing_calls(start)][-1]
                    if outer.site not in seen:
                        seen.add(outer.site)
                        yield self._finding(groups, outer, event)

    def _finding(self, groups: Groups, first: Called, later: Called) -> Finding:
        outer = [later, *groups.enclosing_calls(later)][-1]
        name = groups.name(groups.trace.unwrap(first.module))
        return self.finding(
            first,
            f"the first forward of {name} runs under `torch.inference_mode()`, so it cannot be "
            f"trained afterwards",
            help="Use `torch.no_grad()` for forwards of a sharded model.",
            because=[(outer, "called outside of inference mode here")],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite

        first = finding.events[0]
        rewrite = Rewrite()
        found = [
            place
            for site in (*first.stack, first.site)
            for place in _inference_contexts(program, site)
        ]
        if not found or not all(_replace_with_no_grad(rewrite, *place) for place in found):
            return None
        return rewrite.fix("Use no_grad instead of inference_mode", Safety.SAFE)


def _last_backward(trace: Trace) -> int:
    return max((event.index for event in trace.of(BackwardRun)), default=-1)


def _fails_after_inference(event: Called, last_backward: int, sharding: Sharding) -> bool:
    """Whether the call fails on parameters that were first gathered under inference mode."""
    if event.grad is None:
        return event.index < last_backward
    return event.grad is GradMode.ON or event.grad is GradMode.OFF and sharding is Sharding.FSDP2


def _is_inference_call(groups: Groups, first: Called, module: str) -> bool:
    """Whether the first call of a module certainly is one under inference mode."""
    return (
        first.grad is GradMode.INFERENCE
        and not is_under_varying_test(first)
        and not first.ranks.partial
        and not groups.without_parameters(module, first)
        and not groups.trace.escaped(module, first)
    )


def _inference_contexts(
    program: Program, site: Site
) -> Iterator[tuple[Source, cst.BaseExpression]]:
    """The uses of inference mode around a place, in its function: `with` items and decorators."""
    import libcst as cst

    from fsdplint.interpreter import grad_mode
    from fsdplint.source.source import NodeSite

    node: cst.CSTNode | None = site.node if isinstance(site, NodeSite) else None
    while isinstance(site, NodeSite) and node is not None:
        node = site.source.parent(node)
        uses: list[cst.BaseExpression] = []
        if isinstance(node, cst.With):
            uses = [item.item for item in node.items]
        elif isinstance(node, cst.FunctionDef):
            uses = [decorator.decorator for decorator in node.decorators]
        for use in uses:
            kinds = [grad_mode.of_decorator(value) for value in program.values(use)]
            if any(kind is not None and kind.kind == "inference_mode" for kind in kinds):
                yield site.source, use
        if isinstance(node, cst.FunctionDef):
            return


def _replace_with_no_grad(rewrite: object, source: Source, use: cst.BaseExpression) -> bool:
    """`torch.inference_mode()` becomes `torch.no_grad()`; False where it is written otherwise."""
    import libcst as cst

    from fsdplint.edits.rewrite import Rewrite

    assert isinstance(rewrite, Rewrite)
    name = use.func if isinstance(use, cst.Call) else use
    if isinstance(use, cst.Call) and use.args:
        return False
    if isinstance(name, cst.Attribute) and name.attr.value == "inference_mode":
        rewrite.replace(source, name.attr, "no_grad")
        return True
    if isinstance(name, cst.Name) and name.value == "inference_mode":
        rewrite.replace(source, name, rewrite.need_import(source, "torch", "no_grad", at=use))
        rewrite.remove_import_if_unused(source, name.value)
        return True
    return False
