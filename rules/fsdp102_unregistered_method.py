"""FSDP102: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Sharded, Site, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.gathered import MaybeGathered

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class UnregisteredMethod(Rule):
    """A method other than `forward` computes with the parameters of a sharded module.

    ## What it does
    Finds calls such as `model.encode(x)` or `model.generate(x)` of a module that `fully_shard` was
    applied to, if the method calls submodules whose parameters belong to the module's group, and
    nothing gathers them: the method is not registered, does not go through `self(...)`, does not run
    inside a call of the module, and no `unshard()` came before it.

    `register_fsdp_forward_method` before `fully_shard` does nothing: such a method is not registered.

    A method that calls only sharded submodules is found if it runs before the first call of the
    module itself.

    A method that runs after a forward has left the parameters gathered is not reported. By default,
    the parameters of the root stay gathered until the backward pass, `reshard()`, `state_dict()` or
    `to()`. A method is also fine if it only initialises parameters in place
    (`self.norm.reset_parameters()` after `to_empty`) or uses none.

    ## Why is this bad?
    FSDP2 gathers the parameters when the module is *called*. Another method computes with the sharded
    parameters: `RuntimeError: aten.addmm.default got mixed torch.Tensor and DTensor`. If the
    method calls only sharded submodules, each becomes a root of its own, and the next `model(x)` ends
    with `FSDP state has already been lazily initialized for encoder`.

    ## Fix safety
    Safe: `register_fsdp_forward_method(model, "encode")` after the module's `fully_shard` gives the
    method the hooks of a call. The function raises for a module without the method. If a helper that
    shards several models contains the `fully_shard`, the new line goes behind the call of the helper.
    There is no fix if no place certainly belongs to this model.

    ## Since
    torch 2.4, the first with FSDP2 and `register_fsdp_forward_method`.

    ## References
    - torch docs, `torch.distributed.fsdp.register_fsdp_forward_method`.
    - pytorch/pytorch#123962 and #109385; the function came with pull request #125394.
    """

    code = "FSDP102"
    name = "unregistered-method"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    fix_since = "2.6"

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        gathered = MaybeGathered(groups)
        seen: set[tuple[Site, str]] = set()
        for event in trace.of(Called):
            if event.via in ("call", "forward") or (event.site, event.via) in seen:
                continue
            entered = _first_ungathered_entry(groups, gathered, event)
            if entered is None:
                continue
            seen.add((event.site, event.via))
            name = groups.name(event.module)
            yield self.finding(
                event,
                f"`{event.via}` of {name} calls {groups.name(entered.module)}, but only a "
                f"call of {name} gathers the sharded parameters",
                help=f"Register the method after sharding: "
                f'`register_fsdp_forward_method(model, "{event.via}")`.',
                because=[
                    *((shard, "sharded here") for shard in groups.shards(event.module)[:1]),
                    (entered, "parameters used here"),
                ],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.forward_method import spot_for

        event = finding.events[0]
        shard = finding.events[1]
        if not isinstance(event, Called) or not isinstance(shard, Sharded):
            return None
        place = spot_for(program, event, shard)
        if place is None:
            return None
        rewrite = Rewrite()
        register = rewrite.need_import(
            place.source,
            "torch.distributed.fsdp",
            "register_fsdp_forward_method",
            at=place.statement,
        )
        rewrite.insert_after(
            place.source, place.statement, [f'{register}({place.module}, "{event.via}")']
        )
        return rewrite.fix(f"Register `{event.via}` as a forward method", Safety.SAFE)


def _first_ungathered_entry(
    groups: Groups, gathered: MaybeGathered, event: Called
) -> Called | None:
    """The first submodule that the method enters without its parameters being gathered, or None."""
    module = event.module
    if groups.owner(module, before=event) != module or groups.gathers(event):
        return None
    if any(groups.enters(outer, module) for outer in groups.enclosing_calls(event)):
        return None  # inside a call, or inside a method with its own finding
    for inner in groups.nested_calls(event):
        between = _calls_between(groups, inner, event)
        if any(b.module == module and b.via == "forward" for b in between):
            continue  # a direct call of forward: FSDP101
        if any(groups.gathers(b, module) for b in between):
            continue
        if (
            inner.module == module
            or groups.is_gathered(module, inner)
            or gathered.at(module, inner)
        ):
            continue
        owner = groups.owner(inner.module, before=event)
        if owner == module and _uses_parameters(groups, inner):
            return inner
        if owner == inner.module and _becomes_root(groups, inner, module):
            return inner
    return None


def _uses_parameters(groups: Groups, event: Called) -> bool:
    """Whether a call certainly computes with parameters of the module.

    A method other than `forward` may use none, or initialise them in place, which works on sharded
    parameters. The calls inside it are events of their own.
    """
    return event.via in ("call", "forward") and not groups.without_parameters(event.module, event)


def _calls_between(groups: Groups, inner: Called, outer: Called) -> list[Called]:
    """The calls between the two, with `inner` and without `outer`."""
    result = [inner]
    for event in groups.enclosing_calls(inner):
        if event is outer:
            break
        result.append(event)
    return result


def _becomes_root(groups: Groups, inner: Called, module: str) -> bool:
    """Whether entering a sharded submodule makes it a root, so that the next call of `module` fails."""
    trace = groups.trace
    if not groups.gathers(inner) or any(
        groups.gathers(e, module) for e in trace.before(inner, Called)
    ):
        return False
    return any(groups.gathers(e, module) for e in trace.after(inner, Called))
