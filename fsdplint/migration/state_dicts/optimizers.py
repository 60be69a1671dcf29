"""Plain `optimizer.state_dict()` for an FSDP1 model: in FSDP1, each rank's part of the state.

If every rank, or each rank of a part of them that holds all shards, saves its part in its own file,
FSDP2's sharded state works the same way and the code stays. If the program saves one rank's part as the full state, the full state is gathered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import libcst as cst

from fsdplint.fixes.guarded_statements import GuardedStatement, guarded_statement, may_overtake
from fsdplint.interpreter.values import ModuleValue, OptimizerValue, Value
from fsdplint.migration.analysis.variables import fresh
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import (
    LOADED_BY_ONE_RANK,
    ONE_RANKS_STATE,
    OPTIMIZER_MODEL_UNSEEN,
)
from fsdplint.migration.context import Migration, expression, is_fsdp1
from fsdplint.migration.state_dicts import in_ddp, resharding
from fsdplint.migration.state_dicts.models_of_objects import model_attribute
from fsdplint.migration.state_dicts.optim_state import States
from fsdplint.migration.text import is_repeatable
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import descend, statement_of
from fsdplint.trace import (
    Guard,
    GuardKind,
    OptimizerBuilt,
    Ranks,
    Saved,
    StateLoaded,
    StateTaken,
    Wrapped,
)
from fsdplint.trace.queries.common import side

NOTE = "the optimizer's full state is saved (FSDP1: one rank's part, which can no longer be loaded)"
WAITS = (
    "only some ranks take the optimizer's whole state and wait for the others, as for the model's"
)
PARTS = (
    "files that FSDP1 has written with each rank's part of the optimizer's state can no longer be "
    "loaded"
)


def rewrite_take(migration: Migration, states: States, node: cst.Call) -> None:
    """Gather a state that one rank saves. States that each rank saves in its own file stay.

    Raises:
        Blocked: only one rank takes the state and does not wait for the others now, or no variable of
            the function holds the model.
    """
    modules = set() if node in migration.uncalled_nodes else _modules(migration, node)
    if not modules:
        return
    partial, whole = _saved_as(migration, node)
    if not whole:
        if not partial and _loads_optimizer(migration):
            migration.note(PARTS)
        return
    place = _place(migration, states.source, node) if partial else None
    if partial and place is None:
        if not _waits_now(migration, states.source, node, _events(migration, node)):
            raise Blocked(states.source, node, ONE_RANKS_STATE())
        detail = (
            "Call this code on all ranks: FSDP1 gathers the model's state with all of them, too."
        )
        migration.note(WAITS, states.source, node, detail=detail)
    _put_call(migration, states, node, modules, "get_optimizer_state_dict", [])
    if place is not None:
        _move_out(migration, states.source, node, place)
    migration.note(NOTE, states.source, node)
    migration.states.gathers_optimizer = True


def rewrite_load(migration: Migration, states: States, node: cst.Call) -> None:
    """Load a gathered state if the migration gathers states.

    Raises:
        Blocked: only one rank loads it, or no variable of the function holds the model.
    """
    modules = set() if node in migration.uncalled_nodes else _modules(migration, node)
    if not modules or not migration.states.gathers_optimizer or len(node.args) != 1:
        return
    for trace in migration.program.traces:
        for event in trace.of(StateLoaded):
            if isinstance(event.site, NodeSite) and event.site.node is node:
                if event.ranks.partial:
                    raise Blocked(states.source, node, LOADED_BY_ONE_RANK())
    state = expression(migration, states.source, node.args[0].value)
    _put_call(migration, states, node, modules, "set_optimizer_state_dict", [state])


def _loads_optimizer(migration: Migration) -> bool:
    """Whether the program loads the state of an optimizer."""
    return any(
        event.into in {built.optimizer for built in trace.of(OptimizerBuilt)}
        for trace in migration.program.traces
        for event in trace.of(StateLoaded)
    )


def _events(migration: Migration, node: cst.Call) -> Iterator[StateTaken | StateLoaded]:
    """The events of a call in the traces."""
    for trace in migration.program.traces:
        states: list[StateTaken | StateLoaded] = [*trace.of(StateTaken), *trace.of(StateLoaded)]
        for event in states:
            if isinstance(event.site, NodeSite) and event.site.node is node:
                yield event


def _waits_now(
    migration: Migration, source: Source, node: cst.Call, events: Iterable[StateTaken | StateLoaded]
) -> bool:
    """Whether the ranks that take a state wait for the others already, which never come.

    The same function takes the model's whole state on these ranks only, wherever it takes this one.

    events: those of the call that count.
    """
    function = function_around(source, node)
    own = {id(event) for event in events}
    for trace in migration.program.traces:
        taken = list(trace.of(StateTaken))
        gathers = [
            event
            for event in taken
            if event.collective
            and event.ranks.partial
            and isinstance(event.site, NodeSite)
            and function_around(source, event.site.node) is function
        ]
        for event in taken:
            if id(event) in own and event.ranks.partial:
                if not any(set(one.guards) <= set(event.guards) for one in gathers):
                    return False
    return True


def _place(migration: Migration, source: Source, node: cst.Call) -> GuardedStatement | None:
    """The place of a call under the only test of the rank in its function, if the call can move out
    of it. Where only some ranks call the function, they have to wait for the others already."""
    function = function_around(source, node)
    guards: dict[cst.CSTNode, Guard] = {}
    of_some_calls = []
    for event in _events(migration, node):
        for guard in event.guards:
            if guard.kind is not GuardKind.RANK or not isinstance(guard.site, NodeSite):
                continue
            here = guard.site.source is source
            if here and function in ancestors(source, guard.site.node):
                guards[guard.site.node] = guard
            else:
                of_some_calls.append(event)
    if len(guards) != 1 or not _waits_now(migration, source, node, of_some_calls):
        return None
    place = guarded_statement(source, node, next(iter(guards.values())), migration.program)
    return place if place is not None and may_overtake(source, node, place) else None


def _move_out(
    migration: Migration, source: Source, node: cst.Call, place: GuardedStatement
) -> None:
    """Move a call before the test of the rank, so that all ranks take the state."""
    text = migration.text(source, node)
    statement = statement_of(source, node)
    others = bool(place.before or place.after)
    assigned = isinstance(statement, cst.Assign) and len(statement.targets) == 1
    if isinstance(statement, cst.Assign) and assigned and statement.value is node and others:
        name = source.code(statement.targets[0].target)
        migration.delete_statement(source, statement)
    else:
        name = fresh(source, node, "optimizer_state", "optimizer_state_dict")
        migration.substitute(source, node, name)
    indent, unit = migration.indent(source, node), source.tree.default_indent
    first, *rest = text.split("\n")
    lines = [f"{name} = {first}"]
    for line in rest:
        bare = line.removeprefix(indent)
        depth = (len(bare) - len(bare.lstrip())) // len(unit)
        lines.append("\t" * depth + bare.lstrip())
    migration.rewrite.insert_before(source, place.test, place.lines(lines))


def _modules(migration: Migration, node: cst.Call) -> set[str]:
    """The FSDP1 modules whose parameters, or parts' parameters, the optimizer of a call updates."""
    assert isinstance(node.func, cst.Attribute)
    found: set[str] = set()
    updated: set[str] = set()
    result: set[str] = set()
    for value in migration.values(node.func.value):
        if isinstance(value, OptimizerValue):
            found.update(m.id for m in value.modules if is_fsdp1(m))
            updated.update(m.id for m in value.modules)
    seen = {id(event) for event in _events(migration, node)}
    for trace in migration.program.traces:
        here = [event.guards for event in trace if id(event) in seen]
        if seen and not here:
            continue  # not every run has its trace
        for event in trace.of(Wrapped):
            if event.module in found or updated & set(trace.submodules(event.inner)):
                found.discard(event.module)
                if not here or any(not _exclude(each, event.guards) for each in here):
                    result.add(event.module)
    return found | result


def _exclude(one: tuple[Guard, ...], other: tuple[Guard, ...]) -> bool:
    """Whether one setting of the program excludes that both guards are true."""
    settings = {g.text: g.holds for g in one if g.kind is GuardKind.CONFIG}
    return any(
        g.kind is GuardKind.CONFIG and settings.get(g.text, g.holds) is not g.holds for g in other
    )


def _saved_as(migration: Migration, node: cst.Call) -> tuple[bool, bool]:
    """Whether only some ranks take a state, and whether it is saved as the full state."""
    partial = whole = False
    for trace in migration.program.traces:
        taken = set()
        for event in trace.of(StateTaken):
            if isinstance(event.site, NodeSite) and event.site.node is node:
                taken.add(event.state)
                partial = partial or event.ranks.partial
        for saved in trace.of(Saved):
            if taken & set(saved.states) and (side(saved) is Ranks.ONE or not saved.per_rank):
                whole = True
    return partial, whole


def _put_call(
    migration: Migration,
    states: States,
    node: cst.Call,
    modules: set[str],
    function: str,
    more: list[str],
) -> None:
    source = states.source
    assert isinstance(node.func, cst.Attribute)
    optimizer = expression(migration, source, node.func.value)
    model = _model_of(migration, source, node, modules)
    if model is None:
        raise Blocked(source, node, OPTIMIZER_MODEL_UNSEEN())
    options = ["full_state_dict=True"]
    if not more:
        options.append("cpu_offload=True")
    text = _variable(migration, source, node, options) or states.make_options(options, node)
    resharding.reshard_before(migration, source, node, model)
    given = [expression(migration, source, model), optimizer, *more]
    if in_ddp.may_be_ddp(migration, source, model):
        in_ddp.put_call(migration, source, node, function, [*given, f"options={text}"])
    else:
        states.put_state_call(node, function, given, text)
    migration.step(source, node, "Take and load the optimizer's whole state")


def _variable(
    migration: Migration, source: Source, node: cst.CSTNode, options: list[str]
) -> str | None:
    """The variable that already holds the same options for the model's state, or None."""
    for held, parts in migration.states.option_variables.items():
        if parts != options or source.parent(held) is None:
            continue
        statement = statement_of(source, held)
        if not isinstance(statement, cst.Assign) or statement.value is not held:
            continue
        target = statement.targets[0].target
        same = function_around(source, held) is function_around(source, node)
        if same and isinstance(target, cst.Name) and _always_before(source, statement, node):
            return target.value
    return None


def _always_before(source: Source, statement: cst.CSTNode, node: cst.CSTNode) -> bool:
    """Whether a statement always runs before a node of the same function."""
    line = source.parent(statement)
    block = source.parent(line) if line is not None else None
    before = source.span(statement)[1] <= source.span(node)[0]
    return before and block is not None and block in ancestors(source, node)


def _model_of(
    migration: Migration, source: Source, node: cst.Call, modules: set[str]
) -> cst.BaseExpression | None:
    """The shortest expression in the function whose value is the model of an optimizer, or None.

    In each run, it has to be the model of this run's optimizer: a program may have other strategies.
    """
    assert isinstance(node.func, cst.Attribute)
    optimizer = node.func.value

    def is_model(part: cst.BaseExpression) -> bool | None:
        runs = list(migration.program.evaluations.together(optimizer, part))
        models = [model for _, values in runs for model in values]
        if not models:
            return None
        if not all(_are_models_of(optimizers, values, modules) for optimizers, values in runs):
            return False
        ids = {model.id for model in models if isinstance(model, ModuleValue)}
        return True if ids & wanted else None

    wanted = modules
    parts = [
        part
        for part in descend(function_around(source, node))
        if isinstance(part, cst.Name | cst.Attribute) and is_repeatable(part)
    ]
    found = [part for part in parts if is_model(part)]
    if found:
        return min(found, key=lambda part: _length(source, part))
    attribute = model_attribute(migration, source, optimizer, is_model)
    if attribute is not None:
        return attribute
    wanted = _inside(migration, modules)  # FSDP2 wraps nothing: after the migration it is the model
    found = [part for part in parts if is_model(part)]
    return min(found, key=lambda part: _length(source, part)) if found else None


def _inside(migration: Migration, modules: set[str]) -> set[str]:
    """The modules that FSDP1's modules wrap."""
    return {
        event.inner
        for trace in migration.program.traces
        for event in trace.of(Wrapped)
        if event.module in modules
    }


def _length(source: Source, part: cst.BaseExpression) -> tuple[int, str]:
    text = source.code(part)
    return len(text), text


def _are_models_of(optimizers: Sequence[Value], models: Sequence[Value], modules: set[str]) -> bool:
    """Whether all values are models of optimizers of the same run.

    modules: the ids of FSDP1's modules in all runs.
    """
    updated = {
        id(one)
        for value in optimizers
        if isinstance(value, OptimizerValue)
        for module in value.modules
        for one in _with_inner(module)
    }
    return all(
        isinstance(model, ModuleValue)
        and (
            any(id(one) in updated for one in _with_inner(model))
            or (is_fsdp1(model) and model.id in modules)
        )
        for model in models
    )


def _with_inner(module: ModuleValue | None) -> Iterator[ModuleValue]:
    """A module, and those that it wraps."""
    while module is not None:
        yield module
        module = module.inner
