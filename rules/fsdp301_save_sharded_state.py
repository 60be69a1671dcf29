"""FSDP301: see the class."""

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
    Prepared,
    Ranks,
    Saved,
    StateLoaded,
    StateTaken,
    Trace,
    Wrapped,
)
from fsdplint.trace.queries.common import (
    class_name,
    only_fsdp2,
    optimizer_of,
    sharded_by_fsdp2,
    sharded_here,
    whole_file,
)
from fsdplint.trace.queries.data_parallelism import has_one_rank
from fsdplint.trace.queries.wrappers import prepared_by_framework, shards, unit_around, wrappers_of

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


OF_OPTIMIZER = (
    "An optimizer's `state_dict()` holds this rank's part, under FSDP1 too: every rank resumes with "
    "the moments of the rank that wrote the file."
)

OF_MODEL = "FSDP2's `state_dict()` holds DTensors, which have this rank's part of each tensor."
GATHER = (
    "Gather it on all ranks with `get_model_state_dict` (or `get_optimizer_state_dict`) "
    "and `StateDictOptions(full_state_dict=True, cpu_offload=True)`, write it on rank 0; or "
    "save all parts with `torch.distributed.checkpoint.save`."
)
OF_ACCELERATE = (
    "Call `accelerator.get_state_dict(model)` on all ranks, and write its result on the main "
    "process; `save_pretrained` gets it as `state_dict=`."
)


class SaveShardedState(Rule):
    """The state dict of a sharded model or of its optimizer is saved as if it were whole.

    ## What it does
    Finds `torch.save`, safetensors' `save_file` and `save_pretrained` of `model.state_dict()` where `fully_shard` shards
    the model, of `optimizer.state_dict()` where the optimizer's parameters are sharded (by FSDP1 too),
    or Accelerate shards it by FSDP2, of FSDP1's `SHARDED_STATE_DICT`, of `wrapper.module` and other parts of a unit of FSDP1, and of dicts
    of sharded parameters or of their parts on this rank (`to_local()`). Tensors stay sharded after `cpu()`, `clone()` or `to()`, under other names, and
    in a selection of the state dict. The finding also names the places where the program loads a file
    into the same model or optimizer, because they change with the file.

    These are fine: one file for each rank (the path depends on the rank),
    `torch.distributed.checkpoint.save`, and tensors after `full_tensor()`. FSDP304 finds a sharded model
    that is pickled itself.

    ## Why is this bad?
    FSDP1's `state_dict()` is whole by default. FSDP2's holds DTensors, and an optimizer's state dict
    holds this rank's part under both. If one rank writes the file, it has 1/N of the values; if all
    ranks write it, the last one wins. The save gives no error. Reading the file elsewhere ends with

        WeightsUnpickler error: ... `torch.distributed.tensor` must be imported to load DTensors

    or, in a process that has imported it, with `aten.copy_.default got mixed torch.Tensor and DTensor`.
    safetensors ends with "Attempted to access the data pointer on an invalid python storage". An FSDP1
    optimizer gives no error even then: every rank resumes with the moments of the rank that wrote the file.

    ## Fix safety
    Unsafe: all ranks gather the state with `get_model_state_dict` and `get_optimizer_state_dict`
    (`full_state_dict=True, cpu_offload=True`), and rank 0 writes it. The content of the file changes:
    it is whole now, and the optimizer's state is keyed by parameter names, which
    `set_optimizer_state_dict` reads. Rank 0 needs memory for the whole model.

    With `checkpoint = "dcp"` in the settings, all ranks write their parts with
    `torch.distributed.checkpoint.save` instead, into a folder with the name of the file, which
    `torch.distributed.checkpoint.load` reads. If the program reads the file or uses its path elsewhere,
    there is no fix, and the finding says why.

    There is no fix for an optimizer under FSDP1 (migrate the model), for a model of Accelerate, for a dict of parameters, or for
    `save_pretrained`, which gets the gathered state as `state_dict=`.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (state dicts)
    - pytorch/torchtitan, `docs/fsdp.md`: `model.state_dict()` is sharded
    - huggingface/accelerate#4206: a rank 0 slice instead of the adapter; volcengine/verl#1703: the file
      cannot be read elsewhere
    """

    code = "FSDP301"
    name = "save-sharded-state"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Saved):
            if not whole_file(event.api) or _has_file_of_each_rank(trace, event):
                continue
            if any(only_fsdp2(trace, m, event) for m in event.modules):
                continue  # the save fails: FSDP304
            if parts := list(_sharded_parts(trace, event)):
                yield self._finding_of_states(trace, event, parts)
            elif _has_parts_of_tensors(trace, event):
                yield self._finding_of_tensors(event)

    def _finding_of_states(
        self, trace: Trace, event: Saved, parts: list[tuple[StateTaken, str]]
    ) -> Finding:
        unit = next((part for part, _ in parts if _is_without_wrapper(trace, part)), None)
        if unit is not None:
            return self._finding_of_unit(trace, event, unit)
        names = " and ".join(dict.fromkeys(name for _, name in parts))
        names = f"the state of {names} is"
        if len({name for _, name in parts}) > 1:
            names = names.replace("the state", "the states").removesuffix("is") + "are"
        taken = [part for part, _ in parts]
        of_optimizers = all(optimizer_of(trace, part.of) is not None for part in taken)
        prepared = not of_optimizers and any(_prepared(trace, part) for part in taken)
        of = next((m for part in taken for m in _modules_of(trace, part)), None)
        finding = self.finding(
            event,
            f"{names} sharded but saved as if whole: the file holds one rank's part of each tensor",
            help=OF_ACCELERATE if prepared else GATHER,
            why=OF_OPTIMIZER if of_optimizers else OF_MODEL if prepared else "",
            because=[
                *((part, "taken here") for part in taken),
                *(sharded_here(trace, of, event) if of else []),
            ],
        )
        # No conditions of the finding: the file is wrong whether or not this program reads it.
        loads = ((load.site, "every rank loads a file here") for load in _loads(trace, taken))
        finding.related = (*finding.related, *loads)
        return finding

    def _finding_of_unit(self, trace: Trace, event: Saved, taken: StateTaken) -> Finding:
        return self.finding(
            event,
            f"the state of `{class_name(trace, taken.of)}` is taken without its FSDP1 wrapper: the file "
            "holds one rank's part of the tensors",
            help="Take `state_dict()` of the wrapper, on all ranks.",
            why="Only the wrapper's `state_dict()` gathers the parameters; `wrapper.module` sees the "
            "flat part of this rank, without an error.",
            because=[(taken, "taken here"), *sharded_here(trace, taken.of, event)],
        )

    def _finding_of_tensors(self, event: Saved) -> Finding:
        return self.finding(
            event,
            "sharded tensors are saved as if whole: the file holds one rank's part of each",
            help="Call `full_tensor()` on each of them, on all ranks, and write the file on rank 0; or "
            "take `get_model_state_dict` with `StateDictOptions(full_state_dict=True, "
            "cpu_offload=True)`.",
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.config.options import DCP
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.parts import save_parts
        from fsdplint.fixes.state_dict import gather_and_save

        if any(isinstance(event, Wrapped | Prepared) for event in finding.events):
            return None  # FSDP1 and frameworks have contexts and methods of their own for this
        if any(isinstance(event, Saved) and "pretrained" in event.api for event in finding.events):
            return None
        rewrite = Rewrite()
        if program.options.checkpoint == DCP:
            finding.blocker = save_parts(rewrite, finding, program)
            if finding.blocker is not None:
                return None
            title = "Save all ranks' parts with torch.distributed.checkpoint"
            return rewrite.fix(title, Safety.UNSAFE)
        if not gather_and_save(rewrite, finding, program):
            return None
        return rewrite.fix("Gather the whole state on all ranks, write it on rank 0", Safety.UNSAFE)


def _has_parts_of_tensors(trace: Trace, event: Saved) -> bool:
    """Whether the file has sharded parameters, or what `to_local()` of some gives on this rank.

    The part of a single rank is the whole tensor.
    """
    states = {taken.state for taken in trace.before(event, StateTaken)}
    alone = has_one_rank(trace)
    names = [*event.states, *[""] * (len(event.layouts) - len(event.states))]
    return any(
        (layout is Layout.LOCAL and name not in states and not alone)
        or (layout is Layout.SHARDED and not name)
        for name, layout in zip(names, event.layouts, strict=True)
    )


def _has_file_of_each_rank(trace: Trace, event: Saved) -> bool:
    """Whether each rank writes its part into its own file, here or at another place."""
    if event.ranks is not Ranks.ONE:
        return event.per_rank
    written = _owners(trace, event)
    others = (one for one in trace.of(Saved) if one.per_rank and one.ranks is not Ranks.ONE)
    beside = any(written & _owners(trace, one) for one in others)
    return beside or (event.per_rank and not written)


def _owners(trace: Trace, event: Saved) -> set[str]:
    """The models and optimizers whose states a file gets.

    A collective that one rank alone runs gives no state: FSDP501.
    """
    return {
        taken.of
        for taken in trace.before(event, StateTaken)
        if taken.state in event.states and not (taken.collective and taken.ranks.partial)
    }


def _modules_of(trace: Trace, taken: StateTaken) -> tuple[str, ...]:
    built = optimizer_of(trace, taken.of)
    return (taken.of,) if built is None else built.modules


def _sharded_parts(trace: Trace, event: Saved) -> Iterator[tuple[StateTaken, str]]:
    """The sharded state dicts in the file, each with what it is the state of, in words."""
    for taken in trace.before(event, StateTaken):
        if taken.state not in event.states:
            continue
        if taken.layout not in (Layout.SHARDED, Layout.LOCAL):
            continue
        built = optimizer_of(trace, taken.of)
        if built is not None:
            if _known_sharded(trace, built, event):
                yield taken, f"the optimizer `{built.class_name or 'optimizer'}`"
        elif _sharded_by_fsdp2(trace, taken, event) or _sharded_by_fsdp1(trace, taken, event):
            yield taken, f"`{class_name(trace, taken.of)}`"


def _loads(trace: Trace, taken: list[StateTaken]) -> Iterator[StateLoaded]:
    """Where every rank loads one file into the objects of which these are the states."""
    owners = {part.of for part in taken}
    read = {one.state for one in trace.of(Loaded) if whole_file(one.api) and not one.per_rank}
    places = set()
    for load in trace.of(StateLoaded):
        if load.into in owners and load.state in read and load.site not in places:
            places.add(load.site)
            yield load


def _is_without_wrapper(trace: Trace, taken: StateTaken) -> bool:
    """Whether a state is of a module in an FSDP1 unit, which has this rank's part of it."""
    return taken.layout is Layout.LOCAL and unit_around(trace, taken.of) is not None


def _sharded_by_fsdp2(trace: Trace, taken: StateTaken, event: Saved) -> bool:
    return _prepared(trace, taken) or sharded_by_fsdp2(trace, taken.of, event)


def _prepared(trace: Trace, taken: StateTaken) -> bool:
    """Whether a state is of a model that Accelerate shards by FSDP2."""
    return prepared_by_framework(trace, taken.of, taken, version=2) is not None


def _sharded_by_fsdp1(trace: Trace, taken: StateTaken, event: Saved) -> bool:
    if _is_without_wrapper(trace, taken):
        return True
    wrappers = wrappers_of(trace, taken.of, event) if taken.of in trace.modules else []
    return bool(wrappers) and all(map(shards, wrappers))


def _known_sharded(trace: Trace, built: OptimizerBuilt, event: Event) -> bool:
    if any(
        str(wrapped.options.get("sharding_strategy", "")).endswith("NO_SHARD")
        for wrapped in trace.before(event, Wrapped)
    ):
        return False  # every rank has all of it
    known = [module for module in built.modules if module in trace.modules]
    return any(
        trace.sharded_within(one, event) is not None
        or unit_around(trace, one) is not None
        or any(prepared_by_framework(trace, one, event, version=v) for v in (1, 2))
        for one in known
    )
