"""FSDP101: see the class."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, GradMode, Site, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.gathered import MaybeGathered

if TYPE_CHECKING:
    import libcst as cst

    from fsdplint.interpreter import Program


class DirectForwardCall(Rule):
    """`forward` of a sharded module is called directly.

    ## What it does
    Finds `model.forward(x)` of a module whose parameters `fully_shard` shards, unless the call runs
    inside a call of the module that gathers them, or after `register_fsdp_forward_method` or
    `unshard()`.

    These are fine: `forward` inside the call of the module that holds the parameters (also through
    `torch.compile`), `super().forward(x)`, and FSDP1's wrapper, whose `forward` gathers.

    A direct call under `no_grad` or `inference_mode` is not reported if an earlier call has left the
    parameters gathered. By default, the parameters of the root stay gathered until the backward pass,
    `reshard()`, `state_dict()` or `to()`.

    ## Why is this bad?
    FSDP2 gathers the parameters in hooks that only `model(x)` runs. `model.forward(x)` computes with
    the sharded parameters: `RuntimeError: aten.addmm.default got mixed torch.Tensor and DTensor`.
    If an earlier call has left the parameters gathered, the call succeeds, but no hook reduces the
    gradients: the sharded parameters get none, and the optimizer does not change them.

    ## Fix safety
    Safe: `model.forward(x)` becomes `model(x)`. There is no fix if the module is not sharded itself, or is
    called outside of its root: calling it would not gather the parameters either.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`, user contract: "call model(input) instead of
      model.forward(input)".
    - pytorch/pytorch#114299: FSDP1 permitted this, FSDP2 does not.
    """

    code = "FSDP101"
    name = "direct-forward-call"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        gathered = MaybeGathered(groups)
        seen: set[Site] = set()
        for event in trace.of(Called):
            if event.via != "forward" or event.site in seen:
                continue
            owner = groups.owner(event.module, before=event)
            if owner is None or _is_harmless(groups, gathered, event, owner):
                continue
            seen.add(event.site)
            yield self._finding(groups, event, owner)

    def _finding(self, groups: Groups, event: Called, owner: str) -> Finding:
        name, holder = groups.name(event.module), groups.name(owner)
        return self.finding(
            event,
            f"`forward` of {name} is called directly, but only a call of {holder} gathers the sharded "
            f"parameters",
            help="Call the module: `model(x)` runs the hooks that gather the parameters."
            if owner == event.module
            else f"Run it inside a call of {holder}, or shard it separately.",
            because=[(shard, "sharded here") for shard in groups.shards(owner)[:1]],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.source.source import NodeSite

        site = finding.site
        if not isinstance(site, NodeSite) or not isinstance(site.node, cst.Call):
            return None
        if not all(ok for trace in program.traces for ok in _gathers_when_called(trace, site)):
            return None
        function = site.node.func
        if not isinstance(function, cst.Attribute) or function.lpar:
            return None
        if not _is_module(program, function.value):
            return None
        text, suffixes = re.subn(r"\s*\.\s*forward$", "", site.source.code(function))
        if suffixes != 1:
            return None
        rewrite = Rewrite()
        rewrite.replace(site.source, function, text)
        return rewrite.fix("Call the module", Safety.SAFE)


def _is_module(program: Program, node: cst.BaseExpression) -> bool:
    """Whether an expression is a module. `super()` is not: it cannot be called."""
    from fsdplint.interpreter.values import ModuleValue

    values = program.values(node)
    return bool(values) and all(isinstance(value, ModuleValue) for value in values)


def _is_harmless(groups: Groups, gathered: MaybeGathered, event: Called, owner: str) -> bool:
    """Whether the parameters are gathered at this call, the call needs none, or the finding for an
    outer call covers it.
    """
    return (
        groups.gathers(event)
        or groups.is_gathered(owner, event)
        # Only hooks reduce gradients, so with gradients a direct call is wrong all the same.
        or (event.grad is not GradMode.ON and gathered.at(owner, event))
        or (owner == event.module and groups.without_parameters(owner, event))
        or any(
            outer.module == owner and (outer.via == "forward" or event.module != owner)
            for outer in groups.enclosing_calls(event)
        )
    )


def _gathers_when_called(trace: Trace, site: Site) -> Iterator[bool]:
    """For each violation at the site, whether a call of the module would gather its parameters.

    That is the case if the module is sharded itself, and is a root or runs inside its root.
    """
    groups = Groups(trace)
    gathered = MaybeGathered(groups)
    for event in trace.of(Called):
        if event.site != site or event.via != "forward":
            continue
        owner = groups.owner(event.module, before=event)
        if owner is None or _is_harmless(groups, gathered, event, owner):
            continue
        sharded = trace.shardings(event)
        roots = [m for m in groups.ancestors(owner) if m in sharded]
        yield owner == event.module and (
            not roots or any(groups.is_gathered(root, event) for root in roots)
        )
