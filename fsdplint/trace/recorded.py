"""Events that only a recorded trace has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fsdplint.trace.base import Event, event
from fsdplint.trace.fields import combined, reference, union


@event
class ParametersMissed(Event):
    """Parameters of a sharded model get gradients, are in no optimizer, and did not change.

    Noticed at the second step of an optimizer that holds other parameters of the model.

    module: the outermost sharded module.
    parameters: their names in it; `trained_count` is how many of its others are in an optimizer.
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
        trainable parameters of several types) or "batchnorm" (its running statistics have another
        type than its parameters); the last two are raised by a forward.
    parameters: their names in `module`, each with what is the matter with it (its type).
    """

    kind: ClassVar[str] = "refused"
    module: str = reference(distinct=True)
    reason: str
    parameters: tuple[tuple[str, str], ...] = ()


@event
class CopiesSeen(Event):
    """What the ranks hold of parameters that should be alike, before an optimizer's step.

    module: the outermost sharded module. look: the number of the step, from 1.
    each: by rank and name, what part it is and a number for its values. The part is "ignored" for a
        parameter that FSDP2 leaves alone, and else names the shard of which there are replicas.
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
    """A loop over a DataLoader ended after so many batches, on the ranks that took part."""

    kind: ClassVar[str] = "batches-ended"
    batches: int
