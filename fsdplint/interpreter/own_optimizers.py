"""Optimizers of classes of the program: what their constructors pass to the library's one."""

from __future__ import annotations

from dataclasses import replace

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.functions import call_function
from fsdplint.interpreter.optimizers import (
    build_optimizer,
    fill_optimizer,
    new_optimizer,
    owners_of,
)
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Class, Function, Instance, OptimizerValue, Value


def build_own_optimizer(run: Run, klass: Class, call: Call) -> OptimizerValue:
    """Instantiate an optimizer class of the program.

    Most of these classes take the parameters first, as those of torch do. The constructor of any
    other one is executed, and passes the parameters to its library class.
    """
    init = klass.lookup("__init__")
    if not isinstance(init, Function) or owners_of(run, call.arg(0, "params"))[0]:
        return build_optimizer(run, klass.name, call, library="")
    optimizer = new_optimizer(run, klass.name, call)
    instance = Instance(klass, building=optimizer)
    call_function(run, init, instance, call.args, call.kwargs, call.node, call.open)
    if instance.building is not None:
        fill_optimizer(run, optimizer, call)
    instance.building = None
    return optimizer


def fill_own_optimizer(run: Run, instance: Value, call: Call) -> bool:
    """`__init__` of a library class for an optimizer that is being built; whether it was one."""
    if not isinstance(instance, Instance) or instance.building is None:
        return False
    optimizer, instance.building = instance.building, None
    created_at = optimizer.created_at
    assert created_at is not None
    # The event belongs to the call that makes the optimizer, which may be in another file.
    source, run.source = run.source, created_at.source
    fill_optimizer(run, optimizer, replace(call, node=created_at.node))
    run.source = source
    return True
