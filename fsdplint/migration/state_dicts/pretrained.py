"""`model.save_pretrained(folder)` of Transformers and PEFT, which takes the model's state itself.

FSDP1 gathers the state in this call. With FSDP2's sharded tensors, older releases write a part or
fail. Both libraries accept a state as an argument.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import Bound, Function, ModuleValue
from fsdplint.migration.analysis.quantized_weights import may_quantize
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import TAKES_STATE_ITSELF
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.names import FSDP
from fsdplint.migration.state_dicts import part_states
from fsdplint.migration.state_dicts.calls_without_state import saves_no_model
from fsdplint.migration.state_dicts.kinds import MODULE
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import ancestors

METHODS = ("save_pretrained", "push_to_hub")
TAKE_STATES = {"transformers", "peft", "trl"}
TAKE_NO_STATES = {"diffusers", "huggingface_hub", "open_clip", "timm"}


def rewrite(migration: Migration, source: Source, node: cst.Call) -> None:
    """Pass the full state to a call of `save_pretrained`.

    Raises:
        Blocked: the method may not accept a state.
    """
    assert isinstance(node.func, cst.Attribute)
    model = node.func.value
    if saves_no_model(migration, node) or not _is_wrapped(migration, model):
        return
    if _is_independent(migration, source, node):
        return
    _note_class_name(migration, source, node)
    if _has_state(node):
        return
    if not accepts_state(migration, node):
        raise Blocked(source, node, TAKES_STATE_ITSELF(method=node.func.attr.value))
    options = migration.need(source, MODULE, "StateDictOptions", node)
    hand_over(migration, source, node, f"{options}(full_state_dict=True)")


def _note_class_name(migration: Migration, source: Source, node: cst.Call) -> None:
    """Say that older releases of Transformers write the name that the class has when sharded."""
    assert isinstance(node.func, cst.Attribute)
    models = [one for one in migration.values(node.func.value) if isinstance(one, ModuleValue)]
    if any(_within_wrappers(one).startswith("transformers.") for one in models):
        migration.note(
            "The architecture in config.json gets the prefix FSDP from older releases of Transformers",
            source,
            node,
            detail="`fully_shard` changes the name of the model's class, and `save_pretrained` writes "
            "this name (`FSDPLlamaForCausalLM`). Newer releases leave the prefix out. With an older one, "
            "remove it from `architectures` in the file.",
        )


def _within_wrappers(model: ModuleValue) -> str:
    """The library class of a model within its wrappers; "" if it has none."""
    while model.inner is not None:
        model = model.inner
    return model.library_class or ""


def _has_state(node: cst.Call) -> bool:
    named = {arg.keyword.value for arg in node.args if arg.keyword is not None}
    return "state_dict" in named or len([arg for arg in node.args if arg.keyword is None]) > 2


def accepts_state(migration: Migration, node: cst.Call) -> bool:
    """Whether a call is `model.save_pretrained(folder)` of a library that accepts a state there."""
    if not isinstance(node.func, cst.Attribute) or node.func.attr.value != "save_pretrained":
        return False
    if _has_state(node) or any(arg.star for arg in node.args):
        return False
    return _takes_state(migration, node.func.value)


def hand_over(migration: Migration, source: Source, node: cst.Call, options: str) -> None:
    """Pass the state of a model to its `save_pretrained`, with the options of this text."""
    assert isinstance(node.func, cst.Attribute)
    text = expression(migration, source, node.func.value)
    getter = migration.need(source, MODULE, "get_model_state_dict", node)
    more = f", options={options}" if options else ""
    state = f"state_dict={getter}({text}{more})"
    if migration.wrapping_of(node.func.value) == "sometimes" and may_quantize(migration):
        # The getter does not know the names under which a quantized module saves its scales.
        sharded = migration.need(source, "torch.distributed.fsdp", "FSDPModule", node)
        state += f" if isinstance({text}, {sharded}) else None"
    if "#" in source.code(node):  # comments beside the arguments stay where they are
        last = node.args[-1].value
        migration.substitute(source, last, f"{migration.text(source, last)}, {state}")
    else:
        given = [migration.text(source, arg).rstrip(", \n") for arg in node.args]
        migration.put_call(source, node, migration.text(source, node.func), [*given, state])
    migration.step(source, node, "Hand the whole state to save_pretrained")


def _is_wrapped(migration: Migration, model: cst.BaseExpression) -> bool:
    """Whether a model is wrapped, is part of a wrapped model, or has wrapped parts."""
    holders = part_states.holders(migration)
    if any(isinstance(v, ModuleValue) and v.id in holders for v in migration.values(model)):
        return True
    while isinstance(model, cst.Attribute):
        if migration.wrapping_of(model):
            return True
        model = model.value
    return bool(migration.wrapping_of(model))


def _is_independent(migration: Migration, source: Source, node: cst.Call) -> bool:
    """Whether a call does not take a state of FSDP1.

    It runs the program's own code, or gets a model that FSDP1 does not wrap, or all parameters are
    whole.
    """
    if any(isinstance(value, Function | Bound) for value in migration.values(node.func)):
        return True
    within: cst.CSTNode = node
    for parent in ancestors(source, node):
        if parent in migration.blocks.gathered or parent in migration.blocks.whole_parameters:
            return True
        if isinstance(parent, cst.If) and parent.orelse is within:
            test = parent.test
            if isinstance(test, cst.Call) and source.code(test.func) == "isinstance":
                if any(migration.fsdp1(arg.value) == FSDP for arg in test.args):
                    return True
        within = parent
    return False


def _takes_state(migration: Migration, model: cst.BaseExpression) -> bool:
    """Whether the method of a model's class certainly accepts a state."""
    values = migration.values(model)
    known = {
        (value.library_class or "").partition(".")[0]
        for value in values
        if isinstance(value, ModuleValue)
    } - {""}
    used = known or {
        item.full.partition(".")[0]
        for source in migration.program.sources.values()
        for item in bindings_of(source).imports()
    }
    return bool(used & TAKE_STATES) and not used & TAKE_NO_STATES
