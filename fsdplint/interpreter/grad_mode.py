"""The autograd mode under `torch.no_grad`, `torch.inference_mode` and similar contexts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fsdplint.interpreter.neutral_contexts import is_neutral
from fsdplint.interpreter.values import Const, Context, Value
from fsdplint.trace import GradMode

CLASSES = ("no_grad", "inference_mode", "enable_grad", "set_grad_enabled")


def current(contexts: Sequence[Any], default: GradMode | None) -> GradMode | None:
    """The mode inside contexts, outermost first; None if an unknown context may change it.

    Inside inference mode only `inference_mode(False)` enables gradients.
    """
    mode = default
    for context in contexts:
        if not isinstance(context, Context):
            if mode is not GradMode.INFERENCE and not is_neutral(context):
                mode = None
        elif context.kind in CLASSES and (
            mode is not GradMode.INFERENCE or context.kind == "inference_mode"
        ):
            mode = _mode_inside(context, mode)
    return mode


def _mode_inside(context: Context, mode: GradMode | None) -> GradMode | None:
    if context.kind == "enable_grad":
        return GradMode.ON
    if context.kind == "no_grad":
        return GradMode.OFF
    flag = context.details.get("mode")
    value = flag.value if isinstance(flag, Const) else flag
    if not isinstance(value, bool):
        return None
    if context.kind == "set_grad_enabled":
        return GradMode.ON if value else GradMode.OFF
    return GradMode.INFERENCE if value else GradMode.ON


def of_decorator(value: Value | None) -> Context | None:
    """The context that a decorator runs its function in: `@torch.no_grad()`, `@torch.no_grad`."""
    if isinstance(value, Context):
        return value if value.kind in CLASSES else None
    name = getattr(value, "name", None)
    if isinstance(name, str) and name in {f"torch.{kind}" for kind in CLASSES}:
        return Context(name.rpartition(".")[2], details={"mode": Const(True)})
    return None
