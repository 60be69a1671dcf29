"""Checkpoints on disk: torch.save, torch.load and torch.distributed.checkpoint."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter import loaded_numbers, meta_device, plain_files, unfinished_saves
from fsdplint.interpreter.file_paths import (
    is_buffer,
    is_of_process,
    may_depend_on_rank,
    path_pattern,
)
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.later_reads import states_read_later
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.models.state_dicts import DCP
from fsdplint.interpreter.module_tree import sharding_of_parameters
from fsdplint.interpreter.one_rank_dicts import has_entries_on_one_rank
from fsdplint.interpreter.own_entries import holds_own_values, own_entries
from fsdplint.interpreter.position_tests import tested_position
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.ranks import depends_on_rank
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.saved_contents import contents, state_entries
from fsdplint.interpreter.sharded_parameters import must_be_sharded
from fsdplint.interpreter.stateful import load_states, with_states
from fsdplint.interpreter.torch_values import (
    HelperState,
    NoResult,
    ParametersOf,
    ShardTensor,
    StateValue,
    TensorValue,
)
from fsdplint.interpreter.values import (
    Const,
    Dict,
    LibraryObject,
    ModuleValue,
    OptimizerValue,
    RankLocal,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.source.positions import descend
from fsdplint.source.source import NodeSite
from fsdplint.syntax.read_keys import texts_that_may_read
from fsdplint.trace import (
    Layout,
    Loaded,
    Ranks,
    Saved,
    Sharding,
)


def emit_saved(
    run: Run,
    call: Call,
    api: str,
    value: Value,
    path: Value | None,
    *,
    collective: bool,
    per_rank: bool | None = None,
    dropped: bool = False,
    own_group: bool = False,
) -> None:
    """Emit the event of a file that is written.

    per_rank: whether the path differs between ranks; None: if it may differ.
    """
    found = contents(run, value)
    states = [f for f in found if isinstance(f, StateValue)]
    modules = [f for f in found if isinstance(f, ModuleValue)]
    parameters = [f for f in found if isinstance(f, ParametersOf | ShardTensor)]
    layouts = [s.layout for s in states] + [parameter_layout(run, p) for p in parameters]
    if any(type(f) is TensorValue and _is_of_shards(run, f) for f in found):
        layouts.append(Layout.LOCAL)
    entries = state_entries(run, value)
    of_process = run.in_own_folder or (path is not None and is_of_process(run.settle(path)))
    run.emit(
        Saved,
        call.node,
        api=api,
        states=tuple(s.id for s in states),
        modules=tuple(m.id for m in modules),
        helper_states=_helper_states(run, value),
        unread=tuple(s.id for key, s in entries if key and not _may_be_read(run, key)),
        layouts=tuple(layouts),
        per_rank=per_rank
        if per_rank is not None
        else path is None or may_depend_on_rank(run.settle(path)),
        path=path_pattern(run.settle(path)) if path is not None else "",
        collective=collective,
        dropped=dropped,
        own_group=own_group,
        of_position=tested_position(run) if collective and not own_group else "",
        own_entries=own_entries(run, value) if collective and not own_group else (),
        own_values=not collective and not of_process and holds_own_values(run, value),
        one_rank=_is_filled_on_one_rank(run, value),
    )


def _is_filled_on_one_rank(run: Run, value: Value, depth: int = 0) -> bool:
    """Whether a value has a dict of tensors that one rank fills, and the others leave empty."""
    value = run.settle(value)
    if not isinstance(value, Dict):
        return False
    if value.tensors and has_entries_on_one_rank(value):
        return run.ranks() is Ranks.ALL and not _is_tested(run, value)
    return depth < 2 and any(
        _is_filled_on_one_rank(run, one, depth + 1) for one in value.items.values()
    )


def _is_tested(run: Run, value: Value) -> bool:
    """Whether the program is here because of a test of a value, which may hold on one rank."""
    return any(
        run.evaluations.get(part) is value
        for entry in run.guards
        if isinstance(entry.guard.site, NodeSite)
        for part in descend(entry.guard.site.node)
    )


def _is_of_shards(run: Run, local: TensorValue) -> bool:
    """Whether the result of `to_local()` certainly is the part of a parameter that FSDP2 shards."""
    return sharding_of_parameters(run, ParametersOf(local.modules)) is Sharding.FSDP2


def _helper_states(run: Run, value: Value) -> tuple[str, ...]:
    """The states of schedulers and gradient scalers that a value holds."""
    return tuple(s.id for _, s in state_entries(run, value) if isinstance(s, HelperState))


def _may_be_read(run: Run, key: str) -> bool:
    return any(key in texts_that_may_read(source) for source in run.project.sources.values())


def parameter_layout(run: Run, parameters: ParametersOf | ShardTensor) -> Layout:
    """The layout of parameters at this point; UNKNOWN if they may be gathered."""
    if isinstance(parameters, ShardTensor):
        return Layout.SHARDED if parameters.must_be_dtensor else Layout.UNKNOWN
    if parameters.unsharded_copy or sharding_of_parameters(run, parameters) is None:
        return Layout.PLAIN
    return Layout.SHARDED if must_be_sharded(run, parameters) else Layout.UNKNOWN


@function("torch.save", "safetensors.torch.save_file")
def save(run: Run, name: str, call: Call) -> Value:
    path = call.arg(1, "f") or call.arg(1, "filename")
    emit_saved(run, call, name, call.arg(0, "obj") or call.arg(0, "tensors") or Unknown(), path,
          collective=False)  # fmt: skip
    saved, file = run.trace.events[-1], run.settle(path) if path is not None else None
    if isinstance(saved, Saved) and file is not None and is_buffer(file):
        run.buffers[file] = saved
    return Const(None)


@function(f"{DCP}.save", f"{DCP}.async_save", f"{DCP}.save_state_dict")
def dcp_save(run: Run, name: str, call: Call) -> Value:
    state, path = call.arg(0, "state_dict") or Unknown(), _checkpoint_path(run, call)
    if not name.endswith("save_state_dict"):
        state = with_states(run, run.settle(state), call)
    per_rank = _differs_between_ranks(path)
    unfinished_saves.note_use(run)
    is_statement = isinstance(run.source.parent(call.node), cst.Expr)
    emit_saved(
        run,
        call,
        name,
        state,
        path,
        collective=_takes_all_ranks(call),
        per_rank=per_rank,
        dropped=is_statement and name.endswith("async_save"),
        own_group=not is_none(call.kwargs.get("process_group", Const(None))) or call.open,
    )
    result = Unknown()
    unfinished_saves.note_save(run, name, result)
    return result


@function(f"{DCP}.FileSystemWriter", f"{DCP}.FileSystemReader",
          f"{DCP}.filesystem.FileSystemWriter", f"{DCP}.filesystem.FileSystemReader")  # fmt: skip
def storage(run: Run, name: str, call: Call) -> Value:
    path = call.arg(0, "path")
    return LibraryObject(name, {} if path is None else {"path": path}, call.open)


def _checkpoint_path(run: Run, call: Call) -> Value:
    """The folder of a distributed checkpoint."""
    path = call.kwargs.get("checkpoint_id")
    if path is not None and not is_none(path):
        return run.settle(path)
    place = call.kwargs.get("storage_writer") or call.kwargs.get("storage_reader")
    place = run.settle(place or (call.args[1] if len(call.args) > 1 else Unknown()))
    held = place.get("path") if isinstance(place, LibraryObject) else None
    return run.settle(held) if held is not None else Const("")


@function(f"{DCP}.load", f"{DCP}.load_state_dict")
def dcp_load(run: Run, name: str, call: Call) -> Value:
    meta_device.load_everywhere(run)
    path = _checkpoint_path(run, call)
    state = run.settle(call.arg(0, "state_dict") or Unknown())
    states = state if name.endswith("load_state_dict") else with_states(run, state, call)
    found = contents(run, states)
    ids = tuple(one.id for one in found if isinstance(one, StateValue))
    unfinished_saves.note_use(run)
    event = run.emit(
        Loaded,
        call.node,
        api=name,
        per_rank=_differs_between_ranks(path),
        path=path_pattern(path),
        collective=_takes_all_ranks(call),
        of_position=_position_in_group(run, call),
        states=ids,
        read_later=states_read_later(run, call, ids) if states is state else ids,
        optimizers=tuple(one.id for one in found if isinstance(one, OptimizerValue)),
        helper_states=_helper_states(run, states),
        empty=_is_empty(state)
        and not (call.open or "planner" in call.kwargs or _is_filled_elsewhere(run, call)),
    )
    if not name.endswith("load_state_dict"):
        load_states(run, state, states, call, path_pattern(path))
        if states is state:
            loaded_numbers.note_loaded(run, state, call, path_pattern(path))
    return NoResult(None, event=event)


def _is_empty(state: Value) -> bool:
    return isinstance(state, Dict) and not (state.items or state.tensors or state.open)


_FILLING = {"setdefault", "update"}


def _is_filled_elsewhere(run: Run, call: Call) -> bool:
    """Whether code of the same function puts something into the dict, under other conditions."""
    argument = call.node.args[0].value if isinstance(call.node, cst.Call) else None
    function: cst.CSTNode | None = call.node
    while function is not None and not isinstance(function, cst.FunctionDef | cst.Module):
        function = run.source.parent(function)
    if not isinstance(argument, cst.Name) or function is None:
        return False
    for node in descend(function):
        written = [one.target for one in node.targets] if isinstance(node, cst.Assign) else []
        holders = [one.value for one in written if isinstance(one, cst.Subscript)]
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            holders += [node.func.value] if node.func.attr.value in _FILLING else []
        if any(isinstance(one, cst.Name) and one.value == argument.value for one in holders):
            return True
    return False


def _differs_between_ranks(path: Value) -> bool:
    """Whether a path certainly differs between ranks: it depends on the rank or on its clock."""
    return depends_on_rank(path) or local_of(path) is not None


def _position_in_group(run: Run, call: Call) -> str:
    """As for `Collective.of_position`."""
    group = call.kwargs.get("process_group")
    if call.open or not (group is None or is_none(group)) or not _takes_all_ranks(call):
        return ""
    return tested_position(run)


def _takes_all_ranks(call: Call) -> bool:
    """Whether all ranks take part in a distributed checkpoint: not with `no_dist=True`."""
    no_dist = call.kwargs.get("no_dist")
    return no_dist is None or constant(no_dist) is False


@function("torch.load", "safetensors.torch.load_file")
def load(run: Run, name: str, call: Call) -> Value:
    path = run.settle(call.arg(0, "f") or call.arg(0, "filename") or Unknown())
    state = StateValue(run.new_id("state"), Layout.UNKNOWN, None, name)
    if path in run.buffers:
        run.buffers[path].per_rank = True  # each rank reads what it has written itself
    run.emit(
        Loaded,
        call.node,
        api=name,
        state=state.id,
        per_rank=may_depend_on_rank(path) or _is_from_outside(run, path),
        path=path_pattern(path),
        perhaps_waited=_may_have_waited(run, call),
    )
    part = local_of(path)
    if part is not None and part.part:  # a file of data: each rank has files of its own
        return Unknown(varying=True, library=name, rank_local=RankLocal(part.source, part=True))
    return state


def _may_have_waited(run: Run, call: Call) -> bool:
    """Whether code out of sight may have waited for other ranks since the last file was written."""
    written = [event.index for event in run.trace.of(Saved)]
    return bool(written) and plain_files.may_have_waited_at(run, call.node) > written[-1]


def _is_from_outside(run: Run, path: Value) -> bool:
    """Whether a caller that the program does not have may give another path on each rank."""
    return isinstance(path, Unknown) and not run.trace.complete
