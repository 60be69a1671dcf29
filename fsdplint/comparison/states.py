"""The states that a run takes and loads, and the files that it writes and reads."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.comparison.facts import Plan
from fsdplint.comparison.model_names import ModelNames
from fsdplint.comparison.state_names import gives_names
from fsdplint.trace import (
    Collective,
    Fsdp1Used,
    Layout,
    Loaded,
    OptimizerBuilt,
    Ranks,
    Saved,
    Sharding,
    StateLoaded,
    StateTaken,
    Trace,
    Wrapped,
)
from fsdplint.trace.arguments import (
    STATE,
    Argument,
    Arguments,
    Built,
    Constant,
    Named,
    OneOf,
    Opaque,
    PartOfModel,
)
from fsdplint.trace.queries.wrappers import holds_units

# FSDP2's sharded state is the counterpart of the local state that FSDP1's flat parameters have.
_LOCAL = OneOf((Constant("local shards"), Constant("sharded")))
_LAYOUTS: dict[Layout, Argument] = {
    Layout.FULL: Constant("whole"),
    Layout.SHARDED: Constant("sharded"),
    Layout.LOCAL: _LOCAL,
}
RANK_0 = "weights of rank 0 on all ranks"
_NO = Constant("no")
_TAKEN, _LOADED = "state taken", "state loaded"
_IS_TAKEN, _ON_RANK_0 = "state is taken", "state is only on rank 0"
OF_TAKEN_STATES = {_TAKEN, _IS_TAKEN, _ON_RANK_0}
_PATHS = ("checkpoint_id", "f", "1")


def add_states(plan: Plan, trace: Trace, names: ModelNames) -> None:
    """Add the facts about states and files."""
    for taken in trace.of(StateTaken):
        plain = taken.layout is Layout.PLAIN and not _is_inner(trace, taken.of, taken)
        plain = plain and taken.of in trace.modules
        if plain or not _is_sharded(trace, taken.of, taken) or gives_names(taken):
            continue
        subject = _subject(trace, names, taken.of)
        meant = Constant(Ranks.ALL.value) if _is_untyped(trace, taken) else None
        plan.add(_IS_TAKEN, subject, _ranks(trace, taken), taken, meant)
        plan.add(
            _TAKEN, subject, _layout(trace, taken), taken, _chosen_kind(trace, taken.of, taken)
        )
        plan.add(_ON_RANK_0, subject, _on_rank_0(trace, taken), taken)
    own = {one.state for one in trace.of(StateTaken) if not _is_sharded(trace, one.of, one)}
    sharded = {one.state for one in trace.of(StateTaken) if _is_sharded(trace, one.of, one)}
    for loaded in trace.of(StateLoaded):
        if not _is_sharded(trace, loaded.into, loaded):
            continue
        if loaded.broadcast and loaded.state not in sharded:
            plan.add(RANK_0, "", OneOf((Constant("yes"), Constant("no"))), loaded)
            if loaded.state in own:
                continue
        subject = _subject(trace, names, loaded.into)
        ranks: Argument = Constant(loaded.ranks.value)
        kind = _loaded_as(trace, loaded)
        if loaded.broadcast and loaded.state is None and loaded.file is None:
            # It may be the state that the model has, which `sync_module_states` sends as well.
            ranks, kind = OneOf((ranks, _NO)), OneOf((kind, _NO))
        plan.add("state is loaded", subject, ranks, loaded)
        expected = _chosen_kind(trace, loaded.into, loaded)
        plan.add(_LOADED, subject, kind, loaded, expected)
    _add_files(plan, trace, names)


def _is_sharded(trace: Trace, name: str, event: StateTaken | StateLoaded) -> bool:
    """Whether a module or optimizer is one of sharded parameters, as far as that is known."""
    if name not in trace.modules:
        return bool(trace.shardings(event))
    if trace.sharded_within(name, event) is not None or _is_inner(trace, name, event):
        return True
    return holds_units(trace, name, event)


def _is_inner(trace: Trace, name: str, event: StateTaken | StateLoaded) -> bool:
    """Whether it is the module inside of a wrapper of FSDP1, with a type of states for it."""
    kind = _kind_at(trace, event)
    wrappers = [one.module for one in trace.before(event, Wrapped) if one.inner == name]
    return _is_untyped(trace, event) or (kind is not None and kind.module in wrappers)


def _is_untyped(trace: Trace, event: StateTaken | StateLoaded) -> bool:
    """Whether it is the state of the module inside of a wrapper, whose type nothing chooses.

    FSDP1 gives and takes the rank's flat part of the root's parameters. The whole state is meant.
    """
    name = event.into if isinstance(event, StateLoaded) else event.of
    return (
        event.api in ("state_dict", "load_state_dict")
        and _kind_at(trace, event) is None
        and any(one.inner == name for one in trace.before(event, Wrapped))
    )


def _ranks(trace: Trace, event: StateTaken) -> Argument:
    """The ranks that take a state; all ranks may gather one that a rank takes for itself."""
    ranks = Constant(event.ranks.value)
    if _is_own(trace, event) and _is_whole(trace, event):
        return OneOf((ranks, Constant(Ranks.ALL.value)))
    return ranks


def _is_own(trace: Trace, event: StateTaken) -> bool:
    """Whether it is the state of an optimizer with the shards of this rank."""
    return event.layout is Layout.LOCAL and event.of not in trace.modules


def _chosen_kind(trace: Trace, name: str, event: StateTaken | StateLoaded) -> Argument | None:
    """The kind of states that FSDP1's API chooses where it has no effect, or only on a part.

    It has none on a model of FSDP2, and none on the root's parameters where the state is that of
    the module inside of the wrapper: without a choice, that state is meant to be whole. None for
    any other model, and where nothing is chosen.
    """
    of_fsdp2 = name in trace.modules and trace.sharded_within(name, event) is Sharding.FSDP2
    if _is_untyped(trace, event):
        return Constant("whole")
    without_effect = of_fsdp2 or _is_inner(trace, name, event)
    chosen = event.api in ("state_dict", "load_state_dict") and _type_at(trace, event) is not None
    return _of_type(trace, event) if without_effect and chosen else None


def _layout(trace: Trace, event: StateTaken) -> Argument:
    """The layout of a state; unknown if its tensors may be gathered one by one."""
    if _is_own(trace, event) and _is_whole(trace, event):
        return OneOf((*_LOCAL.values, Constant("whole")))
    gathered = any(one.api == "full_tensor" for one in trace.after(event, Collective))
    layout = _LAYOUTS.get(event.layout)
    if layout is None or (gathered and event.layout is Layout.SHARDED):
        return Opaque()
    return layout


def _is_whole(trace: Trace, event: StateTaken) -> bool:
    """Whether the state of an optimizer is taken where FSDP1 gives whole states.

    FSDP1 gives only what `FSDP.optim_state_dict` takes so. A migration gives what is meant.
    """
    return _of_type(trace, event) == Constant("whole")


def _on_rank_0(trace: Trace, event: StateTaken) -> Argument:
    """Whether the other ranks get nothing. FSDP1's type of optimizer states may say so."""
    if event.rank0_only and not event.api.startswith("FSDP."):
        return OneOf((Constant(True), Opaque()))  # the other ranks may not need it
    if event.api == "FSDP.full_optim_state_dict":
        given = trace.arguments.get(event.index, Arguments()).get("rank0_only", "3")
        return given if given is not None else Constant(event.rank0_only)
    if event.rank0_only or event.api != "FSDP.optim_state_dict":
        return Constant(event.rank0_only)
    kind = _type_at(trace, event)
    config = None if kind is None else kind.get("optim_state_dict_config", "3")
    if config is None or config == Constant(None):
        return Constant(False)
    if not isinstance(config, Built) or not config.complete:
        return Opaque()
    return config.get("rank0_only", "1") or Constant(False)


def _subject(trace: Trace, names: ModelNames, name: str) -> str:
    return names.path(name) if name in trace.modules else "optimizer"


def _loaded_as(trace: Trace, event: StateLoaded) -> Argument:
    """What kind of state a call takes: whole ones, or the shards of this rank."""
    if event.api != "load_state_dict":
        if event.full is None:
            return Opaque()
        return Constant("whole" if event.full else "sharded")
    if event.into in trace.modules:
        if trace.sharded_within(event.into, event) is Sharding.FSDP2:
            return Constant("sharded")
        return _of_type(trace, event)
    return OneOf((Constant("whole"), Constant("sharded")))


def _of_type(trace: Trace, event: StateTaken | StateLoaded) -> Argument:
    """The kind of states of FSDP1 that the last `state_dict_type` before a call chose."""
    given = _type_at(trace, event)
    if given is None:
        return Constant("whole")
    kind = given.get("state_dict_type", "1")
    if not isinstance(kind, Named):
        return Opaque()
    return Constant("whole" if kind.name.endswith("FULL_STATE_DICT") else "sharded")


def _type_at(trace: Trace, event: StateTaken | StateLoaded) -> Arguments | None:
    """The arguments of the last choice of a type of states before a call; None if there is none."""
    kind = _kind_at(trace, event)
    return None if kind is None else trace.arguments.get(kind.index, Arguments(complete=False))


def _kind_at(trace: Trace, event: StateTaken | StateLoaded) -> Fsdp1Used | None:
    """The last choice of a type of states before a call, of those that are about its model."""
    name = event.into if isinstance(event, StateLoaded) else event.of
    kinds = [
        one
        for one in trace.before(event, Fsdp1Used)
        if one.api in ("state_dict_type", "set_state_dict_type")
        and (
            name not in trace.modules
            or one.module not in trace.modules
            or name in trace.submodules(one.module)
            or one.module in trace.submodules(name)
        )
    ]
    return kinds[-1] if kinds else None


# Files --------------------------------------------------------------------------------------------


def _add_files(plan: Plan, trace: Trace, names: ModelNames) -> None:
    events: list[Saved | Loaded] = [*trace.of(Saved), *trace.of(Loaded)]
    for event in events:
        writes = isinstance(event, Saved)
        topic = "file is written" if writes else "file is read"
        subject = _file_format(event.api)
        plan.add(topic, subject, event.ranks.value, event)
        plan.add(f"path of a file that {topic[5:]}", subject, _path(trace, event), event)
        if isinstance(event, Saved):
            _add_content(plan, trace, event, names)
            for layout, expected in _layouts(trace, event):
                plan.add("state in a file", subject, layout, event, expected)


def _layouts(trace: Trace, event: Saved) -> Iterator[tuple[Argument, Argument | None]]:
    """The layouts of what a file holds, each with what is meant where it is another one."""
    taken = {one.state: one for one in trace.before(event, StateTaken)}
    states = [taken.get(name) for name in event.states]
    for number, layout in enumerate(event.layouts):
        state = states[number] if number < len(states) else None
        meant = None if state is None else _chosen_kind(trace, state.of, state)
        if layout is Layout.LOCAL and state is not None:
            yield _layout(trace, state), meant
        elif layout in _LAYOUTS or meant is not None:
            yield _LAYOUTS.get(layout, Opaque()), meant


def _add_content(plan: Plan, trace: Trace, event: Saved, names: ModelNames) -> None:
    """The keys of a dict that is written, and what is written under each."""
    content = _content(trace, event)
    way = _file_format(event.api)
    if content is None or _is_unknown(content):
        plan.gaps["content of a file"] = "the content of a file is unknown"
    if not isinstance(content, Built):
        return
    if content.name == STATE:
        plan.add("content of a file", way, _of_model(trace, content, names), event)
    if content.name != "dict" or not content.items:
        return
    keys = ", ".join(sorted(name for name, _ in content.items))
    value = Constant(keys) if content.complete else Opaque(code=keys)
    plan.add("content of a file", way, value, event)
    for name, part in content.items:
        subject = f"{way} {name}".strip()
        plan.add("content of a file under a key", subject, _of_model(trace, part, names), event)


def _content(trace: Trace, event: Saved) -> Argument | None:
    """What is written; `model.save_pretrained(folder)` takes the state itself."""
    given = trace.arguments.get(event.index, Arguments())
    if not event.api.endswith("save_pretrained"):
        return given.get("obj", "state_dict", "0")
    taken = [one for one in trace.before(event, StateTaken) if one.state in event.states]
    itself = Built(STATE, (("of", PartOfModel((taken[0].of,))),)) if taken else None
    return given.get("state_dict") or itself


def _is_unknown(content: Argument) -> bool:
    """Whether nothing of what is written is known, such as a dict with unknown keys only."""
    if isinstance(content, Built):
        return content.name == "dict" and not content.items and not content.complete
    return isinstance(content, Opaque)


def _of_model(trace: Trace, content: Argument, names: ModelNames) -> Argument:
    """What is written, with a state as that of a part of the model, or of an optimizer."""
    if not isinstance(content, Built):
        return content if isinstance(content, Constant) else Opaque()
    if content.name == STATE:
        owner = content.get("of")
        if isinstance(owner, PartOfModel) and all(one in trace.modules for one in owner.modules):
            return Constant(f"the state of {', '.join(map(names.path, owner.modules))}")
        numbers = {one.optimizer: n for n, one in enumerate(trace.of(OptimizerBuilt), 1)}
        if isinstance(owner, Constant) and owner.value in numbers:
            return Constant(f"the state of optimizer {numbers[str(owner.value)]}")
        return Opaque()
    empty = content.complete and not content.items and content.name in ("dict", "list", "tuple")
    return Constant("nothing") if empty else Opaque()


def _file_format(api: str) -> str:
    """How a file is written or read: by torch.save, or as a distributed checkpoint."""
    return "distributed checkpoint" if "checkpoint" in api else ""


def _path(trace: Trace, event: Saved | Loaded) -> Argument:
    given = trace.arguments.get(event.index, Arguments()).given
    for name in _PATHS if isinstance(event, Saved) else ("checkpoint_id", "f", "0"):
        value = given.get(name)
        if isinstance(value, Constant) and isinstance(value.value, str):
            return value
    return Opaque(event.path, event.path)
