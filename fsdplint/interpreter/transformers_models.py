"""What is known of models of Transformers, whose code is not followed."""

from __future__ import annotations

from fsdplint.interpreter.modules import DELEGATE, as_module
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import ModuleValue, Unknown, Value
from fsdplint.trace import Wrapped


def is_transformers_model(module: ModuleValue) -> bool:
    """Whether a module is a model of Transformers, with or without adapters around it."""
    inner = module.attributes.get(DELEGATE)
    if isinstance(inner, ModuleValue):
        return is_transformers_model(inner)
    return (module.library_class or "").startswith("transformers.")


# Attributes of models of Transformers that are layers with parameters, and in no class methods, and
# those that are models without a head, or encoders.
_LAYERS = frozenset(
    "embed_in embed_out embed_tokens lm_head norm qa_outputs score shared word_embeddings wpe wte"
    .split()
)  # fmt: skip
_MODELS = frozenset(
    "decoder encoder language_model model text_model transformer vision_model vision_tower".split()
)


def part_of_transformers(run: Run, value: Unknown, name: str) -> ModuleValue | None:
    """The module with parameters that a model of Transformers certainly has under a name.

    A migration follows the parts of a model that FSDP1 wraps by its code.
    """
    if name not in _LAYERS | _MODELS or next(run.trace.of(Wrapped), None) is not None:
        return None
    module = layer_of_transformers(run, value)
    if module is not None and name in _LAYERS:
        run.trace.modules[module.id].own_parameters = True
    elif module is not None:
        run.trace.modules[module.id].qualified_class = "transformers.PreTrainedModel"
    return module


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
