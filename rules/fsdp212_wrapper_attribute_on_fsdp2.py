"""FSDP212: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Fsdp1Used, Trace
from fsdplint.trace.queries.common import asked_for, class_name, fsdp1_on_fsdp2, sharded_here

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

ATTRIBUTES = ("module", "_fsdp_wrapped_module")


class WrapperAttributeOnFsdp2(Rule):
    """The attribute `module` of a wrapper is read from a model that `fully_shard` shards.

    ## What it does
    Finds `model.module` and `model._fsdp_wrapped_module` on a model that `fully_shard` shards and that has no such
    attribute of its own.

    ## Why is this bad?
    FSDP1 and DDP are wrappers with the model in `.module`. `fully_shard` changes the class of the model in place
    and adds no wrapper. The program ends with

        AttributeError: 'FSDPNet' object has no attribute 'module'

    ## Fix safety
    Safe: the attribute is removed. There is no fix if the model has a wrapper in another configuration (DDP).

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html ("the class is changed in-place")
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    """

    code = "FSDP212"
    name = "wrapper-attribute-on-fsdp2"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Fsdp1Used):
            attribute = event.api.removeprefix("FSDP.")
            if attribute not in ATTRIBUTES or asked_for(event, attribute):
                continue
            if event.module is None or not fsdp1_on_fsdp2(trace, event):
                continue
            name = class_name(trace, event.module)
            yield self.finding(
                event,
                f"`{name}` is sharded by `fully_shard` and has no attribute `{attribute}`",
                help="Use the model itself. If another configuration wraps it (DDP), test for the wrapper.",
                because=sharded_here(trace, event.module, event),
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.interpreter.values import ModuleValue
        from fsdplint.source.source import NodeSite

        site = finding.site
        if finding.configuration or not isinstance(site, NodeSite):
            return None
        node = site.node
        if not isinstance(node, cst.Attribute):
            return None
        values = program.values(node.value)
        if not all(
            isinstance(v, ModuleValue) and v.wrapper not in ("ddp", "fsdp1") for v in values
        ):
            return None
        rewrite = Rewrite()
        _, end = site.source.span(node.value)
        rewrite.delete(site.source, end + len(_brackets(node.value)), site.source.span(node)[1])
        return rewrite.fix("Use the model itself", Safety.SAFE)


def _brackets(node: object) -> str:
    """The closing brackets after an expression."""
    return ")" * len(getattr(node, "rpar", ()))
