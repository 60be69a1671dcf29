"""Compares two runs of a program: do they train the same?"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from fsdplint.report.result import plural
from fsdplint.runtime.launch.records import Line, by_step
from fsdplint.runtime.proof.checks import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    Check,
    Comparison,
    Side,
    Tolerance,
)
from fsdplint.runtime.proof.compare_costs import cost_checks
from fsdplint.runtime.proof.compare_layout import (
    compare_layouts,
    group_difference,
    holding_paths,
    parameter_sets,
    parameter_types,
)
from fsdplint.runtime.proof.compare_tensors import (
    checkpoints,
    optimizer,
    parameters,
    rounding_noise,
)
from fsdplint.trace import Clipped, Sharded, Trace, Wrapped


def compare(before: Side, after: Side, *, same_units: bool) -> Comparison:
    """Compare two runs.

    same_units: whether the same modules must be sharded in both, as in a migration.
    """
    # Use the precision of the program before: a lower one after must not widen the tolerance.
    tolerance = tolerance_of(before)
    checks = [_steps(before, after)]
    checks += _losses(before, after, tolerance)
    checks += _norms(before, after, tolerance)
    checks += clipping(before, after, tolerance, same_units)
    checks.append(_clipping_arguments(before, after, same_units))
    checks.append(_rates(before, after))
    checks.append(_optimizers(before, after, same_units))
    checks.append(_loss_scale(before, after, same_units))
    noise = rounding_noise(before, tolerance)
    checks += parameters(before, after, tolerance, noise)
    checks += optimizer(before, after, tolerance, noise)
    checks += checkpoints(before, after, tolerance, noise)
    checks.append(_units(before, after, same_units))
    checks += compare_layouts(before, after, same_units)
    checks.append(_precision(before, after, same_units))
    checks.append(_reductions(before, after, same_units))
    checks.append(_collectives(before, after))
    checks += cost_checks(before, after)
    return Comparison(checks)


def tolerance_of(side: Side) -> Tolerance:
    """The tolerance of the least precise type that the training computes in."""
    words: set[str] = set()
    for wrapped in side.trace.of(Wrapped):
        words.update(str(value) for value in wrapped.options.values())
    for sharded in side.trace.of(Sharded):
        words.update(str(value) for value in sharded.options.values())
    for record in side.records:
        for line in record.measures:
            words.update(line.get("dtypes", ()))
    text = " ".join(words)
    for name, tolerance in (("bfloat16", BFLOAT16), ("float16", FLOAT16), ("float32", FLOAT32)):
        if f"torch.{name}" in text:
            return tolerance
    return FLOAT64 if "torch.float64" in text else FLOAT32


# Steps --------------------------------------------------------------------------------------------


def _steps(before: Side, after: Side) -> Check:
    counts = [[len(record.measures) for record in side.records] for side in (before, after)]
    if not any(counts[0]) and not any(counts[1]):
        return Check("steps", False, "no optimizer step ran: nothing was trained")
    if counts[0] != counts[1]:
        return Check(
            "steps", False, f"optimizer steps per rank: {counts[0]} before, {counts[1]} after"
        )
    untrained = [
        f"step {line['step']}: 0 of {line['parameters']} parameters updated"
        for lines in by_step(after.records)
        for line in lines[:1]
        if line["updated"] == 0 and line["parameters"]
    ]
    trained = any(line["updated"] for lines in by_step(before.records) for line in lines)
    if untrained and trained:
        return Check("steps", False, f"after: {untrained[0]}")
    steps, ranks = plural(max(counts[0]), "optimizer step"), plural(len(counts[0]), "rank")
    return Check("steps", True, f"{steps} on each of {ranks}")


def _losses(before: Side, after: Side, tolerance: Tolerance) -> list[Check]:
    worst, count = 0.0, 0
    for one, other in zip(before.records, after.records, strict=False):
        for a, b in zip(one.measures, other.measures, strict=False):
            if len(a["losses"]) != len(b["losses"]):
                return [
                    Check(
                        "losses",
                        False,
                        f"step {a['step']}, rank {one.rank}: backward ran "
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
    """The norm of the full gradient, computed from the parts of all ranks."""
    sharded = sum(line[key].get("sharded", 0.0) for line in lines)
    whole = sum(line[key].get("whole", 0.0) for line in lines) / max(1, len(lines))
    return math.sqrt(sharded + whole)


def _norms(before: Side, after: Side, tolerance: Tolerance) -> list[Check]:
    checks = []
    titles = {"gradients": "gradient norms", "stepped": "gradient norms at the optimizer step"}
    # A norm sums many rounded squares, so its tolerance is wider than that of one number.
    wide = Tolerance(tolerance.relative * 4, tolerance.absolute, tolerance.reason)
    pairs = list(zip(by_step(before.records), by_step(after.records), strict=False))
    if not pairs:
        return []
    for key, title in titles.items():
        worst, detail = 0.0, ""
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


def clipping(before: Side, after: Side, tolerance: Tolerance, binding: bool) -> list[Check]:
    """Whether gradients are clipped equally often; norms cannot show this if no bound is reached.

    binding: whether the verdict may depend on it, as in a migration. It does not if clipping
        changed a norm: then the norms show whether the program after clips by other means.
    """
    counts = [len(list(side.trace.of(Clipped))) for side in (before, after)]
    if not any(counts):
        return []
    wide = Tolerance(tolerance.relative * 4, tolerance.absolute, tolerance.reason)
    steps = [lines for lines in by_step(before.records) if lines]
    changed = sum(not wide.holds(norm(x, "gradients"), norm(x, "stepped")) for x in steps)
    binding = binding and not changed and bool(counts[0])
    effect = f"it changes the norm in {changed} of {len(steps)} steps"
    if not changed:
        effect = "it changes no norm: none exceeds the bound in this run"
    same = counts[0] == counts[1]
    calls = f"{counts[0]} calls before, {counts[1]} after"
    if same:
        calls = f"{plural(counts[0], 'call')} in both"
    return [Check("gradient clipping", same, f"{calls}; {effect}", binding=binding)]


def _steps_of_ranks(before: Side, after: Side) -> Iterator[tuple[str, Line, Line]]:
    """Step and rank as text, with the measures of this step before and after."""
    for one, other in zip(before.records, after.records, strict=False):
        for a, b in zip(one.measures, other.measures, strict=False):
            yield f"step {a['step']}, rank {one.rank}", a, b


def _clipping_arguments(before: Side, after: Side, binding: bool) -> Check:
    """Compare the arguments of clipping exactly: a tolerance would hide a slightly other bound.

    `clipping` compares how often gradients are clipped.
    """
    name = "clipping arguments"
    for where, a, b in _steps_of_ranks(before, after):
        for one, other in zip(a["clips"], b["clips"], strict=False):
            for key in sorted({*one, *other}):
                x, y = one.get(key), other.get(key)
                if x is not None and y is not None and x != y:
                    text = f"{where}: {key} {x!r} before, {y!r} after"
                    return Check(name, False, text, binding=binding)
    return Check(name, True, "equal in every step", binding=binding)


def _rates(before: Side, after: Side) -> Check:
    name = "parameter groups"
    for where, a, b in _steps_of_ranks(before, after):
        if a["rates"] != b["rates"]:
            detail = f"learning rates {a['rates']} before, {b['rates']} after"
            return Check(name, False, f"{where}: {detail} (one a group)")
        for one, other in zip(a["settings"], b["settings"], strict=False):
            for key in sorted({*one, *other}):
                if one.get(key) != other.get(key):
                    detail = f"{key} {one.get(key)} before, {other.get(key)} after"
                    return Check(name, False, f"{where}: {detail}")
    return Check(name, True, "learning rates and other settings are equal in every step")


def _optimizers(before: Side, after: Side, binding: bool) -> Check:
    """Compare the classes of optimizers and the parameters in their groups."""
    name = "optimizers"
    for where, a, b in _steps_of_ranks(before, after):
        if a["class"] != b["class"]:
            text = f"{where}: {a['class']} before, {b['class']} after"
            return Check(name, False, text, binding=binding)
    for one, other in zip(before.records, after.records, strict=False):
        difference = group_difference(one, other)
        if difference:
            return Check(name, False, f"rank {one.rank}, {difference}", binding=binding)
    text = "the same classes, with the same parameters in each group"
    return Check(name, True, text, binding=binding)


def _loss_scale(before: Side, after: Side, binding: bool) -> Check:
    """Compare the settings of gradient scalers and the scale in every step."""
    name = "loss scale"
    seen = False
    for where, a, b in _steps_of_ranks(before, after):
        one, other = (side["scaler"] or {"enabled": False} for side in (a, b))
        seen = seen or one["enabled"]
        if not one["enabled"] and not other["enabled"]:
            continue
        for key in sorted({*one, *other}):
            if one.get(key) != other.get(key):
                text = f"{where}: {key} {one.get(key)} before, {other.get(key)} after"
                return Check(name, False, text, binding=binding)
    text = "equal in every step" if seen else "losses are not scaled"
    return Check(name, True, text, binding=binding)


# Sharding and communication -----------------------------------------------------------------------


def units(trace: Trace) -> set[str]:
    """The sharded modules by their unwrapped names in the model; "" is a root."""
    names = unwrapped_names(trace)
    return {names.get(module, module) for module in trace.shardings()}


def unwrapped_names(trace: Trace) -> dict[str, str]:
    """The name of each module in its model, without the names of wrappers."""
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
    return names


def _units(before: Side, after: Side, binding: bool) -> Check:
    old, new = (units(side.trace) - _empty_units(side) for side in (before, after))
    same = old == new
    detail = f"the same {plural(len(old), 'module')}" if same else _set_difference(old, new)
    groups = [parameter_sets(side) for side in (before, after)]
    if same and all(groups) and groups[0] != groups[1]:
        same = False
        detail = "the same modules, but they gather other sets of parameters: " + _set_difference(
            *({_group_name(group) for group in one} for one in groups)
        )
    return Check("sharded modules", same, detail, binding=binding, layout=True)


def _empty_units(side: Side) -> set[str]:
    """The sharded modules without parameters of their own, which gather nothing."""
    holding = holding_paths(side)
    return set() if holding is None else units(side.trace) - holding


def _group_name(names: Iterable[str]) -> str:
    """A group of parameters, named by its first one."""
    first, *others = sorted(names)
    return f"{first} with {plural(len(others), 'other')}" if others else f"{first} alone"


def _set_difference(old: set[str], new: set[str]) -> str:
    parts = []
    for which, names in (("before", old - new), ("after", new - old)):
        if names:
            parts.append(f"only {which}: " + ", ".join(sorted(name or "(root)" for name in names)))
    return "; ".join(parts)


def _precision(before: Side, after: Side, binding: bool) -> Check:
    """Compare the types that each sharded module computes and reduces in."""
    old, new = _dtypes(before), _dtypes(after)
    for name in sorted(set(old) & set(new)):
        if old[name] != new[name]:
            texts = f"{_precision_text(old[name])} before, {_precision_text(new[name])} after"
            detail = f"{name or '(root)'}: {texts}"
            return Check("mixed precision", False, detail, binding=binding)
    return Check("mixed precision", True, "the same for every sharded module", binding=binding)


def _precision_text(dtypes: tuple[str, str]) -> str:
    return f"computes in {dtypes[0]}, reduces in {dtypes[1]}"


def _dtypes(side: Side) -> dict[str, tuple[str, str]]:
    """The types that each sharded module computes and reduces in, by its name in the model."""
    names, own = unwrapped_names(side.trace), parameter_types(side)
    policies: dict[str, str] = {}
    for wrapped in side.trace.of(Wrapped):
        policies[names.get(wrapped.module, "")] = str(wrapped.options.get("mixed_precision"))
    for sharded in side.trace.of(Sharded):
        for module in sharded.group or (sharded.module,):
            policies[names.get(module, "")] = str(sharded.options.get("mp_policy"))
    return {
        name: _policy(text, own.get(name, "the parameters' type"))
        for name, text in policies.items()
    }


def _policy(text: str, own: str) -> tuple[str, str]:
    """The types that a policy, given as text, computes and reduces in.

    own: the type of the parameters, which a policy need not name.
    """
    types: dict[str, str] = dict(re.findall(r"\b(param_dtype|reduce_dtype)=(torch\.\w+)", text))
    param = types.get("param_dtype", own)
    return param, types.get("reduce_dtype", param)


def _reductions(before: Side, after: Side, binding: bool) -> Check:
    """Compare how often each step reduces gradients: a lost `no_sync` trains the same."""
    name = "gradient reductions"
    counts = [
        [
            lines[0]["collectives"].get("reduce_scatter", 0)
            for lines in by_step(side.records)
            if lines
        ]
        for side in (before, after)
    ]
    if not any(counts[0]) or not any(counts[1]):
        return Check(name, True, "a run uses no reduce-scatter", binding=False)
    for step, (a, b) in enumerate(zip(*counts, strict=False), 1):
        if a != b:
            detail = f"step {step}: {a} reduce-scatters before, {b} after"
            return Check(name, False, detail, binding=binding, layout=True)
    detail = f"{plural(counts[0][-1], 'reduce-scatter')} a step in both"
    return Check(name, True, detail, binding=binding, layout=True)


def _collectives(before: Side, after: Side) -> Check:
    """Report the collectives; not binding, since FSDP1 and FSDP2 use different numbers of them."""
    counts = []
    for side in (before, after):
        steps = by_step(side.records)
        counts.append(
            dict(sorted(steps[-1][0]["collectives"].items())) if steps and steps[-1] else {}
        )
    same = counts[0] == counts[1]
    text = [", ".join(f"{n} {kind}" for kind, n in count.items()) or "none" for count in counts]
    detail = text[0] if same else f"{text[0]} before; {text[1]} after"
    return Check("collectives of the last step", same, detail, binding=False)
