"""FSDP122: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import BackwardRun, Called, Site, Trace, Wrapped
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.wrappers import outermost, shards, unit_of, uses_original_parameters

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class Fsdp1MethodWithoutFullParams(Rule):
    """A method of a model in an FSDP1 wrapper computes with parameters that are not gathered.

    ## What it does
    Finds calls such as `model.generate(x)` or `model.encode(x)` of a model that
    `FullyShardedDataParallel` wraps and shards, if the method calls submodules whose parameters
    belong to the wrapper's unit. Also finds calls of the inner module, `model.module(x)`.

    A call is not reported under `FSDP.summon_full_params`, if each submodule that it calls has a wrapper
    of its own, if the wrapping policy cannot be followed, or if a call of the wrapper has left the
    parameters gathered.

    ## Why is this bad?
    FSDP1 gathers the parameters in the wrapper's `forward`. The inner module has only this rank's
    part of them (with `use_orig_params=True`) or views of a freed storage:

        RuntimeError: mat2 must be a matrix, got 1-D tensor
        RuntimeError: 'weight' must be 2-D
        RuntimeError: setStorage: ... are out of bounds for storage of size 0

    ## Fix safety
    Safe for `model.module(x)`, which becomes `model(x)`. There is no fix for a method. If no gradient is
    needed, call it under `FSDP.summon_full_params(model, writeback=False)` on all ranks, which needs
    memory for the whole model. Otherwise, call it from `forward`.

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
            if event.inside is not None or event.summoned or event.site in seen:
                continue
            wrapper = _bypassed_wrapper(trace, event)
            entered = (
                _first_ungathered_call(groups, event, wrapper) if wrapper is not None else None
            )
            if wrapper is not None and entered is not None:
                seen.add(event.site)
                yield self._finding(groups, event, wrapper, entered)

    def _finding(self, groups: Groups, event: Called, by: Wrapped, entered: Called) -> Finding:
        name = groups.name(by.inner)
        if event.via == "call":
            what = f"{name} is called without its FSDP wrapper"
            help_text = "Call the wrapper."
        else:
            what = f"`{event.via}` of {name} calls {groups.name(entered.module)}"
            help_text = (
                "If no gradient is needed, call it under `FSDP.summon_full_params(model, "
                "writeback=False)`. Otherwise, call it from the wrapper's `forward`."
            )
        because = [(by, "sharded here")]
        return self.finding(
            event,
            f"{what}, but only a call of the wrapper gathers the sharded parameters",
            help=help_text,
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
    if event.via == "forward":
        return None
    made = list(trace.before(event, Wrapped))
    for wrapper in reversed(outermost(trace, made)):
        if event.module == wrapper.inner or (
            event.module == wrapper.module and event.via != "call"
        ):
            known = shards(wrapper) and wrapper.units is not None and "**" not in wrapper.options
            ignores = any(name.startswith("ignored_") for name in wrapper.options)
            return wrapper if known and not ignores else None
    return None


def _first_ungathered_call(groups: Groups, event: Called, wrapper: Wrapped) -> Called | None:
    """The first call that computes with parameters of the wrapper's unit, or None."""
    trace = groups.trace
    if trace.family_escaped(wrapper.module) or _still_gathered(trace, event, wrapper):
        return None
    unit = unit_of(groups, wrapper, event)
    inside = groups.nested_calls(event) if event.via != "call" else ()
    for inner in [*([event] if event.via == "call" else []), *inside]:
        if inner.module == wrapper.module and inner.via in ("call", "forward"):
            return None
        if inner.via != "call" or inner.module not in unit:
            continue
        parts = unit & set(trace.submodules(inner.module))
        if any(trace.modules[part].own_parameters for part in parts):
            return inner
    return None


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
            whole = whole or (other.module == wrapper.module and other.via in ("call", "forward"))
        else:
            whole = False
    return whole
