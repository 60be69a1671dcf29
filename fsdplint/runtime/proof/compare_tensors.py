"""Compares full parameters, optimizer states and checkpoints of two runs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsdplint.runtime.proof.checkpoints import is_part, read_checkpoint
from fsdplint.runtime.proof.checks import Check, Side, Tolerance

# Settings that change how an optimizer computes, but not its result.
_IMPLEMENTATION_SETTINGS = re.compile(
    r"(^|\.)param_groups\.\d+\.(foreach|fused|capturable|differentiable)$"
)
_GROUP = re.compile(r"(^|\.)param_groups\.\d+\.params$")


def load_parameters(path: Path) -> dict[str, Any] | None:
    """The full parameters and buffers at the end of a run, by name; None if there is no file."""
    import torch

    if not path.exists():
        return None
    tensors: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return tensors


def parameters(
    before: Side, after: Side, tolerance: Tolerance, noise: Mapping[str, Noise]
) -> list[Check]:
    old, new = load_parameters(before.parameters), load_parameters(after.parameters)
    if old is None or new is None:
        which = "before" if old is None else "after"
        return [Check("parameters", False, f"the run {which} wrote no full parameters")]
    missing, extra = sorted(set(old) - set(new)), sorted(set(new) - set(old))
    if missing or extra:
        return [Check("parameters", False, _name_difference(missing, extra))]
    worst, worst_name, noisy_count = 0.0, "", 0
    for name, a in old.items():
        b = new[name]
        if a.shape != b.shape:
            return [
                Check(
                    "parameters",
                    False,
                    f"{without_model_number(name)}: "
                    f"shape {tuple(a.shape)} before, {tuple(b.shape)} after",
                )
            ]
        if a.dtype != b.dtype:
            # The tolerance of bf16 must not hide that a buffer itself became bf16.
            return [
                Check(
                    "parameters",
                    False,
                    f"{without_model_number(name)}: {a.dtype} before, {b.dtype} after",
                )
            ]
        difference, bad, excused = _difference(a, b, tolerance, noise.get(name))
        noisy_count += excused
        if bad:
            return [
                Check("parameters", False, f"{without_model_number(name)}: {bad}", str(tolerance))
            ]
        if difference > worst:
            worst, worst_name = difference, name
    at = f" ({without_model_number(worst_name)})" if worst_name else ""
    return [
        Check(
            "parameters",
            True,
            f"{len(old)} tensors agree in name, shape, dtype and value, "
            f"worst difference {worst:.3g}{at}{_difference_text(noisy_count, noise)}",
            str(tolerance),
        )
    ]


def _difference_text(count: int, noise: Mapping[str, Noise]) -> str:
    """A note on values that differ by more than the tolerance; empty if there are none."""
    if not count:
        return ""
    furthest = max(one.furthest for one in noise.values())
    return (
        f"; {count} values exceed the tolerance, but rounding explains that: the optimizer divides "
        f"by their gradients, which are nearly zero (difference at most {furthest:.3g})"
    )


def without_model_number(name: str) -> str:
    """A parameter's name without the number of its model."""
    head, _, rest = name.partition(":")
    return rest if head.isdigit() else name


def _first_names(names: Sequence[str]) -> str:
    shown = ", ".join(without_model_number(name) for name in names[:3])
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def load_optimizer(side: Side) -> dict[str, dict[str, Any]] | None:
    import torch

    path = side.parameters.with_name("optimizer.pt")
    if not path.exists():
        return None
    states: dict[str, dict[str, Any]] = torch.load(path, map_location="cpu", weights_only=True)
    return states


@dataclass(frozen=True)
class Noise:
    """How far rounding may move the values of a parameter.

    bound: the bound of each value, computed from the size of its gradients at the end.
    furthest: the bound of any value, independent of its gradients.
    share: the fraction of values that may exceed `bound`. An early gradient that is zero except
        for rounding moves its value by a full step, and later gradients do not show it.
    """

    bound: Any
    furthest: float
    share: float


def rounding_noise(side: Side, tolerance: Tolerance) -> dict[str, Noise]:
    """How far rounding alone may move each value if the optimizer divides by gradients.

    Adam and similar optimizers move a value by the learning rate times its gradient divided by the
    average size of its gradients. If a gradient is zero except for rounding (the bias of a key
    projection under softmax), this ratio is arbitrary. The rounding error is a fraction of a
    typical gradient, so the value may move by learning rate * error / size of its own gradient.
    """
    states = load_optimizer(side)
    if not states or not side.records:
        return {}
    import torch

    measures = side.records[0].measures
    # A resumed run starts with the rounding errors of the run before it.
    steps = max(counted_steps(side), len(measures))
    rates = steps * max((rate for line in measures for rate in line["rates"]), default=0.0)
    sizes: dict[str, Any] = {}
    for name, state in states.items():
        square = next(
            (state[key] for key in ("exp_avg_sq", "square_avg", "sum") if key in state), None
        )
        if isinstance(square, torch.Tensor):
            sizes[name] = square.double().sqrt()
    if not sizes:
        return {}
    count = sum(size.numel() for size in sizes.values())
    typical = math.sqrt(sum(float((size**2).sum()) for size in sizes.values()) / max(1, count))
    error = typical * tolerance.rounding
    share = min(0.05, 4 * tolerance.rounding * steps)
    return {
        name: Noise(rates * torch.clamp(error / (size + 1e-30), max=2.0), 2 * rates, share)
        for name, size in sizes.items()
    }


def _difference(
    a: Any, b: Any, tolerance: Tolerance, noise: Noise | None
) -> tuple[float, str, int]:
    """Compare two tensors.

    Returns:
        The largest difference, a description of the failure (or ""), and the number of values
        that agree only because of the noise.
    """
    import torch

    if not a.is_floating_point() or not b.is_floating_point():
        same = torch.equal(a.double(), b.double())
        return (0.0, "", 0) if same else (1.0, "differs", 0)
    x, y = a.double(), b.double()
    distance = (x - y).abs()
    distance[(x == y) | (x.isnan() & y.isnan())] = 0.0  # the difference of two infinities is NaN
    bound = tolerance.absolute + tolerance.relative * torch.maximum(x.abs(), y.abs())
    share, tolerated = 0.0, bound
    if noise is not None and noise.bound.shape == bound.shape:
        beyond = ~(distance <= bound + noise.furthest)
        share = 0.0 if bool(beyond.any()) else noise.share
        bound = bound + noise.bound
    bad = ~(distance <= bound)
    if int(bad.sum()) > share * a.numel():
        index = int(distance.nan_to_num(math.inf).argmax())
        values = f"{x.flatten()[index]:.8g} before, {y.flatten()[index]:.8g} after"
        return 0.0, f"{int(bad.sum())} of {a.numel()} values differ, e.g. {values}", 0
    return float(distance.max()) if distance.numel() else 0.0, "", int((distance > tolerated).sum())


# Optimizer state and checkpoints ------------------------------------------------------------------


def optimizer(
    before: Side, after: Side, tolerance: Tolerance, noise: Mapping[str, Noise]
) -> list[Check]:
    name = "optimizer state"
    old, new = load_optimizer(before), load_optimizer(after)
    if old is None or new is None:
        return [Check(name, None, "could not be gathered in both runs", binding=False)]
    flat = [
        {f"{n}.{key}": value for n, state in states.items() for key, value in state.items()}
        for states in (old, new)
    ]
    if not any(flat):
        return [Check(name, None, "the optimizers have no state", binding=False)]
    return [_compare_states(name, flat[0], flat[1], tolerance, noise)]


def counted_steps(side: Side) -> float:
    """The count of steps in the optimizer's final state; 0 if the state has none."""
    states = load_optimizer(side) or {}
    return max((float(state.get("step", 0)) for state in states.values()), default=0.0)


def checkpoints(
    before: Side, after: Side, tolerance: Tolerance, noise: Mapping[str, Noise]
) -> list[Check]:
    if not before.files and not after.files:
        return []
    names = set(before.files), set(after.files)
    if names[0] != names[1]:
        parts = []
        if names[0] - names[1]:
            parts.append("only before: " + ", ".join(sorted(names[0] - names[1])))
        if names[1] - names[0]:
            parts.append("only after: " + ", ".join(sorted(names[1] - names[0])))
        return [Check("checkpoints", False, "; ".join(parts))]
    checks = []
    for file in sorted(names[0]):
        title = f"checkpoint {file}"
        try:
            old = with_user_paths(read_checkpoint(before.files[file]), before.copies)
        except Exception as error:
            text = f"the one before cannot be read back: {type(error).__name__}: {error}"
            checks.append(Check(title, None, text[:300], binding=False))
            continue
        try:
            new = with_user_paths(read_checkpoint(after.files[file]), after.copies)
        except Exception as error:
            text = f"the one after cannot be read back: {type(error).__name__}: {error}"
            checks.append(Check(title, False, text[:300]))
            continue
        checks.append(_compare_states(title, old, new, tolerance, noise))
    return checks


def with_user_paths(state: dict[str, Any], copies: Mapping[str, str]) -> dict[str, Any]:
    """Replace the paths of copies in a state by those of the user's folder."""
    for name, value in state.items():
        if isinstance(value, str):
            for copy, folder in copies.items():
                value = value.replace(copy, folder)
            state[name] = value
    return state


def _compare_states(
    title: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    tolerance: Tolerance,
    noise: Mapping[str, Noise],
) -> Check:
    """Whether two nested states hold the same names and values."""
    old, new = named_groups(old), named_groups(new)
    missing, extra = sorted(set(old) - set(new)), sorted(set(new) - set(old))
    if missing or extra:
        return Check(title, False, _name_difference(missing, extra))
    by_name = {without_model_number(name): value for name, value in noise.items()}
    count = 0
    for name, a in old.items():
        bad = _value_difference(a, new[name], tolerance, _noise_of(name, by_name))
        if bad:
            return Check(title, False, f"{without_model_number(name)}: {bad}", str(tolerance))
        count += 1
    return Check(title, True, f"{count} values agree", str(tolerance))


def named_groups(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state whose groups list the names of their parameters, if they have any, in sorted order.

    Such a state is loaded by name; the order depends only on the order of sharding. Settings such
    as `foreach` are left out.
    """
    result = {
        key: value for key, value in state.items() if not _IMPLEMENTATION_SETTINGS.search(key)
    }
    lists: dict[str, list[str]] = {}
    for key, value in state.items():
        head, _, index = key.rpartition(".")
        if index.isdigit() and isinstance(value, str) and _GROUP.search(head):
            lists.setdefault(head, []).append(value)
    for head, names in lists.items():
        result.update((f"{head}.{i}", name) for i, name in enumerate(sorted(names)))
    return result


def _name_difference(missing: Sequence[str], extra: Sequence[str]) -> str:
    parts = []
    if missing:
        parts.append(f"only before: {_first_names(missing)}")
    if extra:
        parts.append(f"only after: {_first_names(extra)}")
    return "; ".join(parts)


def _noise_of(name: str, noise: Mapping[str, Noise]) -> Noise | None:
    """The noise of the parameter whose name is the end of a dotted path."""
    parts = without_model_number(name).split(".")
    for start in range(len(parts)):
        found = noise.get(".".join(parts[start:]))
        if found is not None:
            return found
    return None


def _sharding_text(value: Any) -> str:
    """The full shape of a DTensor and its placements."""
    placements = ", ".join(str(one) for one in value.placements)
    return f"{tuple(value.shape)} placed as {placements}"


def _value_difference(a: Any, b: Any, tolerance: Tolerance, noise: Noise | None) -> str:
    """How two values of a state differ; empty if they agree."""
    import torch

    if is_part(a) and is_part(b):
        if (a.shape, a.placements) != (b.shape, b.placements):
            return f"a part of {_sharding_text(a)} before, of {_sharding_text(b)} after"
        a, b = a._local_tensor, b._local_tensor
    elif is_part(a) or is_part(b):
        return f"holds only one rank's part {'before' if is_part(a) else 'after'}"
    elif hasattr(b, "_local_tensor") and not hasattr(a, "_local_tensor"):
        return "a DTensor after, not before"
    a, b = getattr(a, "_local_tensor", a), getattr(b, "_local_tensor", b)
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.shape != b.shape:
            return f"shape {tuple(a.shape)} before, {tuple(b.shape)} after"
        if a.dtype != b.dtype and a.dim() and not torch.equal(a.double(), b.double()):
            return f"{a.dtype} before, {b.dtype} after"
        return _difference(a, b, tolerance, noise)[1]
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        numbers = [
            v.item() if isinstance(v, torch.Tensor) and v.numel() == 1 else v for v in (a, b)
        ]
        a, b = numbers
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return "" if tolerance.holds(float(a), float(b)) else f"{a!r} before, {b!r} after"
    known = (str, int, float, type(None), torch.Tensor)
    if isinstance(a, known) and isinstance(b, known) and (type(a) is not type(b) or a != b):
        return f"{_value(a)} before, {_value(b)} after"
    return ""


def _value(value: Any) -> str:
    """A value of a state for a message."""
    return f"a tensor of {value.numel()} values" if hasattr(value, "numel") else repr(value)
