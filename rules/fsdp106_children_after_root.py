"""FSDP106: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import GuardKind, ModuleAttached, Sharded, Site, Trace
from fsdplint.trace.groups import Groups, sharded_by

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class ChildrenAfterRoot(Rule):
    """A module is sharded after the module that contains it.

    ## What it does
    Finds `fully_shard(block)` that runs after `fully_shard` of a module that `block` is a part of,
    and that has taken its parameters. The order of statements causes this, or a loop over
    `model.modules()`, which gives parents first, if two of the sharded classes are nested.

    ## Why is this bad?
    The parent's group already holds the parameters. The second call treats them as parameters of
    another parallelism and fails: `TypeError: Invariant encountered: value was None when it should
    not be`, or `RuntimeError: Cannot concatenate overlapping meshes` if the mesh has dimension names.

    ## Fix safety
    Safe: the loop runs over `reversed(list(model.modules()))`, which gives children first, or the
    root's `fully_shard` moves behind its children's. There is no fix if the model is used in between.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`, user contract: apply it bottom-up.
    """

    code = "FSDP106"
    name = "children-after-root"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[Site] = set()
        for child, parent in _children_after_parents(groups):
            if child.site in seen:
                continue
            seen.add(child.site)
            name, outer = groups.name(child.module), groups.name(parent.module)
            loop = child.site == parent.site
            yield self.finding(
                child,
                f"{name} is sharded after {outer}, which contains it and has taken its parameters: this call fails",
                help="Shard children before parents: loop over `reversed(list(model.modules()))`."
                if loop
                else f"Shard {outer} after all of its parts.",
                because=[(parent, "" if loop else "parent sharded here")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.moves import move_shard_after
        from fsdplint.edits.places import last_meeting, modules_loop
        from fsdplint.edits.rewrite import Rewrite

        child, parent = finding.events[0], finding.events[1]
        rewrite = Rewrite()
        if child.site == parent.site:
            loop = modules_loop(child.site)
            if loop is None:
                return None
            source, iterable = loop
            rewrite.replace(source, iterable, f"reversed(list({source.code(iterable)}))")
            return rewrite.fix("Shard children before parents", Safety.SAFE)
        late = [
            event
            for trace in program.traces
            for event, above in _children_after_parents(Groups(trace))
            if above.site == parent.site
        ]
        place = last_meeting(parent, late)
        if place is None or not move_shard_after(rewrite, parent.site, place, late):
            return None
        return rewrite.fix("Shard the root after its parts", Safety.SAFE)


def _children_after_parents(groups: Groups) -> Iterator[tuple[Sharded, Sharded]]:
    """(child, parent) pairs of shardings where the child comes second and has parameters."""
    shards = list(groups.trace.of(Sharded))
    certain = {event.index for event in shards if not groups.trace.certainty.tested_in_loop(event)}
    for number, child in enumerate(shards):
        for target in sharded_by(child):
            above = set(groups.ancestors(target))
            before = (p for p in shards[:number] if above & set(sharded_by(p)))
            parent = next((p for p in before if p.index in certain), None)
            if parent is None or groups.without_parameters(target, before=child):
                continue
            if _attached_in_between(groups, target, parent, child):
                continue
            if _is_tested(child) and not child.in_loop:
                continue  # another part may be in its place where the test holds
            together = child.site == parent.site
            if together and not (child.index in certain and _are_certainly_sharded(groups, child)):
                continue
            yield child, parent
            break


def _attached_in_between(groups: Groups, target: str, parent: Sharded, child: Sharded) -> bool:
    """Whether the module's parameters came into the parent only after that was sharded."""
    new = {
        part
        for event in groups.trace.after(parent, ModuleAttached)
        if event.index < child.index
        for part in event.new
    }
    modules = groups.trace.modules
    members = groups.members(target, before=child)
    return {m for m in members if modules[m].own_parameters is not False} <= new


def _is_tested(event: Sharded) -> bool:
    """Whether a test of which both sides run decides whether a module is sharded."""
    return any(guard.kind is GuardKind.VARYING for guard in event.guards)


def _are_certainly_sharded(groups: Groups, child: Sharded) -> bool:
    """Whether the modules that a loop shards are certain to be among those that it visits.

    A loop whose test could not be decided seems to shard every module that it visits.
    """
    modules = groups.trace.modules
    together = {
        target
        for event in groups.trace.of(Sharded)
        if event.site == child.site
        for target in sharded_by(event)
    }
    if any(modules[m].container or not modules[m].children_known for m in together):
        return False
    if any(modules[m].perhaps_chosen for m in together):
        return False
    roots = [m for m in together if next(groups.ancestors(m), None) is None]
    return not any(together >= set(groups.trace.submodules(root)) for root in roots)
