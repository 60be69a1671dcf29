"""Checks for code that would break although every use of FSDP1 has a rewrite."""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration import group_state, notes
from fsdplint.migration.analysis import (
    attached_modules,
    external_wrapping,
    kernel_optimizers,
    quantized_weights,
    unfollowed_code,
)
from fsdplint.migration.analysis.variables import (
    definitions,
    is_mentioned,
    outer_function,
    return_values,
)
from fsdplint.migration.blockers import Blocked, Reason
from fsdplint.migration.blockers import constructor as blockers
from fsdplint.migration.blockers.constructor import DEVICE_UNKNOWN, WRAPPED_PARTS
from fsdplint.migration.blockers.program import CODE_NOT_REACHED, MODEL_COPIED
from fsdplint.migration.blockers.state_dicts import INNER_STATE, LOCAL_STATE_ONE_WAY
from fsdplint.migration.blockers.training import PART_FIRST
from fsdplint.migration.constructor import batch_norms, device, moved_models
from fsdplint.migration.context import Migration, attributes
from fsdplint.migration.names import FSDP, PARAMETERS
from fsdplint.migration.state_dicts import part_states
from fsdplint.migration.training import (
    early_optimizers,
    gradients,
    late_optimizers,
    parameters,
    part_forward,
    replaced_data,
    unseen_optimizers,
    unwrapped_parts,
)
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.enclosing import function_around
from fsdplint.trace import (
    Fsdp1Used,
    ModuleCopied,
    Sharding,
    StateLoaded,
    StateTaken,
    Wrapped,
)
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import fsdp1_on_fsdp2
from fsdplint.trace.queries.early_calls import early_calls

# Methods of models that FSDP2 does not have, or that give other states there.
OF_STATES_AND_STEPS = {"state_dict", "load_state_dict", "no_sync", "summon_full_params"}
PROGRAM = re.compile(r"^if\s+__name__\s*==", re.MULTILINE)
CALLERS = "no given file calls `{function}`, so that the uses of its model are not rewritten"
CALLERS_DETAIL = (
    "FSDP2's model has no methods of FSDP1's wrapper, such as `clip_grad_norm_` and `no_sync`, and "
    "gives sharded states where FSDP1 gives whole ones. Look for the callers, and change them too."
)


def run(migration: Migration) -> None:
    """Add a blocker for each problem."""
    calls = external_wrapping.constructors(migration)
    _check_external_wrapping(migration, calls)
    if not calls:
        return
    for check in (
        _check_callers,
        _check_reached,
        _check_optimizers,
        _check_copies,
        _check_inner_states,
        _check_part_states,
        _check_devices,
        _check_first_calls,
        _check_wrapped_parts,
        gradients.check,
        parameters.check,
        replaced_data.check,
        unfollowed_code.check_passed_models,
        unfollowed_code.check_branches,
        unfollowed_code.check_optimizers,
        _check_batch_norm,
        quantized_weights.check,
        kernel_optimizers.check,
        attached_modules.check,
        unwrapped_parts.check,
        _check_local_states,
        group_state.check_tied_weights,
        group_state.check_requires_grad,
    ):
        check(migration, calls)
    notes.add(migration, [x for x in calls if x[1] not in migration.undecided_nodes])


def _block(migration: Migration, source: Source, node: cst.CSTNode, reason: Reason) -> None:
    migration.blockers.append(Blocked(source, node, reason))


def _keeps_model(source: Source, function: cst.FunctionDef | cst.ClassDef, call: cst.Call) -> bool:
    """Whether a function builds and wraps a model, and nothing outside of it gets the model."""
    if not isinstance(function, cst.FunctionDef) or function_around(source, call) is not function:
        return False
    returned = return_values(function)
    parts = list(source.descend(function.body))
    if any(isinstance(part, cst.Yield | cst.Global | cst.Nonlocal) for part in parts):
        return False
    stored = [part.target for part in parts if isinstance(part, cst.AssignTarget)]
    if any(not isinstance(target, cst.Name | cst.Tuple) for target in stored):
        return False
    module = arguments(call, PARAMETERS)[0].get("module")
    root: cst.CSTNode | None = module.value if module is not None else None
    return (
        all(is_constant(value, "None") for value in returned)
        and isinstance(root, cst.Name)
        and bool(definitions(source, root))
    )


def _check_external_wrapping(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Check the other uses if no constructor call is given, unless they concern FSDP2 models or an
    undecided statement names the class."""
    undecided = any(migration.undecided_name(node) == FSDP for node in migration.undecided_nodes)
    if not calls and not undecided and not _of_fsdp2(migration):
        external_wrapping.check(migration)


def _of_fsdp2(migration: Migration) -> bool:
    """Whether FSDP1's API is used on models that `fully_shard` shards, and on no other."""
    paths = {source.path for source in migration.sources}
    uses = [
        fsdp1_on_fsdp2(trace, event)
        for trace in migration.program.traces
        for event in trace.of(Fsdp1Used)
        if event.site.path in paths
    ]
    return bool(uses) and all(uses)


def _check_callers(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Add a note on a function that wraps a model and has no caller here, where these may be unseen.

    They do not matter if nothing outside of the function gets the model. `importing_files` also
    searches for files that import it. A program may find the function by a value.
    """
    called = {
        event.site.node
        for trace in migration.program.traces
        if trace.entry
        for event in trace.of(Wrapped)
        if isinstance(event.site, NodeSite)
    }
    for source, call in calls:
        function = outer_function(source, call)
        if (
            function is None
            or call in called
            or is_mentioned(migration.program.sources.values(), function)
            or PROGRAM.search(source.text)
            or _keeps_model(source, function, call)
        ):
            continue  # in a script, such a function is dead code
        text = CALLERS.format(function=function.name.value)
        migration.note(text, source, call, detail=CALLERS_DETAIL, unsafe=True)


def _check_reached(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Block on a call that no run reaches, if the program uses what FSDP2 has in another form.

    What such code gets is not known: the wrapped model, or one of another branch.
    """
    reached = {
        event.site.node
        for trace in migration.program.traces
        for event in trace.of(Wrapped)
        if isinstance(event.site, NodeSite)
    }
    for source, call in calls:
        function = outer_function(source, call)
        if call in reached or migration.in_other_arm(call) or call in migration.uncalled_nodes:
            continue
        if isinstance(function, cst.FunctionDef) and not is_mentioned(
            migration.program.sources.values(), function
        ):
            continue  # `_check_callers` looks at it
        if _uses_changed(migration):
            _block(migration, source, call, CODE_NOT_REACHED(code=source.code(call.func)))


def _uses_changed(migration: Migration) -> bool:
    """Whether code that may get such a model uses a method that FSDP2 has in another form."""
    for source in migration.program.sources.values():
        for node in attributes(source):
            if node.attr.value in OF_STATES_AND_STEPS:
                values = migration.values(node.value)
                if not values or any(isinstance(value, ModuleValue) for value in values):
                    return True
    return False


def _check_optimizers(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Move an optimizer that is built before the sharding, which only FSDP1 allows, behind it."""
    early_optimizers.move(migration)
    unseen_optimizers.check(migration)
    late_optimizers.reshard(migration)


def _check_copies(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Block on copies of modules, which FSDP2 does not support."""
    for trace in migration.program.traces:
        for event in trace.of(ModuleCopied):
            site = event.site
            if trace.sharded_within(event.module, event) is Sharding.FSDP1:
                if isinstance(site, NodeSite) and not migration.is_blocked(site.node):
                    reason = MODEL_COPIED()
                    _block(migration, site.source, site.node, reason)


def _check_inner_states(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Block on states of the inner module, which in FSDP1 are flat shards without names."""
    for trace in migration.program.traces:
        states: list[StateTaken | StateLoaded] = [*trace.of(StateTaken), *trace.of(StateLoaded)]
        for event in states:
            module = event.of if isinstance(event, StateTaken) else event.into
            inner = any(other.inner == module for other in trace.before(event, Wrapped))
            site = event.site
            if isinstance(site, NodeSite) and site.node in migration.states.typed_calls:
                continue  # a `state_dict_type` block sets the type of this module's state
            if isinstance(site, NodeSite) and site.node in migration.uncalled_nodes:
                continue  # the model is DDP's there
            if inner and isinstance(site, NodeSite) and not migration.is_blocked(site.node):
                reason = INNER_STATE()
                _block(migration, site.source, site.node, reason)


def _check_part_states(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    part_states.check(migration)


def _check_wrapped_parts(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Block on a policy for a module with wrapped parts, which FSDP1 refuses."""
    for trace in migration.program.traces:
        for event in trace.of(Wrapped):
            parts = set(trace.submodules(event.inner)) - {event.module}
            before = trace.before(event, Wrapped)
            inside = any(parts & {one.module, *(one.units or ())} for one in before)
            site = event.site
            if not inside or event.units is None or "auto_wrap_policy" not in event.options:
                continue
            if isinstance(site, NodeSite) and not migration.is_blocked(site.node):
                _block(migration, site.source, site.node, WRAPPED_PARTS())


def _check_first_calls(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Block on a part that runs first: in FSDP2 the first module that is called becomes the root.

    In FSDP1 any use of the model makes it the root, even loading its state.
    """
    for trace in migration.program.traces:
        for early in early_calls(Groups(trace), as_fsdp2=True):
            site = early.call.site
            if not isinstance(site, NodeSite) or migration.is_blocked(site.node):
                continue
            if trace.sharding(early.holder, early.later) is Sharding.FSDP1:
                _block(migration, site.source, site.node, PART_FIRST())
    for source in migration.sources:
        part_forward.check_calls(migration, source)


def _check_devices(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Block if the device is not known: FSDP2 shards on the current one, FSDP1 on the module's."""
    if device.is_set(migration):
        return
    for source, call in calls:
        giving = [call, *migration.blocks.enabling.get(call, ())]
        if any(map(_may_have_device, giving)):
            continue
        if moved_models.device_of_model(migration, source, call) is None:
            _block(migration, source, call, DEVICE_UNKNOWN())


def _may_have_device(call: cst.Call) -> bool:
    """Whether the arguments of a call may have a `device_id`."""
    named, rest = arguments(call, PARAMETERS)
    given = named.get("device_id")
    return bool(rest) or (given is not None and not is_constant(given.value, "None"))


def _check_local_states(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Block on local states that the program only loads, or only takes and reads by itself.

    FSDP2's sharded states replace the others.
    """
    found = migration.states.local_uses
    if len(found) == 1 and ("state_dict" not in found or _reads_shards(migration)):
        ((name, (source, node)),) = found.items()
        other = "loaded" if name == "state_dict" else "saved"
        _block(migration, source, node, LOCAL_STATE_ONE_WAY(missing=other))
    elif len(found) == 1:
        migration.note(
            "a local state (LOCAL_STATE_DICT), which no code here loads, becomes each rank's part "
            "of a sharded state",
            *found["state_dict"],
            detail="A program that loads its files has to load sharded states.",
            unsafe=True,
        )
    elif found:
        migration.note(
            "checkpoints of local states (LOCAL_STATE_DICT) that FSDP1 wrote cannot be loaded"
        )


def _reads_shards(migration: Migration) -> bool:
    """Whether a file reads the shards of ShardedTensors, which DTensors do not have."""
    return any(
        node.attr.value == "local_shards"
        for source in migration.sources
        for node in attributes(source)
    )


def _check_batch_norm(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Block on batch norms in mixed precision, which FSDP1 excludes if it gets a policy."""
    left = [
        one
        for one in calls
        if _may_have_policy(migration, one[1]) and one[1] not in migration.norms_apart
    ]
    if left and batch_norms.are_excluded(migration):
        place = batch_norms.place(migration)
        _block(migration, *left[0], blockers.BATCH_NORM(place=place))


def _may_have_policy(migration: Migration, call: cst.Call) -> bool:
    """Whether a call that wraps a model may have an `auto_wrap_policy`."""
    if migration.called_name(call) != FSDP:
        return True
    named, rest = arguments(call, PARAMETERS)
    policy = named.get("auto_wrap_policy")
    return bool(rest) or (policy is not None and not is_constant(policy.value, "None"))
