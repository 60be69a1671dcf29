"""States that an optimizer of the program makes with the shape of a parameter.

`torch.zeros(p.shape)` is a plain tensor. The parameter is one in FSDP1 and a DTensor in FSDP2, and no
operation takes both together. `torch.zeros_like(p)` is right for both.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.training import PLAIN_STATE
from fsdplint.migration.constructor.device import on_cpu
from fsdplint.migration.context import Migration, nodes
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import symbols_in
from fsdplint.trace import OptimizerBuilt, Sharding

TITLE = "Make the state of the optimizer like its parameter"
BASES = ("torch.optim.Optimizer", "torch.optim.optimizer.Optimizer")
MAKERS = {f"torch.{name}": f"{name}_like" for name in ("zeros", "ones", "empty", "rand", "randn")}
KEPT = {"dtype", "device"}


def rewrite(migration: Migration, source: Source) -> None:
    """Rewrite the states of the optimizers in a file that update a wrapped model."""
    names = _used_optimizers(migration)
    for node in nodes(source) if names else ():
        if isinstance(node, cst.ClassDef) and node.name.value in names and _derives(source, node):
            for name, loop in _parameters(node):
                for part in descend(loop.body):
                    if isinstance(part, cst.Call):
                        with migration.collecting(source, part):
                            _rewrite(migration, source, part, name)


def _used_optimizers(migration: Migration) -> set[str]:
    """The names of the program's optimizers that update a model which FSDP1 wraps."""
    return {
        event.class_name
        for trace in migration.program.traces
        for event in trace.of(OptimizerBuilt)
        if not event.library
        if any(trace.sharded_within(one, event) is Sharding.FSDP1 for one in event.modules)
    }


def _derives(source: Source, node: cst.ClassDef) -> bool:
    symbols = symbols_in(source)
    return any(symbols.get(base.value) in BASES for base in node.bases)


def _parameters(node: cst.ClassDef) -> Iterator[tuple[str, cst.For]]:
    """The variables of the loops over the parameters of a group, with the loops."""
    for part in descend(node.body):
        if not isinstance(part, cst.For) or not isinstance(part.target, cst.Name):
            continue
        over = part.iter
        if isinstance(over, cst.Subscript) and isinstance(over.slice[0].slice, cst.Index):
            key = over.slice[0].slice.value
            if isinstance(key, cst.SimpleString) and key.evaluated_value == "params":
                yield part.target.value, part


def _rewrite(migration: Migration, source: Source, call: cst.Call, parameter: str) -> None:
    """Rewrite `torch.zeros(p.shape, ...)`.

    Raises:
        Blocked: the device of the state may not be that of the parameter.
    """
    maker = MAKERS.get(symbols_in(source).get(call.func, ""))
    if maker is None or not call.args or not _is_shape(source, call.args[0], parameter):
        return
    named, rest = arguments(call, ("size",))
    dtype, device = named.get("dtype"), named.get("device")
    of_parameter = {f"{parameter}{via}" for via in ("", ".data", ".grad")}
    same_device = {f"{one}.device" for one in of_parameter}
    beside = on_cpu(migration) if device is None else source.code(device.value) in same_device
    if rest or set(named) - KEPT - {"size"} or not beside:
        raise Blocked(source, call, PLAIN_STATE(code=source.code(call)))
    torch = migration.torch(source, call)
    type_text = f"{torch}.{_default(migration)}" if dtype is None else source.code(dtype.value)
    same = type_text in {f"{one}.dtype" for one in of_parameter}
    more = "" if same else f", dtype={type_text}"
    migration.substitute(source, call, f"{torch}.{maker}({parameter}{more})")
    migration.step(source, call, TITLE)


def _default(migration: Migration) -> str:
    """The type of a tensor that is made without a type."""
    sources = migration.program.sources.values()
    is_set = any("set_default_dtype" in one.text for one in sources)
    return "get_default_dtype()" if is_set else "float32"


def _is_shape(source: Source, arg: cst.Arg, parameter: str) -> bool:
    """Whether an argument is the shape of a parameter, or of its gradient."""
    if arg.keyword is not None and arg.keyword.value != "size":
        return False
    shapes = {
        f"{parameter}{via}{end}" for via in ("", ".data", ".grad") for end in (".shape", ".size()")
    }
    return source.code(arg.value) in shapes
