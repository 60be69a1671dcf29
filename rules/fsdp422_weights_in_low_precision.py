"""FSDP422: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    ModuleMoved,
    PrecisionChosen,
    Sharded,
    Trace,
    Wrapped,
)
from fsdplint.trace.queries.common import class_name, steps_with

_LOW = ("torch.bfloat16", "torch.float16")
_ALIASES = {"half": "float16"}
_HELP = "Keep the model in float32: `param_dtype` casts it for the computation."


class WeightsInLowPrecision(Rule):
    """A model has the `param_dtype` of its mixed precision, which then keeps no float32 weights.

    ## What it does
    Finds models whose trainable parameters all have the `param_dtype` of their mixed precision before
    they are sharded (bfloat16 or float16), and that an optimizer of `torch.optim` updates. The program
    casts them, or loads a model of Transformers or Diffusers with `dtype=torch.bfloat16`. Also finds a cast of a
    model that `fully_shard` has sharded with mixed precision.

    Models without a `param_dtype` are not reported: their authors chose to train in low precision.
    Optimizers of other libraries and of the program may round in ways of their own.

    ## Why is this bad?
    Mixed precision keeps the sharded parameters in the dtype that they have when the model is sharded,
    and casts them to `param_dtype` for the computation. The optimizer updates the sharded parameters.
    bfloat16 has 8 significant bits: an update that is smaller than 1/512 of the weight is rounded away, and
    there is no error. Two ranks train the scale of a LayerNorm, which begins with 1, with SGD and a gradient of 1:

        scale after 100 steps: 1.0

    and 0.9 if the model is not cast.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`MixedPrecisionPolicy`)
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (mixed precision)
    """

    code = "FSDP422"
    name = "weights-in-low-precision"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterator[Finding]:
        found: dict[str, Sharded | Wrapped] = {}
        for event in _shardings(trace):
            if event.weights_in not in _LOW or not _is_updated(trace, event):
                continue
            # One finding for a model: at the outermost module, which is sharded last.
            for known in [one for one in found if trace.related(one, event.module)]:
                del found[known]
            found[event.module] = event
        for event in found.values():
            dtype = event.weights_in.removeprefix("torch.")
            inner = event.inner if isinstance(event, Wrapped) else event.module
            yield self.finding(
                event,
                f"the weights of `{class_name(trace, inner)}` are {dtype} before it is sharded, so its "
                "mixed precision has no float32 weights for the optimizer",
                help=_HELP,
            )
        yield from self._casts(trace)

    def _casts(self, trace: Trace) -> Iterator[Finding]:
        """The casts of sharded models, with which an optimizer then makes a step."""
        moves = list(trace.of(ModuleMoved))
        for event in moves:
            dtype = (event.dtype or "").removeprefix("torch.")
            dtype = _ALIASES.get(dtype, dtype)
            if f"torch.{dtype}" not in _LOW or not _is_mixed(trace, event):
                continue
            step = next(iter(steps_with(trace, event.module, event, "torch")), None)
            again = [one for one in moves if one.dtype and trace.related(one.module, event.module)]
            if step is None or any(event.index < one.index < step.index for one in again):
                continue
            yield self.finding(
                event,
                f"the sharded weights of `{class_name(trace, event.module)}` become {dtype}, so its mixed "
                "precision has no float32 weights for the optimizer",
                help=_HELP,
                because=[(step, "updated here")],
            )


def _shardings(trace: Trace) -> list[Sharded | Wrapped]:
    found: list[Sharded | Wrapped] = [*trace.of(Sharded), *trace.of(Wrapped)]
    return sorted(found, key=lambda event: event.index)


def _is_mixed(trace: Trace, event: ModuleMoved) -> bool:
    """Whether `fully_shard` has sharded a model with a `param_dtype`, which a cast does not mean."""
    inside = {event.module, *trace.submodules(event.module)}
    shards = [one for one in trace.before(event, Sharded) if one.module in inside]
    chosen = [one.param_dtype for one in trace.before(event, PrecisionChosen)]
    return (
        bool(shards and chosen)
        and all("mp_policy" in one.options for one in shards)
        and all(one is not None and one != "?" for one in chosen)
    )


def _is_updated(trace: Trace, event: Sharded | Wrapped) -> bool:
    """Whether an optimizer of torch makes steps with parameters of a module."""
    return any(True for _ in steps_with(trace, event.module, event, "torch"))
