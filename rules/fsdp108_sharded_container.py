"""FSDP108: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Sharded, Trace
from fsdplint.trace.groups import Groups, sharded_by

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class ShardedContainer(Rule):
    """`fully_shard` is applied to a ModuleList or ModuleDict, which has no forward.

    ## What it does
    Finds `fully_shard(model.layers)` where `model.layers` is an `nn.ModuleList` or `nn.ModuleDict`,
    directly or in a loop over the model's modules. Also finds the list form with such containers only.

    An `nn.Sequential` has a forward and may be sharded, and so may the elements of a container, one by
    one or as the list `fully_shard(list(model.layers))`.

    ## Why is this bad?
    FSDP2 gathers a module's parameters around its forward, but a container has no forward:
    `ValueError: fully_shard does not support containers that do not implement forward: ModuleList(...)`.
    The list form `fully_shard([model.layers])` passes, and the first forward fails with
    `RuntimeError: aten.addmm.default got mixed torch.Tensor and DTensor`.

    ## Fix safety
    Unsafe: the call becomes a loop that shards each element with the same options, one communication
    group for each. If the elements are sharded already, the call is removed. There is no fix in a loop
    over modules, or if an element is a container itself.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`: containers such as ModuleList are not supported.
    - pytorch/pytorch#113794, #126937 and #167856.
    """

    code = "FSDP108"
    name = "sharded-container"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen = set()
        for event in trace.of(Sharded):
            targets = [trace.modules[target] for target in sharded_by(event)]
            if event.site in seen or not all(target.container for target in targets):
                continue
            if event.group and all(groups.without_parameters(m, before=event) for m in event.group):
                continue
            if not trace.certainty.of_module(event):
                continue
            seen.add(event.site)
            kind = targets[0].class_name
            yield self.finding(
                event,
                f"`fully_shard` is applied to `{_attribute_name(groups, targets[0].id)}`, a {kind}, "
                f"which has no `forward` that gathers its parameters",
                help=f"Shard the elements of the {kind} one by one, or leave them to the parent.",
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.shard_elements import shard_elements

        rewrite = Rewrite()
        title = shard_elements(rewrite, program, finding.site)
        return rewrite.fix(title, Safety.UNSAFE) if title is not None else None


def _attribute_name(groups: Groups, module: str) -> str:
    """What the parent calls the container, else its class."""
    for parent in groups.ancestors(module):
        for name, child in groups.trace.modules[parent].children.items():
            if child == module:
                return name
    return groups.trace.modules[module].class_name
