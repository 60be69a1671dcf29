"""FSDP307: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Event, Layout, Sharding, StateLoaded, StateTaken, TensorsMixed, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import (
    class_name,
    only_fsdp2,
    sharded_by_fsdp2,
    sharded_here,
)
from fsdplint.trace.queries.lost_edits import lost_edits
from fsdplint.trace.queries.wrappers import prepared_by_framework


class EmaOfPlainCopy(Rule):
    """A plain copy of a model, such as an average of its weights, is updated with sharded parameters.

    ## What it does
    Finds `lerp_`, `add_`, `copy_`, arithmetic and `torch._foreach_...` between the sharded parameters of a
    model and plain tensors: those of another model that is not sharded, a deep copy from before
    `fully_shard`, or a dict of clones.

    Also finds `parameter.copy_(values)` and other operations in place of a parameter that `fully_shard` has
    sharded, with a new tensor that is not: `torch.randn(parameter.shape) * std` in an initialisation. Tensors of one
    element are fine.

    With FSDP1, parameters count if `use_orig_params=True` and nothing has gathered them.

    Also finds `plain.load_state_dict(model.state_dict())` if `fully_shard` shards `model` and nothing
    shards `plain`. With `assign=True`, the load itself works, so this is not reported.

    ## Why is this bad?
    The parameters are DTensors once the model is sharded, but the copies are not. The first update ends with

        RuntimeError: aten.lerp_.Scalar got mixed torch.Tensor and DTensor, need to convert all
        torch.Tensor to DTensor before calling distributed operators!

    The load ends with the same error for `aten.copy_.default`, on every rank.

    Parameters of FSDP1 are flat parts of one dimension. On two ranks, the first update ends with
    `RuntimeError: The size of tensor a (8) must match the size of tensor b (64) at non-singleton dimension 1`.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - pytorch/pytorch#82070: copy the model first, then shard both
    - https://docs.pytorch.org/docs/stable/distributed.tensor.html
    """

    code = "FSDP307"
    name = "ema-of-plain-copy"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterable[Finding]:
        groups = Groups(trace)
        mixed = list(trace.of(TensorsMixed))
        gathered = {edit.site for edit, _, _ in lost_edits(groups)} if mixed else set()
        for event in mixed:
            if event.site in gathered:
                continue  # the plain tensors are gathered parameters: FSDP143
            modules = {*event.plain_modules, *event.sharded_modules}
            if any(trace.escaped(module, event) for module in modules):
                continue
            if any(guard.of_tensor for guard in event.guards):
                continue
            units = [groups.owner(module, event) or module for module in event.sharded_modules]
            by_fsdp1 = all(trace.sharding(unit) is Sharding.FSDP1 for unit in units)
            if by_fsdp1 or all(_is_of_fsdp2(trace, unit, event) for unit in units):
                yield self._finding(trace, event, by_fsdp1=by_fsdp1)
        for loaded in trace.of(StateLoaded):
            taken = _sharded_state(trace, loaded)
            if taken is not None and not _may_be_sharded(trace, loaded):
                yield self._load(trace, loaded, taken)

    def _finding(self, trace: Trace, event: TensorsMixed, *, by_fsdp1: bool) -> Finding:
        module = event.sharded_modules[0] if event.sharded_modules else None
        operation = event.api.removeprefix("torch.")
        text = f"`{operation}` mixes sharded parameters with plain tensors"
        if module is not None:
            text = (
                f"`{operation}` mixes sharded parameters of `{class_name(trace, module)}` with plain "
                f"tensors"
            )
        why = (
            "The parameters are DTensors once the model is sharded, but the other tensors are not."
        )
        advice = (
            "Make both DTensors: copy the model first and apply `fully_shard` to both, or clone the "
            "parameters after `fully_shard`."
        )
        if event.sharded_modules and not event.plain_modules:
            why = "The parameters are DTensors, and the new tensor is not."
            advice = (
                "Use a function of `torch.nn.init` or `torch.randn_like(parameter)`, or make the values a "
                "DTensor: `distribute_tensor(values, parameter.device_mesh, parameter.placements)`."
            )
        if by_fsdp1:
            why = "Each rank has flat parts of the parameters, which do not have their shape."
            advice = (
                "Wrap the copy by FSDP1 in the same way, or gather both with `summon_full_params`."
            )
        return self.finding(
            event,
            text,
            why=why,
            help=advice,
            because=sharded_here(trace, module, event) if module is not None else (),
        )

    def _load(self, trace: Trace, event: StateLoaded, taken: StateTaken) -> Finding:
        plain, sharded = class_name(trace, event.into), class_name(trace, taken.of)
        return self.finding(
            event,
            f"the state dict of `{sharded}`, which is sharded, is loaded into a `{plain}` that is not",
            why="The state has DTensors, which cannot be copied into plain parameters.",
            help="Gather the state first with `get_model_state_dict` and `full_state_dict=True`, on all "
            "ranks, or shard both models.",
            because=[(taken, "taken here"), *sharded_here(trace, taken.of, taken)],
        )


def _is_of_fsdp2(trace: Trace, unit: str, event: Event) -> bool:
    """Whether the program, or a framework, shards a unit by FSDP2."""
    prepared = prepared_by_framework(trace, unit, event, version=2)
    return prepared is not None or only_fsdp2(trace, unit, event)


def _sharded_state(trace: Trace, event: StateLoaded) -> StateTaken | None:
    """Where the state of FSDP2 was taken whose values a load copies; None for any other load."""
    if event.layout is not Layout.SHARDED or event.assign is not False or event.state is None:
        return None
    for taken in trace.before(event, StateTaken):
        if taken.state == event.state and taken.of in trace.modules:
            return taken if sharded_by_fsdp2(trace, taken.of, taken) else None
    return None


def _may_be_sharded(trace: Trace, loaded: StateLoaded) -> bool:
    """Whether anything shards the module of a load, a part of it or one that contains it."""
    module = loaded.into
    if module not in trace.modules or trace.escaped(module, loaded):
        return True
    return any(trace.sharded_within(one) for one in (module, *trace.ancestors(module)))
