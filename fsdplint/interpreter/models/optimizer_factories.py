"""Functions of libraries that build an optimizer for a model or for groups of parameters."""

from __future__ import annotations

from dataclasses import replace

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.optimizers import build_optimizer
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import Method, ModuleValue, Symbol, Unknown, Value, constant

# The torch class of an optimizer, by its name in timm.
_TIMM = {"adam": "Adam", "adamw": "AdamW", "nadam": "NAdam", "radam": "RAdam", "sgd": "SGD"}


@function("timm.optim.create_optimizer_v2", "timm.optim.optim_factory.create_optimizer_v2")
def timm_optimizer(run: Run, name: str, call: Call) -> Value:
    """`create_optimizer_v2(model, opt="adamw", lr=lr)`, or with groups for the model."""
    given, kind = call.arg(0, "model_or_params"), constant(call.arg(1, "opt"))
    return _built(run, name, call, given, kind)


@function("timm.optim.create_optimizer", "timm.optim.optim_factory.create_optimizer")
def timm_optimizer_of_settings(run: Run, name: str, call: Call) -> Value:
    """`create_optimizer(args, model)`"""
    return _built(run, name, call, call.arg(1, "model"), None)


def _built(run: Run, name: str, call: Call, given: Value | None, kind: object) -> Value:
    parameters = run.settle(given or Unknown())
    if isinstance(parameters, ModuleValue):
        parameters = run.call(Method(parameters, "parameters"), Call(call.node))
    if given is None or isinstance(parameters, Unknown):
        return call_unknown(run, Symbol(name), call)
    made = _TIMM.get(str(kind), "Optimizer")
    return build_optimizer(run, made, replace(call, args=[parameters], kwargs={}), "timm")
