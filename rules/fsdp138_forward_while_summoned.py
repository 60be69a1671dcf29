"""FSDP138: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Event, Fsdp1Used, Site, Trace, Wrapped
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.wrappers import (
    is_known_unit,
    part_of_unit,
    uses_original_parameters,
)

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


# With mixed precision, the forward frees other memory; with CPU offloading, nothing was run.


class ForwardWhileSummoned(Rule):
    """A unit of FSDP1 runs its forward while `summon_full_params` has its parameters gathered.

    ## What it does
    Finds blocks of `FSDP.summon_full_params(model)` in which a wrapper that the block has gathered is
    called: the model itself, or the wrapped blocks that `model.generate(x)` or `model.module(x)` calls.
    With `recurse=False`, the block gathers the outermost wrapper only.

    With `use_orig_params=True`, a block with `writeback=False` is not reported. Neither are units in
    mixed precision with a `param_dtype`, whose forward frees copies in low precision, units with CPU
    offloading, and units with the strategy `NO_SHARD`.

    ## Why is this bad?
    The forward of a unit frees the gathered parameters. With `use_orig_params=True`, the end of the
    block then writes what is left in their memory into the shards. There is no error: the parameters
    have other values afterwards, and the training goes on with them. With `use_orig_params=False`, the
    end of the block fails, also without writing back:

        AssertionError: Expects tensor to be unsharded with size torch.Size([280]) but got torch.Size([140])

    ## Fix safety
    Unsafe. If only wrapped parts are called, `recurse=False` is added: they gather themselves in their
    forward, and the block can no longer read or change their parameters. Else `writeback=False` is
    added under `use_orig_params=True`, and changes that the block makes to parameters are lost. There
    is no fix for a wrapper with `use_orig_params=False` that is called itself: it needs no block.

    ## Since
    Always for FSDP1.

    ## References
    - torch docs, `FullyShardedDataParallel.summon_full_params`: it can not be used within a forward or
      backward pass, nor can these be started from within it.
    """

    code = "FSDP138"
    name = "forward-while-summoned"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[Site] = set()
        for event in trace.of(Called):
            block = None if event.summoned_by is None else trace.events[event.summoned_by]
            if not isinstance(block, Fsdp1Used) or block.site in seen:
                continue
            wrapper = _freed_unit(groups, event)
            if wrapper is None:
                continue
            whole = uses_original_parameters(wrapper)
            if whole is None or (whole and not event.written_back):
                continue
            seen.add(block.site)
            yield self._finding(groups, block, event, wrapper)

    def _finding(self, groups: Groups, block: Event, event: Called, wrapper: Wrapped) -> Finding:
        name = groups.name(groups.trace.unwrap(event.module))
        if _calls_unseen_units(wrapper, event):
            name = f"the wrapped parts of {name}"
        if uses_original_parameters(wrapper):
            ends = "the block writes freed memory into the shards"
        else:
            ends = "the end of the block fails"
        if _is_a_part(groups.trace, event):
            help_text = "Pass `recurse=False`: the wrapped parts gather themselves."
        else:
            help_text = f"Call {name} outside of the block: it gathers itself."
        return self.finding(
            block,
            f"The forward of {name} frees the parameters that the block has gathered, so that {ends}",
            help=help_text,
            because=[(event, "its forward runs here"), (wrapper, "wrapped here")],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import argument, call_at

        found = call_at(finding.site)
        calls = [
            (trace, event)
            for trace in program.traces
            for event in trace.of(Called)
            if event.summoned_by is not None
            and trace.events[event.summoned_by].site == finding.site
            and _freed_unit(Groups(trace), event) is not None
        ]
        if found is None or not calls or not found[1].args:
            return None
        source, call = found
        if all(_is_a_part(trace, event) for trace, event in calls):
            position, name = 1, "recurse"
        elif all(_keeps_original_parameters(trace, event) for trace, event in calls):
            position, name = 2, "writeback"
        else:
            return None
        rewrite = Rewrite()
        given = argument(call, position, name)
        if given is not None:
            rewrite.replace(source, given.value, "False")
        else:
            rewrite.insert(source, source.span(call.args[-1].value)[1], f", {name}=False")
        title = "Gather the outermost wrapper only" if position == 1 else "Write nothing back"
        return rewrite.fix(title, Safety.UNSAFE)


def _is_a_part(trace: Trace, event: Called) -> bool:
    """Whether a call is of a part of the module that the block around it has gathered."""
    block = trace.events[event.summoned_by] if event.summoned_by is not None else None
    return isinstance(block, Fsdp1Used) and block.module != event.module


def _keeps_original_parameters(trace: Trace, event: Called) -> bool:
    wrapper = _freed_unit(Groups(trace), event)
    return wrapper is not None and uses_original_parameters(wrapper) is True


def _freed_unit(groups: Groups, event: Called) -> Wrapped | None:
    """The wrapper whose unit a call runs, if that certainly frees parameters."""
    if event.via not in ("call", "forward"):
        return None
    trace = groups.trace
    for wrapper in reversed(list(trace.before(event, Wrapped))):
        root = None
        if event.module == wrapper.module:
            root = wrapper.inner
        elif event.via == "call" and event.module in (wrapper.units or ()):
            root = event.module
        if root is None and not _calls_unseen_units(wrapper, event):
            continue
        if _gathers_copies(wrapper):
            return None
        parts = set() if root is None else part_of_unit(groups, wrapper, root, event)
        has_parameters = root is None or any(trace.modules[one].own_parameters for one in parts)
        return wrapper if is_known_unit(wrapper) and has_parameters else None
    return None


def _gathers_copies(wrapper: Wrapped) -> bool:
    """Whether a forward may gather other memory than `summon_full_params`: copies in low precision."""
    precision = str(wrapper.options.get("mixed_precision"))
    full = precision == "None" or "param_dtype=None" in precision
    return not full or wrapper.options.get("cpu_offload") not in (None, "None")


def _calls_unseen_units(wrapper: Wrapped, event: Called) -> bool:
    """Whether a model of a library, whose policy wraps classes of this library, is called itself."""
    return wrapper.keeps_rest and event.module == wrapper.inner
