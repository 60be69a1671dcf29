"""`parallelize_module`, which makes parameters of layers DTensors, and context parallelism."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatch

from fsdplint.interpreter import local_columns
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.meshes import mesh_of
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.modules import as_module
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.sharded_parameters import distributes_by_hand
from fsdplint.interpreter.unknown_results import unknown_result
from fsdplint.interpreter.values import (
    Context,
    Dict,
    LibraryObject,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.trace import ContextParallel, TensorParallel

STYLES = TensorParallel.STYLES
# Styles that distribute inputs and outputs alone.
_OF_INPUTS = ("PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput")
_PARALLEL = "torch.distributed.tensor.parallel"
_EXPERIMENTAL = "torch.distributed.tensor.experimental"


@function(f"{_PARALLEL}.parallelize_module", f"{_PARALLEL}.api.parallelize_module")
def parallelize_module(run: Run, name: str, call: Call) -> Value:
    module = as_module(run, call.arg(0, "module"))
    if module is None:
        return unknown_result(call)
    mesh = mesh_of(run, call.arg(1, "device_mesh"))
    plan = call.arg(2, "parallelize_plan")
    plan = run.settle(plan) if plan is not None else Unknown()
    event = run.emit(
        TensorParallel,
        call.node,
        module=module.id,
        parts=tuple(_parts(run, module.id, plan)),
        without_module=tuple(_without_module(run, module.id, plan)),
        whole_mesh=mesh.id,
        dims=mesh.dims,
        splits_inputs=_splits_inputs(run, plan),
        whole_plan=_is_whole(run, module.id, plan),
    )
    _note_outputs(run, event, plan)
    return module


@function(f"{_EXPERIMENTAL}.context_parallel", f"{_EXPERIMENTAL}._attention.context_parallel")
def context_parallel(run: Run, name: str, call: Call) -> Value:
    mesh = mesh_of(run, call.arg(0, "mesh"))
    if mesh.id and not call.open:
        run.emit(ContextParallel, call.node, whole_mesh=mesh.id, dims=mesh.dims)
    return Context("harmless")


def _note_outputs(run: Run, event: TensorParallel, plan: Value) -> None:
    """Note what the outputs of the modules in a plan are."""
    styles = plan.items if isinstance(plan, Dict) else {"": plan}
    for path, held in styles.items():
        for module in _at(run, event.module, path.split(".") if path else []):
            local_columns.note_style(run, event, module, run.settle(held))


# Code that may take the input of a rank for a part of the batch, without a plan.
_SPLITS = re.compile(r"\b(from_local|distribute_tensor|local_map)\(")
_INPUTS = ("input_layouts", "input_kwarg_layouts")


def _splits_inputs(run: Run, plan: Value) -> bool:
    """Whether code of the program may take the inputs of the ranks for parts of a batch."""
    if any(_SPLITS.search(source.text) for source in run.project.sources.values()):
        return True
    styles = list(plan.items.values()) if isinstance(plan, Dict) else [plan]
    is_open = isinstance(plan, Dict) and plan.open
    return is_open or any(_splits_input(run, run.settle(style)) for style in styles)


def _splits_input(run: Run, style: Value) -> bool:
    """Whether a style may split its input by the first dimension, that of the batch."""
    if isinstance(style, Symbol):
        return not _is_style(style)
    if not isinstance(style, LibraryObject) or style.open or not _is_style(style):
        return True
    return any(_may_be_first(run, style.args[name]) for name in _INPUTS if name in style.args)


def _may_be_first(run: Run, layout: Value) -> bool:
    layout = run.settle(layout)
    if isinstance(layout, Sequence):
        return layout.open or any(_may_be_first(run, one) for one in layout.items)
    if isinstance(layout, Dict):
        return layout.open or any(_may_be_first(run, one) for one in layout.items.values())
    if is_none(layout):
        return False
    if not isinstance(layout, LibraryObject | Symbol):
        return True
    if not layout.name.endswith(".Shard"):
        return not layout.name.endswith(".Replicate")
    dim = layout.args.get("dim") if isinstance(layout, LibraryObject) else None
    return dim is None or constant(run.settle(dim)) in (0, None)


@function(*(f"{_PARALLEL}{inner}.{name}" for inner in ("", ".style")
            for name in (*sorted(STYLES), *_OF_INPUTS)))  # fmt: skip
def style(run: Run, name: str, call: Call) -> Value:
    """A style of a plan, which `parallelize_module` reads."""
    names = (*_INPUTS, "output_layouts", "use_local_output")
    given = {key: call.kwargs[key] for key in names if key in call.kwargs}
    return LibraryObject(name, given, open=call.open)


@function(*(f"torch.distributed.{library}.{name}" for name in ("Replicate", "Shard")
            for library in ("tensor", "_tensor", "tensor.placement_types")))  # fmt: skip
def shard(run: Run, name: str, call: Call) -> Value:
    """A placement, which styles get as a layout."""
    dim = call.arg(0, "dim")
    return LibraryObject(name, {"dim": dim} if dim is not None else {}, open=call.open)


def _is_whole(run: Run, module: str, plan: Value) -> bool:
    """Whether the parts of a plan are certainly all modules whose parameters are distributed."""
    if distributes_by_hand(run):
        return False
    if not isinstance(plan, Dict):
        return _is_style(plan)
    known = all(_is_style(run.settle(style)) for style in plan.items.values())
    paths = [path for path in plan.items if isinstance(path, str)]
    found = all(any(True for _ in _at(run, module, path.split("."))) for path in paths)
    return known and found and not plan.open and len(paths) == len(plan.items)


def _is_style(style: Value) -> bool:
    return isinstance(style, LibraryObject | Symbol) and style.name.startswith(f"{_PARALLEL}.")


def _parts(run: Run, module: str, plan: Value) -> Iterator[str]:
    """The modules whose parameters a plan distributes."""
    if not isinstance(plan, Dict):
        if _distributes(plan):
            yield module
        return
    for path, style in plan.items.items():
        if isinstance(path, str) and _distributes(run.settle(style)):
            yield from _at(run, module, path.split("."))


def _distributes(style: Value) -> bool:
    """Whether a style distributes the parameters of its module, not only inputs and outputs."""
    if not isinstance(style, LibraryObject | Symbol):
        return False
    return style.name.rpartition(".")[2] in STYLES


def _at(run: Run, module: str, path: list[str]) -> Iterator[str]:
    """The modules at a path with patterns, as `parallelize_module` finds them."""
    if not path:
        yield module
        return
    info = run.trace.modules.get(module)
    for name, child in info.children.items() if info is not None else ():
        if fnmatch(name, path[0]):
            yield from _at(run, child, path[1:])


def _without_module(run: Run, module: str, plan: Value) -> Iterator[str]:
    """The paths of a plan that certainly match no module."""
    for path in plan.items if isinstance(plan, Dict) else ():
        if isinstance(path, str) and path and not _may_match(run, module, path.split(".")):
            yield path


def _may_match(run: Run, module: str, path: list[str]) -> bool:
    info = run.trace.modules.get(module)
    if not path or info is None or not info.children_known or info.escaped or info.wrapper:
        return True
    if any("*" in name for name in info.children):
        return True
    several = any(name.isdigit() for name in info.children)  # one may stand for others
    return (several and path[0].isdigit()) or any(
        fnmatch(name, path[0]) and _may_match(run, child, path[1:])
        for name, child in info.children.items()
    )
