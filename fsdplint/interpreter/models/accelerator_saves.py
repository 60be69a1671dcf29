"""Files that the methods of Accelerate's Accelerator write."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.branch_conditions import rank_guard
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.checkpoint import emit_saved
from fsdplint.interpreter.models.training_frameworks import ACCELERATORS, methods_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import RankTest
from fsdplint.interpreter.values import Const, Unknown, Value, constant
from fsdplint.trace import Ranks


@methods_of(ACCELERATORS, "save")
def save(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """`accelerator.save(value, path)`: the main process writes the file.

    Accelerate writes with `torch.save`, or with safetensors where `safe_serialization` holds.
    """
    safe = constant(call.arg(3, "safe_serialization") or Const(False))
    each_node = constant(call.arg(2, "save_on_each_node") or Const(False))
    if call.open or safe not in (True, False) or each_node is not False:
        return Const(None)
    assert isinstance(call.node, cst.BaseExpression)
    main = RankTest(Ranks.ONE, Ranks.OTHERS, number=0)
    guards = [] if run.ranks().partial else [(rank_guard(run, call.node, main, True), "")]
    api = "safetensors.torch.save_file" if safe else "torch.save"
    with run.under_guards(guards):
        emit_saved(run, call, api, call.arg(0, "obj") or Unknown(), call.arg(1, "f"),
              collective=False)  # fmt: skip
    return Const(None)
