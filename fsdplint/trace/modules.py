"""Events of modules: built, moved, wrapped, sharded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from fsdplint.trace.base import Event, Guard, event
from fsdplint.trace.fields import (
    all_same,
    combined,
    distinct,
    numbered,
    on_all,
    reference,
    unrecorded,
)


@event
class ModuleBuilt(Event):
    """A module was built.

    random_weights: whether a library initialised all of its weights at random (True) or loaded them
        from a file (False); None: not known.
    """

    kind: ClassVar[str] = "module-built"
    module: str = reference(distinct=True)
    on_meta: bool = False
    random_weights: bool | None = unrecorded("the weights themselves are compared", default=None)


@event
class ModuleMoved(Event):
    """`.to`, `.cuda`, `.to_empty`, `.half`, ...; `method` names which.

    from_meta: whether it moves parameters from the meta device to another, which fails.
    recurse: whether it moves the parameters of submodules, too; `to_empty(recurse=False)` does not.
    untouched_buffers: the buffers from `to_empty` that nothing had written to by the end of the
        first forward.
    set_under: the conditions under which something in sight may have written to such a buffer.
    """

    kind: ClassVar[str] = "module-moved"
    module: str = reference(distinct=True)
    method: str = distinct()
    device: str | None = None
    dtype: str | None = None
    from_meta: bool = False
    recurse: bool = True
    untouched_buffers: tuple[str, ...] = ()
    set_under: tuple[Guard, ...] = unrecorded("a record has no conditions", default=())


@event
class ModuleAttached(Event):
    """A submodule was added to a module that is sharded already, itself or with its parent.

    module: the module that got it.
    new: the added modules with own parameters that were in no sharded module.
    """

    kind: ClassVar[str] = "module-attached"
    module: str = reference(distinct=True)
    new: tuple[str, ...] = reference(default=())


@event
class ParameterAttached(Event):
    """A trainable parameter, certainly a plain tensor, was added to a module that is sharded.

    optimizers: those that certainly got it later, while the module had it and nothing froze it.
    """

    kind: ClassVar[str] = "parameter-attached"
    module: str = reference(distinct=True)
    name: str = distinct()
    optimizers: tuple[str, ...] = unrecorded(
        "the recorder writes it before they get it", default=()
    )


@event
class ModuleCopied(Event):
    """copy.deepcopy of a module, or a copy that a library makes (AveragedModel)."""

    kind: ClassVar[str] = "module-copied"
    module: str = reference(distinct=True)
    copy: str = reference(default="")
    api: str = distinct(default="copy.deepcopy")


@event
class Wrapped(Event):
    """FSDP1: `FullyShardedDataParallel(inner, ...)` made `module`.

    options: the constructor's arguments by name, as far as they are constants or dotted names. A
        flag of the command line as `cpu_offload` is "bool".
    same_weights: whether all ranks had the same values in the parameters that were not sharded
        before; None if unknown.
    units: the modules in `inner` that its policy wraps separately (a recorded trace also has an
        event for each); None if the policy is unknown.
    outside: the modules in `inner` that the policy certainly does not wrap, if it is else unknown.
    mixes: whether parameters with and without gradients certainly share a unit.
    keeps_rest: whether the policy wraps only classes of a library, and so leaves parameters of a
        model of this library in the outermost unit.
    mesh: the mesh argument, see `MeshBuilt`; None if there is none or it is unknown.
    not_classes: what its policy has where it needs a set of classes: "names", "instances" or
        "one class"; "" if it has a set of classes, or that is not known.
    ignored, weights_in: as for `Sharded`.
    casts_weights: whether its forward certainly casts all trainable parameters to another dtype.
    device: the `device_id`, "cpu" or "cuda:0"; "" if there is none or it is unknown.
    """

    kind: ClassVar[str] = "module-wrapped"
    module: str = reference(distinct=True)
    inner: str = reference(distinct=True)
    options: Mapping[str, object] = field(default_factory=dict)
    same_weights: bool | None = combined(all_same, default=None)
    units: tuple[str, ...] | None = unrecorded("each unit has its own event", default=())
    outside: tuple[str, ...] = unrecorded("each unit has its own event", default=())
    mixes: bool = False
    keeps_rest: bool = unrecorded("each unit has its own event", default=False)
    mesh: str | None = reference(default=None)
    not_classes: str = ""
    ignored: tuple[str, ...] = unrecorded("the copies of the ranks are compared", default=())
    weights_in: str = ""
    casts_weights: bool = False
    device: str = unrecorded("only the migration reads it", default="")


@event
class PolicyCalled(Event):
    """A wrap policy of FSDP1 was called without the arguments that FSDP1 itself gives it.

    api: the function, "transformer_auto_wrap_policy".
    """

    kind: ClassVar[str] = "wrap-policy-called"
    api: str = distinct()


@event
class Replicated(Event):
    """`DistributedDataParallel(inner, ...)`; options as for `Wrapped`."""

    kind: ClassVar[str] = "module-replicated"
    inner: str = reference(distinct=True)
    options: Mapping[str, object] = field(default_factory=dict)


@event
class Sharded(Event):
    """FSDP2: `fully_shard(module, ...)`; `group` holds every module of the list form.

    positional: positional arguments after the module, which `fully_shard` does not accept.
    same_weights: as for `Wrapped`.
    mesh: the mesh argument, if a `MeshBuilt` made it and it is not a part of one; else "".
    whole_mesh: the mesh argument, or the mesh that it is a part of; "" if this is unknown.
    dims: the names of the dimensions of the mesh argument; empty if they are unknown.
    frozen: whether all parameters of the module are certainly frozen.
    ignored: the modules whose parameters it certainly leaves out, all of them.
    weights_in: the `param_dtype` of its mixed precision, such as "torch.bfloat16", if all trainable
        parameters of the module certainly have this dtype already, and no optimizer gets copies of
        them in float32; else "".
    """

    kind: ClassVar[str] = "module-sharded"
    frozen: bool = False
    module: str = reference(distinct=True)
    group: tuple[str, ...] = reference(default=())
    options: Mapping[str, object] = field(default_factory=dict)
    positional: tuple[object, ...] = ()
    same_weights: bool | None = combined(all_same, default=None)
    mesh: str = reference(default="")
    whole_mesh: str = reference(default="")
    dims: tuple[str, ...] = ()
    ignored: tuple[str, ...] = unrecorded("the copies of the ranks are compared", default=())
    weights_in: str = ""


@event
class ColumnsCompared(Event):
    """A cross entropy of an output of which each rank of tensor parallelism has its own columns.

    parallel: the index of the event of the tensor parallelism. api: the function, if it is another
        one that compares the columns with each other, such as "argmax".
    """

    kind: ClassVar[str] = "columns-compared"
    static_only: ClassVar[str] = "uses of a tensor are not recorded"
    parallel: int | None = numbered(default=None)
    api: str = ""


@event
class ColumnsViewed(Event):
    """A view of such an output with the number of the heads of all ranks.

    parallel: the index of the event of the tensor parallelism. heads: the code of the number.
    """

    kind: ClassVar[str] = "columns-viewed"
    static_only: ClassVar[str] = "uses of a tensor are not recorded"
    parallel: int | None = numbered(default=None)
    heads: str = ""


@event
class TensorParallel(Event):
    """`parallelize_module(module, mesh, plan)`.

    parts: the modules whose parameters it makes DTensors, as far as they are known.
    without_module: the paths of the plan that certainly match no module.
    whole_mesh, dims: as for `Sharded`.
    splits_inputs: whether each rank may give it a part of the batch: the input of a style is
        `Shard(0)`, or the program makes DTensors itself.
    whole_plan: whether `parts` has all modules whose parameters the program makes DTensors by it.
    """

    # The styles that distribute parameters, not only inputs and outputs.
    STYLES: ClassVar[frozenset[str]] = frozenset(
        {"ColwiseParallel", "RowwiseParallel", "SequenceParallel"}
    )

    kind: ClassVar[str] = "tensor-parallel"
    module: str = reference(distinct=True)
    parts: tuple[str, ...] = reference(default=())
    without_module: tuple[str, ...] = ()
    whole_mesh: str = reference(default="")
    dims: tuple[str, ...] = ()
    splits_inputs: bool = False
    whole_plan: bool = unrecorded("a record has the parameters", default=False)


@event
class ContextParallel(Event):
    """`context_parallel(mesh, buffers=...)`: the ranks compute on parts of the same sequences.

    whole_mesh, dims: as for `Sharded`.
    """

    kind: ClassVar[str] = "context-parallel"
    static_only: ClassVar[str] = "inputs are not compared"
    whole_mesh: str = ""
    dims: tuple[str, ...] = ()


@event
class Checkpointed(Event):
    """Activation checkpointing was applied to a module (or to its children)."""

    kind: ClassVar[str] = "activation-checkpointed"
    module: str = reference(distinct=True)


@event
class Compiled(Event):
    kind: ClassVar[str] = "module-compiled"
    module: str = reference(distinct=True)
    result: str = reference(default="")


@event
class MethodRegistered(Event):
    """`register_fsdp_forward_method(module, method)`."""

    kind: ClassVar[str] = "method-registered"
    module: str = reference(distinct=True)
    method: str = distinct()


@event
class Gathered(Event):
    """`module.unshard()` (gathered=True) or `module.reshard()` (gathered=False).

    replaced: whether `setattr` put other parameters in place of the module's instead: the program
        holds both, and may copy one into the other (static traces only).
    """

    kind: ClassVar[str] = "parameters-gathered"
    module: str = reference(distinct=True)
    gathered: bool = distinct()
    replaced: bool = unrecorded("a record has the parameters", default=False)


@event
class PrecisionChosen(Event):
    """`MixedPrecisionPolicy(...)` of FSDP2.

    param_dtype, reduce_dtype: e.g. "torch.bfloat16"; None if not set, "?" if unknown.
    """

    kind: ClassVar[str] = "precision-chosen"
    param_dtype: str | None = None
    reduce_dtype: str | None = None


@event
class Fsdp1Used(Event):
    """A use of FSDP1's API other than its constructor, e.g. "FSDP.state_dict_type".

    instead_of_model: what a method for optimizer states certainly gets in place of the model, in
        words; empty for the model.
    edits_lost: whether a block of `summon_full_params(writeback=False)` changes parameters that it
        has gathered, and does nothing else that is in the trace before it drops them.
    dropped: whether the program drops the state that `optim_state_dict_to_load` or one of the older
        methods prepares for the optimizer, which gets it nowhere else.
    """

    kind: ClassVar[str] = "fsdp1-used"
    api: str = distinct()
    module: str | None = reference(default=None, distinct=True)
    instead_of_model: str = ""
    edits_lost: bool = combined(on_all, default=False)
    dropped: bool = combined(on_all, default=False)


@event
class PlainModuleUsed(Event):
    """A method of sharded modules gets a module that is not sharded itself (static traces only).

    module: a part of a sharded module.
    method: the method. given: whether the module may be in a list that the method gets.
    """

    kind: ClassVar[str] = "plain-module-used"
    static_only: ClassVar[str] = "the call raises an error"
    module: str = reference(distinct=True)
    method: str = ""
    given: bool = False


@event
class Fsdp2Used(Event):
    """A use of an FSDP2 API that not every torch with FSDP2 has.

    api: a method of FSDPModule ("reset_iter_state"), or an argument ("fully_shard.ignored_params").
    optional: as for `Imported`: in a `try`, or under a test of the torch version or of the API.
    """

    kind: ClassVar[str] = "fsdp2-used"
    api: str = distinct()
    module: str = reference(distinct=True)
    optional: bool = False
