"""Differences between two runs that rounding explains because the program itself amplifies it.

A training in which a model reacts to itself (a GAN, an optimizer that divides by small gradients)
makes large differences of small ones. A third run shows how large: it is the program before with
gradients that are changed by as much as rounding in another order does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fsdplint.runtime.launch.records import by_step
from fsdplint.runtime.proof.checkpoints import read_checkpoint
from fsdplint.runtime.proof.checks import Check, Comparison, Side, Tolerance
from fsdplint.runtime.proof.compare import norm, tolerance_of
from fsdplint.runtime.proof.compare_tensors import (
    load_optimizer,
    load_parameters,
    named_groups,
    with_user_paths,
)

NORMS = {"gradients": "gradient norms", "stepped": "gradient norms at the optimizer step"}
VALUES = ("losses", *NORMS.values(), "parameters", "optimizer state")
# How many times the effect of one random noise the effect of another may be.
_FACTOR = 8.0
# The largest effect on a loss, relative to it or to the mean loss, with which runs are comparable.
_LIMIT = 0.01

# The noise, as a share of the rounding error of a gradient: a few units in the last place.
_SHARE = 0.25

# The name of a check, the step (0 for what is compared at the end), and the value in it.
Key = tuple[str, int, str]


@dataclass(frozen=True)
class Explanation:
    """What rounding explains.

    comparison: the comparison without the differences that rounding explains.
    limit: why the runs cannot be compared; empty if they can.
    """

    comparison: Comparison
    limit: str = ""


def noise_of(before: Side) -> float:
    """The noise on gradients that is like rounding in another order, in the types of a program."""
    return _SHARE * tolerance_of(before).rounding


def explain(comparison: Comparison, before: Side, after: Side, noisy: Side) -> Explanation:
    """Replace the checks in a comparison of two runs that fail only because of rounding.

    `noisy` has the results of the program before with noise on its gradients.
    """
    tolerance = tolerance_of(before)
    old, new, other = (_values(side) for side in (before, after, noisy))
    failing = {check.name: check for check in comparison.differences}
    compared = [key for key in old if key[0] in failing]
    if not set(failing) <= {key[0] for key in compared} or not _fits(failing, old, new, other):
        return Explanation(comparison)
    effects: dict[str, float] = {}
    for key in sorted(compared, key=lambda one: one[1] or _LAST):
        effect = max(effects.get(key[0], 0.0), _distance(old[key], other[key]))
        effects[key[0]] = effect
        allowed = _FACTOR * effect if key[1] != 1 else 0.0  # the first step has no history
        if _excess(old[key], new[key], tolerance) > allowed:
            return Explanation(comparison, _limit(old, other, key[1]))
    limit = _limit(old, other)
    if limit:
        return Explanation(comparison, limit)
    checks = [
        replace(check, holds=True, detail=_detail(check, effects[check.name]))
        if check.name in failing
        else check
        for check in comparison.checks
    ]
    return Explanation(Comparison(checks))


_LAST = 1 << 60


def _fits(failing: Mapping[str, Check], old: Mapping[Key, Any], *others: Mapping[Key, Any]) -> bool:
    """Whether the runs have the same values, and differ in floating-point numbers only."""
    names = {key for key in old if key[0] in failing}
    for other in others:
        if names != {key for key in other if key[0] in failing}:
            return False
        if not all(_is_comparable(old[key], other[key]) for key in names):
            return False
    return True


def _is_comparable(one: Any, other: Any) -> bool:
    import torch

    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        return one.is_floating_point() or torch.equal(one, other)
    if isinstance(one, float) and isinstance(other, float):
        return True
    return type(one) is type(other) and bool(one == other)


def _distance(one: Any, other: Any) -> float:
    """The largest difference between two values."""
    return _excess(one, other, Tolerance(0.0, 0.0, ""))


def _excess(one: Any, other: Any, tolerance: Tolerance) -> float:
    """The largest difference beyond the tolerance; infinite if one of two numbers is NaN."""
    import torch

    x, y = (torch.as_tensor(value) for value in (one, other))
    if not x.is_floating_point() or not x.numel():
        return 0.0
    x, y = x.double(), y.double()
    bounds = tolerance.absolute + tolerance.relative * torch.maximum(x.abs(), y.abs())
    beyond = (x - y).abs() - bounds
    beyond[(x == y) | (x.isnan() & y.isnan())] = 0.0
    return max(0.0, float(beyond.nan_to_num(math.inf).max()))


def _limit(old: Mapping[Key, Any], noisy: Mapping[Key, Any], step: int = 0) -> str:
    """Why runs cannot be compared up to a step, or their end: rounding alone has a large effect."""
    losses = [key for key in old if key[0] == "losses" and key[1] <= (step or _LAST)]
    # Losses may be near zero in some steps.
    mean = sum(abs(old[key]) for key in losses) / max(1, len(losses))
    for key in sorted(losses, key=lambda one: one[1]):
        if key not in noisy:
            break
        change = abs(old[key] - noisy[key]) / max(abs(old[key]), mean, 1e-6)
        if change > _LIMIT:
            return (
                f"rounding alone changes the loss of step {key[1]} by {change:.1%}: the program "
                "amplifies it; compare fewer steps (`--steps`)"
            )
    return ""


def _detail(check: Check, effect: float) -> str:
    return (
        f"{check.detail}; rounding explains that: the program itself differs by up to {effect:.3g} "
        "if its gradients are rounded in another way"
    )


def _values(side: Side) -> dict[Key, Any]:
    """All numbers and tensors of a run that are compared."""
    return dict([*_of_steps(side), *_of_end(side)])


def _of_steps(side: Side) -> Iterator[tuple[Key, Any]]:
    for record in side.records:
        for step, line in enumerate(record.measures, 1):
            for number, loss in enumerate(line["losses"]):
                if loss is not None:
                    yield ("losses", step, f"rank {record.rank}, {number}"), float(loss)
    for step, lines in enumerate(by_step(side.records), 1):
        for key, title in NORMS.items():
            yield (title, step, ""), float(norm(lines, key))


def _of_end(side: Side) -> Iterator[tuple[Key, Any]]:
    for name, tensor in (load_parameters(side.parameters) or {}).items():
        yield ("parameters", 0, name), tensor
    for name, state in (load_optimizer(side) or {}).items():
        for key, value in state.items():
            yield ("optimizer state", 0, f"{name}.{key}"), value
    for file, path in side.files.items():
        try:
            state = named_groups(with_user_paths(read_checkpoint(path), side.copies))
        except Exception:  # a check has said so
            continue
        for name, value in state.items():
            local = getattr(value, "_local_tensor", value)
            yield (f"checkpoint {file}", 0, name), local
