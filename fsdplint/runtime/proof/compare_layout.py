"""Comparing which rank holds what of the parameters, and when they are gathered.

`layout` describes flat parameters (FSDP1) and rows (FSDP2) in the same words. The padding follows
from the way of cutting alone: it is computed from the shapes and allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fsdplint.report.result import plural
from fsdplint.runtime.launch.records import Line, RankRecord
from fsdplint.runtime.proof.checks import Check, Side
from fsdplint.runtime.proof.compare_costs import in_bytes

_PLACEMENT = "placement of parameters"
_BACKWARD = "parameters between forward and backward"
_STEP = "parameters at the optimizer step"
_SHOWN = 3
# Each parameter in a flat one begins at a multiple of so many bytes.
_ALIGNED = 16
_ITEM_SIZES = {"torch.float64": 8, "torch.bfloat16": 2, "torch.float16": 2}


@dataclass(frozen=True)
class _Parameter:
    """A parameter on a rank: its unit, and what is known of itself."""

    unit: Line
    shape: tuple[int, ...]
    dtype: str
    trained: bool


_Layout = Mapping[str, _Parameter]
Words = Callable[[_Parameter, _Parameter], tuple[str, str] | None]


def compare_layouts(before: Side, after: Side, binding: bool) -> list[Check]:
    """What is sharded how; binding: whether it has to be the same, as in a migration."""
    if not all(record.layouts for side in (before, after) for record in side.records):
        return [Check(_PLACEMENT, None, "not recorded in both runs", binding=False)]
    pairs = list(_pairs(before, after))
    checks = [
        _each(pairs, _PLACEMENT, _placement_change, binding, layout=True),
        _each(pairs, _BACKWARD, _state_change("backward"), binding, layout=True),
        _each(pairs, _STEP, _state_change("step"), binding, layout=True),
        _each(pairs, "trained parameters", _training_change, binding),
        _each(pairs, "gradient divide factor", _factor_change, binding),
        *_memory(before, after, binding),
    ]
    types = _type_change(before, after)
    checks.append(Check("types of inputs and outputs", not types, types or _SAME, binding=binding))
    return checks


_SAME = "the same"


def parameter_sets(side: Side) -> set[frozenset[str]]:
    """The parameters that are gathered together, as sets of names."""
    return {
        frozenset(unit["parameters"])
        for record in side.records
        for line in record.layouts[-1:]
        for unit in line["units"]
        if unit["name"] is not None
    }


def _pairs(before: Side, after: Side) -> Iterator[tuple[int, int, _Layout, _Layout]]:
    """(rank, step, the layout before, the one after), wherever one of the two changes."""
    for one, other in zip(before.records, after.records, strict=False):
        for step in sorted({line["step"] for line in (*one.layouts, *other.layouts)}):
            ours, theirs = _at(one, step), _at(other, step)
            if ours is not None and theirs is not None:
                yield one.rank, step, _by_name(ours), _by_name(theirs)


def _at(record: RankRecord, step: int) -> Line | None:
    if step > len(record.measures):
        return None
    return next((line for line in reversed(record.layouts) if line["step"] <= step), None)


def _by_name(line: Line) -> dict[str, _Parameter]:
    return {
        name: _Parameter(unit, tuple(shape), dtype, trained)
        for unit in line["units"]
        for name, (shape, dtype, trained) in unit["parameters"].items()
    }


def _each(
    pairs: Sequence[tuple[int, int, _Layout, _Layout]],
    name: str,
    words: Words,
    binding: bool,
    layout: bool = False,
) -> Check:
    """Compare the parameters that both have; words: how one is held in either, where it differs."""
    for rank, step, ours, theirs in pairs:
        found: dict[tuple[str, str], list[str]] = {}
        for key in ours.keys() & theirs.keys():
            differ = words(ours[key], theirs[key])
            if differ is not None:
                found.setdefault(differ, []).append(key)
        if found:
            # What most parameters have become says most.
            (one, other), names = max(found.items(), key=lambda item: (len(item[1]), item[0]))
            where = f"rank {rank}, step {step}, {_few(sorted(names))}"
            text = f"{where}: {one} before, {other} after"
            return Check(name, False, text, binding=binding, layout=layout)
    count = max((len(ours) for _, _, ours, _ in pairs), default=0)
    text = f"{_SAME} for {plural(count, 'parameter')} on each rank"
    return Check(name, True, text, binding=binding, layout=layout)


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


# Where parameters are ---------------------------------------------------------------------------


def _placement_change(one: _Parameter, other: _Parameter) -> tuple[str, str] | None:
    keys = ["over", "copies", "offload"]
    if one.unit["over"] and not one.unit["flat"] and not other.unit["flat"]:
        keys.append("dims")
    if all(one.unit[key] == other.unit[key] for key in keys):
        return None
    along = "dims" in keys and one.unit["dims"] != other.unit["dims"]
    return _describe_placement(one.unit, along), _describe_placement(other.unit, along)


def _describe_placement(unit: Line, along: bool) -> str:
    """How a unit is placed, in words."""
    over, copies = unit["over"], unit["copies"]
    if over:
        text = f"sharded over {plural(len(over), 'rank')} ({_ranks(over)})"
        if along:
            text += f" along {plural(len(unit['dims']), 'dimension')} {_ranks(unit['dims'])}"
        if copies:
            text += f" in {len(copies)} copies (ranks {_ranks(copies)})"
    elif copies:
        text = f"whole on each of {len(copies)} ranks ({_ranks(copies)})"
    else:
        text = "whole, and not synchronized with other ranks"
    return text + (", in the memory of the CPU" if unit["offload"] else "")


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8])
    return shown + (", …" if len(ranks) > 8 else "")


def _state_change(when: str) -> Words:
    def words(one: _Parameter, other: _Parameter) -> tuple[str, str] | None:
        ours, theirs = one.unit.get(when, ""), other.unit.get(when, "")
        if not one.unit["over"] or not other.unit["over"] or "" in (ours, theirs):
            return None  # known from the placement, or not known
        return (ours, theirs) if ours != theirs else None

    return words


def _training_change(one: _Parameter, other: _Parameter) -> tuple[str, str] | None:
    if one.trained == other.trained:
        return None
    ours, theirs = ("trained" if parameter.trained else "frozen" for parameter in (one, other))
    return ours, theirs


def _factor_change(one: _Parameter, other: _Parameter) -> tuple[str, str] | None:
    ours, theirs = one.unit.get("divide"), other.unit.get("divide")
    if ours is None or theirs is None or ours == theirs or not one.trained:
        return None
    return f"{ours:g}", f"{theirs:g}"


def _type_change(before: Side, after: Side) -> str:
    """Where a sharded module gets or gives tensors of other types."""
    for one, other in zip(before.records, after.records, strict=False):
        ours, theirs = ({u["name"]: u for u in r.layouts[0]["units"]} for r in (one, other))
        for name in sorted(key for key in ours.keys() & theirs.keys() if key is not None):
            for key, verb in (("inputs", "gets"), ("outputs", "gives")):
                a, b = (", ".join(side[name].get(key, ())) for side in (ours, theirs))
                if a and b and a != b:
                    return f"{name or '(root)'} {verb} {a} before, {b} after"
    return ""


# What it takes ----------------------------------------------------------------------------------


def _memory(before: Side, after: Side, binding: bool) -> list[Check]:
    """The bytes of parameters, gradients and optimizer state that the ranks hold, by their tensors.

    All ranks together are compared: where rows are cut, which of them holds a few more is chance.
    """
    names = ("parameters", "gradients", "optimizer state")
    held = {
        name: [[_bytes(record, name) for record in side.records] for side in (before, after)]
        for name in names
    }
    whole = max(1, *(sum(ranks) for ranks in held["parameters"]))
    records = (*before.records, *after.records)
    checks = []
    for name, (ours, theirs) in held.items():
        padding = sum(_padding(record, name == "parameters") for record in records)
        # An optimizer may hold several tensors of the size of a parameter.
        allowed = padding * math.ceil(max(sum(ours), sum(theirs)) / whole)
        most = [in_bytes(max(ranks, default=0)) for ranks in (ours, theirs)]
        checks.append(
            Check(
                f"bytes of {name}",
                abs(sum(ours) - sum(theirs)) <= allowed,
                f"at most {most[0]} on a rank before, {most[1]} after",
                binding=binding,
                layout=True,
                values={"before": ours, "after": theirs, "allowed": allowed},
            )
        )
    return checks


def _bytes(record: RankRecord, name: str) -> int:
    """What a rank held, at the last step of each of its optimizers."""
    if name == "parameters":
        return sum(unit["bytes"] for unit in record.layouts[-1]["units"])
    by_optimizer = {line["optimizer"]: line["local_bytes"][name] for line in record.measures}
    return sum(by_optimizer.values())


def _padding(record: RankRecord, of_parameters: bool) -> float:
    """The bytes that this rank may hold beyond its share, by how its units are cut.

    of_parameters: else of their gradients, which are neither aligned nor padded to whole rows.
    """
    total = 0.0
    for unit in record.layouts[-1]["units"]:
        ranks = max(1, len(unit["over"]))
        for index, (shape, dtype, _) in enumerate(unit["parameters"].values()):
            size = _ITEM_SIZES.get(dtype, 4)
            if unit["flat"]:
                total += _ALIGNED * of_parameters + ranks * size * (index == 0)
            elif unit["over"] and shape and of_parameters:
                rows = max(1, shape[0])
                total += (math.ceil(rows / ranks) - rows / ranks) * math.prod(shape) / rows * size
    return total


def groups_apart(one: RankRecord, other: RankRecord) -> str:
    """Which parameters an optimizer has in other groups; empty where all are in the same."""
    for step in sorted({line["step"] for line in (*one.layouts, *other.layouts)}):
        ours, theirs = _at(one, step), _at(other, step)
        if ours is None or theirs is None:
            continue
        trained = {name for name, parameter in _by_name(ours).items() if parameter.trained}
        for optimizer in ours["groups"].keys() & theirs["groups"].keys():
            both = ours["groups"][optimizer], theirs["groups"][optimizer]
            for index, (a, b) in enumerate(zip(*both, strict=False)):
                apart = sorted((set(a) ^ set(b)) & trained)
                if apart:
                    which = "before" if apart[0] in a else "after"
                    return f"step {step}, group {index}: only {which} it has {_few(apart)}"
    return ""
