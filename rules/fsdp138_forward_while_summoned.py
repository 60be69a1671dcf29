"""FSDP138: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Event, Fsdp1Used, Site, Trace, Wrapped
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import steps_with
from fsdplint.trace.queries.wrappers import (
    is_known_unit,
    part_of_unit,
    shards,
    uses_original_parameters,
)

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class ForwardWhileSummoned(Rule):
    """A unit of FSDP1 runs its forward while `summon_full_params` has its parameters gathered.

    ## What it does
    Finds blocks of `FSDP.summon_full_params(model)` in which a wrapper that the block has gathered is
    called: the model itself, or the wrapped blocks that `model.generate(x)` or `model.module(x)` calls.
    With `recurse=False`, the block gathers the outermost wrapper only.

    With `use_orig_params=True`, a block with `writeback=False` is reported only for a unit in mixed
    precision with a `param_dtype`, and only if the program trains this unit after the block. Units with
    the strategy `NO_SHARD` are not reported.

    ## Why is this bad?
    The forward of a unit shards the gathered parameters again. With `use_orig_params=True`, there is no
    error:

    - In full precision, the end of the block takes the rank's part of what it believes to be the whole
      parameters, and writes it into the shard. On the second of two ranks, the second half of its shard
      replaces the first half. The training goes on with these values.
    - In mixed precision with a `param_dtype`, the unit is not trained any more: the steps of the
      optimizer no longer reach the shards that later forwards gather. A block with `writeback=False`
      has the same effect.

    With `use_orig_params=False`, the end of the block fails, also without writing back:

        AssertionError: Expects tensor to be unsharded with size torch.Size([280]) but got torch.Size([140])

    ## Fix safety
    Unsafe. If only wrapped parts are called, `recurse=False` is added: they gather themselves in their
    forward, and the block can no longer read or change their parameters. Else `writeback=False` is
    added under `use_orig_params=True` in full precision, and changes that the block makes to parameters
    are lost. There is no fix for other wrappers that are called themselves: they need no block.

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
            if not _is_damaged(trace, event, wrapper):
                continue
            seen.add(block.site)
            yield self._finding(groups, block, event, wrapper)

    def _finding(self, groups: Groups, block: Event, event: Called, wrapper: Wrapped) -> Finding:
        name = groups.name(groups.trace.unwrap(event.module))
        if _calls_unseen_units(wrapper, event):
            name = f"the wrapped parts of {name}"
        if not uses_original_parameters(wrapper):
            ends = "the end of the block fails"
        elif wrapper.casts_weights:
            ends = "later steps of the optimizer do not change them"
        elif _computes_in_full_precision(wrapper):
            ends = "the block writes wrong values into the shards"
        else:
            ends = "later steps train wrong values, or train nothing"
        if _is_a_part(groups.trace, event):
            help_text = "Pass `recurse=False`: the wrapped parts gather themselves."
        else:
            help_text = f"Call {name} outside of the block: it gathers itself."
        return self.finding(
            block,
            f"the forward of {name} shards the parameters that the block has gathered, so that {ends}",
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
    if wrapper is None or not uses_original_parameters(wrapper):
        return False
    return _computes_in_full_precision(wrapper)


def _is_damaged(trace: Trace, event: Called, wrapper: Wrapped) -> bool:
    """Whether the forward of a gathered unit certainly has an effect: see the page."""
    original = uses_original_parameters(wrapper)
    if original is None:
        return False
    if not original:
        return True
    if _computes_in_full_precision(wrapper):
        return event.written_back is True
    trained = any(True for _ in steps_with(trace, wrapper.module, event))
    return trained and (event.written_back is True or wrapper.casts_weights)


def _computes_in_full_precision(wrapper: Wrapped) -> bool:
    """Whether a forward certainly uses the memory that `summon_full_params` gathers."""
    precision = str(wrapper.options.get("mixed_precision"))
    full = precision == "None" or "param_dtype=None" in precision or wrapper.weights_in != ""
    return full and "**" not in wrapper.options


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
        parts = set() if root is None else part_of_unit(groups, wrapper, root, event)
        parts = parts.difference(trace.submodules(*wrapper.ignored))
        has_parameters = root is None or any(trace.modules[one].own_parameters for one in parts)
        return wrapper if _is_known_unit(wrapper) and has_parameters else None
    return None


def _is_known_unit(wrapper: Wrapped) -> bool:
    """Whether it is known which parameters a wrapper shards, and which it ignores."""
    if not wrapper.ignored:
        return is_known_unit(wrapper)
    return shards(wrapper) and "**" not in wrapper.options and wrapper.units is not None


def _calls_unseen_units(wrapper: Wrapped, event: Called) -> bool:
    """Whether a model of a library, whose policy wraps classes of this library, is called itself."""
    return wrapper.keeps_rest and event.module == wrapper.inner
