"""Compares which rank holds which part of the parameters, and when they are gathered.

`layouts` describes flat parameters (FSDP1) and rows (FSDP2) in the same form. Padding depends only
on how parameters are sharded: it is computed from their shapes and tolerated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fsdplint.report.result import plural
from fsdplint.report.sizes import format_bytes
from fsdplint.runtime.launch.records import Line, RankRecord
from fsdplint.runtime.proof.checks import Check, Side

_PLACEMENT = "placement of parameters"
_BACKWARD = "parameters between forward and backward"
_STEP = "parameters at the optimizer step"
_MAX_NAMES = 3
_MODEL = re.compile(r"^\d+:")  # the number of a model, where there are several
# Each parameter in a flat parameter begins at a multiple of this number of bytes.
_ALIGNMENT = 16
_ITEM_SIZES = {"torch.float64": 8, "torch.bfloat16": 2, "torch.float16": 2}


@dataclass(frozen=True)
class _Parameter:
    """A parameter on a rank, with its unit."""

    unit: Line
    shape: tuple[int, ...]
    dtype: str
    trainable: bool


_Layout = Mapping[str, _Parameter]
Difference = Callable[[_Parameter, _Parameter], tuple[str, str] | None]


def compare_layouts(before: Side, after: Side, binding: bool) -> list[Check]:
    """Compare how parameters are sharded; binding: whether it must agree, as in a migration."""
    if not all(record.layouts for side in (before, after) for record in side.records):
        return [Check(_PLACEMENT, None, "not recorded in both runs", binding=False)]
    pairs = list(_pairs(before, after))
    checks = [
        _compare_each(pairs, _PLACEMENT, _placement_change, binding, layout=True),
        _compare_each(pairs, _BACKWARD, _state_change("backward"), binding, layout=True),
        _compare_each(pairs, _STEP, _state_change("step"), binding, layout=True),
        _compare_each(pairs, "trained parameters", _training_change, binding),
        _compare_each(pairs, "gradient divide factor", _factor_change, binding),
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


def parameter_types(side: Side) -> dict[str, str]:
    """The types of the parameters of each unit by its path, where they are all of one type.

    Units of the same path in several models count as one.
    """
    found: dict[str, set[str]] = {}
    for record in side.records:
        for line in record.layouts[:1]:
            for unit in line["units"]:
                types = {dtype for _, dtype, _ in unit["parameters"].values()}
                if unit["name"] is not None:
                    found.setdefault(_path(unit["name"]), set()).update(types)
    return {path: types.pop() for path, types in found.items() if len(types) == 1}


def holding_paths(side: Side) -> set[str] | None:
    """The paths of the units that have parameters; None if no layout is recorded.

    A wrapper of FSDP1 around a module whose parameters are all in inner units has none.
    """
    lines = [line for record in side.records for line in record.layouts]
    if not lines:
        return None
    names = (unit["name"] for line in lines for unit in line["units"] if unit["parameters"])
    return {_path(name) for name in names if name is not None}


def _path(name: str) -> str:
    """The path of a unit in its model, from its name in a layout of several models ("1:head")."""
    return _MODEL.sub("", name)


def _pairs(before: Side, after: Side) -> Iterator[tuple[int, int, _Layout, _Layout]]:
    """(rank, step, layout before, layout after) for each step at which either layout changes."""
    for one, other in zip(before.records, after.records, strict=False):
        for step in sorted({line["step"] for line in (*one.layouts, *other.layouts)}):
            old, new = _at(one, step), _at(other, step)
            if old is not None and new is not None:
                yield one.rank, step, _by_name(old), _by_name(new)


def _at(record: RankRecord, step: int) -> Line | None:
    if step > len(record.measures):
        return None
    return next((line for line in reversed(record.layouts) if line["step"] <= step), None)


def _by_name(line: Line) -> dict[str, _Parameter]:
    return {
        name: _Parameter(unit, tuple(shape), dtype, trainable)
        for unit in line["units"]
        for name, (shape, dtype, trainable) in unit["parameters"].items()
    }


def _compare_each(
    pairs: Sequence[tuple[int, int, _Layout, _Layout]],
    name: str,
    difference: Difference,
    binding: bool,
    layout: bool = False,
) -> Check:
    """Compare the parameters of both runs.

    difference: describes how a parameter is held before and after; None if that is the same.
    """
    for rank, step, old, new in pairs:
        found: dict[tuple[str, str], list[str]] = {}
        for key in old.keys() & new.keys():
            differ = difference(old[key], new[key])
            if differ is not None:
                found.setdefault(differ, []).append(key)
        if found:
            # Report the difference that most parameters have.
            (one, other), names = max(found.items(), key=lambda item: (len(item[1]), item[0]))
            where = f"rank {rank}, step {step}, {_name_list(sorted(names))}"
            text = f"{where}: {one} before, {other} after"
            return Check(name, False, text, binding=binding, layout=layout)
    count = max((len(old) for _, _, old, _ in pairs), default=0)
    text = f"{_SAME} for {plural(count, 'parameter')} on each rank"
    return Check(name, True, text, binding=binding, layout=layout)


def _name_list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MAX_NAMES])
    return shown + (f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else "")


# Placement --------------------------------------------------------------------------------------


def _placement_change(one: _Parameter, other: _Parameter) -> tuple[str, str] | None:
    keys = ["over", "copies", "offload"]
    if one.unit["over"] and not one.unit["flat"] and not other.unit["flat"]:
        keys.append("dims")
    if all(one.unit[key] == other.unit[key] for key in keys):
        return None
    along = "dims" in keys and one.unit["dims"] != other.unit["dims"]
    return describe_placement(one.unit, along), describe_placement(other.unit, along)


def describe_placement(unit: Line, along: bool = False) -> str:
    """The placement of a unit as text. along: name the dimensions that are sharded, too."""
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


def _state_change(when: str) -> Difference:
    def difference(one: _Parameter, other: _Parameter) -> tuple[str, str] | None:
        old, new = one.unit.get(when, ""), other.unit.get(when, "")
        if not one.unit["over"] or not other.unit["over"] or "" in (old, new):
            return None  # follows from the placement, or is unknown
        return (old, new) if old != new else None

    return difference


def _training_change(one: _Parameter, other: _Parameter) -> tuple[str, str] | None:
    if one.trainable == other.trainable:
        return None
    old, new = ("trained" if parameter.trainable else "frozen" for parameter in (one, other))
    return old, new


def _factor_change(one: _Parameter, other: _Parameter) -> tuple[str, str] | None:
    old, new = one.unit.get("divide"), other.unit.get("divide")
    if old is None or new is None or old == new or not one.trainable:
        return None
    return f"{old:g}", f"{new:g}"


def _type_change(before: Side, after: Side) -> str:
    """The first sharded module with other types of inputs or outputs; empty if there is none."""
    for one, other in zip(before.records, after.records, strict=False):
        old, new = ({u["name"]: u for u in r.layouts[0]["units"]} for r in (one, other))
        for name in sorted(key for key in old.keys() & new.keys() if key is not None):
            for key, verb in (("inputs", "gets"), ("outputs", "gives")):
                a, b = (", ".join(side[name].get(key, ())) for side in (old, new))
                if a and b and a != b:
                    return f"{name or '(root)'} {verb} {a} before, {b} after"
    return ""


# Memory -----------------------------------------------------------------------------------------


def _memory(before: Side, after: Side, binding: bool) -> list[Check]:
    """Compare the bytes of the parameters, gradients and optimizer states that the ranks hold.

    The sums over all ranks are compared: which rank gets a few more rows is arbitrary.
    """
    names = ("parameters", "gradients", "optimizer state")
    held = {
        name: [[_bytes(record, name) for record in side.records] for side in (before, after)]
        for name in names
    }
    whole = max(1, *(sum(ranks) for ranks in held["parameters"]))
    records = (*before.records, *after.records)
    checks = []
    for name, (old, new) in held.items():
        padding = sum(_padding(record, name == "parameters") for record in records)
        # An optimizer's state may hold several tensors of the size of a parameter.
        allowed = padding * math.ceil(max(sum(old), sum(new)) / whole)
        most = [format_bytes(max(ranks, default=0)) for ranks in (old, new)]
        checks.append(
            Check(
                f"bytes of {name}",
                abs(sum(old) - sum(new)) <= allowed,
                f"at most {most[0]} on a rank before, {most[1]} after",
                binding=binding,
                layout=True,
                values={"before": old, "after": new, "allowed": allowed},
            )
        )
    return checks


def _bytes(record: RankRecord, name: str) -> int:
    """The bytes that a rank held at the last step of each of its optimizers."""
    if name == "parameters":
        return sum(unit["bytes"] for unit in record.layouts[-1]["units"])
    by_optimizer = {line["optimizer"]: line["local_bytes"][name] for line in record.measures}
    return sum(by_optimizer.values())


def _padding(record: RankRecord, of_parameters: bool) -> float:
    """The bytes that a rank may hold beyond its share because of how its units are sharded.

    of_parameters: True for parameters; False for their gradients, which are neither aligned nor
        padded to full rows.
    """
    total = 0.0
    for unit in record.layouts[-1]["units"]:
        ranks = max(1, len(unit["over"]))
        for index, (shape, dtype, _) in enumerate(unit["parameters"].values()):
            size = _ITEM_SIZES.get(dtype, 4)
            if unit["flat"]:
                total += _ALIGNMENT * of_parameters + ranks * size * (index == 0)
            elif unit["over"] and shape and of_parameters:
                rows = max(1, shape[0])
                total += (math.ceil(rows / ranks) - rows / ranks) * math.prod(shape) / rows * size
    return total


def group_difference(one: RankRecord, other: RankRecord) -> str:
    """The first parameters that an optimizer has in other groups, as text; empty if none."""
    for step in sorted({line["step"] for line in (*one.layouts, *other.layouts)}):
        old, new = _at(one, step), _at(other, step)
        if old is None or new is None:
            continue
        trainable = {name for name, parameter in _by_name(old).items() if parameter.trainable}
        for optimizer in old["groups"].keys() & new["groups"].keys():
            both = old["groups"][optimizer], new["groups"][optimizer]
            for index, (a, b) in enumerate(zip(*both, strict=False)):
                difference = sorted((set(a) ^ set(b)) & trainable)
                if difference:
                    which = "before" if difference[0] in a else "after"
                    return (
                        f"step {step}, group {index}: only {which} it has {_name_list(difference)}"
                    )
    return ""
