"""Which parameters FSDP1 puts together in its flat parameters."""

from __future__ import annotations

from fsdplint.interpreter.freezing import has_trained_adapters
from fsdplint.interpreter.models.wrap_policies import keeps_rest
from fsdplint.interpreter.module_tree import child_values
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import (
    ModuleValue,
    Sequence,
    Value,
    constant,
    is_none,
)


def _ignores(run: Run, given: dict[str, Value]) -> bool:
    """Whether FSDP1 may leave parameters out of its units."""
    ignored = (run.settle(value) for name, value in given.items() if name.startswith("ignored_"))
    return not all(is_none(value) or _is_empty(value) for value in ignored)


def _is_empty(value: Value) -> bool:
    return isinstance(value, Sequence) and not value.items and not value.open


def mixes_adapters(run: Run, inner: ModuleValue, given: dict[str, Value]) -> bool:
    """Whether a flat parameter certainly has frozen layers together with their adapters."""
    original = given.get("use_orig_params")
    if original is not None and constant(original) is not False:
        return False
    if _ignores(run, given) or inner.wrapper == "fsdp1" or not has_trained_adapters(run, inner):
        return False
    return keeps_rest(run, given)


def mixes_frozen(
    run: Run, inner: ModuleValue, units: list[ModuleValue], given: dict[str, Value]
) -> bool:
    """Whether a flat parameter certainly mixes parameters with and without gradients."""
    original = given.get("use_orig_params")
    if original is not None and constant(original) is not False:
        return False
    if _ignores(run, given) or run.trace.family_escaped(inner.id):
        return False
    unit_ids = {unit.id for unit in units}
    for root in [inner, *units]:
        frozen = trainable = False
        stack = [root] if root.wrapper != "fsdp1" else []
        while stack:
            module = stack.pop()
            info = run.trace.modules[module.id]
            if info.own_parameters:
                frozen = frozen or module.some_frozen
                trainable = trainable or not info.frozen
            below = child_values(run, module)
            stack.extend(m for m in below if m.id not in unit_ids and m.wrapper != "fsdp1")
        if frozen and trainable:
            return True
    return False
