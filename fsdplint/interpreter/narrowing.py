"""What a test that holds says about the objects that it names."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.library_classes import SHARDED_CLASSES
from fsdplint.interpreter.modules import as_module, assume_sharding
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Symbol, Unknown
from fsdplint.trace import Sharding


def narrow(run: Run, test: cst.BaseExpression) -> None:
    """A model of unknown origin is sharded where `isinstance(model, FSDP)` holds.

    test: an expression that was evaluated and is true; the operands of its `and` are true, too.
    """
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        narrow(run, test.left)
        narrow(run, test.right)
    elif isinstance(test, cst.Call):
        sharding = _tested_sharding(run, test)
        value = run.evaluations.get(test.args[0].value) if sharding is not None else None
        value = run.settle(value) if value is not None else None
        if sharding is None or not isinstance(value, Unknown):
            return
        if value.part_of is None and not value.varying:
            module = as_module(run, value)
            if module is not None:
                assume_sharding(run, module, sharding)


def _tested_sharding(run: Run, call: cst.Call) -> Sharding | None:
    """The sharding of the models of a class that a call of `isinstance` names; None for others."""
    function = run.evaluations.get(call.func)
    if not isinstance(function, Symbol) or function.name != "builtins.isinstance":
        return None
    kind = run.evaluations.get(call.args[1].value) if len(call.args) == 2 else None
    kind = run.settle(kind) if kind is not None else None
    return SHARDED_CLASSES.get(kind.name) if isinstance(kind, Symbol) else None
