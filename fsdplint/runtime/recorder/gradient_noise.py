"""Changes gradients by as much as rounding in another order does, before each step of an optimizer.

A run with this noise shows how much the program itself amplifies rounding.
"""

from __future__ import annotations

from typing import Any


def install(size: float) -> None:
    """Add noise to all gradients of this process from now on.

    Args:
        size: the largest noise, as a share of a gradient's value and of the mean size of all
            gradients of the optimizer.
    """
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    steps = 0

    def add_noise(optimizer: Any, args: Any, kwargs: Any) -> None:
        nonlocal steps
        steps += 1
        _add_noise(optimizer, size, steps)

    register_optimizer_step_pre_hook(add_noise)


def _add_noise(optimizer: Any, size: float, seed: int) -> None:
    """Add noise to gradients. It is the same on all ranks for replicas of one gradient."""
    import torch

    given = [p.grad for group in optimizer.param_groups for p in group["params"]]
    gradients = [getattr(one, "_local_tensor", one) for one in given if one is not None]
    gradients = [one for one in gradients if one.is_floating_point() and one.numel()]
    count = sum(one.numel() for one in gradients)
    if not count:
        return
    with torch.no_grad():
        squares = sum(float(one.double().square().sum()) for one in gradients)
        # Replicas may hold other parts beside theirs: the power of two is the same for them.
        typical = 2.0 ** round(torch.tensor(squares / count + 1e-300).double().sqrt().log2().item())
        for number, one in enumerate(gradients):
            generator = torch.Generator().manual_seed(1000 * seed + number)
            noise = torch.rand(one.shape, generator=generator, dtype=torch.float64) * 2 - 1
            scale = one.double().abs() + typical
            one.add_((size * noise.to(one.device) * scale).to(one.dtype))
