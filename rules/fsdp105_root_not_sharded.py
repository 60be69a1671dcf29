"""FSDP105: see the class."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.diagnostics.wording import quote_names
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Called,
    Event,
    OptimizerBuilt,
    OptimizerStepped,
    Sharded,
    Site,
    Trace,
)
from fsdplint.trace.groups import Groups, Shard, shard_events, sharded_by, shards_unknown_part
from fsdplint.trace.queries.common import module_path, reduced_by_hand

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


# The models of Transformers, without their blocks, encoders and other parts.
_TRANSFORMERS = re.compile(r"transformers\.(\w+\.)*(AutoModel\w*|[A-Z]\w+(Model|For[A-Z]\w+))")
# Language models with a head, and the names under which they hold the model without it.
_WITH_HEAD = re.compile(r"transformers\.(\w+\.)*\w+(ForCausalLM|LMHeadModel)")
_BODIES = ("model", "transformer", "gpt_neox")


class RootNotSharded(Rule):
    """Parts of a model are sharded, the model that is trained is not.

    ## What it does
    Finds models that are called and trained, and of which some submodules are sharded, while other
    trainable parameters are in no sharded module: `fully_shard(model)`, or FSDP1's outer wrapper, is
    missing.

    Of a model of Transformers, whose code is not followed, this is known if only its repeated blocks
    are sharded: the elements of `model.model.layers`, or parts that a test of the class selects. It is
    also known of a language model of which only `model.model` is sharded, which lacks the head.

    The model is not reported if the other parameters are frozen, in no optimizer or part of a DDP
    module, or if the program reduces gradients itself between the backward pass and the step.

    ## Why is this bad?
    The other parameters are plain tensors, whole on every rank, and nothing reduces their gradients:
    each rank trains its own version of them. There is no error: `model.head.weight` differed between
    two ranks after one step. `clip_grad_norm_` over all parameters ends with
    `RuntimeError: aten._foreach_norm.Scalar got mixed torch.Tensor and DTensor`.

    ## Fix safety
    Unsafe: `fully_shard(model)` goes after the last sharding of its parts. The other parameters
    become DTensors; code that reads them, or loads plain tensors into them, has to change. FSDP1 gets no fix here.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`, user contract: apply it bottom-up; the root
      takes the parameters that remain.
    - Tencent-Hunyuan/UniRL#7.
    """

    code = "FSDP105"
    name = "root-not-sharded"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        if reduced_by_hand(trace):
            return
        seen: set[str] = set()
        sites: set[Site] = set()
        for call in trace.of(Called):
            root = call.module
            if call.inside is not None or root in seen:
                continue
            seen.add(root)
            shards = _shards_below(groups, root)
            if not shards:
                continue
            body_only = _only_body_is_sharded(groups, root, shards, call)
            if body_only or _only_blocks_are_sharded(groups, root, shards, call):
                unsharded = [trace.unwrap(root)]
            elif trace.family_escaped(root, call):
                continue
            else:
                unsharded = _unsharded_modules(groups, root)
            if not unsharded or shards[-1].site in sites or not _are_trained(trace, unsharded):
                continue
            sites.add(shards[-1].site)
            left_out = "head" if body_only else "embedding"
            yield self._finding(groups, root, shards[-1], call, unsharded, left_out)

    def _finding(
        self,
        groups: Groups,
        root: str,
        last: Shard,
        call: Called,
        unsharded: list[str],
        left_out: str,
    ) -> Finding:
        name = groups.name(groups.trace.unwrap(root))
        api = "fully_shard" if isinstance(last, Sharded) else "FSDP"
        rest = [path for path in (module_path(groups.trace, root, m) for m in unsharded) if path]
        what = (
            f"its own parameters and those of {quote_names(rest)}" if rest else "its own parameters"
        )
        if groups.trace.modules[groups.trace.unwrap(root)].qualified_class and not rest:
            what = f"its other parameters, such as those of the {left_out},"
        if rest and len(rest) == len(unsharded):
            what = f"the parameters of {quote_names(rest)}"
        return self.finding(
            last,
            f"parts of {name} are sharded but {name} is not: the gradients of {what} are not "
            f"reduced over the ranks",
            help=f"Apply `{api}` to {name} as well, after its parts and before the optimizer "
            f"is built.",
            because=[(call, "called here")],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.places import after_shards, expression_of, options_text
        from fsdplint.edits.rewrite import Rewrite

        last, call = finding.events[0], finding.events[1]
        if not isinstance(last, Sharded) or not isinstance(call, Called):
            return None
        if not all(_can_shard_root(trace, finding.site) for trace in program.traces):
            return None
        place = after_shards(last)
        if place is None:
            return None
        root = expression_of(program, place, _unsharded_roots(program, finding.site))
        options = options_text(place.source, place.call, without=("reshard_after_forward",))
        if root is None or place.mentions_loop(options):
            return None
        rewrite = Rewrite()
        shard = rewrite.need_import(
            place.source, "torch.distributed.fsdp", "fully_shard", at=place.statement
        )
        rewrite.insert_after(place.source, place.statement, [f"{shard}({root}{options})"])
        return rewrite.fix("Shard the root as well", Safety.UNSAFE)


def _shards_below(groups: Groups, root: str) -> list[Shard]:
    """The shardings of parts of the root, in order; none where the root itself is in one."""
    trace = groups.trace
    sharded = trace.shardings()
    parts = set(trace.submodules(root))
    whole = {root, trace.unwrap(root), *groups.ancestors(root)}
    if any(m in sharded or trace.modules[m].wrapper in ("fsdp1", "ddp") for m in whole):
        return []
    return [event for event in shard_events(trace) if parts & set(sharded_by(event))]


def _unsharded_modules(groups: Groups, root: str) -> list[str]:
    """The modules with trainable parameters of their own that no sharded module takes."""
    modules = groups.trace.modules
    return [
        member
        for member in groups.members(root)
        if modules[member].own_parameters and not modules[member].frozen
    ]


def _only_blocks_are_sharded(groups: Groups, root: str, shards: list[Shard], call: Called) -> bool:
    """Whether a model of Transformers is sharded in its repeated blocks only.

    No block has the parameters of the embedding and of the last norm.
    """
    trace = groups.trace
    if not _is_whole_model(trace, root, call, _TRANSFORMERS):
        return False
    return all(trace.modules[one].block for one in _sharded_modules(trace, shards))


def _only_body_is_sharded(groups: Groups, root: str, shards: list[Shard], call: Called) -> bool:
    """Whether a language model of Transformers is sharded without its head."""
    trace = groups.trace
    if not _is_whole_model(trace, root, call, _WITH_HEAD):
        return False
    paths = {module_path(trace, root, one) for one in _sharded_modules(trace, shards)}
    return bool(paths & {*_BODIES}) and all(path.split(".")[0] in _BODIES for path in paths)


def _is_whole_model(trace: Trace, root: str, call: Called, classes: re.Pattern[str]) -> bool:
    """Whether a model of such a class is trained as a whole, and all is known that shards it."""
    info = trace.modules[trace.unwrap(root)]
    if not classes.fullmatch(info.qualified_class or "") or info.frozen:
        return False
    if any(built.selected_by_name for built in trace.of(OptimizerBuilt)):
        return False
    if not trace.complete or trace.any_escaped(trace.family(root), call):
        return False
    return not shards_unknown_part(trace)


def _sharded_modules(trace: Trace, shards: list[Shard]) -> set[str]:
    return {trace.unwrap(one) for event in shards for one in sharded_by(event)}


def _are_trained(trace: Trace, modules: list[str]) -> bool:
    """Whether an optimizer holds parameters of one of the modules, and gradients are made for it."""
    return any(
        any(True for _ in trace.after(built, BackwardRun, OptimizerStepped))
        and any(m in trace.submodules(held) for held in built.modules for m in modules)
        for built in trace.of(OptimizerBuilt)
    )


def _violations(trace: Trace, site: Site) -> Iterator[Finding]:
    for finding in RootNotSharded().check(trace):
        if finding.site == site:
            yield finding


def _unsharded_roots(program: Program, site: Site) -> set[str]:
    """The modules that are found unsharded at a site, over all traces."""
    return {
        event.module
        for trace in program.traces
        for finding in _violations(trace, site)
        for event in finding.events
        if isinstance(event, Called)
    }


def _can_shard_root(trace: Trace, site: Site) -> bool:
    """Whether the root can be sharded right after its parts: no optimizer and no call before that,
    and no part of it called on its own.
    """
    for finding in _violations(trace, site):
        last, call = finding.events[0], finding.events[1]
        assert isinstance(call, Called)
        parts = set(trace.submodules(call.module))
        early: list[Event] = [
            event
            for event in trace.before(last, OptimizerBuilt, Called)
            if parts & set(_modules_of(event))
        ]
        called_directly = any(
            event.inside is None and event.module in parts and event.module != call.module
            for event in trace.of(Called)
        )
        if early or called_directly:
            return False
    return True


def _modules_of(event: Event) -> tuple[str, ...]:
    if isinstance(event, OptimizerBuilt):
        return event.modules
    return (event.module,) if isinstance(event, Called) else ()
