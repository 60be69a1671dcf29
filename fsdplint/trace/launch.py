"""Events of the launch: process groups, meshes, devices, seeds, collectives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from fsdplint.trace.base import Event, Site, event
from fsdplint.trace.fields import (
    agreeing,
    all_differ,
    combined,
    definition,
    differs,
    distinct,
    numbered,
    reference,
    unrecorded,
)


@event
class ProcessGroupInit(Event):
    """`init_process_group(...)`.

    options: the arguments by name, as for `Wrapped`. A device is text: "cuda" has no index. The
        unknown part of an address is "?".
    tested: whether it depends on a test of `is_initialized()`, so that other code may have created
        the group before.
    """

    kind: ClassVar[str] = "process-group-init"
    backend: str | None = None
    options: Mapping[str, object] = combined(agreeing, default_factory=dict)
    tested: bool = unrecorded("the call has happened", default=False)


@event
class GroupMissed(Event):
    """A function that needs the default process group is called, and no group is known.

    api: the function of torch.distributed.
    """

    kind: ClassVar[str] = "group-missed"
    api: str = distinct()


@event
class ProcessGroupDestroyed(Event):
    kind: ClassVar[str] = "process-group-destroyed"


@event
class RunElsewhere(Event):
    """Code begins or ends that runs in other processes or in callbacks of unknown code.

    Static traces only.
    """

    kind: ClassVar[str] = "run-elsewhere"
    static_only: ClassVar[str] = "a recorder sees what runs in the process"


@event
class LauncherArgumentUsed(Event):
    """A command-line argument is read as this process's local rank and has its default.

    argument: "--local_rank".
    use: the place that reads it.
    overwritten: whether the program replaced its value later.
    """

    kind: ClassVar[str] = "launcher-argument-used"
    argument: str
    use: Site | None = unrecorded("the stack tells", default=None)
    overwritten: bool = False


@event
class FrameworkConfigured(Event):
    """A framework is configured (static traces only).

    framework: "accelerate", "transformers" or "lightning".
    api: the class that is called, "FullyShardedDataParallelPlugin".
    options: the arguments by name: constants, lists and dicts of them, names of libraries as text;
        `...` for an unknown one.
    open: whether there may be further arguments.
    strategy: where the strategy that it gets was made.
    """

    kind: ClassVar[str] = "framework-configured"
    static_only: ClassVar[str] = "a recorder sees what the framework does"
    framework: str
    api: str = distinct()
    options: Mapping[str, object] = field(default_factory=dict)
    open: bool = False
    strategy: Site | None = unrecorded("the program's code tells", default=None)


@event
class Prepared(Event):
    """A framework shards models (static traces only).

    It leaves the optimizers of the program as they are.

    framework: "Accelerate", "Fabric" or "Lightning".
    flat: whether flat parameters replace those of the models (`use_orig_params=False`).
    version: of FSDP, 1 or 2.
    """

    kind: ClassVar[str] = "model-prepared"
    static_only: ClassVar[str] = "a recorder sees what the framework does"
    modules: tuple[str, ...] = reference()
    framework: str = "Accelerate"
    flat: bool = False
    version: int = 1


@event
class DeviceSet(Event):
    """torch.cuda.set_device and similar functions."""

    kind: ClassVar[str] = "device-set"
    device: str | None = None


@event
class MeshBuilt(Event):
    """A device mesh. `shape` and `dim_names` hold None and "?" for unknown items.

    overridden: the keys of `backend_override`; empty if one is unknown.
    shapes_differ: whether ranks give it different shapes.
    of_world: whether its only size certainly is the number of ranks (static traces only).
    """

    kind: ClassVar[str] = "mesh-built"
    mesh: str = definition(default="")
    device_type: str | None = None
    shape: tuple[int | None, ...] = ()
    dim_names: tuple[str, ...] = ()
    overridden: tuple[object, ...] = ()
    shapes_differ: bool = combined(differs, default=False)
    of_world: bool = unrecorded("a record has the number of ranks", default=False)


@event
class MeshFlattened(Event):
    """`mesh["a", "b"]._flatten(name)`: some dimensions of a whole mesh are one with a new name."""

    kind: ClassVar[str] = "mesh-flattened"
    static_only: ClassVar[str] = "a record has the ranks of each mesh"
    mesh: str = ""
    name: str = ""
    dims: tuple[str, ...] = ()


@event
class Seeded(Event):
    """The random generator of torch, which makes initial weights, was seeded.

    per_rank: whether the seed differs between ranks; None if unknown.
    each_rank: whether no two ranks certainly have the same seed.
    """

    kind: ClassVar[str] = "seeded"
    per_rank: bool | None = combined(differs, default=None)
    each_rank: bool = combined(all_differ, source="per_rank", default=False)


@event
class Collective(Event):
    """A collective without an event of its own: dist.barrier, dist.all_reduce, full_tensor, ...

    of_output: whether its tensor is the output of a model, or was computed from it: a loss.
    gradient_of: the modules of whose parameters its tensor is a gradient; empty for other tensors.
    own_gradient: whether these modules have the parameter themselves, and no part of theirs.
    parameters_of: the modules that `full_tensor()` gathers a parameter or its gradient of.
    few_elements: whether its tensor is one of a few elements that the program made: a metric.
    on_cpu: whether its tensor is certainly on the CPU of a program that may use other devices.
    sizes_differ: whether ranks give it tensors of different size, which it does not allow.
    by_members: whether a test lets only the ranks pass of which a `new_group` makes a group (static
        traces only).
    of_position: the dimension of a mesh, or "?" for another group, of which only the ranks at one
        position reach it, although it is for all ranks; "" for any other collective.
    unknown_group: whether its process group is not known, and may be that of all ranks.
    gradient_lost: the index of the backward pass of a loss over what it gathered, if its tensor
        carries gradients and the result does not.
    of_global_count: whether it adds up a number of elements of DTensors, which counts those of all
        ranks already (static traces only).
    wrong: what is wrong with its arguments: "one tensor" if all results go to the same tensor,
        "list" if each rank passes the list that only one may pass, "unread" if nothing reads what
        the other ranks receive, "rank" if only one of several groups has the rank; ""
        if nothing is certain (static traces only).
    labels_from_zero: the loss that compares rows of each rank with those that it gathered, with the
        labels 0, 1, 2, ... on all ranks.
    """

    # The functions that need tensors of the same size.
    OF_ONE_SIZE: ClassVar[frozenset[str]] = frozenset(
        {"all_reduce", "reduce", "broadcast", "all_gather_into_tensor", "reduce_scatter_tensor"}
    )

    kind: ClassVar[str] = "collective"
    api: str = distinct()
    of_output: bool = unrecorded("a tensor does not say what it was computed from", default=False)
    gradient_of: tuple[str, ...] = unrecorded("a tensor does not say whose it is", default=())
    own_gradient: bool = unrecorded("a tensor does not say whose it is", default=False)
    parameters_of: tuple[str, ...] = unrecorded("a tensor does not say whose it is", default=())
    few_elements: bool = unrecorded("models of a recorded run may be small", default=False)
    on_cpu: bool = unrecorded("all tensors of a recorded run may be on the CPU", default=False)
    sizes_differ: bool = combined(differs, default=False)
    by_members: bool = unrecorded("a record has the ranks", default=False)
    of_position: str = unrecorded("a record has the ranks", default="")
    unknown_group: bool = unrecorded("a recorder knows the group", default=False)
    gradient_lost: int | None = unrecorded("uses of a tensor are not recorded", default=None)
    of_global_count: bool = unrecorded("a number does not say how it was computed", default=False)
    wrong: str = unrecorded("torch refuses it, or uses of a list are not recorded", default="")
    labels_from_zero: Site | None = unrecorded("uses of a tensor are not recorded", default=None)

    @property
    def of_metric(self) -> bool:
        """Whether its tensor is certainly a loss or a metric, and no parameter or gradient."""
        return self.of_output or self.few_elements


@event
class AsyncResultRead(Event):
    """A tensor is read that an asynchronous collective may still write.

    api: the collective. begun: the index of its event.
    """

    kind: ClassVar[str] = "async-result-read"
    static_only: ClassVar[str] = "uses of a tensor are not recorded"
    api: str = ""
    begun: int | None = numbered(default=None)


@event
class ErrorCaught(Event):
    """A loop catches an error in code that runs collectives, and goes on.

    waiting: the index of the first forward or backward of all ranks in the code.
    """

    kind: ClassVar[str] = "error-caught"
    static_only: ClassVar[str] = "no error comes in a run that works"
    waiting: int | None = numbered(default=None)


@event
class JoinUsed(Event):
    """`torch.distributed.algorithms.Join([module, ...])`.

    optimizers: the optimizers among its arguments.
    """

    kind: ClassVar[str] = "join-used"
    modules: tuple[str, ...] = reference(default=())
    optimizers: tuple[str, ...] = reference(default=())


@event
class Escaped(Event):
    """A module was passed to code that could not be followed (static traces only)."""

    kind: ClassVar[str] = "module-escaped"
    static_only: ClassVar[str] = "a recorder sees what becomes of the module"
    module: str = reference(distinct=True)


@event
class PickedByRank(Event):
    """The rank is used as an index, or passed to unknown code together with data.

    Each rank may select its part of a batch (static traces only).

    own_order: whether it takes the rank's part of a random order that each rank certainly draws for
        itself.
    """

    kind: ClassVar[str] = "picked-by-rank"
    static_only: ClassVar[str] = "recorded passes over data say what each rank got"
    own_order: bool = False


@event
class Imported(Event):
    """An import from the FSDP packages: `from package import names`, or `import package`.

    optional: whether the program works without it: the import is in a `try` with handlers, or under
        a test of the torch version.
    """

    kind: ClassVar[str] = "imported"
    package: str
    names: tuple[str, ...] = ()
    optional: bool = False
