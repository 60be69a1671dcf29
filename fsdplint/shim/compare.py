"""Comparing two runs of a program: do they train alike?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsdplint.shim.records import Line, RankRecord
from fsdplint.trace import Sharded, Trace, Wrapped


@dataclass(frozen=True)
class Tolerance:
    """How far two numbers may be apart: |a - b| <= absolute + relative * max(|a|, |b|)."""

    relative: float
    absolute: float
    why: str

    def holds(self, a: float, b: float) -> bool:
        if math.isnan(a) and math.isnan(b) or a == b:
            return True
        return abs(a - b) <= self.absolute + self.relative * max(abs(a), abs(b))

    def __str__(self) -> str:
        return f"{self.relative:g} relative + {self.absolute:g} absolute ({self.why})"


# FSDP2 adds the same numbers as FSDP1, in another order in places: some units in the last place a
# step. Optimizers that divide by a gradient's own size (Adam) make more of it where it is near zero.
FLOAT32 = Tolerance(1e-5, 1e-5, "float32: rounding in another order")
FLOAT64 = Tolerance(1e-9, 1e-9, "float64: rounding in another order")
FLOAT16 = Tolerance(2e-3, 5e-4, "float16: 11 bits of precision")
BFLOAT16 = Tolerance(8e-3, 1e-3, "bfloat16: 8 bits of precision")


@dataclass
class Check:
    """One thing that was compared.

    holds: None where it could not be compared.
    binding: whether the verdict hangs on it; else it is only told.
    """

    name: str
    holds: bool | None
    detail: str
    tolerance: str = ""
    binding: bool = True
    values: dict[str, Any] = field(default_factory=dict)


@dataclass
class Comparison:
    """All that was compared of two runs."""

    checks: list[Check]

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks if check.binding)

    @property
    def failed(self) -> list[Check]:
        return [check for check in self.checks if check.binding and not check.holds]


@dataclass
class Side:
    """What one run left to compare.

    parameters: the file of the full parameters; `optimizer.pt` lies next to it.
    files: the checkpoints that it wrote, by their names.
    """

    records: Sequence[RankRecord]
    trace: Trace
    parameters: Path
    files: Mapping[str, Path] = field(default_factory=dict)


def compare(before: Side, after: Side, *, same_units: bool) -> Comparison:
    """Compare two runs.

    same_units: whether the same modules must be sharded in both, as in a migration.
    """
    tolerance = tolerance_of([before, after])
    checks = [_steps(before, after)]
    checks += _losses(before, after, tolerance)
    checks += _norms(before, after, tolerance)
    checks.append(_rates(before, after))
    noise = _noise(before, tolerance)
    checks += _parameters(before, after, tolerance, noise)
    checks += _optimizer(before, after, tolerance, noise)
    checks += _checkpoints(before, after, tolerance, noise)
    checks += _units(before, after, same_units)
    checks.append(_reductions(before, after, same_units))
    checks.append(_collectives(before, after))
    return Comparison(checks)


def tolerance_of(sides: Iterable[Side]) -> Tolerance:
    """By the least precise type that any part of the training is computed in."""
    words: set[str] = set()
    for side in sides:
        for event in side.trace.of(Wrapped, Sharded):
            words.update(str(value) for value in event.options.values())
        for record in side.records:
            for line in record.measures:
                words.update(line.get("dtypes", ()))
    text = " ".join(words)
    for name, tolerance in (("bfloat16", BFLOAT16), ("float16", FLOAT16), ("float32", FLOAT32)):
        if f"torch.{name}" in text:
            return tolerance
    return FLOAT64 if "torch.float64" in text else FLOAT32


# Steps ----------------------------------------------------------------------------------------------


def _by_step(side: Side) -> list[list[Line]]:
    """The measures of every step: one line a rank."""
    count = max((len(record.measures) for record in side.records), default=0)
    return [
        [record.measures[step] for record in side.records if step < len(record.measures)]
        for step in range(count)
    ]


def _steps(before: Side, after: Side) -> Check:
    counts = [[len(record.measures) for record in side.records] for side in (before, after)]
    if not any(counts[0]) and not any(counts[1]):
        return Check("steps", False, "no optimizer step was made: nothing was trained")
    if counts[0] != counts[1]:
        return Check("steps", False, f"optimizer steps per rank: {counts[0]} before, {counts[1]} after")
    untrained = [
        f"step {line['step']}: 0 of {line['parameters']} parameters updated"
        for lines in _by_step(after)
        for line in lines[:1]
        if line["updated"] == 0 and line["parameters"]
    ]
    trained = any(line["updated"] for lines in _by_step(before) for line in lines)
    if untrained and trained:
        return Check("steps", False, f"after: {untrained[0]}")
    return Check("steps", True, f"{max(counts[0])} optimizer steps on each of {len(counts[0])} ranks")


def _losses(before: Side, after: Side, tolerance: Tolerance) -> list[Check]:
    worst, count = 0.0, 0
    for one, other in zip(before.records, after.records, strict=False):
        for a, b in zip(one.measures, other.measures, strict=False):
            if len(a["losses"]) != len(b["losses"]):
                return [
                    Check(
                        "losses",
                        False,
                        f"step {a['step']}, rank {one.rank}: backward was run "
                        f"{len(a['losses'])} times before, {len(b['losses'])} times after",
                    )
                ]
            for x, y in zip(a["losses"], b["losses"], strict=True):
                if x is None or y is None:
                    continue
                count += 1
                worst = max(worst, abs(x - y))
                if not tolerance.holds(x, y):
                    return [
                        Check(
                            "losses",
                            False,
                            f"step {a['step']}, rank {one.rank}: {x:.8g} before, {y:.8g} after",
                            str(tolerance),
                        )
                    ]
    if count == 0:
        return [Check("losses", None, "no loss was seen", binding=False)]
    return [
        Check("losses", True, f"{count} values agree, worst difference {worst:.3g}", str(tolerance))
    ]


def norm(lines: Sequence[Line], key: str) -> float:
    """The norm of the whole gradient, from the parts of all ranks."""
    sharded = sum(line[key].get("sharded", 0.0) for line in lines)
    whole = sum(line[key].get("whole", 0.0) for line in lines) / max(1, len(lines))
    return math.sqrt(sharded + whole)


def _norms(before: Side, after: Side, tolerance: Tolerance) -> list[Check]:
    checks = []
    titles = {"gradients": "gradient norms", "stepped": "gradient norms at the optimizer step"}
    # A norm is a sum of many rounded squares: it is allowed a little more than one number.
    wide = Tolerance(tolerance.relative * 4, tolerance.absolute, tolerance.why)
    for key, title in titles.items():
        worst, detail = 0.0, ""
        pairs = list(zip(_by_step(before), _by_step(after), strict=False))
        for step, (a, b) in enumerate(pairs, 1):
            x, y = norm(a, key), norm(b, key)
            worst = max(worst, abs(x - y))
            if not wide.holds(x, y):
                detail = f"step {step}: {x:.8g} before, {y:.8g} after"
                break
        holds = not detail
        if holds:
            detail = f"{len(pairs)} values agree, worst difference {worst:.3g}"
        checks.append(Check(title, holds, detail, str(wide)))
    return checks


def _rates(before: Side, after: Side) -> Check:
    name = "parameter groups"
    for step, (a, b) in enumerate(zip(_by_step(before), _by_step(after), strict=False), 1):
        if a[0]["rates"] != b[0]["rates"]:
            detail = f"learning rates {a[0]['rates']} before, {b[0]['rates']} after"
            return Check(name, False, f"step {step}: {detail} (one a group)")
        for one, other in zip(a[0]["settings"], b[0]["settings"], strict=False):
            for key in sorted({*one, *other}):
                if one.get(key) != other.get(key):
                    detail = f"{key} {one.get(key)} before, {other.get(key)} after"
                    return Check(name, False, f"step {step}: {detail}")
    return Check(name, True, "learning rates and other settings are equal in every step")


# Parameters -------------------------------------------------------------------------------------------


def load_parameters(path: Path) -> dict[str, Any] | None:
    """The full parameters and buffers at the end of a run, by name; None where there are none."""
    import torch

    if not path.exists():
        return None
    tensors: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return tensors


def _parameters(
    before: Side, after: Side, tolerance: Tolerance, noise: Mapping[str, Any]
) -> list[Check]:
    ours, theirs = load_parameters(before.parameters), load_parameters(after.parameters)
    if ours is None or theirs is None:
        which = "before" if ours is None else "after"
        return [Check("parameters", False, f"the run {which} left no full parameters")]
    missing, extra = sorted(set(ours) - set(theirs)), sorted(set(theirs) - set(ours))
    if missing or extra:
        return [Check("parameters", False, _names_apart(missing, extra))]
    worst, worst_name = 0.0, ""
    for name, a in ours.items():
        b = theirs[name]
        if a.shape != b.shape:
            return [
                Check("parameters", False, f"{_plain(name)}: shape {tuple(a.shape)} before, "
                                           f"{tuple(b.shape)} after")
            ]
        difference, bad = _difference(a, b, tolerance, noise.get(name))
        if bad:
            return [Check("parameters", False, f"{_plain(name)}: {bad}", str(tolerance))]
        if difference > worst:
            worst, worst_name = difference, name
    at = f" ({_plain(worst_name)})" if worst_name else ""
    return [
        Check(
            "parameters",
            True,
            f"{len(ours)} tensors agree in name, shape and value, worst difference {worst:.3g}{at}",
            str(tolerance),
        )
    ]


def _plain(name: str) -> str:
    """A name without the number of its model."""
    head, _, rest = name.partition(":")
    return rest if head.isdigit() else name


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(_plain(name) for name in names[:3])
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _load_optimizer(side: Side) -> dict[str, dict[str, Any]] | None:
    import torch

    path = side.parameters.with_name("optimizer.pt")
    if not path.exists():
        return None
    states: dict[str, dict[str, Any]] = torch.load(path, map_location="cpu", weights_only=True)
    return states


def _noise(side: Side, tolerance: Tolerance) -> dict[str, Any]:
    """How far rounding alone may move each value through an optimizer that divides by gradients.

    Adam and its kin move a value by the learning rate times its gradient over the size that its
    gradients had. Where a gradient is zero but for rounding (the bias of a key projection under
    softmax), that ratio is arbitrary. Rounding makes an error of about the tolerance's relative
    part of a typical gradient; so the value may move by learning rate * error / own gradient size.
    """
    states = _load_optimizer(side)
    if not states or not side.records:
        return {}
    import torch

    rates = sum(max(line["rates"], default=0.0) for line in side.records[0].measures)
    sizes: dict[str, Any] = {}
    for name, state in states.items():
        square = next(
            (state[key] for key in ("exp_avg_sq", "square_avg", "sum") if key in state), None
        )
        if hasattr(square, "sqrt"):
            sizes[name] = square.double().sqrt()
    if not sizes:
        return {}
    count = sum(size.numel() for size in sizes.values())
    typical = math.sqrt(sum(float((size**2).sum()) for size in sizes.values()) / max(1, count))
    error = typical * tolerance.relative * 0.1
    return {
        name: rates * torch.clamp(error / (size + 1e-30), max=2.0) for name, size in sizes.items()
    }


def _difference(a: Any, b: Any, tolerance: Tolerance, noise: Any) -> tuple[float, str]:
    import torch

    if not a.is_floating_point() or not b.is_floating_point():
        return (0.0, "") if torch.equal(a.double(), b.double()) else (1.0, "differs")
    x, y = a.double(), b.double()
    apart = (x - y).abs()
    apart[x.isnan() & y.isnan()] = 0.0
    allowed = tolerance.absolute + tolerance.relative * torch.maximum(x.abs(), y.abs())
    if noise is not None and noise.shape == allowed.shape:
        allowed = allowed + noise
    bad = ~(apart <= allowed)
    if bool(bad.any()):
        index = int(apart.nan_to_num(math.inf).argmax())
        return 0.0, (
            f"{int(bad.sum())} of {a.numel()} values differ, e.g. {x.flatten()[index]:.8g} before, "
            f"{y.flatten()[index]:.8g} after"
        )
    return float(apart.max()) if apart.numel() else 0.0, ""


# Optimizer state and checkpoints ---------------------------------------------------------------------


def _optimizer(
    before: Side, after: Side, tolerance: Tolerance, noise: Mapping[str, Any]
) -> list[Check]:
    name = "optimizer state"
    ours, theirs = _load_optimizer(before), _load_optimizer(after)
    if ours is None or theirs is None:
        return [Check(name, None, "could not be gathered in both runs", binding=False)]
    flat = [
        {f"{n}.{key}": value for n, state in states.items() for key, value in state.items()}
        for states in (ours, theirs)
    ]
    return [_same(name, flat[0], flat[1], tolerance, noise)]


def _checkpoints(
    before: Side, after: Side, tolerance: Tolerance, noise: Mapping[str, Any]
) -> list[Check]:
    from fsdplint.shim.checkpoints import read

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
            ours = read(before.files[file])
        except Exception as error:
            text = f"the one before cannot be read back: {type(error).__name__}: {error}"
            checks.append(Check(title, None, text[:300], binding=False))
            continue
        try:
            theirs = read(after.files[file])
        except Exception as error:
            text = f"the one after cannot be read back: {type(error).__name__}: {error}"
            checks.append(Check(title, False, text[:300]))
            continue
        checks.append(_same(title, ours, theirs, tolerance, noise))
    return checks


def _same(
    title: str,
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    tolerance: Tolerance,
    noise: Mapping[str, Any],
) -> Check:
    """Whether two nested states hold the same names and values."""
    missing, extra = sorted(set(ours) - set(theirs)), sorted(set(theirs) - set(ours))
    if missing or extra:
        return Check(title, False, _names_apart(missing, extra))
    by_name = {_plain(name): value for name, value in noise.items()}
    count = 0
    for name, a in ours.items():
        bad = _values_apart(a, theirs[name], tolerance, _noise_of(name, by_name))
        if bad:
            return Check(title, False, f"{_plain(name)}: {bad}", str(tolerance))
        count += 1
    return Check(title, True, f"{count} values agree", str(tolerance))


def _names_apart(missing: Sequence[str], extra: Sequence[str]) -> str:
    parts = []
    if missing:
        parts.append(f"only before: {_few(missing)}")
    if extra:
        parts.append(f"only after: {_few(extra)}")
    return "; ".join(parts)


def _noise_of(name: str, noise: Mapping[str, Any]) -> Any:
    """The noise of the parameter whose name a dotted path ends with."""
    parts = _plain(name).split(".")
    for start in range(len(parts)):
        found = noise.get(".".join(parts[start:]))
        if found is not None:
            return found
    return None


def _values_apart(a: Any, b: Any, tolerance: Tolerance, noise: Any) -> str:
    """How two values of a state differ; empty where they agree."""
    import torch

    for value, which in ((a, "before"), (b, "after")):
        if hasattr(value, "_local_tensor"):
            return f"holds only one rank's part {which}"
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.shape != b.shape:
            return f"shape {tuple(a.shape)} before, {tuple(b.shape)} after"
        return _difference(a, b, tolerance, noise)[1]
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        plain = [v.item() if isinstance(v, torch.Tensor) and v.numel() == 1 else v for v in (a, b)]
        a, b = plain
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return "" if tolerance.holds(float(a), float(b)) else f"{a!r} before, {b!r} after"
    if isinstance(a, (str, bool, type(None))) and a != b:
        return f"{a!r} before, {b!r} after"
    return ""


# Sharding and communication ------------------------------------------------------------------------


def units(trace: Trace) -> set[str]:
    """The modules that are sharded themselves, by their plain names in the model; "" is a root."""
    names: dict[str, str] = {}
    below = {child for module in trace.modules.values() for child in module.children.values()}
    below |= {module.inner for module in trace.modules.values() if module.inner}
    todo = [(name, "") for name in trace.modules if name not in below]
    while todo:
        module, path = todo.pop()
        if module in names or module not in trace.modules:
            continue
        names[module] = path
        info = trace.modules[module]
        if info.inner is not None:
            todo.append((info.inner, path))
        for key, child in info.children.items():
            todo.append((child, f"{path}.{key}" if path else key))
    return {names.get(module, module) for module in trace.shardings()}


def _units(before: Side, after: Side, binding: bool) -> list[Check]:
    ours, theirs = units(before.trace), units(after.trace)
    if ours == theirs:
        return [Check("sharded modules", True, f"the same {len(ours)} modules", binding=binding)]
    parts = []
    if ours - theirs:
        parts.append("only before: " + ", ".join(sorted(name or "(root)" for name in ours - theirs)))
    if theirs - ours:
        parts.append("only after: " + ", ".join(sorted(name or "(root)" for name in theirs - ours)))
    return [Check("sharded modules", False, "; ".join(parts), binding=binding)]


def _reductions(before: Side, after: Side, binding: bool) -> Check:
    """How often gradients are reduced in each step: shows a lost `no_sync`, which trains alike."""
    name = "gradient reductions"
    counts = [
        [lines[0]["collectives"].get("reduce_scatter", 0) for lines in _by_step(side) if lines]
        for side in (before, after)
    ]
    if not any(counts[0]) or not any(counts[1]):
        return Check(name, True, "not by reduce-scatter in both runs", binding=False)
    for step, (a, b) in enumerate(zip(*counts, strict=False), 1):
        if a != b:
            detail = f"step {step}: {a} reduce-scatters before, {b} after"
            return Check(name, False, detail, binding=binding)
    return Check(name, True, f"{counts[0][-1]} reduce-scatters a step in both", binding=binding)


def _collectives(before: Side, after: Side) -> Check:
    """Told, not judged: FSDP1 and FSDP2 may well use different numbers of collectives."""
    counts = []
    for side in (before, after):
        steps = _by_step(side)
        counts.append(dict(sorted(steps[-1][0]["collectives"].items())) if steps and steps[-1] else {})
    same = counts[0] == counts[1]
    text = [", ".join(f"{n} {kind}" for kind, n in count.items()) or "none" for count in counts]
    detail = text[0] if same else f"{text[0]} before; {text[1]} after"
    return Check("collectives of the last step", same, detail, binding=False)
