"""Events of recorded traces only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fsdplint.trace.base import Event, event
from fsdplint.trace.fields import combined, reference, union


@event
class ParametersMissed(Event):
    """Parameters of a sharded model get gradients, are in no optimizer, and did not change.

    Detected at the second step of an optimizer that holds other parameters of the model.

    module: the outermost sharded module.
    parameters: their names in the module.
    trained_count: the number of parameters of the module that are in an optimizer.
    """

    kind: ClassVar[str] = "parameters-missed"
    module: str = reference(distinct=True)
    optimizer: str = reference(distinct=True)
    parameters: tuple[str, ...]
    trained_count: int


@event
class Refused(Event):
    """torch raised an error about parameters that it cannot shard, or not together.

    reason: "scalar", "strides" (a parameter that is not contiguous), "dtypes" (a group with
        trainable parameters of several types), "batchnorm" (its running statistics have another
        type than its parameters) or "input" (a layer gets a tensor of another type); the last three
        are raised by a forward.
    parameters: their names in `module`, each with the property that is the reason (its type).
    """

    kind: ClassVar[str] = "refused"
    module: str = reference(distinct=True)
    reason: str
    parameters: tuple[tuple[str, str], ...] = ()


@event
class CopiesSeen(Event):
    """The copies of parameters that should be equal on several ranks, before an optimizer step.

    module: the outermost sharded module. look: the number of the step, from 1.
    each: by rank and name, the part and a digest of its values. The part is "ignored" for a
        parameter in `ignored_params`, else the name of the replicated shard.
    exchanged: whether the program has run an all-to-all.
    """

    kind: ClassVar[str] = "copies-seen"
    module: str = reference(distinct=True)
    optimizer: str = reference(distinct=True)
    look: int
    exchanged: bool = False
    each: Mapping[int, Mapping[str, tuple[str, int]]] = combined(union, default_factory=dict)


@event
class BatchesEnded(Event):
    """A loop over a DataLoader ended after `batches` batches, on the ranks that took part."""

    kind: ClassVar[str] = "batches-ended"
    batches: int
