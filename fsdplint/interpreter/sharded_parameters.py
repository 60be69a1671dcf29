"""Whether a parameter is a DTensor at one point of a run."""

from __future__ import annotations

import re

from fsdplint.interpreter.ignored_parameters import owners_of_ignored
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.interpreter.transformers_models import is_part_of_transformers
from fsdplint.trace import (
    BackwardRun,
    Called,
    Escaped,
    Event,
    Gathered,
    Prepared,
    Sharded,
    SyncSwitched,
    TensorParallel,
    Trace,
)
from fsdplint.trace.groups import Groups


def must_be_sharded(run: Run, parameter: ParametersOf, *, gradient: bool = False) -> bool:
    """Whether a parameter (or its gradient) is certainly a DTensor here.

    Its module is sharded by `fully_shard`, it is not ignored, and no forward has gathered it since
    the last backward. A copy of a sharded parameter is one, too.
    """
    if parameter.sharded_copy and not gradient:
        return True
    if _is_of_framework(run, parameter):
        return True
    in_sight = not any(run.trace.escaped(module.id) for module in parameter.modules)
    if not in_sight and gradient:
        in_sight = _is_new_gradient(run.trace, parameter)
    return in_sight and appears_sharded(run, parameter, gradient=gradient)


def _is_of_framework(run: Run, parameter: ParametersOf) -> bool:
    """Whether a framework has sharded a model by FSDP2, and a backward has ended its forward."""
    if not parameter.complete or not parameter.modules or run.calling or parameter.unsharded_copy:
        return False
    groups = Groups(run.trace)
    return all(
        module.framework == "fsdp2"
        and not run.trace.escaped(module.id)
        and _is_at_rest(groups, set(run.trace.submodules(module.id)), gradient=False)
        for module in parameter.modules
    )


def _is_new_gradient(trace: Trace, parameter: ParametersOf) -> bool:
    """Whether no code out of sight got the modules of a gradient since a backward pass made it.

    The pass gives each parameter of a sharded module a DTensor, whatever such code did before.
    """
    last = next(reversed(list(trace.of(BackwardRun))), None)
    if last is None or not trace.complete:
        return False
    family = {one for module in parameter.modules for one in trace.family(module.id)}
    return all(one.module not in family for one in trace.after(last, Escaped))


def appears_sharded(run: Run, parameter: ParametersOf, *, gradient: bool = False) -> bool:
    """Whether a parameter (or its gradient) is a DTensor if no code out of sight gathers it.

    Such code does not take the sharding back. This is enough to decide a test of the class of a
    parameter, but not for a finding.
    """
    groups = Groups(run.trace)
    calling = any(_may_gather(groups, run.trace.events[index]) for index in run.calling)
    if not _has_known_owner(run, parameter) or calling or parameter.unsharded_copy:
        return False
    for module in parameter.modules:
        if not groups.hold_all_parameters(module.id):
            return False
        if _may_be_ignored(run, groups, parameter, module.id):
            return False
        family = {*run.trace.submodules(module.id), *groups.ancestors(module.id)}
        if not _is_at_rest(groups, family, gradient):
            return False
    return True


# Code that makes a DTensor of a parameter without a plan.
_DISTRIBUTES = re.compile(r"\b(from_local|distribute_tensor|distribute_module)\(")


def distributes_by_hand(run: Run) -> bool:
    """Whether code of the program may make a DTensor of a parameter without a plan."""
    return any(_DISTRIBUTES.search(source.text) for source in run.project.sources.values())


def is_never_sharded(run: Run, parameter: ParametersOf) -> bool:
    """Whether nothing has made a DTensor of a parameter of modules that the program builds."""
    if not _has_known_owner(run, parameter) or run.assumes_sharding or distributes_by_hand(run):
        return False
    trace, groups = run.trace, Groups(run.trace)
    families = {
        part
        for module in parameter.modules
        for part in (*trace.submodules(module.id), *groups.ancestors(module.id))
    }
    made = {one for event in trace.of(Sharded) for one in (event.module, *event.group)}
    made |= {event.module for event in trace.of(TensorParallel)}
    made |= {one for event in trace.of(Prepared) for one in event.modules}
    if made & families:
        return False
    return not any(
        module.framework
        or module.stands_for_parts
        or module.synthetic_for is not None
        or trace.escaped(module.id)
        for module in parameter.modules
    )


def rests_sharded(run: Run, parameter: ParametersOf) -> bool:
    """Whether a parameter is certainly a DTensor here, also within the forward of another module.

    The call of its own group is over and has sharded it again, or never began.
    """
    if not _has_known_owner(run, parameter) or parameter.unsharded_copy:
        return False
    trace, groups = run.trace, Groups(run.trace)
    for module in parameter.modules:
        owner = groups.owner(module.id)
        if (
            owner is None
            or trace.escaped(owner)
            or _may_be_ignored(run, groups, parameter, module.id)
            or not _rests(run, groups, owner)
        ):
            return False
    return True


def some_rest_sharded(run: Run, parameter: ParametersOf) -> bool:
    """Whether some of all parameters of a module are certainly DTensors here.

    After a forward, those of the root may be gathered, and those of its units are not.
    """
    trace, groups = run.trace, Groups(run.trace)
    if not parameter.complete or parameter.unsharded_copy or len(parameter.modules) != 1:
        return False
    parts = trace.submodules(parameter.modules[0].id)
    owners = {owner for part in parts if (owner := groups.owner(part)) is not None}
    plain = ("ignored_params", "**")
    return any(
        _rests(run, groups, owner)
        and not any(option in one.options for option in plain for one in groups.shards(owner))
        for owner in owners & set(parts)
    )


def _rests(run: Run, groups: Groups, owner: str) -> bool:
    """Whether the last call of a group is over and has sharded its parameters again."""
    trace = run.trace
    if any(event.api.startswith("set_reshard") for event in trace.of(SyncSwitched)):
        return False
    family = set(trace.submodules(owner))
    calling = [trace.events[index] for index in run.calling]
    open_calls = {trace.unwrap(one.module) for one in calling if isinstance(one, Called)}
    if family & open_calls or any(e.module in family for e in trace.of(Gathered)):
        return False
    called = any(groups.enters(event, owner) for event in trace.of(Called))
    return not called or _reshards_after_forward(groups, owner)


def _has_known_owner(run: Run, parameter: ParametersOf) -> bool:
    """Whether a parameter is from a loop over its modules, or an attribute of a layer."""
    if parameter.complete or len(parameter.modules) != 1:
        return parameter.complete and bool(parameter.modules)
    (layer,) = parameter.modules
    of_torch = (layer.library_class or "").startswith("torch.nn.")
    return of_torch or is_part_of_transformers(run, layer)


def are_gathered(run: Run, parameters: ParametersOf) -> bool | None:
    """Whether `unshard()` has gathered parameters; None if it has gathered some of them."""
    trace, groups = run.trace, Groups(run.trace)
    if not any(event.gathered for event in trace.of(Gathered)):
        return False
    gathered: dict[str, bool] = {}
    for event in trace.events:
        if isinstance(event, BackwardRun):
            gathered.clear()
        elif isinstance(event, Gathered):
            gathered[event.module] = event.gathered
    parts = (part for one in parameters.modules for part in (one.id, *trace.submodules(one.id)))
    owners = {owner for part in parts if (owner := groups.owner(part)) is not None}
    found = {gathered.get(owner, False) for owner in owners}
    return None if len(found) > 1 else found == {True}


def _reshards_after_forward(groups: Groups, owner: str) -> bool:
    """Whether each forward of a group certainly shards its parameters again."""
    event = groups.shards(owner)[-1]
    option = event.options.get("reshard_after_forward")
    is_root = not any(groups.trace.sharding(one) for one in groups.ancestors(owner))
    return option is True or (option is None and not is_root and "**" not in event.options)


def _may_be_ignored(run: Run, groups: Groups, parameter: ParametersOf, module: str) -> bool:
    """Whether `fully_shard` may leave out a parameter of a module."""
    family = {*run.trace.submodules(module), *groups.ancestors(module)}
    return any(
        {"ignored_params", "**"} & set(shard.options)
        and family & {shard.module, *shard.group}
        and _may_leave_out(run, shard, parameter, module)
        for shard in run.trace.of(Sharded)
    )


def _may_leave_out(run: Run, shard: Sharded, parameter: ParametersOf, module: str) -> bool:
    given = run.ignored.get(shard.index)
    owners, _ = owners_of_ignored(run, given) if given is not None else ([], False)
    if not owners or "**" in shard.options:
        return True
    ignored = {part for owner in owners for part in run.trace.submodules(owner.id)}
    selected = {one.owner for one in parameter.left_out}
    parts = {part for part in run.trace.submodules(module) if part in ignored}
    return any(run.trace.modules[part].own_parameters is not False for part in parts - selected)


def _may_gather(groups: Groups, event: Event) -> bool:
    """Whether an event is a call that gathers parameters; other methods of a module do not."""
    return isinstance(event, Called) and (event.via == "forward" or groups.gathers(event))


def _is_at_rest(groups: Groups, family: set[str], gradient: bool) -> bool:
    """Whether the last event of the modules left them sharded."""
    if any(e.api == "set_reshard_after_backward" for e in groups.trace.of(SyncSwitched)):
        return False
    for event in reversed(groups.trace.events):
        if isinstance(event, BackwardRun):
            return True
        if isinstance(event, Gathered) and event.module in family:
            return not event.gathered and not gradient
        if isinstance(event, Called) and event.module in family and _may_gather(groups, event):
            return False
        if isinstance(event, Sharded) and {event.module, *event.group} & family:
            return not gradient
    return False
