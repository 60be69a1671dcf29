"""FSDP111: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Event, Sharded, Trace, Wrapped
from fsdplint.trace.groups import Groups, sharded_by
from fsdplint.trace.queries.common import is_under_varying_test

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class ShardedTwice(Rule):
    """A module is sharded that is sharded already.

    ## What it does
    Finds modules that `fully_shard` is applied to twice: the root after a loop over `model.modules()`,
    which includes the root; a model that both its builder and the trainer shard; a block that the model
    holds twice.

    Also finds `FullyShardedDataParallel` with an `auto_wrap_policy` around a model that is wrapped already,
    or that has wrapped parts.

    The call is fine if the program tests for a sharded module first (`isinstance(module, FSDPModule)`).

    ## Why is this bad?
    The second call fails: `AssertionError: Each distinct composable distributed API can only be applied to a module once.
    fully_shard has already been applied to the following module: ...`

    FSDP1 fails with a policy: `ValueError: FSDP auto wrapping requires modules to not already have FSDP applied`.

    ## Fix safety
    Safe: the second call is removed. There is a fix only if that call is a statement of its own with
    the options of the first call.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - torch source, `torch.distributed._composable.contract`.
    - torch docs, `torch.distributed.fsdp.fully_shard`: the user contract applies it to each module once.
    """

    code = "FSDP111"
    name = "sharded-twice"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        first: dict[str, Sharded] = {}
        seen = set()
        for event in trace.of(Sharded):
            for target in sharded_by(event):
                before = first.setdefault(target, event)
                if before is event or event.site in seen or trace.modules[target].repeated:
                    continue
                if not _both_certainly_called(trace, before, event):
                    continue
                seen.add(event.site)
                yield self.finding(
                    event,
                    f"`fully_shard` is applied to {groups.name(target)}, which is sharded already: this call fails",
                    help="Shard each module once, and its parts before it.",
                    because=[(before, "sharded here" if before.site != event.site else "")],
                )

        yield from self._wrapped_twice(trace)

    def _wrapped_twice(self, trace: Trace) -> Iterator[Finding]:
        """What FSDP1 wraps with a policy although it is wrapped, in whole or in part."""
        groups = Groups(trace)
        seen = set()
        for event in trace.of(Wrapped):
            policy = event.options.get("auto_wrap_policy")
            if policy is None or "**" in event.options or event.site in seen:
                continue
            parts = set(trace.submodules(event.inner))
            for before in trace.before(event, Wrapped):
                if before.module in parts and _both_certainly_called(trace, before, event):
                    seen.add(event.site)
                    yield self.finding(
                        event,
                        f"the policy is for {groups.name(trace.unwrap(event.inner))}, which has FSDP1 wrappers "
                        f"already: this call fails",
                        help="Wrap the model once, and let the policy wrap its parts.",
                        because=[(before, "wrapped here" if before.site != event.site else "")],
                    )
                    break

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.places import module_argument, options_text, shard_statement
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at

        event, before = finding.events
        if isinstance(event, Wrapped):
            return None
        shard, other = shard_statement(event.site), call_at(before.site)
        if shard is None or other is None or event.site == before.site:
            return None
        argument = module_argument(shard.call)
        if argument is None or shard.source.code(argument) != shard.module:
            return None
        if options_text(shard.source, shard.call) != options_text(*other):
            return None
        if any(_shards_other_modules(trace, event) for trace in program.traces):
            return None
        rewrite = Rewrite()
        rewrite.delete_statement(shard.source, shard.statement)
        return rewrite.fix("Do not shard the module again", Safety.SAFE)


def _both_certainly_called(trace: Trace, one: Event, other: Event) -> bool:
    """Whether it is certain that both calls are made, and of the very same module."""
    if one.site == other.site and (one.in_loop or other.in_loop):
        return False
    for event in (one, other):
        if (
            event.ranks.partial
            or is_under_varying_test(event)
            or not trace.certainty.of_module(event)
        ):
            return False
    return trace.producer != "static" or _always_follows(trace, one, other)


def _always_follows(trace: Trace, one: Event, other: Event) -> bool:
    """Whether the second call is made whenever the first one is."""
    if trace.certainty.handles_errors(other):
        return False
    sites = {guard.site for guard in one.guards}
    if any(guard.site not in sites for guard in other.guards):
        return False
    if one.site == other.site:
        return not any(
            trace.certainty.same_function(guard.site, other.site) for guard in other.guards
        )
    return True


def _shards_other_modules(trace: Trace, event: Event) -> bool:
    """Whether the same call shards something that was not sharded before, in a trace."""
    for again in trace.of(Sharded):
        if again.site == event.site:
            earlier = {m for e in trace.before(again, Sharded) for m in sharded_by(e)}
            if not earlier >= set(sharded_by(again)):
                return True
    return False
