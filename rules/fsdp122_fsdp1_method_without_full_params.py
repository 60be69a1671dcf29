"""FSDP122: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, TypeGuard

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Called,
    Event,
    GradMode,
    Module,
    OptimizerStepped,
    Site,
    Trace,
    Wrapped,
)
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.absent_roots import use_of_absent_root
from fsdplint.trace.queries.common import optimizers_over
from fsdplint.trace.queries.wrappers import (
    FREEING,
    is_known_unit,
    outermost,
    part_of_unit,
    strategy,
    unit_of,
    uses_original_parameters,
)

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class Fsdp1MethodWithoutFullParams(Rule):
    """A method of a model in an FSDP1 wrapper computes with parameters that are not gathered.

    ## What it does
    Finds calls such as `model.generate(x)` or `model.encode(x)` of a model that
    `FullyShardedDataParallel` wraps and shards, if the method calls submodules whose parameters
    belong to the wrapper's unit. `generate` of a model of Transformers calls the model itself. Also
    finds calls of the inner module, `model.module(x)`, and methods of a wrapped part that the forward
    of its parent calls: `self.encoder.features(x)` does not gather the encoder.

    If all submodules of the model have wrappers of their own, `model.module(x)` is reported where the
    program also uses the wrapper: a call, a state dict, or `summon_full_params`.

    A call is not reported under `FSDP.summon_full_params`, if each submodule that a method calls has a
    wrapper of its own, if the wrapping policy cannot be followed, or if a call of the wrapper has left the
    parameters gathered. After a call of the wrapper without gradients, `model.module(x)` is reported if an
    optimizer of the model steps directly after the next backward.

    ## Why is this bad?
    FSDP1 gathers the parameters in the wrapper's `forward`. The inner module has only this rank's
    part of them (with `use_orig_params=True`) or views of a freed storage:

        RuntimeError: mat2 must be a matrix, got 1-D tensor
        RuntimeError: 'weight' must be 2-D
        RuntimeError: setStorage: ... are out of bounds for storage of size 0

    Wrapped parts that run without the wrapper take themselves for roots, and the next use of the wrapper
    fails. If the wrapper has been used before, the parts miss its end of the backward: the second step
    changes nothing, or trains with wrong gradients:

        AssertionError: Non-root FSDP instance's `_is_root` should not have been set yet
        AssertionError: Cannot manually unshard parameters during forward/backward

    A call of the wrapper without gradients leaves the parameters of the root gathered. `model.module(x)` then
    computes with them, but nothing reduces their gradients, and the step fails:

        RuntimeError: The size of tensor a (30) must match the size of tensor b (60)

    ## Fix safety
    Safe for `model.module(x)`, which becomes `model(x)`. There is no fix for a method. If no gradient is
    needed, call it under `FSDP.summon_full_params(model, recurse=False, writeback=False)` on all ranks.
    Wrapped parts gather themselves then; without `recurse=False`, their forward frees what the block has
    gathered (FSDP138). Otherwise, call it from `forward`.

    ## Since
    Always for FSDP1.

    ## References
    - torch docs, `FullyShardedDataParallel.summon_full_params`.
    - pytorch/pytorch#123962 and #100069; huggingface/transformers#30228.
    """

    code = "FSDP122"
    name = "fsdp1-method-without-full-params"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[Site] = set()
        for event in trace.of(Called):
            if event.summoned or event.site in seen:
                continue
            wrapper = _bypassed_wrapper(trace, event)
            if event.inside is None:
                entered = _first_ungathered_call(groups, event, wrapper) if wrapper else None
            else:
                wrapper, entered = _ungathered_part(groups, event)
            if wrapper is not None and entered is not None:
                seen.add(event.site)
                gathered = event.inside is None and _still_gathered(trace, event, wrapper)
                yield self._finding(groups, event, wrapper, entered, gathered)
            elif wrapper is not None and event.inside is None:
                use = use_of_absent_root(trace, event, wrapper)
                if use is not None and not _is_unknown(trace, wrapper.module, event):
                    seen.add(event.site)
                    yield self._of_absent_root(groups, event, wrapper, use)

    def _of_absent_root(self, groups: Groups, event: Called, by: Wrapped, use: Event) -> Finding:
        return self.finding(
            event,
            f"{groups.name(by.inner)} is called without its FSDP wrapper, which is the root of its "
            "wrapped parts",
            help="Call the wrapper.",
            why="Without their root, the wrapped parts are not set up together, and do not finish a "
            "backward.",
            because=[(by, "wrapped here"), (use, "the wrapper is used here")],
        )

    def _finding(
        self, groups: Groups, event: Called, by: Wrapped, entered: Called, gathered: bool
    ) -> Finding:
        name = groups.name(by.inner if event.inside is None else event.module)
        if event.via == "call":
            what = f"{name} is called without its FSDP wrapper"
            help_text = "Call the wrapper."
        elif event.inside is not None:
            what = f"`{event.via}` of {name} calls {groups.name(entered.module)}"
            help_text = "Call the wrapped module itself, or leave it in the unit of its parent."
        else:
            what = f"`{event.via}` of {name} calls {groups.name(entered.module)}"
            if entered.module == event.module:
                what = f"`{event.via}` of {name} calls the model"
            help_text = (
                "If no gradient is needed, call it under `FSDP.summon_full_params(model, "
                "recurse=False, writeback=False)`. Otherwise, call it from the wrapper's `forward`."
            )
        because = [(by, "sharded here")]
        does = "reduces the gradients" if gathered else "gathers the sharded parameters"
        return self.finding(
            event,
            f"{what}, but only a call of the wrapper {does}",
            help=help_text,
            why="A call of the wrapper without gradients has left the parameters gathered, and the step "
            "of the optimizer gets whole gradients for its parts."
            if gathered
            else "",
            because=[*because, *([(entered, "parameters used here")] if entered != event else [])],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at
        from fsdplint.fixes.wrapper_options import rely_on_wrapping
        from fsdplint.interpreter.values import ModuleValue

        event, found = finding.events[0], call_at(finding.site)
        if not isinstance(event, Called) or event.via != "call" or found is None:
            return None
        source, call = found
        inner = call.func
        if not isinstance(inner, cst.Attribute):
            return None
        values = program.values(inner.value)
        if inner.attr.value not in ("module", "_fsdp_wrapped_module") or not values:
            return None
        if not all(isinstance(v, ModuleValue) and v.wrapper == "fsdp1" for v in values):
            return None
        rewrite = Rewrite()
        rewrite.replace(source, inner, source.code(inner.value))
        rely_on_wrapping(rewrite, finding.events)
        return rewrite.fix("Call the wrapper", Safety.SAFE)


def _bypassed_wrapper(trace: Trace, event: Called) -> Wrapped | None:
    """The outermost wrapper of a module that is called other than by the wrapper's forward."""
    own_unit = event.via == "call" and trace.modules[event.module].wrapper == "fsdp1"
    if event.via == "forward" or own_unit:
        return None
    made = list(trace.before(event, Wrapped))
    for wrapper in reversed(outermost(trace, made)):
        if event.module == wrapper.inner or (
            event.module == wrapper.module and event.via != "call"
        ):
            return wrapper if is_known_unit(wrapper) else None
    return None


def _ungathered_part(groups: Groups, event: Called) -> tuple[Wrapped | None, Called | None]:
    """The wrapper of a unit whose method a forward calls, and the call that computes with the unit.

    Each unit but the outermost one frees its parameters after its own forward.
    """
    trace = groups.trace
    if event.via in ("call", "forward") or trace.family_escaped(event.module, event):
        return None, None
    for wrapper in trace.before(event, Wrapped):
        is_unit = event.module in (wrapper.units or ())
        is_root = event.module in (wrapper.inner, wrapper.module)
        is_root = is_root and wrapper not in outermost(trace, list(trace.before(event, Wrapped)))
        if (
            not (is_unit or is_root)
            or not is_known_unit(wrapper)
            or strategy(wrapper) not in FREEING
        ):
            continue
        own = {event.module, wrapper.inner, wrapper.module} if is_root else {event.module}
        if any(outer.module in own for outer in groups.enclosing_calls(event)):
            return None, None
        unit = part_of_unit(groups, wrapper, event.module, event)
        for inner in groups.nested_calls(event):
            if inner.via == "call" and inner.module in unit and _computes(trace, inner, unit):
                return wrapper, inner
    return None, None


def _first_ungathered_call(groups: Groups, event: Called, wrapper: Wrapped) -> Called | None:
    """The first call that computes with parameters of the wrapper's unit, or None."""
    trace = groups.trace
    if _is_unknown(trace, wrapper.module, event):
        return None
    if _still_gathered(trace, event, wrapper) and not _trains_gathered(trace, event, wrapper):
        return None
    unit = unit_of(groups, wrapper, event)
    inside = groups.nested_calls(event) if event.via != "call" else ()
    for inner in [*([event] if event.via == "call" else []), *inside]:
        if inner.module == wrapper.module and inner.via in ("call", "forward"):
            return None
        if inner.via == "call" and inner.module in unit and _computes(trace, inner, unit):
            return inner
    return None


def _is_unknown(trace: Trace, module: str, before: Event) -> bool:
    """Whether unknown code may have changed a module before an event, or its parts cannot be
    followed."""
    family = trace.family(module)
    if not trace.complete or trace.any_escaped(family, before):
        return True
    infos = (trace.modules[one] for one in family)
    return any(not (one.children_known or _of_library(one)) for one in infos)


def _of_library(module: Module) -> bool:
    """Whether a library has a model whose parts take parameters of the root."""
    return (module.qualified_class or "").startswith(("transformers.", "peft."))


def _computes(trace: Trace, event: Called, unit: set[str]) -> bool:
    """Whether a called module has parameters of a unit, itself or in its parts."""
    parts = unit & set(trace.submodules(event.module))
    if any(trace.modules[part].own_parameters for part in parts):
        return True
    return _of_library(trace.modules[event.module])


def _still_gathered(trace: Trace, event: Called, wrapper: Wrapped) -> bool:
    """Whether a call of the wrapper without a backward after it has left the parameters gathered.

    The outermost wrapper frees them only after the backward. With `use_orig_params=True`, the
    parameters are this rank's parts in any case.
    """
    if uses_original_parameters(wrapper):
        return False
    whole = False
    for other in trace.before(event, Called, BackwardRun):
        if isinstance(other, Called):
            whole = whole or _enters(other, wrapper)
        else:
            whole = False
    return whole


def _trains_gathered(trace: Trace, event: Called, wrapper: Wrapped) -> bool:
    """Whether gradients are made for parameters that a call without gradients has left gathered.

    The wrapper's own forward with gradients would set up their reduction.
    """
    if event.via != "call" or event.grad is not GradMode.ON:
        return False
    prepared = [
        other
        for other in takewhile(_is_no_backward, reversed(trace.events[: event.index]))
        if _enters(other, wrapper) and other.grad is not GradMode.OFF
    ]
    if prepared or not optimizers_over(trace, wrapper.module):
        return False
    for later in trace.after(event, Called, BackwardRun):
        if isinstance(later, BackwardRun):
            return _is_stepped_next(trace, later, wrapper)
        if _enters(later, wrapper):
            return False
    return False


def _is_stepped_next(trace: Trace, backward: BackwardRun, wrapper: Wrapped) -> bool:
    """Whether an optimizer of the model steps after a backward, before another call of a module.

    Otherwise, the backward may be that of another model.
    """
    for event in trace.after(backward, Called, BackwardRun, OptimizerStepped):
        if not isinstance(event, OptimizerStepped):
            return False
        if event.optimizer in optimizers_over(trace, wrapper.module):
            return True
    return False


def _enters(event: Event, wrapper: Wrapped) -> TypeGuard[Called]:
    """Whether an event is a call of the wrapper."""
    if not isinstance(event, Called) or event.via not in ("call", "forward"):
        return False
    return event.module == wrapper.module


def _is_no_backward(event: Event) -> bool:
    return not isinstance(event, BackwardRun)
