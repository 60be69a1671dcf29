"""Records what this rank holds and sends in each step."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim import optimizer as optimizers

from fsdplint.runtime.recorder.final_state import plain_name
from fsdplint.runtime.recorder.measures import StopTraining
from fsdplint.runtime.recorder.recording import current
from fsdplint.runtime.simulation.accounting import Accounting, memory, size


class Measure:
    """The steps of one run.

    limit: the number of steps after which the program ends.
    """

    def __init__(self, accounting: Accounting, limit: int | None) -> None:
        self.accounting = accounting
        self.limit = limit
        self.steps: Counter[int] = Counter()
        self.models: weakref.WeakSet[Any] = weakref.WeakSet()
        self._gradients = 0
        self._gradient_of: dict[int, int] = {}
        self._depth = 0

    def install(self) -> None:
        """Watch all modules and optimizers of this process."""
        modules = torch.nn.modules.module
        modules.register_module_forward_pre_hook(self._before_forward)
        modules.register_module_forward_hook(self._after_forward, always_call=True)
        optimizers.register_optimizer_step_pre_hook(self._before_step)
        optimizers.register_optimizer_step_post_hook(self._after_step)

    def _before_forward(self, module: Any, args: Any) -> None:
        if self._depth == 0:
            self.models.add(module)
        self._depth += 1

    def _after_forward(self, module: Any, args: Any, output: Any) -> None:
        self._depth -= 1

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._depth = 0  # a forward that raised has not returned
        parameters = list(self._parameters(optimizer))
        self._gradients = memory([p.grad for p in parameters if p.grad is not None])
        self._gradient_of = {id(p): size(p.grad) for p in parameters if p.grad is not None}

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        recording = current()
        self.steps[id(optimizer)] += 1
        accounting = self.accounting
        recording.heartbeat.set_step(max(self.steps.values()))
        recording.recorder.write(
            {
                "t": "account",
                "step": self.steps[id(optimizer)],
                "parameters": memory(list(self._parameters(optimizer))),
                "gradients": self._gradients,
                "optimizer": memory([list(state.values()) for state in optimizer.state.values()]),
                "peak": accounting.peak,
                "held": self._held_bytes(optimizer),
                "calls": dict(sorted(accounting.calls.items())),
                "sent": dict(sorted(accounting.sent.items())),
            }
        )
        accounting.restart()
        if self.limit is not None and max(self.steps.values()) >= self.limit:
            raise StopTraining(0)

    def _held_bytes(self, optimizer: Any) -> dict[str, dict[str, int]]:
        """The bytes that this rank holds of each parameter, of its gradient and of its optimizer
        state, by its name without wrappers.

        Empty if the program calls several models, whose names may be the same.
        """
        models = list(self.models)
        if len(models) != 1:
            return {}
        return {
            plain_name(name): {
                "parameters": size(p),
                "gradients": self._gradient_of.get(id(p), 0),
                "optimizer state": size(list(optimizer.state.get(p, {}).values())),
            }
            for name, p in models[0].named_parameters()
        }

    def _parameters(self, optimizer: Any) -> Iterator[Any]:
        """The parameters of the models and of the optimizer, as they are sharded now."""
        for group in optimizer.param_groups:
            yield from group["params"]
        for model in list(self.models):
            yield from model.parameters()
