"""FSDP119: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Event,
    ParameterMarked,
    ParameterMarkRead,
    Sharded,
    Site,
    Trace,
    Wrapped,
    first,
)
from fsdplint.trace.groups import Groups, Shard, shard_events, sharded_by


class ParameterMarkLost(Rule):
    """An attribute or a hook of a parameter does not survive sharding.

    ## What it does
    Finds attributes that are set on parameters (`p.no_weight_decay = True`) before `fully_shard`
    replaces the parameters, and read after it. Also finds hooks (`register_hook`,
    `register_post_accumulate_grad_hook`) that are registered on parameters before `fully_shard` or
    FSDP1 and not again before the backward pass, and `register_hook` on parameters that `fully_shard`
    has sharded.

    ## Why is this bad?
    Sharding puts new parameters into the module, without the attributes and hooks of the old ones.
    `getattr(p, "no_weight_decay", False)` is then False for every parameter, so all of them decay.
    A lost hook never runs. There is no error.

    Autograd computes the gradients of the gathered parameters, and FSDP2 sets those of the sharded ones
    itself. It then runs the hooks of `register_post_accumulate_grad_hook`, and no others.

    ## Since
    torch 2.4 for `fully_shard`, always for the hooks under FSDP1.

    ## References
    - pytorch/pytorch#136929.
    - NVIDIA/Megatron-LM#5790, axolotl-ai-cloud/axolotl#2992.
    """

    code = "FSDP119"
    name = "parameter-mark-lost"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        marks = sorted(_remaining_marks(trace), key=lambda mark: mark.index)
        if not marks:
            return
        groups = Groups(trace)
        seen: set[Site] = set()
        uses: list[ParameterMarkRead | ParameterMarked] = [
            *trace.of(ParameterMarkRead),
            *(mark for mark in marks if mark.hook),
        ]
        for event in uses:
            if event.site in seen or event.ranks.partial:
                continue
            found = (
                self._finding_of_read(groups, event, marks)
                if isinstance(event, ParameterMarkRead)
                else self._finding_of_hook(groups, event, marks)
            )
            if found is not None:
                seen.add(event.site)
                yield found

    def _finding_of_read(
        self, groups: Groups, event: ParameterMarkRead, marks: list[ParameterMarked]
    ) -> Finding | None:
        """An attribute that is read after sharding replaced the parameters that had it."""
        before = [
            mark
            for mark in marks
            if mark.index < event.index
            and mark.name == event.name
            and _any_related(groups.trace, mark.modules, event.modules)
        ]
        if not before:
            return None
        shard = _replacing_shard(groups, before[-1], event)
        if shard is None or not isinstance(shard, Sharded):
            return None
        found = self.finding(
            event,
            f"`{event.name}` was set on parameters before `fully_shard` replaced them: the new "
            f"parameters do not have it",
            help="Set it after sharding, or select parameters by their names, which sharding keeps.",
            because=[(shard, "parameters replaced here")],
        )
        if before[-1].site != shard.site:
            found.related = ((before[-1].site, "set here"), *found.related)
        return found

    def _finding_of_hook(
        self, groups: Groups, event: ParameterMarked, marks: list[ParameterMarked]
    ) -> Finding | None:
        """A hook on parameters that sharding replaces before the backward pass, or has sharded."""
        if event.sharded and event.name == "register_hook":
            return self._finding_of_late_hook(groups, event)
        shard = _replacing_shard(groups, event, None)
        if shard is None or first(groups.trace.after(shard, BackwardRun)) is None:
            return None
        again = any(
            mark.hook
            and mark.index > shard.index
            and _any_related(groups.trace, mark.modules, event.modules)
            for mark in marks
        )
        if again:
            return None
        how = "FSDP" if isinstance(shard, Wrapped) else "fully_shard"
        return self.finding(
            event,
            f"`{event.name}` is called on a parameter before `{how}` replaces it: the hook never runs",
            help="Register the hook after sharding with `register_post_accumulate_grad_hook`; FSDP2 "
            "runs no other hooks of parameters."
            if isinstance(shard, Sharded)
            else "FSDP1 gives gradients to its flat parameters: change `p.grad` after the backward.",
            because=[(shard, "parameters replaced here")],
        )

    def _finding_of_late_hook(self, groups: Groups, event: ParameterMarked) -> Finding | None:
        """A hook of autograd on sharded parameters, whose gradients autograd does not compute."""
        owners = {groups.owner(module, before=event) for module in event.modules}
        shards = [one for one in groups.trace.before(event, Sharded) if owners & {*sharded_by(one)}]
        if not shards or first(groups.trace.after(event, BackwardRun)) is None:
            return None
        return self.finding(
            event,
            "`register_hook` is called on a sharded parameter: FSDP2 sets its gradient itself, so the "
            "hook never runs",
            help="Use `register_post_accumulate_grad_hook`, whose function gets the parameter and "
            "changes `parameter.grad`.",
            because=[(shards[0], "sharded here")],
        )


def _remaining_marks(trace: Trace) -> Iterator[ParameterMarked]:
    """The marks that are still set when something is sharded."""
    lost_marks: set[tuple[object, ...]] = set()
    for event in reversed(trace.events):
        if isinstance(event, Shard):
            lost_marks.clear()
        elif isinstance(event, ParameterMarked):
            key = (event.name, event.hook, event.modules)
            if event.removed:
                lost_marks.add(key)
            elif key not in lost_marks:
                yield event


def _any_related(trace: Trace, ones: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return any(trace.related(one, other) for one in ones for other in others)


def _replacing_shard(groups: Groups, mark: ParameterMarked, before: Event | None) -> Shard | None:
    """What first replaces the marked parameters, by the time of an event if one is given."""
    for shard in shard_events(groups.trace, after=mark, before=before):
        if mark.hook and isinstance(shard, Wrapped):
            if _any_related(groups.trace, (shard.inner,), mark.modules):
                return shard
        elif groups.replaces(shard, mark.modules):
            return shard
    return None
