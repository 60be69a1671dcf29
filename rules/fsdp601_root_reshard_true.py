"""FSDP601: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Called,
    Collective,
    Event,
    Gathered,
    GradMode,
    Sharded,
    Trace,
    WeightsSet,
    Wrapped,
)
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.torch_versions import ROOT_RESHARDED_SINCE

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class RootReshardTrue(Rule):
    """The root is sharded with `reshard_after_forward=True` and gathered twice in every step.

    ## What it does
    Finds `fully_shard(model, reshard_after_forward=True)` at the root of a trained model whose parts are
    sharded too. It is not reported where the program changes or gathers parameters after a forward that no
    backward follows: an average of the weights that an evaluation uses needs the shards then. Nor where the
    same call also shards such an average.

    ## Why is this bad?
    The root's own parameters (embeddings, the last norm, the head) are used at the end of the forward and
    again at the beginning of the backward. If they are freed in between, they have to be gathered again at
    once, and no computation overlaps with that: a step of a model with three sharded layers takes 8
    all-gathers instead of 7. Without the argument, `fully_shard` keeps the root's parameters until the
    backward, and frees those of all other modules.

    ## Fix safety
    Safe: the argument is removed at the root; the results stay the same. There is no fix for options in a
    dict that other modules share: write `fully_shard(model, **{**options,
    "reshard_after_forward": False})`.

    ## Since
    torch 2.8. Before, the root was always kept.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`reshard_after_forward`)
    - pytorch/pytorch#154655, pytorch/pytorch#154704
    """

    code = "FSDP601"
    name = "root-reshard-true"
    severity = Severity.WARNING
    fixable = Safety.SAFE
    since = ROOT_RESHARDED_SINCE
    all_configurations = True

    def check(self, trace: Trace) -> Iterable[Finding]:
        groups = Groups(trace)
        for event in trace.of(Sharded):
            if event.options.get("reshard_after_forward") is not True or event.group:
                continue
            if event.ranks.partial or not _is_root(trace, groups, event):
                continue
            call = _trained_call(trace, event)
            if call is None or any(
                _needs_shards(trace, one) for one in _by_same_call(trace, event)
            ):
                continue
            name = class_name(trace, event.module)
            yield self.finding(
                event,
                f"the parameters of the root `{name}` are freed after the forward and gathered again at "
                f"once for the backward",
                help="Remove `reshard_after_forward` at the root, or pass False there; keep it for the "
                "other modules.",
                because=[(call, "called here")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at

        found = call_at(finding.site)
        if found is None:
            return None
        source, call = found
        for trace in program.traces:
            here = {event.module for event in trace.of(Sharded) if event.site == finding.site}
            found_here = any(one.site == finding.site for one in self.check(trace))
            if len(here) > 1 or (here and not found_here):
                return None  # other modules are sharded by the same call
        for number, arg in enumerate(call.args):
            if arg.keyword is None or arg.keyword.value != "reshard_after_forward":
                continue
            if number == 0 or not isinstance(arg.value, cst.Name) or arg.value.value != "True":
                return None
            start, end = source.span(call.args[number - 1].value)[1], source.span(arg.value)[1]
            if "#" in source.text[start:end] or ")" in source.text[start:end]:
                return None
            rewrite = Rewrite()
            rewrite.delete(source, start, end)
            return rewrite.fix("Keep the root's parameters until the backward", Safety.SAFE)
        return None


def _is_root(trace: Trace, groups: Groups, event: Sharded) -> bool:
    """Whether the module has no parent, and has sharded parts and parameters of its own."""
    root = event.module
    if not trace.complete or trace.any_escaped([root], trace.first_backward):
        return False
    if any(trace.modules[m].inner is None for m in groups.ancestors(root)):
        return False
    parts = set(trace.submodules(root)) - {root}
    if not any(
        isinstance(other, Sharded | Wrapped) and parts & {other.module, *_group_members(other)}
        for other in trace.before(event, Sharded, Wrapped)
    ):
        return False
    return groups.holds_parameters(root)


def _group_members(event: Sharded | Wrapped) -> tuple[str, ...]:
    return event.group if isinstance(event, Sharded) else ()


def _by_same_call(trace: Trace, event: Sharded) -> list[Sharded]:
    """The roots that the same code shards, also the model of an average."""
    return [one for one in trace.of(Sharded) if one.site == event.site and not one.group]


def _needs_shards(trace: Trace, event: Sharded) -> bool:
    """Whether the program uses the shards after a forward of the root that no backward follows.

    Without the option, the forward would leave the parameters gathered there.
    """
    evaluated = trained = False
    for one in trace.after(event, Called, BackwardRun, Gathered, WeightsSet, Collective):
        if isinstance(one, Called):
            outside = one.inside is None and trace.unwrap(one.module) == event.module
            evaluated = evaluated or (outside and one.grad is not GradMode.ON)
            trained = trained or (outside and one.grad is GradMode.ON)
        elif isinstance(one, BackwardRun):
            evaluated, trained = evaluated and not trained, False  # it may be that of another model
        elif isinstance(one, Gathered):
            evaluated = evaluated and (one.gathered or one.module != event.module)
        elif evaluated and any(trace.related(name, event.module) for name in _used_by(one)):
            return True
    return False


def _used_by(event: Event) -> tuple[str, ...]:
    """The modules whose parameters an event changes or gathers."""
    if isinstance(event, Collective):
        return event.parameters_of
    return event.modules if isinstance(event, WeightsSet) else ()


def _trained_call(trace: Trace, event: Sharded) -> Called | None:
    """The first call of the root from outside that a backward follows."""
    for call in trace.after(event, Called):
        outside = call.inside is None and trace.unwrap(call.module) == event.module
        if call.grad in (GradMode.OFF, GradMode.INFERENCE) or event.frozen:
            continue  # no backward begins with the root
        if outside and any(True for _ in trace.after(call, BackwardRun)):
            return call
    return None
