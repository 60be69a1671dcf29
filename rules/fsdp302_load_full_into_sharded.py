"""FSDP302: see the class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Event,
    Layout,
    Loaded,
    OptimizerBuilt,
    Saved,
    Sharding,
    StateLoaded,
    StateTaken,
    Trace,
)
from fsdplint.trace.queries.checkpoint_formats import other_format
from fsdplint.trace.queries.common import (
    class_name,
    optimizer_of,
    sharded_by_fsdp2,
    sharded_here,
    whole_file,
)
from fsdplint.trace.queries.wrappers import shards, wrappers_of

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


Because = list[tuple[Event, str]]


class LoadFullIntoSharded(Rule):
    """A whole state dict is loaded into a sharded model as if it were sharded.

    ## What it does
    Finds `model.load_state_dict(state)` if `fully_shard` shards the model and the state holds whole
    tensors: read from a file with `torch.load` or safetensors (the same file on every rank), taken from
    a model that is not sharded, or gathered. Also finds `optimizer.load_state_dict` if the optimizer's
    parameters are sharded, and `set_model_state_dict` of whole tensors without `full_state_dict=True`.

    A state is fine if it comes from the sharded model itself, from one file for each rank, from
    `torch.distributed.checkpoint.load`, or from `distribute_tensor`. A path names one file for each rank
    if it depends on the rank, on the index of the device or on another value of the process.

    Also finds states of `FSDP.optim_state_dict` that an optimizer over FSDP1's parameters loads without
    `FSDP.optim_state_dict_to_load`, directly or from a file, and any file that all ranks load into such an
    optimizer without it.

    A load is not reported if the program writes the sharded state into the same file: it then reads
    DTensors (FSDP301 reports a file that all ranks write). A file with an optimizer's state is reported
    only if the program gathers the state and writes the file, because `optimizer.state_dict()` holds
    DTensors, also in a file of another run.

    ## Why is this bad?
    `load_state_dict` copies tensor by tensor into the sharded parameters, which accept only DTensors:

        RuntimeError: ... aten.copy_.default got mixed torch.Tensor and DTensor, need to convert all
        torch.Tensor to DTensor before calling distributed operators!

    With `assign=True`, the load succeeds and the next forward ends with "'Parameter' object has no
    attribute '_local_tensor'". The load of an optimizer succeeds too if the keys match, and the next
    `step()` ends with `aten.lerp_.Scalar got mixed torch.Tensor and DTensor`. Under FSDP1, the load ends with
    `ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's
    group`, or the next `step()` with tensors of different sizes.

    ## Fix safety
    Safe for a model: `set_model_state_dict` with `full_state_dict=True` shards each tensor as the
    parameter is sharded, also into parameters on the meta device. `strict` stays. The fix
    is unsafe if the result of the call is used, because missing parameters are not reported. Unsafe for
    an optimizer: `set_optimizer_state_dict` needs a state keyed by parameter names, as
    `get_optimizer_state_dict` returns it; a file with numbered parameters ends with a KeyError.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (state dicts)
    - pytorch/pytorch#136336: FSDP2's `load_state_dict` takes sharded states only
    """

    code = "FSDP302"
    name = "load-full-into-sharded"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(StateLoaded):
            api = event.api.rpartition(".")[2]
            by_setter = (
                api == "set_model_state_dict" and event.full is False and not event.broadcast
            )
            if not by_setter and api != "load_state_dict":
                continue
            built = optimizer_of(trace, event.into)
            modules = (event.into,) if built is None else built.modules
            sharded = next((m for m in modules if sharded_by_fsdp2(trace, m, event)), None)
            if sharded is None:
                if built is not None:
                    yield from self._check_unconverted(trace, event, built)
                continue
            origin = _full_tensor_evidence(trace, event)
            if origin is not None:
                name = class_name(trace, sharded) if built is None else built.class_name
                because = [*origin, *sharded_here(trace, sharded, event)]
                if by_setter:
                    yield self._without_option(event, name, because)
                else:
                    yield self._finding(event, name, because, optimizer=built is not None)

    def _check_unconverted(
        self, trace: Trace, event: StateLoaded, built: OptimizerBuilt
    ) -> Iterator[Finding]:
        """A state that FSDP1's methods made, which they also have to convert back."""
        kinds = {trace.sharded_within(module, event) for module in built.modules}
        if kinds != {Sharding.FSDP1}:
            return
        origin = _fsdp1_origin(trace, event)
        if origin is None and (read := _same_file_on_all_ranks(trace, event, built)) is not None:
            yield self.finding(
                event,
                f"every rank loads the same optimizer state into `{built.class_name}`, whose parameters "
                f"FSDP1 shards",
                why="The optimizer has this rank's part of each parameter, and takes a state of the same shape.",
                help="Save a state of `FSDP.optim_state_dict(model, optimizer)`, and convert it with "
                "`FSDP.optim_state_dict_to_load(model, optimizer, state)`.",
                because=[(read, "read here")],
            )
        if origin is not None:
            yield self.finding(
                event,
                f"an optimizer state of whole tensors is loaded into `{built.class_name}`, whose parameters "
                f"FSDP1 shards, without a conversion",
                why="The optimizer has this rank's part of each parameter, and takes a state of the same shape.",
                help="Convert it with `FSDP.optim_state_dict_to_load(model, optimizer, state)` first.",
                because=origin,
            )

    def _without_option(self, event: StateLoaded, name: str, because: Because) -> Finding:
        return self.finding(
            event,
            f"a state dict of whole tensors is set into `{name}`, which is sharded, without "
            f"`full_state_dict=True`",
            why="Without this option, `set_model_state_dict` and `set_optimizer_state_dict` take shards.",
            help="Pass `options=StateDictOptions(full_state_dict=True)`, which shards the tensors (and "
            "`broadcast_from_rank0=True` if only rank 0 has them).",
            because=because,
        )

    def _finding(
        self, event: StateLoaded, name: str, because: Because, *, optimizer: bool
    ) -> Finding:
        what = "an optimizer state" if optimizer else "a state dict"
        setter = "set_optimizer_state_dict" if optimizer else "set_model_state_dict"
        holder = (
            f"`{name}`, whose parameters are sharded,"
            if optimizer
            else f"`{name}`, which is sharded,"
        )
        return self.finding(
            event,
            f"{what} of whole tensors is loaded into {holder} with `load_state_dict`, which takes "
            f"DTensors only",
            help=f"Use `{setter}` with `StateDictOptions(full_state_dict=True)`: it shards the "
            f"tensors (and add `broadcast_from_rank0=True` if only rank 0 reads the file).",
            because=because,
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.state_dict import load_with_setter

        event = finding.events[0]
        if not isinstance(event, StateLoaded) or event.full is not None:
            return None
        if any(_into_fsdp1_optimizer(trace, event) for trace in program.traces):
            return None
        rewrite = Rewrite()
        safety = load_with_setter(rewrite, finding, program)
        if safety is None:
            return None
        return rewrite.fix("Shard the state while it is loaded", safety)


def _full_tensor_evidence(trace: Trace, event: StateLoaded) -> list[tuple[Event, str]] | None:
    """The events that say that the state holds whole tensors; None where it may not."""
    if event.layout is Layout.SHARDED:
        return None
    for other in trace.before(event, Loaded):
        if other.state is not None and other.state == event.state:
            if not whole_file(other.api) or other.per_rank or _may_be_sharded(trace, event, other):
                return None
            if other_format(trace, other) is not None:
                return None  # FSDP316
            return [(other, "read here")]
    if event.layout not in (Layout.FULL, Layout.PLAIN):
        return None
    taken = [t for t in trace.before(event, StateTaken) if t.state == event.state]
    return [(t, "taken here") for t in taken[-1:]]


def _into_fsdp1_optimizer(trace: Trace, event: StateLoaded) -> bool:
    """Whether the load at the place of an event is into an optimizer without FSDP2's parameters."""
    for load in trace.of(StateLoaded):
        built = optimizer_of(trace, load.into) if load.site == event.site else None
        if built is not None and not any(sharded_by_fsdp2(trace, m, load) for m in built.modules):
            return True
    return False


def _fsdp1_origin(trace: Trace, event: StateLoaded) -> Because | None:
    """The events that say that FSDP1 gathered a state, perhaps into a file; None if it did not."""
    made = {
        taken.state: taken
        for taken in trace.of(StateTaken)
        if taken.layout is Layout.FULL and taken.api.startswith("FSDP.")
    }
    if event.state in made:
        return [(made[event.state], "taken here")]
    for read in trace.before(event, Loaded):
        if read.state is None or read.state not in (event.state, event.file) or not read.path:
            continue
        saves = [saved for saved in trace.of(Saved) if saved.path == read.path]
        states = {state for saved in saves for state in saved.states} - _of_modules(trace)
        if states and states <= made.keys():
            return [(read, "read here")]
    return None


def _of_modules(trace: Trace) -> set[str]:
    """The states of modules, which no optimizer loads from a file that has states of both."""
    return {taken.state for taken in trace.of(StateTaken) if taken.of in trace.modules}


def _same_file_on_all_ranks(
    trace: Trace, event: StateLoaded, built: OptimizerBuilt
) -> Loaded | None:
    """Where all ranks read one file with an optimizer's state; None if each may have its own.

    FSDP301 reports a program that writes the state of one rank into the same file.
    """
    wrappers = [one for module in built.modules for one in wrappers_of(trace, module, event)]
    if event.ranks.partial or not all(map(shards, wrappers)):
        return None
    for read in trace.before(event, Loaded):
        if read.state is None or read.state != event.state or not read.path:
            continue
        written = any(saved.path == read.path for saved in trace.of(Saved))
        known = whole_file(read.api) and read.per_rank is False and not written
        return read if known and _knows_paths(trace, read) else None
    return None


def _knows_paths(trace: Trace, read: Loaded) -> bool:
    """Whether a path that looks the same on all ranks is: it may have a part such as `args.rank`."""
    whole = trace.entry is not None and "rank" not in read.path.lower()
    return whole or trace.producer == "runtime"


def _may_be_sharded(trace: Trace, event: StateLoaded, read: Loaded) -> bool:
    """Whether the file that is read may hold sharded tensors of that kind."""
    if optimizer_of(trace, event.into) is None:
        return bool(read.path) and any(
            layout is Layout.SHARDED
            for saved in trace.of(Saved)
            if saved.path == read.path
            for layout in _layouts(trace, saved, of_optimizer=False)
        )
    # An optimizer's state is sharded unless the program gathers it and reads its own files.
    saves = [saved for saved in trace.of(Saved) if whole_file(saved.api)]
    same = [saved for saved in saves if read.path and saved.path == read.path]
    layouts = [x for saved in same or saves for x in _layouts(trace, saved, of_optimizer=True)]
    return not layouts or any(x not in (Layout.FULL, Layout.PLAIN) for x in layouts)


def _layouts(trace: Trace, saved: Saved, *, of_optimizer: bool) -> Iterator[Layout]:
    """The layouts of the states of one kind that are written into one process's file.

    A state of unknown origin and layout may be an optimizer's.
    """
    kinds = {t.state: optimizer_of(trace, t.of) is not None for t in trace.of(StateTaken)}
    if whole_file(saved.api):
        for state, layout in zip(saved.states, saved.layouts, strict=False):
            origin = kinds.get(state, True if layout is Layout.UNKNOWN else None)
            if origin is of_optimizer:
                yield layout
