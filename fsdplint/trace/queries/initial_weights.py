"""Weights that every rank initialised with a seed of its own, and that nothing brought together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Fix, Safety
from fsdplint.trace import (
    BackwardRun,
    Collective,
    Loaded,
    MeshBuilt,
    ModuleBuilt,
    ModuleMoved,
    Seeded,
    Sharded,
    StateLoaded,
    Trace,
    WeightsSet,
    Wrapped,
)

if TYPE_CHECKING:
    import libcst as cst

    from fsdplint.diagnostics.finding import Finding

DATA_DIMS = ("replicate", "shard", "dp", "data", "fsdp", "ddp", "hsdp", "node", "world")
SENDING = ("broadcast", "all_reduce", "scatter", "reduce")
REPLICATED = ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", "NO_SHARD")


@dataclass(frozen=True)
class OwnWeights:
    """A model whose weights differ between ranks when it is sharded.

    seed: the seed of each rank's own that they were initialised with.
    built: where the first module with parameters was built.
    sharded: where the whole was sharded.
    replicated: whether several ranks hold the same shards (HSDP, NO_SHARD); None: not known.
    """

    module: str
    seed: Seeded
    built: ModuleBuilt
    sharded: Sharded | Wrapped
    replicated: bool | None


def own_weights(trace: Trace) -> Iterator[OwnWeights]:
    """The sharded models whose weights every rank initialised with a seed of its own, one a
    seed.
    """
    told: set[int] = set()
    for found in _own_weights(trace):
        if found.seed.index not in told:
            told.add(found.seed.index)
            yield found


def _own_weights(trace: Trace) -> Iterator[OwnWeights]:
    seeds = list(trace.of(Seeded))
    if not any(seed.per_rank for seed in seeds) or _other_parallelism(trace):
        return
    for module, sharded in _roots(trace):
        family = {*trace.submodules(module), *trace.ancestors(module)}
        if trace.family_escaped(module) or _brought_together(trace, family, sharded):
            continue
        builds = [
            event
            for event in trace.before(sharded, ModuleBuilt)
            if event.module in family and trace.modules[event.module].own_parameters is not False
        ]
        if not builds or any(event.on_meta for event in builds):
            continue
        between = [seed for seed in seeds if builds[0].index < seed.index < builds[-1].index]
        before = [seed for seed in seeds if seed.index < builds[0].index]
        if not before or not all(
            seed.per_rank and not seed.ranks.partial for seed in (before[-1], *between)
        ):
            continue
        if _alike(trace, family):
            continue
        yield OwnWeights(module, before[-1], builds[0], sharded, _replicated(trace, sharded))


def _roots(trace: Trace) -> Iterator[tuple[str, Sharded | Wrapped]]:
    """The sharded modules that are part of no other one."""
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


def _brought_together(trace: Trace, family: set[str], sharded: Sharded | Wrapped) -> bool:
    """Whether the ranks' weights may have been made the same, before or after the sharding."""
    if isinstance(sharded, Wrapped):
        # False is FSDP1's default; what can't be read may be True.
        if sharded.options.get("sync_module_states", False) is not False or (
            "**" in sharded.options or "param_init_fn" in sharded.options
        ):
            return True
    started = False
    for event in trace:
        started = started or isinstance(event, BackwardRun)
        if isinstance(event, StateLoaded) and event.into in family:
            return True
        if isinstance(event, WeightsSet) and not started:
            if not event.modules or family & set(event.modules):
                return True
        if isinstance(event, Loaded) and event.api.startswith("torch.distributed."):
            return True
        if isinstance(event, ModuleMoved) and event.method == "to_empty" and event.module in family:
            return True
        if isinstance(event, Collective) and _sends(event) and not started:
            return True
    return False


def _sends(event: Collective) -> bool:
    return event.api.rpartition(".")[2] in SENDING


def _alike(trace: Trace, family: set[str]) -> bool:
    """Whether the ranks' weights were seen to be the same when they were sharded."""
    seen = [
        event.alike
        for event in trace
        if isinstance(event, Sharded | Wrapped)
        and family & {*_modules(event)}
        and event.alike is not None
    ]
    return bool(seen) and all(seen)


def _other_parallelism(trace: Trace) -> bool:
    """Whether ranks may belong together in other ways, such as tensor parallel ones."""
    return any(
        len(mesh.shape) > 2
        or not all(
            any(name.lower().startswith(known) for known in DATA_DIMS) for name in mesh.dim_names
        )
        for mesh in trace.of(MeshBuilt)
    )


def _replicated(trace: Trace, sharded: Sharded | Wrapped) -> bool | None:
    if isinstance(sharded, Wrapped):
        strategy = str(sharded.options.get("sharding_strategy", "FULL_SHARD")).rpartition(".")[2]
        if strategy in REPLICATED:
            return True
        return False if strategy in ("FULL_SHARD", "SHARD_GRAD_OP") else None
    if sharded.options.get("mesh") is None:
        return False if "**" not in sharded.options else None
    shapes = {len(mesh.shape) for mesh in trace.before(sharded, MeshBuilt)}
    return shapes == {2} if len(shapes) == 1 else None


def seed_after_sharding(finding: Finding) -> Fix | None:
    """Seed all ranks alike where the model is built, and each on its own once it is sharded."""
    import libcst as cst

    from fsdplint.edits.places import meeting
    from fsdplint.edits.rewrite import Rewrite
    from fsdplint.fixes.syntax import call_at
    from fsdplint.syntax.dotted import path_of

    seed, sharded = finding.events[0], finding.events[-1]
    found, place = call_at(finding.site), meeting(seed, sharded)
    if found is None or place is None or seed.guards != sharded.guards[: len(seed.guards)]:
        return None
    source, call = found
    args, statement = call.args, place.first
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    small = statement.body[0]
    if not isinstance(small, cst.Expr) or small.value is not call or len(args) != 1:
        return None
    value = args[0].value
    if args[0].star or not isinstance(value, cst.BinaryOperation):
        return None
    if not isinstance(value.operator, cst.Add):
        return None
    sides = [side for side in (value.left, value.right) if not _is_rank(path_of(_callee(side)))]
    if len(sides) != 1 or not isinstance(sides[0], cst.Name | cst.Attribute | cst.Integer):
        return None
    rewrite = Rewrite()
    text = source.code(call)
    rewrite.replace(source, value, source.code(sides[0]))
    rewrite.insert_after(source, place.second, [text])
    return rewrite.fix("Seed all ranks alike until the model is sharded", Safety.UNSAFE)


def _callee(node: cst.BaseExpression) -> cst.BaseExpression:
    import libcst as cst

    return node.func if isinstance(node, cst.Call) and not node.args else node


def _is_rank(path: str) -> bool:
    from fsdplint.interpreter.ranks import RANK_NAMES

    last = path.rpartition(".")[2]
    return last in RANK_NAMES or last == "get_rank"
