"""Tensors, and what a rank has of the rows and columns of one."""

from __future__ import annotations

from dataclasses import dataclass, field

from fsdplint.interpreter.values import (
    ModuleValue,
    RankLocal,
    Value,
)
from fsdplint.source.source import NodeSite
from fsdplint.trace import (
    Collective,
    TensorParallel,
)

LOCAL_PART = "local parameter"  # the source of `parameter.to_local()`


@dataclass(eq=False, repr=False)
class TensorValue(Value):
    """A tensor that a model computed: an output, a loss, a gradient norm.

    summed: whether an `all_reduce` summed it over all ranks, in place.
    averaged: whether it was then divided by the number of ranks.
    divided_by: what it was divided by last, see `BackwardRun`.
    scaled: whether it may have been multiplied by the number of ranks.
    rank_local: set if it certainly derives from data that only this rank has.
    blended: whether unknown values may have been added to it.
    on_cpu: whether it is certainly on the CPU.
    dimensionless: whether it certainly has no dimensions.
    number: whether it is certainly the number of a tensor with one element, and no tensor.
    few_elements: whether it is a tensor of a few elements that the program made, such as a count.
    items: what a forward has returned, if this is its output and stands for a tuple of tensors.
    """

    source: str = ""  # "output", "norm", ...
    modules: tuple[ModuleValue, ...] = ()
    blended: bool = field(default=False, kw_only=True)
    on_cpu: bool = field(default=False, kw_only=True)
    dimensionless: bool = field(default=False, kw_only=True)
    number: bool = field(default=False, kw_only=True)
    items: tuple[Value, ...] = field(default=(), kw_only=True, repr=False)
    few_elements: bool = field(default=False, kw_only=True)
    summed: bool = False
    averaged: bool = False
    divided_by: str = ""
    scaled: bool = False
    rank_local: RankLocal | None = field(default=None, repr=False)


@dataclass(eq=False, repr=False)
class ShardTensor(TensorValue):
    """A parameter or gradient of `modules`, or the result of an element-wise operation on one.

    must_be_dtensor: whether it is certainly a sharded DTensor.
    appears_sharded: whether it is one if no code out of sight gathers it, see `appears_sharded()`.
    reduction: the reduction over all of its elements ("norm", "sum", ...); each rank then holds the
        result for its own shard.
    moved: whether it may be on another device than the parameter.
    own: whether it belongs to a parameter that the modules have themselves, and no part of theirs.
    """

    must_be_dtensor: bool = False
    reduction: str = ""
    moved: bool = False
    own: bool = False
    appears_sharded: bool = field(default=False, kw_only=True)


@dataclass(eq=False, repr=False)
class LocalGradient(TensorValue):
    """The local tensor of a gradient that is certainly sharded, or a view of it."""


@dataclass(eq=False)
class Gather:
    """One collection of the rows of all ranks, see `gathered_rows`.

    holder: the list or tensor that holds the rows in the order of the ranks.
    cuts: whether the rows lose gradients that they carried.
    restored: whether the program may have put rows with gradients among them.
    """

    event: Collective
    holder: Value
    cuts: bool
    restored: bool = False


@dataclass(frozen=True, eq=False)
class Rows:
    """What a value has of gathered rows.

    gathers: where they come from; one, if it is `ordered` or has `scores`.
    ordered: whether it holds all of them in the order of the ranks.
    scores: whether it has a row for each row of this rank, and a column for each of the gathered
        ones.
    """

    gathers: tuple[Gather, ...]
    ordered: bool = False
    scores: bool = False


@dataclass(frozen=True)
class Columns:
    """Which columns a rank has of an output.

    parallel: the event of the tensor parallelism. as_dtensor: whether the output is a DTensor, of
    which `to_local()` has the columns. reshaped: whether the last dimension may be another one.
    heads, viewed_at: the code of a setting into which a view has certainly divided the columns, and
    the view.
    """

    parallel: TensorParallel
    as_dtensor: bool = False
    reshaped: bool = False
    heads: str = ""
    viewed_at: NodeSite | None = None
