"""Weights that every rank initializes with its own seed and that are never synchronized."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.trace import (
    BackwardRun,
    Collective,
    Event,
    Loaded,
    MeshBuilt,
    ModuleBuilt,
    ModuleMoved,
    Ranks,
    Seeded,
    Sharded,
    StateLoaded,
    TensorParallel,
    Trace,
    WeightsSet,
    Wrapped,
    first,
)
from fsdplint.trace.queries.data_parallelism import other_parallelism

SENDING = ("broadcast", "all_reduce", "scatter", "reduce")
REPLICATED = ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", "NO_SHARD")


@dataclass(frozen=True)
class OwnWeights:
    """A model whose weights differ between ranks when it is sharded.

    seed: the seed of each rank's own that they were initialised with, or that only one rank set.
    built: where the first module with parameters was built.
    sharded: where the whole was sharded.
    replicated: whether several ranks hold the same shards (HSDP, NO_SHARD); None: not known.
    parallel: the tensor parallelism of other parts of the model, whose ranks hold the same shards
        of the parts that it leaves as they are.
    """

    module: str
    seed: Seeded
    built: ModuleBuilt
    sharded: Sharded | Wrapped
    replicated: bool | None
    parallel: TensorParallel | None = None

    def seeding(self, name: str) -> str:
        """How the ranks initialise the model of this name."""
        if self.seed.ranks.partial:
            return f"every rank initialises `{name}`, but only one of them sets the seed"
        return f"every rank initialises `{name}` with its own seed"


def own_weights(trace: Trace) -> Iterator[OwnWeights]:
    """The sharded models whose weights every rank initialised with a seed of its own, one a
    seed.
    """
    reported: set[int] = set()
    for found in _own_weights(trace):
        if found.seed.index not in reported:
            reported.add(found.seed.index)
            yield found


def _own_weights(trace: Trace) -> Iterator[OwnWeights]:
    seeds = list(trace.of(Seeded))
    parallel = first(trace.of(TensorParallel))
    own = {seed.index for seed in seeds if _differs(seed, seeds)}
    if not own or other_parallelism(trace, _groups(trace)):
        return
    for module, sharded in sharded_roots(trace):
        family = trace.family(module)
        if _out_of_sight(trace, family):
            continue
        builds = [
            event
            for event in trace.before(sharded, ModuleBuilt)
            if event.module in family and trace.modules[event.module].own_parameters is not False
        ]
        if not builds or any(event.on_meta for event in builds):
            continue
        if _brought_together(trace, family, sharded, {event.module for event in builds}):
            continue
        between = [seed for seed in seeds if builds[0].index < seed.index < builds[-1].index]
        before = [seed for seed in seeds if seed.index < builds[0].index]
        if not before or not own.issuperset(seed.index for seed in (before[-1], *between)):
            continue
        if were_equal(trace, family):
            continue
        if parallel is None:
            yield OwnWeights(module, before[-1], builds[0], sharded, _replicates(trace, sharded))
            continue
        whole = _outside_of_groups(trace, builds)
        if whole and before[-1].each_rank and isinstance(sharded, Sharded) and sharded.dims:
            yield OwnWeights(module, before[-1], whole[0], sharded, True, parallel)


def _differs(seed: Seeded, seeds: list[Seeded]) -> bool:
    """Whether the generators of the ranks certainly differ after a seed.

    One rank alone has seeded its generator, or each rank with a number of its own.
    """
    if not seed.ranks.partial:
        return bool(seed.per_rank)
    others = [one for one in seeds if one.ranks.partial and one.ranks is not seed.ranks]
    return seed.ranks is Ranks.ONE and not others


def _groups(trace: Trace) -> set[str]:
    """The dimensions of a mesh along which parts of models compute together."""
    return {name for one in trace.of(TensorParallel) for name in one.dims}


def _outside_of_groups(trace: Trace, builds: list[ModuleBuilt]) -> list[ModuleBuilt]:
    """The modules with parameters that no tensor parallelism distributes.

    Distributing a parameter gives all ranks that of the first one.
    """
    events = list(trace.of(TensorParallel))
    if any(not (one.parts and one.dims and one.whole_mesh) for one in events):
        return []
    split = {part for one in events for part in one.parts}
    whole = [one for one in builds if trace.modules[one.module].own_parameters]
    return [one for one in whole if one.module not in split]


def _out_of_sight(trace: Trace, family: set[str]) -> bool:
    """Whether code that is not followed may have set the weights of some modules.

    A model whose structure is not known is fine if its library initialised it.
    """
    random = {event.module: event.random_weights for event in trace.of(ModuleBuilt)}
    if not trace.complete or trace.any_escaped(family, trace.first_backward):
        return True
    drawn = set(trace.submodules(*(module for module, drawn in random.items() if drawn)))
    return any(
        random.get(member) is False or not (trace.modules[member].children_known or member in drawn)
        for member in family
    )


def sharded_roots(trace: Trace) -> Iterator[tuple[str, Sharded | Wrapped]]:
    """The outermost sharded modules."""
    events = [event for event in trace if isinstance(event, Sharded | Wrapped)]
    modules = {m for event in events for m in _modules(event)}
    seen: set[str] = set()
    for event in events:
        for module in _modules(event):
            if module in seen or modules & set(trace.ancestors(module)):
                continue
            seen.add(module)
            yield module, event


def _modules(event: Sharded | Wrapped) -> tuple[str, ...]:
    group = event.group if isinstance(event, Sharded) else ()
    return group or (event.module,)


def _brought_together(
    trace: Trace, family: set[str], sharded: Sharded | Wrapped, built: set[str]
) -> bool:
    """Whether the weights may be synchronized between ranks, before or after the sharding.

    built: the modules that may have parameters. If single layers got other values, the rest keeps
        its own.
    """
    if may_synchronize(sharded):
        return True
    started, layers = False, set[str]()
    for event in trace:
        started = started or isinstance(event, BackwardRun)
        if replaces_weights(event, family):
            return True
        if isinstance(event, WeightsSet) and not started:
            if not event.modules:
                return True
            layers.update(family & set(event.modules))
            rest = [one for one in built - layers if trace.modules[one].own_parameters]
            if not rest or any(trace.modules[layer].children for layer in layers):
                return True
        if isinstance(event, Collective) and sends_tensors(event) and not started:
            return True
    return False


def may_synchronize(sharded: Sharded | Wrapped) -> bool:
    """Whether FSDP1's constructor may give all ranks the same weights."""
    if not isinstance(sharded, Wrapped):
        return False
    # False is the default of FSDP1; an unknown value may be True.
    sync = sharded.options.get("sync_module_states", False) is not False
    return sync or "**" in sharded.options or "param_init_fn" in sharded.options


def replaces_weights(event: Event, family: set[str]) -> bool:
    """Whether an event loads all weights of some modules, or drops them."""
    if isinstance(event, Loaded):
        return event.api.startswith("torch.distributed.")
    if isinstance(event, ModuleMoved):
        return event.method == "to_empty" and event.module in family
    return isinstance(event, StateLoaded) and event.into in family


def sends_tensors(event: Collective) -> bool:
    """Whether a collective may give all ranks the weights of one, and not only a metric."""
    return not event.of_metric and event.api.rpartition(".")[2] in SENDING


def were_equal(trace: Trace, family: set[str]) -> bool:
    """Whether the recorder saw equal weights on all ranks at the sharding."""
    seen = [
        event.same_weights
        for event in trace
        if isinstance(event, Sharded | Wrapped)
        and family & {*_modules(event)}
        and event.same_weights is not None
    ]
    return bool(seen) and all(seen)


def _replicates(trace: Trace, sharded: Sharded | Wrapped) -> bool | None:
    if isinstance(sharded, Wrapped):
        strategy = str(sharded.options.get("sharding_strategy", "FULL_SHARD")).rpartition(".")[2]
        if strategy in REPLICATED:
            return True
        return False if strategy in ("FULL_SHARD", "SHARD_GRAD_OP") else None
    if sharded.options.get("mesh") is None:
        return False if "**" not in sharded.options else None
    shapes = {len(mesh.shape) for mesh in trace.before(sharded, MeshBuilt)}
    return shapes == {2} if len(shapes) == 1 else None
