"""What is known of models of Transformers, whose code is not followed."""

from __future__ import annotations

from fsdplint.interpreter.modules import DELEGATE, as_module
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import ModuleValue, Unknown, Value


def is_transformers_model(module: ModuleValue) -> bool:
    """Whether a module is a model of Transformers, with or without adapters around it."""
    inner = module.attributes.get(DELEGATE)
    if isinstance(inner, ModuleValue):
        return is_transformers_model(inner)
    return (module.library_class or "").startswith("transformers.")


def layer_of_transformers(run: Run, value: Value) -> ModuleValue | None:
    """The layer that a part of a model of Transformers is, whose `weight` the program reads."""
    if not isinstance(value, Unknown) or value.part_of is None:
        return None
    model = value.part_of
    known = is_transformers_model(model) or is_part_of_transformers(run, model)
    return as_module(run, value) if known else None


def is_part_of_transformers(run: Run, module: ModuleValue) -> bool:
    """Whether a module of an unknown class is a part of a model of Transformers.

    Its attribute `weight` is the parameter of a layer.
    """
    if module.cls is not None or module.library_class is not None or module.wrapper:
        return False
    above = map(run.objects.get, run.trace.ancestors(module.id))
    return any(isinstance(one, ModuleValue) and is_transformers_model(one) for one in above)
