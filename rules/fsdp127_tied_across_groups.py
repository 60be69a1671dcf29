"""FSDP127: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Called,
    Event,
    ModuleMoved,
    ParametersTied,
    Sharded,
    StateLoaded,
    Trace,
    Wrapped,
    first,
)
from fsdplint.trace.groups import Groups, sharded_by
from fsdplint.trace.queries.common import only_fsdp2
from fsdplint.trace.queries.wrappers import shards_all

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class TiedAcrossGroups(Rule):
    """Two modules share a weight and are sharded in different groups.

    ## What it does
    Finds weights that one module takes from another (`self.head.weight = self.embed.weight`) before
    `fully_shard` puts the two modules into different communication groups: each into its own, or one
    into its own and the other into that of the root.

    Both in one group are fine: with the root, or by the list form. Tying after sharding and before the
    first forward is also fine.

    Also finds such weights if FSDP1's policy, or constructors of FSDP1, put the two modules into different
    units, and weights that are tied too late: after FSDP1 has wrapped the modules, or after the first
    forward of a model that `fully_shard` shards.

    ## Why is this bad?
    Each group replaces the shared parameter by one of its own. Since torch 2.12 the first forward
    ends with `ValueError: Parameter 'head.weight' is shared with a parameter already managed by another
    FSDP group`. Older versions give no error, and the weights are no longer tied.

    Each unit of FSDP1 copies the weight into its flat parameter, too. With `use_orig_params=True`, a forward
    ends with `RuntimeError: size mismatch, got input (16), mat (16x8), vec (64)`. Without it, there is no
    error, and the weights differ after the first step.

    FSDP1 does not see weights that are tied after the wrapping: the ranks crash, or train two weights.
    `fully_shard` reads the parameters again before the first forward, and not later: a weight that is tied
    afterwards is the module's own again in the next forward.

    ## Fix safety
    Unsafe: the two modules are sharded as one group, `fully_shard([model.embed, model.head])`, which
    stays gathered from the forward of the first to that of the second. There is no fix if the
    modules are sharded in a loop or with different options, or by FSDP1.

    ## Since
    torch 2.12 for the error, 2.4 for the silent loss.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`; pytorch/pytorch#176225.
    - pytorch/torchtitan#2495, huggingface/accelerate#4171.
    """

    code = "FSDP127"
    name = "tied-across-groups"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen = set()
        for tie in trace.of(ParametersTied):
            if tie.other is None:
                continue
            names = [groups.name(tie.module), groups.name(tie.other)]
            late = _makes_tie_late(groups, tie)
            if late is not None and tie.site not in seen:
                seen.add(tie.site)
                yield self.finding(
                    tie,
                    f"{names[0]} gets the {tie.name} of {names[1]} after "
                    f"{'FSDP1 has wrapped them' if isinstance(late, Wrapped) else 'a forward'}, which "
                    f"does not tie them",
                    help="Tie the weights before the model is sharded.",
                    because=[
                        (late, "wrapped here" if isinstance(late, Wrapped) else "called here")
                    ],
                )
                continue
            pair = _separate_shards(groups, tie)
            wrapped = _separate_units(groups, tie) if pair is None else None
            if pair is not None and pair[1].site not in seen:
                one, other = pair
                seen.add(other.site)
                yield self.finding(
                    other,
                    f"{names[0]} shares its {tie.name} with {names[1]}, but they are sharded in "
                    f"different groups",
                    help="Shard them as one group, `fully_shard([embedding, head])`, or leave both to "
                    "the root.",
                    because=[(one, "other module sharded here"), (tie, "tied here")],
                )
            elif wrapped is not None and wrapped.site not in seen:
                seen.add(wrapped.site)
                yield self.finding(
                    wrapped,
                    f"{names[0]} shares its {tie.name} with {names[1]}, but FSDP1 wraps them in "
                    f"different units",
                    help="Wrap neither of the two modules by itself, so that both are in the unit of "
                    "the root.",
                    because=[(tie, "tied here")],
                )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.one_group import shard_together

        other, one, *ties = finding.events
        tie = ties[0] if ties else None
        if not isinstance(other, Sharded) or not isinstance(one, Sharded):
            return None
        if not isinstance(tie, ParametersTied):
            return None
        rewrite = Rewrite()
        if not shard_together(rewrite, program, one, other, tie):
            return None
        return rewrite.fix("Shard the tied modules as one group", Safety.UNSAFE)


def _makes_tie_late(groups: Groups, tie: ParametersTied) -> Wrapped | Called | None:
    """The wrapping or the first forward after which a new tie has no effect."""
    trace = groups.trace
    pair = {tie.module, tie.other}
    if any({one.module, one.other} & pair for one in trace.before(tie, ParametersTied)):
        return None
    if any(module is None or trace.escaped(module, tie) for module in pair):
        return None
    events: Iterator[Event] = trace.before(tie, Wrapped, Called)
    for event in events:
        if isinstance(event, Wrapped):
            if shards_all(event) and all(trace.contains(event.module, m or "") for m in pair):
                return event
        elif isinstance(event, Called) and _gathers_own(trace, event, tie):
            return event
    return None


def _gathers_own(trace: Trace, call: Called, tie: ParametersTied) -> bool:
    """Whether a call is a forward of a model that `fully_shard` shards, with both modules."""
    if call.via != "call" or not only_fsdp2(trace, call.module, call):
        return False
    sharded = any(call.module in sharded_by(shard) for shard in trace.before(call, Sharded))
    return sharded and all(trace.contains(call.module, m or "") for m in (tie.module, tie.other))


def _separate_shards(groups: Groups, tie: ParametersTied) -> tuple[Sharded, Sharded] | None:
    """The different `fully_shard` calls that take the two modules, if they were tied until then."""
    trace = groups.trace
    if tie.other is None:
        return None
    takers: list[Sharded] = []
    for module in (tie.module, tie.other):
        taker = first(e for e in trace.of(Sharded) if module in groups.taken_parts(e))
        if taker is None or taker.index < tie.index or not trace.certainty.of_module(taker):
            return None
        takers.append(taker)
    one, other = sorted(takers, key=lambda event: event.index)
    if one is other or set(sharded_by(one)) & set(sharded_by(other)):
        return None
    if any(name == "**" or name.startswith("ignored_") for e in takers for name in e.options):
        return None
    untied = any(_may_untie(trace, tie, event) for event in trace.events[tie.index + 1 : one.index])
    if untied or trace.escaped(tie.module, other) or trace.escaped(tie.other, other):
        return None
    return one, other


def _separate_units(groups: Groups, tie: ParametersTied) -> Wrapped | None:
    """The FSDP1 constructor that completes the different units of the two modules."""
    trace = groups.trace
    if tie.other is None:
        return None
    makers: list[Wrapped] = []
    held: list[str] = []
    for module in (tie.module, tie.other):
        found = _unit(groups, module)
        if found is None or found[1].index < tie.index or not trace.certainty.of_module(found[1]):
            return None
        held.append(found[0])
        makers.append(found[1])
    one, other = sorted(makers, key=lambda event: event.index)
    if held[0] == held[1]:
        return None
    sites = {event.site for event in makers}
    outermost = {e.site: e for e in reversed(list(trace.of(Wrapped))) if e.site in sites}
    given = {name for event in outermost.values() for name in event.options}
    if any(name == "**" or name.startswith("ignored_") for name in given):
        return None
    untied = any(_may_untie(trace, tie, event) for event in trace.events[tie.index + 1 : one.index])
    if untied or trace.escaped(tie.module, other) or trace.escaped(tie.other, other):
        return None
    return other


def _unit(groups: Groups, module: str) -> tuple[str, Wrapped] | None:
    """The FSDP1 unit that has the module's own parameters, with the event that made it."""
    wraps = list(groups.trace.of(Wrapped))
    for candidate in (module, *groups.ancestors(module)):
        for event in wraps:
            if candidate == event.inner or candidate in (event.units or ()):
                known = event.units is not None or groups.trace.producer != "static"
                return (candidate, event) if known else None
    return None


def _may_untie(trace: Trace, tie: ParametersTied, event: object) -> bool:
    """Whether the modules may have parameters of their own after the event."""
    if isinstance(event, ParametersTied):
        return event.module in {tie.module, tie.other}
    if isinstance(event, ModuleMoved):
        return event.method == "to_empty" and trace.related(event.module, tie.module)
    return isinstance(event, StateLoaded) and trace.related(event.into, tie.module)
