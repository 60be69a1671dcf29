"""Contexts of torch: autograd modes, the meta device, and contexts without an effect here."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter import grad_mode as gradmode
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import (
    Const,
    Context,
    Value,
)


@function("accelerate.init_empty_weights", "torch.nn.utils.init.skip_init")
def empty_weights(run: Run, name: str, call: Call) -> Value:
    return Context("meta_device")


@function("torch.no_grad", "torch.inference_mode", "torch.enable_grad", "torch.set_grad_enabled")
def grad_mode(run: Run, name: str, call: Call) -> Value:
    """As a context or decorator it holds for a block, else from here on."""
    kind = name.rpartition(".")[2]
    mode = call.arg(0, "mode")
    if mode is None and not call.open and kind == "inference_mode":
        mode = Const(True)
    context = Context(kind, details={"mode": mode} if mode is not None else {})
    parent = run.source.parent(call.node)
    if kind == "set_grad_enabled" and isinstance(parent, cst.Expr):
        run.grad_default = gradmode.current([context], run.grad_default)
    return context


@function("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast",
          "torch.backends.cuda.sdp_kernel", "torch.profiler.profile",
          "torch.nn.attention.sdpa_kernel",
          "torch.distributed.tensor.parallel.loss_parallel")  # fmt: skip
def harmless_context(run: Run, name: str, call: Call) -> Value:
    return Context("harmless")
