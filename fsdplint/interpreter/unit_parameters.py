"""Parameters in the units of FSDP1."""

from __future__ import annotations

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.interpreter.values import gathers
from fsdplint.trace import Called, Event, Wrapped
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.wrappers import (
    FREEING,
    is_known_unit,
    outermost,
    part_of_unit,
    strategy,
    uses_original_parameters,
)


def rests_flat(run: Run, parameter: ParametersOf) -> bool:
    """Whether this rank certainly has only its part of a parameter that FSDP1 shards here.

    No call of its unit is open. The outermost unit is left gathered by its forward unless it uses
    the original parameters.
    """
    if not parameter.modules or parameter.unsharded_copy or not run.trace.of(Wrapped):
        return False
    if gathers(run.contexts):
        return False
    return all(_rests(run, module.id) for module in parameter.modules)


def _rests(run: Run, module: str) -> bool:
    trace, groups = run.trace, Groups(run.trace)
    made = list(trace.of(Wrapped))
    if not made or trace.modules[module].escaped:
        return False
    for wrapper in made:
        if wrapper.module == module:  # one of all its parameters
            flat = is_known_unit(wrapper) and strategy(wrapper) in FREEING
            calls = (trace.events[index] for index in run.calling)
            called = any(_is_call_of(one, {module, wrapper.inner}) for one in calls)
            return flat and uses_original_parameters(wrapper) is True and not called
        for root in (*(wrapper.units or ()), wrapper.inner):
            if module not in part_of_unit(groups, wrapper, root):
                continue
            if not is_known_unit(wrapper) or strategy(wrapper) not in FREEING:
                return False
            whole = root == wrapper.inner and wrapper in outermost(trace, made)
            if whole and not uses_original_parameters(wrapper):
                return False
            own = {root, wrapper.module} if root == wrapper.inner else {root}
            return not any(_is_call_of(trace.events[index], own) for index in run.calling)
    return False


def _is_call_of(event: Event, modules: set[str]) -> bool:
    return isinstance(event, Called) and event.module in modules
