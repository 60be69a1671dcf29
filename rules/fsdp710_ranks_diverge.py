"""FSDP710: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.diagnostics.wording import names
from fsdplint.registry.rule import Rule
from fsdplint.trace import CopiesSeen, Sharded, Trace
from fsdplint.trace.queries.common import class_name, optimizer_of, sharded_here
from fsdplint.trace.queries.initial_weights import own_weights
from fsdplint.trace.queries.unreduced_ignored import unreduced_ignored


class RanksDiverge(Rule):
    """Ranks that should hold the same parameters train different ones.

    ## What it does
    Compares, bit by bit and at the first steps, parameters that should be the same on several ranks. Finds
    replicas of a 2D mesh (HSDP) that start with different weights, and parameters in `ignored_params` that
    start equal and diverge.

    A check without a run finds modules that `fully_shard` or FSDP1 ignores, if they start equal, because of one
    seed or a broadcast, an optimizer trains them, and no code in sight may reduce their gradients or exchange
    the values.

    FSDP309 reports replicas whose ranks have different seeds. FSDP308 reports weights that are initialised
    differently on each rank and then sharded over all ranks. Ignored parameters are not reported in
    programs that exchange data with all-to-all, for example if each rank holds other experts.

    ## Why is this bad?
    There is no error. FSDP2 sends no weights and averages only gradients: replicas that start with different
    weights train different models, show different losses, and a checkpoint holds one of them. The gradients
    of ignored parameters are not reduced, so each rank trains them on its own data.

    ## Since
    torch 2.4; `ignored_params` 2.7.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard` (`ignored_params`).
    - pytorch/torchtitan#1777; FSDP1's `sync_module_states` has no counterpart in FSDP2.
    """

    code = "FSDP710"
    name = "ranks-diverge"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        if trace.producer != "runtime":
            yield from self._without_run(trace)
            return
        alike: dict[tuple[str, str], set[str]] = {}
        seen: set[tuple[str, bool]] = set()
        seeded = [found.module for found in own_weights(trace) if found.replicated]
        for event in trace.of(CopiesSeen):
            if set(event.each) != set(trace.ends):
                continue
            same, other = _split_by_equality(event)
            began = alike.setdefault((event.module, event.optimizer), same)
            replicas = [name for name in other if not _is_ignored(event, name)]
            ignored = [name for name in other if _is_ignored(event, name) and name in began]
            if event.exchanged or not _ignores(trace, event):
                ignored = []
            if any(trace.related(event.module, module) for module in seeded):
                replicas = []  # FSDP309 reports them
            for found, text, help in (
                (replicas, _REPLICAS, _REPLICAS_HELP),
                (ignored, _IGNORED, _IGNORED_HELP),
            ):
                key = (event.module, found is replicas)
                if found and key not in seen:
                    seen.add(key)
                    yield self._finding(trace, event, found, text, help)

    def _without_run(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for found in unreduced_ignored(trace):
            if found.shard.site in seen:
                continue
            seen.add(found.shard.site)
            yield self.finding(
                found.shard,
                f"the parameters of `{class_name(trace, found.module)}` are ignored by FSDP and trained, and "
                "nothing reduces their gradients: each rank trains a copy of its own",
                help=_IGNORED_HELP,
                because=[(found.step, "trained here")],
            )

    def _finding(
        self, trace: Trace, event: CopiesSeen, found: list[str], text: str, help: str
    ) -> Finding:
        what = f"{names(found, 'parameter')} of `{class_name(trace, event.module)}`"
        shard = sharded_here(trace, event.module, event)
        built = optimizer_of(trace, event.optimizer)
        at = shard[0][0] if shard else built or event
        verb = "is" if len(found) == 1 else "are"
        return self.finding(
            at,
            text.format(what=what, verb=verb, step=event.look),
            help=help,
            because=[(event, f"seen before step {event.look}")],
        )


_REPLICAS = "{what} {verb} different between the replicas, and FSDP2 averages only their gradients"
_REPLICAS_HELP = (
    "Give all replicas the same weights before sharding (the same seed, or `dist.broadcast` from "
    "rank 0), or load one checkpoint into all of them after sharding."
)
_IGNORED = (
    "{what} {verb} ignored by FSDP, so no gradients are reduced, and before step {step} the "
    "ranks hold different values"
)
_IGNORED_HELP = (
    "Let FSDP shard them too, or average their gradients over the ranks before each step."
)


def _ignores(trace: Trace, event: CopiesSeen) -> bool:
    """Whether parameters of the model were left out of sharding, and not put into it later."""
    return any(
        "ignored_params" in shard.options and trace.related(shard.module, event.module)
        for shard in trace.before(event, Sharded)
    )


def _is_ignored(event: CopiesSeen, name: str) -> bool:
    return any(copies[name][0] == "ignored" for copies in event.each.values() if name in copies)


def _split_by_equality(event: CopiesSeen) -> tuple[set[str], list[str]]:
    """The parameters that are the same on all ranks that hold the same part, and those that are not."""
    same: set[str] = set()
    other: list[str] = []
    for name in next(iter(event.each.values())):
        copies = [each[name] for each in event.each.values() if name in each]
        parts = {part for part, _ in copies}
        if len(copies) < len(event.each):
            continue
        if len({(part, number) for part, number in copies}) == len(parts):
            same.add(name)
        else:
            other.append(name)
    return same, other
