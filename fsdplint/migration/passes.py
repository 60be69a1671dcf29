"""The passes of a migration, in their order: `PASSES` at the end of this file.

The text of a statement is put together from the new texts of its parts (`context`), so that a pass
which rewrites a part comes before the pass which rewrites what holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.fixes.clipping import CLIP
from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration import checks, symbols
from fsdplint.migration.analysis import ambiguous_imports
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.program import STAR_IMPORT
from fsdplint.migration.blockers.state_dicts import OLD_CHECKPOINT, TYPE_OUTSIDE_BLOCK
from fsdplint.migration.constructor import (
    configs,
    enabled,
    enum_reads,
    mesh_names,
    policy_readers,
    precision_reads,
    strategy,
    unused_policies,
    wrap,
)
from fsdplint.migration.context import Migration, attributes, nodes
from fsdplint.migration.names import FSDP, fsdp1_name
from fsdplint.migration.rewriters import rewriter_of
from fsdplint.migration.state_dicts import (
    helpers,
    kinds,
    optim_state,
    optimizers,
    part_states,
    pretrained,
    set_types,
)
from fsdplint.migration.training import (
    classes,
    clipping,
    gradients,
    loop,
    part_forward,
    summon,
    wrapper,
)
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.layout import descend, statement_of
from fsdplint.syntax.qualified_names import PUBLIC, canonical, dotted

# The modules whose functions register themselves as rewriters.
REWRITERS = (configs, strategy, loop, wrapper)


@dataclass
class PassState:
    """What the passes share: the migration, and what an earlier pass leaves for a later one.

    Attributes:
        blocks: the `enable_wrap` blocks that `collect_enable_wrap` found.
        summons: the blocks of `summon_full_params` that `collect_summons` found.
        types: the calls of `set_state_dict_type`.
        states: the rewriter of the state dicts of each file.
    """

    migration: Migration
    blocks: list[enabled.Enabled] = field(default_factory=list)
    summons: list[summon.Summon] = field(default_factory=list)
    types: set_types.SetTypes = field(init=False)
    states: dict[Source, optim_state.States] = field(init=False)

    def __post_init__(self) -> None:
        self.types = set_types.SetTypes(self.migration)
        sources = self.migration.sources
        self.states = {one: optim_state.States(self.migration, one) for one in sources}
        for states in self.states.values():
            states.others = self.states
            states.types = self.types


def references(migration: Migration) -> Iterator[tuple[Source, cst.CSTNode, str]]:
    """The references to FSDP1 that nothing has accounted for so far."""
    for source in migration.sources:
        for node in nodes(source):
            if node in migration.names and node not in migration.consumed:
                yield source, node, migration.names[node]


def _receives(migration: Migration, func: cst.Attribute) -> bool:
    return bool(migration.wrapped(func.value))  # imported from another file, too


# Names -------------------------------------------------------------------------------------------


def resolve_imports(state: PassState) -> None:
    """Names that `import *` hides, and names that are FSDP1's in some configurations only."""
    for source in state.migration.sources:
        _check_star(state.migration, source)
        ambiguous_imports.settle(state.migration, source)


def _check_star(migration: Migration, source: Source) -> None:
    """A private module of FSDP1 has no list of the names that `import *` gives."""
    for node in source.descend(source.tree):
        if not isinstance(node, cst.ImportFrom) or not isinstance(node.names, cst.ImportStar):
            continue
        module = dotted(node.module) if node.module is not None else None
        if node.relative or module is None or module in PUBLIC:
            continue
        if fsdp1_name(module) is not None:
            reason = STAR_IMPORT(module=module)
            migration.blockers.append(Blocked(source, node, reason))


# Values ------------------------------------------------------------------------------------------


def keep_read_policies(state: PassState) -> None:
    """Policies that code besides the constructor reads: they stay as they are."""
    policy_readers.keep(state.migration)


def rewrite_mesh_names(state: PassState) -> None:
    """The names of a mesh's dimensions."""
    mesh_names.rewrite(state.migration)


def rewrite_enum_reads(state: PassState) -> None:
    """Code that reads a sharding strategy's name or value."""
    enum_reads.rewrite(state.migration)


def rewrite_values(state: PassState) -> None:
    """Enums and config objects, wherever they stand."""
    migration = state.migration
    for source, node, name in references(migration):
        with migration.collecting():
            _rewrite_value(migration, source, node, name)


def _rewrite_value(migration: Migration, source: Source, node: cst.CSTNode, name: str) -> None:
    rewriter = rewriter_of(name)
    if rewriter is None:
        return
    rewriter(migration, source, node, name)
    step = symbols.APIS[name.partition(".")[0]].step
    if step and node in migration.consumed:
        call = source.parent(node)
        at = call if isinstance(call, cst.Call) and call.func is node else node
        migration.step(source, at, step)


def rewrite_precision_reads(state: PassState) -> None:
    """Code that reads the fields of a `MixedPrecision`."""
    migration = state.migration
    for source in migration.sources:
        with migration.collecting():
            precision_reads.rewrite(migration, source, state.migration.precision)


# Blocks and training code ------------------------------------------------------------------------


def collect_enable_wrap(state: PassState) -> None:
    """The blocks of `enable_wrap`: the indentation of what they hold changes."""
    state.blocks = enabled.collect(state.migration)


def collect_summons(state: PassState) -> None:
    """The blocks of `summon_full_params`: the form of each is chosen before its body changes."""
    migration = state.migration
    for source, node in _summons(migration):
        with migration.collecting():
            migration.consumed.add(node)
            state.summons.append(summon.collect(migration, source, node, state.migration.precision))


def _summons(migration: Migration) -> list[tuple[Source, cst.CSTNode]]:
    """The references to `summon_full_params`, through the class or a wrapped model."""
    found = [(s, n) for s, n, name in references(migration) if name == summon.API]
    for source in migration.sources:
        for node in attributes(source):
            if node.attr.value == "summon_full_params" and _receives(migration, node):
                found.append((source, node))
    return found


def rewrite_wrapper_members(state: PassState) -> None:
    """Methods and attributes of FSDP1 modules, but for their states."""
    migration = state.migration
    for source in migration.sources:
        for call in nodes(source):
            if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
                with migration.collecting():
                    _rewrite_method(migration, source, call, call.func)
        for node in reversed(attributes(source)):
            if node not in migration.symbols or migration.wrapped(node.value):
                _rewrite_attribute(migration, source, node)
        for call in nodes(source):
            if isinstance(call, cst.Call) and migration.symbol(call.func) == CLIP:
                with migration.collecting():
                    clipping.complete_norm(migration, source, call)


def _rewrite_method(
    migration: Migration, source: Source, call: cst.Call, func: cst.Attribute
) -> None:
    name = func.attr.value
    if name == "clip_grad_norm_":
        if clipping.clips_own(migration, source, call) or _receives(migration, func):
            clipping.rewrite_clipping(migration, source, call)
    elif name == "no_sync" and _receives(migration, func):
        loop.rewrite_no_sync(migration, source, call)


def _rewrite_attribute(migration: Migration, source: Source, node: cst.Attribute) -> None:
    name = node.attr.value
    if name == wrapper.INNER:
        with migration.collecting():
            wrapper.rewrite_inner(migration, source, node)
        return
    if not migration.wrapped(node.value):
        if name == "forward":
            with migration.collecting():
                part_forward.rewrite(migration, source, node)
        with migration.collecting():
            wrapper.check_private(migration, source, node)
        return
    if migration.tested(node.value) == "sometimes":
        with migration.collecting():
            loop.check_one_of_several(migration, source, node)
    with migration.collecting():
        if name == "module":
            loop.rewrite_inner_module(migration, source, node)
        elif name == "forward":
            loop.rewrite_forward(migration, source, node)
        else:
            loop.check_attribute(migration, source, node)


def write_summons(state: PassState) -> None:
    """The blocks of `summon_full_params`, after what stands in them."""
    for one in state.summons:
        with state.migration.collecting():
            one.write()


def rewrite_gradients(state: PassState) -> None:
    """Gradients that are read, names of parameters, and the class in quoted annotations."""
    for source in state.migration.sources:
        gradients.rewrite(state.migration, source)
        wrapper.check_names(state.migration, source)
        classes.rewrite_quoted(state.migration, source)


# States ------------------------------------------------------------------------------------------


def read_set_types(state: PassState) -> None:
    """`FSDP.set_state_dict_type(...)`: what holds for all states that no block is about."""
    migration = state.migration
    for source, node, name in list(references(migration)):
        call = source.parent(node)
        if name == f"{FSDP}.set_state_dict_type" and isinstance(call, cst.Call):
            with migration.collecting():
                state.types.add(source, call, state.states[source].kind(call)[0])


def rewrite_typed_states(state: PassState) -> None:
    """State dicts in a `state_dict_type` block."""
    migration = state.migration
    typed = [(s, n) for s, n, name in references(migration) if name == f"{FSDP}.state_dict_type"]
    for source, node in typed:
        state.states[source].announce(node)
    for source, node in reversed(typed):  # what is nested before what is around it
        with migration.collecting():
            _rewrite_typed_block(state, source, node)


def _rewrite_typed_block(state: PassState, source: Source, node: cst.CSTNode) -> None:
    call = source.parent(node)
    if not isinstance(call, cst.Call) or call.func is not node:
        raise Blocked(source, node, TYPE_OUTSIDE_BLOCK())
    if helpers.is_helper(source, call):
        helpers.rewrite_helper(state.migration, state.states, source, call)
        return
    state.states[source].block(call)


def rewrite_untyped_states(state: PassState) -> None:
    """State dicts that are taken or loaded outside of a `state_dict_type` block."""
    for source in state.migration.sources:
        states = state.states[source]
        for node in reversed(nodes(source)):  # what is nested before what is around it
            if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
                continue
            if node not in states.done:
                with state.migration.collecting():
                    _rewrite_untyped_state(state, source, node, node.func)


def _rewrite_untyped_state(
    state: PassState, source: Source, call: cst.Call, func: cst.Attribute
) -> None:
    migration, states = state.migration, state.states[source]
    name = migration.fsdp1(func).removeprefix(FSDP + ".")
    attribute = func.attr.value
    if name and name in kinds.OPTIMIZER_METHODS and func not in migration.consumed:
        states.rewrite(call, kinds.DEFAULT)
    elif attribute in ("state_dict", "load_state_dict") and (
        _receives(migration, func) or (state.types.calls and _is_fsdp2(migration, func.value))
    ):
        states.plain(call, kinds.DEFAULT)
    elif attribute in pretrained.METHODS:
        pretrained.rewrite(migration, source, call)
    elif call in part_states.calls(migration):
        states.plain(call, kinds.DEFAULT)
    elif attribute == "state_dict":
        optimizers.rewrite_take(migration, states, call)


def _is_fsdp2(migration: Migration, node: cst.CSTNode) -> bool:
    """Whether a node is a model that `fully_shard` shards, whose type FSDP1 cannot set."""
    values = migration.values(node)
    return bool(values) and all(
        isinstance(value, ModuleValue) and value.sharded and not value.wrapper for value in values
    )


def rewrite_optimizer_loads(state: PassState) -> None:
    """`optimizer.load_state_dict`, after the states that it is given."""
    for source in state.migration.sources:
        states = state.states[source]
        for node in nodes(source):
            if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
                continue
            if node.func.attr.value == "load_state_dict" and node not in states.done:
                with state.migration.collecting():
                    optimizers.rewrite_load(state.migration, states, node)


# The constructor and its class -------------------------------------------------------------------


def rewrite_enable_wrap(state: PassState) -> None:
    """The blocks of `enable_wrap`; what is nested before what is around it."""
    for block in reversed(state.blocks):
        with state.migration.collecting():
            enabled.rewrite(state.migration, block, state.migration.precision)


def rewrite_class(state: PassState) -> None:
    """Calls of the constructor, and the class itself: isinstance, annotations, partials."""
    migration = state.migration
    in_heads = {part for block in state.blocks for part in descend(block.call)}
    for source, node, name in reversed(list(references(migration))):
        if node in in_heads:
            continue
        with migration.collecting():
            if name == f"{FSDP}.fsdp_modules":
                migration.consumed.add(node)
                classes.rewrite_modules(migration, source, node)
            elif name == FSDP:
                _rewrite_class(state, source, node)


def _rewrite_class(state: PassState, source: Source, node: cst.CSTNode) -> None:
    call = source.parent(node)
    if isinstance(call, cst.Call) and call.func is node:
        wrap.rewrite_wrap(state.migration, source, call, state.migration.precision)
    else:
        classes.rewrite_class_reference(state.migration, source, node)


# What remains ------------------------------------------------------------------------------------


def check_program(state: PassState) -> None:
    """What no longer has a use, and what breaks although every use has a rewrite."""
    if not state.migration.blockers:
        ambiguous_imports.check_given(state.migration)
        unused_policies.rewrite(state.migration)
        checks.run(state.migration)


def check_references(state: PassState) -> None:
    """Every reference that nothing has accounted for blocks."""
    migration = state.migration
    cause = bool(migration.blockers)
    for source, node, name in references(migration):
        # What a blocked use would have taken care of is not named a second time.
        if not (cause and symbols.is_carried(name)):
            # `FSDP.forward` that is not called here: it is kept, or another one put in its place.
            member = name.startswith(f"{FSDP}.") and not _is_called(source, node)
            internal = "name" if member or symbols.is_internal(name) else ""
            migration.blockers.append(
                Blocked(source, node, symbols.reason(name), internal=internal)
            )


def _is_called(source: Source, node: cst.CSTNode) -> bool:
    call = source.parent(node)
    return isinstance(call, cst.Call) and call.func is node


def check_old_loads(state: PassState) -> None:
    """`load_sharded_optimizer_state_dict`, which reads the files of FSDP1 only."""
    migration = state.migration
    for source in migration.sources:
        for node in nodes(source):
            if migration.symbol(node) != kinds.OLD_OPTIMIZER_LOAD or node in migration.consumed:
                continue
            reason = OLD_CHECKPOINT()
            migration.blockers.append(Blocked(source, node, reason))


def drop_imports(state: PassState) -> None:
    """The imports of FSDP1."""
    for source in state.migration.sources:
        for item in bindings_of(source).imports():
            if fsdp1_name(canonical(item.full)) is not None:
                state.migration.rewrite.unused(source, item.spelling, anyway=True)


def drop_variables(state: PassState) -> None:
    """Variables for configs of state dicts that nothing reads any longer."""
    migration = state.migration
    for node in migration.states.configs:
        if node in migration.states.option_variables:
            continue
        for source in migration.sources:
            if source.parent(node) is None:
                continue
            statement = statement_of(source, node)
            if isinstance(statement, cst.Assign | cst.AnnAssign) and statement.value is node:
                migration.delete_statement(source, statement)


Pass = Callable[[PassState], None]

PASSES: tuple[Pass, ...] = (
    # Names and values: they are parts of everything else.
    resolve_imports,
    keep_read_policies,
    rewrite_mesh_names,
    rewrite_enum_reads,
    rewrite_values,
    rewrite_precision_reads,
    # Blocks that lose their head, and training code in them.
    collect_enable_wrap,
    collect_summons,
    rewrite_wrapper_members,
    write_summons,
    rewrite_gradients,
    # State dicts of models and optimizers.
    read_set_types,
    rewrite_typed_states,
    rewrite_untyped_states,
    rewrite_optimizer_loads,
    # The constructor, whose arguments the passes above have rewritten.
    rewrite_enable_wrap,
    rewrite_class,
    # Whatever is not accounted for by now blocks.
    check_program,
    check_references,
    check_old_loads,
    drop_imports,
    drop_variables,
)
