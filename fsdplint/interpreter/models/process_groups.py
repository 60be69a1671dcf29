"""The default process group: its creation, its end, and the queries of it."""

from __future__ import annotations

import re

from fsdplint.interpreter import unfinished_saves
from fsdplint.interpreter.decided_values import try_other_options
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.imports import can_do_without
from fsdplint.interpreter.meshes import rank_in_group, ranks_of_group
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.option_texts import option
from fsdplint.interpreter.ranks import WORLD_SIZE
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import RankValue
from fsdplint.interpreter.values import (
    Condition,
    Const,
    LibraryObject,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.trace import (
    Event,
    GroupMissed,
    MeshBuilt,
    ProcessGroupDestroyed,
    ProcessGroupInit,
    Ranks,
    Sharded,
)

DIST = "torch.distributed"
INITIALIZED = "dist.is_initialized()"  # the key of tests of the group, however they are written
# The parameters of `init_process_group`, in order.
_PARAMETERS = (
    "backend", "init_method", "timeout", "world_size", "rank", "store", "group_name", "pg_options",
    "device_id",
)  # fmt: skip
_FORMATTED = re.compile(r"""^[fF]["'](\w+://)""")


@function(f"{DIST}.init_process_group")
def init_group(run: Run, name: str, call: Call) -> Value:
    given = dict(zip(_PARAMETERS, call.args, strict=False)) | call.kwargs
    backend = constant(call.arg(0, "backend"))
    options = {key: _option(run.settle(value)) for key, value in given.items()}
    try_other_options(run, call)
    run.emit(
        ProcessGroupInit,
        call.node,
        backend=backend if isinstance(backend, str) else None,
        options=options | ({"**": "?"} if call.open else {}),
        tested=any(entry.key == INITIALIZED for entry in run.guards),
    )
    return Const(None)


@function(*(f"{DIST}.{name}" for name in ("HashStore", "TCPStore", "FileStore", "PrefixStore")))
def store(run: Run, name: str, call: Call) -> Value:
    return LibraryObject(name, {}, open=True)


def _option(value: Value) -> object:
    """The value of an argument in a trace; a device and an address with their known parts."""
    if isinstance(value, LibraryObject) and value.name == "torch.device":
        return _device(value)
    if isinstance(value, Unknown) and not value.is_default:
        return _address(value.origin)
    return option(value)


def _device(value: LibraryObject) -> str:
    kind, index = constant(value.get("0")), value.get("1") or value.get("index")
    if not isinstance(kind, str) or value.open:
        return "?"
    return kind if index is None or is_none(index) else f"{kind}:?"


def _address(origin: str) -> str:
    """The scheme of a formatted address without a query: "tcp://?" for `f"tcp://{host}:{port}"`."""
    found = _FORMATTED.match(origin)
    return f"{found[1]}?" if found and "rank" not in origin and "?" not in origin else "?"


@function(f"{DIST}.destroy_process_group")
def destroy_group(run: Run, name: str, call: Call) -> Value:
    group = call.arg(0, "group")
    if (group is None or is_none(group)) and not call.open:
        unfinished_saves.note_use(run)
        run.emit(ProcessGroupDestroyed, call.node)
    return Const(None)


# Queries ------------------------------------------------------------------------------------------


@function(f"{DIST}.get_rank")
def get_rank(run: Run, name: str, call: Call) -> Value:
    group = call.arg(0, "group")
    if group is not None and not is_none(group):
        return rank_in_group(run, group)
    if not call.values:
        note_use(run, name, call)
    return RankValue("global")


@function(f"{DIST}.get_world_size")
def world_size(run: Run, name: str, call: Call) -> Value:
    if not call.values:
        note_use(run, name, call)
    group = call.arg(0, "group")
    of_all = group is None or is_none(group) or ranks_of_group(run, group).whole
    return Unknown(origin=WORLD_SIZE if of_all else run.text(call.node))


@function(f"{DIST}.get_backend")
def backend(run: Run, name: str, call: Call) -> Value:
    if not call.values:
        note_use(run, name, call)
    return Unknown(origin=run.text(call.node))


@function("torch.cuda.is_available")
def is_cuda_available(run: Run, name: str, call: Call) -> Value:
    """A program with a group of NCCL alone runs on GPUs only."""
    begun = [event for event in run.trace.events if isinstance(event, ProcessGroupInit)]
    if begun and begun[-1].backend == "nccl":
        return Const(True)
    return Unknown(origin=f"{name}()")


def note_use(run: Run, name: str, call: Call) -> None:
    """Record a use of the default group while no group is known, unless an error is handled.

    Where a test has found a group, unknown code has created it.
    """
    if call.open or run.decisions.values_by_key.get(INITIALIZED) or _group_exists(run):
        return
    if not any(
        can_do_without(site.source, site.node) for site in (*run.stack, run.site(call.node))
    ):
        run.emit(GroupMissed, call.node, api=name)


@function(f"{DIST}.is_initialized", f"{DIST}.is_torchelastic_launched")
def is_initialized(run: Run, name: str, call: Call) -> Value:
    exists = _group_exists(run)
    if exists is not None:
        return Const(exists)
    # A condition, so that in `is_initialized() and get_rank() == 0` it decides about the call, too.
    return Condition(INITIALIZED, run.text(call.node), subject=INITIALIZED, relation="truth")


def _group_exists(run: Run) -> bool | None:
    """Whether the program has made the default group; None if that is unknown."""
    # A mesh, and `fully_shard` without a mesh, create the default group if there is none.
    kinds = (ProcessGroupInit, MeshBuilt, Sharded, ProcessGroupDestroyed)
    sides = {Ranks.ALL: (Ranks.ONE, Ranks.OTHERS)}
    here = sides.get(run.ranks(), (run.ranks(),))
    last: dict[Ranks, bool] = {}  # by side
    for event in reversed(run.trace.events):
        if not isinstance(event, kinds) or _may_come_later(run, event):
            continue
        if event.ranks is Ranks.SOME:  # it is unknown which ranks
            break
        for side in sides.get(event.ranks, (event.ranks,)):
            last.setdefault(side, not isinstance(event, ProcessGroupDestroyed))
        if last.keys() >= set(here):
            break
    found = {last.get(side) for side in here}
    return found.pop() if found in ({True}, {False}) else None


def _may_come_later(run: Run, event: Event) -> bool:
    """Whether a function that was handed to unknown code destroys the group.

    A handler of a signal or of the end of the program has not run yet.
    """
    handed = event.callbacks != tuple(run.callbacks) and bool(event.callbacks)
    return handed and isinstance(event, ProcessGroupDestroyed)
