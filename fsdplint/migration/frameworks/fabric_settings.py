"""The settings of Fabric that its strategy for FSDP1 reads by itself: devices and precision."""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.migration.analysis.components import full_program
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.lightning import (
    DEVICES_UNKNOWN,
    PRECISION_UNKNOWN,
    PRECISION_UNSUPPORTED,
    STRATEGY_ARGUMENT,
)
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.frameworks.fabric import FabricCall
from fsdplint.migration.frameworks.integers import is_integer, literal
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend

# What Fabric makes of the short names of precisions.
FULL_NAMES = {
    **{name: f"{name}-true" for name in ("32", "64")},
    **{"16": "16-mixed", "bf16": "bf16-mixed", "None": "32-true"},
}
SUPPORTED = ("32-true", "bf16-mixed", "bf16-true", "16-true")
BF16_NAMES = ("bf16-mixed", "bf16")
_TO_HALF = re.compile(  # what gives a model parameters of half precision
    r"(model|module|net)\w*\.((half|bfloat16)\(\)|to\([^)]*\bb?float16)"
    r"|torch_dtype=torch\.b?float16|set_default_dtype"
)
DEVICES = "the program trains on all devices of each machine"
DEVICES_DETAIL = (
    "A number of devices that the command line of Lightning gives (`fabric run --devices`) has to stand in "
    "`data_parallel_size`, too; otherwise Lightning raises an error."
)
REJECTED = "the precision 16-mixed raises an error"
REJECTED_DETAIL = "`ModelParallelStrategy` supports bf16-mixed, bf16-true, 16-true and 32-true."


def process_count(migration: Migration, source: Source, at: cst.CSTNode, fabric: FabricCall) -> str:
    """The text of the number of processes of a Fabric, where its strategy is made.

    Raises:
        Blocked: it is not known there.
    """
    devices = _devices(migration, source, at, fabric)
    nodes = _number(migration, source, at, fabric, "num_nodes")
    if nodes == "1":
        return devices
    if devices.isdigit() and nodes.isdigit():
        return str(int(devices) * int(nodes))
    return " * ".join(one if _is_factor(one) else f"({one})" for one in (devices, nodes))


def _is_factor(text: str) -> bool:
    return bool(re.fullmatch(r"[\w.]+(\([^()]*\))?", text))


def _devices(migration: Migration, source: Source, at: cst.CSTNode, fabric: FabricCall) -> str:
    arg = fabric.named.get("devices")
    value = literal(fabric.source, arg.value) if arg is not None else "auto"
    if arg is None:
        migration.note(DEVICES, source, at, detail=DEVICES_DETAIL)
    if value in ("auto", "-1", -1):
        return f"{migration.torch(source, at)}.cuda.device_count()"
    if isinstance(value, str) and value.isdigit() and int(value) > 0:
        return value
    if isinstance(value, list) and value:
        return str(len(value))
    return _number(migration, source, at, fabric, "devices")


def _number(
    migration: Migration, source: Source, at: cst.CSTNode, fabric: FabricCall, name: str
) -> str:
    """The text of an argument of Fabric that is a positive integer; "1" without it."""
    arg = fabric.named.get(name)
    if arg is None:
        return "1"
    value = literal(fabric.source, arg.value)
    is_number = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if is_number and not isinstance(arg.value, cst.Name):
        return str(value)
    seen = [options.get(name, ...) for options in fabric.options]
    program = full_program(migration.program)
    if is_number or (
        value is ...
        and all(one is ... or (isinstance(one, int) and one > 0) for one in seen)
        and is_integer(
            program, fabric.source, arg.value, at=at if source is fabric.source else None
        )
    ):
        if _has_same_value(source, at, fabric, arg.value):
            return expression(migration, source, arg.value)
        if is_number:
            return str(value)
    code = fabric.source.code(arg.value)
    raise Blocked(source, at, DEVICES_UNKNOWN(code=f"{name}={code}"))


def _has_same_value(
    source: Source, at: cst.CSTNode, fabric: FabricCall, node: cst.BaseExpression
) -> bool:
    """Whether an argument of Fabric has the same value where the strategy is made."""
    if source is not fabric.source:
        return False
    together = function_around(source, at) is function_around(source, fabric.node)
    start, end = source.span(at)[0], source.span(fabric.node)[1]
    bindings = bindings_of(source)
    if any(_sets_attribute(source, part, start, end) for part in descend(node)):
        return False
    for part in descend(node):
        if not isinstance(part, cst.Name):
            continue
        parent = source.parent(part)
        if isinstance(parent, cst.Attribute) and parent.attr is part:
            continue
        scope = bindings.owner(bindings.scope_at(part), part.value)
        if scope is None:
            continue  # a name of Python
        if not together and scope.kind != "module":
            return False
        targets = [source.span(target)[0] for target in scope.others.get(part.value, ())]
        if not together and len(targets) > 1:
            return False
        if any(start < target < end for target in targets):
            return False
    return True


def _sets_attribute(source: Source, node: cst.CSTNode, start: int, end: int) -> bool:
    """Whether an attribute is assigned between two places of a file."""
    return isinstance(node, cst.Attribute) and any(
        isinstance(part, cst.AssignTarget)
        and source.code(part.target) == source.code(node)
        and start < source.span(part)[0] < end
        for part in source.descend(source.tree)
    )


def precision_of(fabric: FabricCall) -> str | None:
    """The full name of the precision of a Fabric; None if it is chosen at run time."""
    arg = fabric.named.get("precision")
    value = literal(fabric.source, arg.value) if arg is not None else None
    return None if value is ... else FULL_NAMES.get(str(value), str(value))


def mixed_precision(
    migration: Migration, source: Source, at: cst.CSTNode, fabric: FabricCall
) -> tuple[str, str, str]:
    """The type of the policy that the strategy makes of the precision of Fabric; "" for no policy.

    A model that Fabric converts as a whole needs none. If the precision is chosen at run time, the
    second text is the test for this policy, and the third one the type where the test is false.

    Raises:
        Blocked: the strategy for FSDP2 rejects the precision, or it is not known.
    """
    if "plugins" in fabric.named:
        raise Blocked(source, at, STRATEGY_ARGUMENT(name="plugins"))
    precision = precision_of(fabric)
    if precision is None and fabric.is_trainer:
        migration.note(REJECTED, source, at, detail=REJECTED_DETAIL)
        test = 'self.trainer.precision == "bf16-mixed"'
        return "bfloat16", test, _full_precision(migration)
    if precision is None:
        node = fabric.named["precision"].value
        if not _has_same_value(source, at, fabric, node):
            raise Blocked(source, at, PRECISION_UNKNOWN(code=fabric.source.code(node)))
        migration.note(REJECTED, source, at, detail=REJECTED_DETAIL)
        names = ", ".join(f'"{name}"' for name in BF16_NAMES)
        text = expression(migration, source, node)
        return "bfloat16", f"{text} in ({names})", _full_precision(migration)
    if precision not in SUPPORTED:
        raise Blocked(source, at, PRECISION_UNSUPPORTED(precision=precision))
    if precision == "bf16-mixed":
        return "bfloat16", "", ""
    return (_full_precision(migration) if precision == "32-true" else ""), "", ""


def _full_precision(migration: Migration) -> str:
    """The type to compute in; "" where no parameters can be of another type than float32."""
    texts = (one.text for one in migration.program.sources.values())
    return "float32" if any(map(_TO_HALF.search, texts)) else ""
