"""`device_id`: the device on which a model is sharded.

FSDP1 shards on the `device_id`. FSDP2 shards on the current accelerator, or on the CPU if there is
none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.interpreter.torch_values import RankValue
from fsdplint.interpreter.values import Const, LibraryObject, Symbol, Unknown, Value
from fsdplint.migration.analysis.variables import definitions
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import DEVICE_WITHOUT_MESH
from fsdplint.migration.constructor import earlier_devices
from fsdplint.migration.context import Migration, expression, nodes
from fsdplint.migration.frameworks.fabric_names import is_for_fsdp2
from fsdplint.migration.text import atom
from fsdplint.source.source import Source
from fsdplint.syntax.layout import descend
from fsdplint.trace import MeshBuilt, ModuleMoved, ProcessGroupInit, Trace, Wrapped
from fsdplint.trace.torch_versions import MESH_SETS_DEVICE_SINCE

CURRENT = ("torch.cuda.current_device", "torch.accelerator.current_device_index")
NUMBERED = re.compile(r"""f["']cuda:""")  # an f-string with the number of the device
SETTERS = ("set_device", "set_device_index")
# Accelerators other than CUDA whose module in torch has `set_device`.
OTHERS = ("xpu", "npu", "hpu", "mtia")
# torch's module of this accelerator lacks what a DeviceMesh calls (seen with torch 2.13).
WITHOUT_MESH = "mps"


def kind(migration: Migration, source: Source, node: cst.BaseExpression | None) -> str:
    """The type of a device: "cuda", "cpu", "either" for one of both, another accelerator, or "" if it is
    unknown.
    """
    if node is None:
        return ""
    found = {_kind(value) for value in values(migration, source, node)}
    if not found and isinstance(node, cst.FormattedString) and NUMBERED.match(source.code(node)):
        return "cuda"
    if not found and isinstance(node, cst.Call):
        text = source.code(node)
        if re.search(r"current_device|cuda", text):
            return "cuda"
    if found == {"cpu"} and asks_for_cuda(migration) and not always_on_cpu(migration):
        return "either"
    if found == {"cuda"} and _may_be_cpu(migration, values(migration, source, node)):
        return "either"
    if len(found) == 1 and found <= {"cuda", "cpu", WITHOUT_MESH, *OTHERS}:
        return found.pop()
    if found >= {"cuda", "cpu"} or found >= {"cuda", WITHOUT_MESH}:
        return "either"
    if found == {"cpu", WITHOUT_MESH}:
        return WITHOUT_MESH
    return ""


def values(
    migration: Migration, source: Source, node: cst.BaseExpression, depth: int = 3
) -> list[Value]:
    """The values of a device: those of the runs, or the strings that the code writes."""
    found = migration.values(node)
    if found or not depth:
        return found
    if isinstance(node, cst.SimpleString):
        return [Const(node.evaluated_value)]
    parts: list[cst.CSTNode] = []
    if isinstance(node, cst.IfExp):
        parts = [node.body, node.orelse]
    elif isinstance(node, cst.Name):
        parts = [one.value for one in definitions(source, node) or ()]
    every = [
        values(migration, source, part, depth - 1) if isinstance(part, cst.BaseExpression) else []
        for part in parts
    ]
    return [value for one in every for value in one] if all(every) else []


def _kind(value: Value) -> str:
    if isinstance(value, RankValue):
        return "cuda"
    if isinstance(value, Const):
        if isinstance(value.value, int) and not isinstance(value.value, bool):
            return "cuda"
        if isinstance(value.value, str):
            return value.value.partition(":")[0]
    if isinstance(value, Symbol) and value.name in CURRENT:
        return "cuda"
    if isinstance(value, LibraryObject) and value.name == "torch.device":
        first = value.get("type", "0", "device")
        return _kind(first) if first is not None else ""
    if isinstance(value, Unknown) and NUMBERED.match(value.origin or ""):
        return "cuda"
    return ""


def _may_be_cpu(migration: Migration, found: list[Value]) -> bool:
    """Whether devices of CUDA come from code that takes the CPU on a machine without CUDA.

    The runs that were followed may all have found CUDA.
    """
    if not all(map(_is_device, found)) or not _chooses(migration, "cpu"):
        return False
    return _chooses(migration, "gloo") or not _needs_cuda(migration)


def _chooses(migration: Migration, name: str) -> bool:
    """Whether the code chooses a device or a backend by a test for CUDA."""
    return any(
        "cuda.is_available" in source.code(part.test)
        and any(_names(one, name) for one in (part.body, part.orelse))
        for source in migration.program.sources.values()
        if "cuda.is_available" in source.text
        for part in nodes(source)
        if isinstance(part, cst.IfExp)
    )


def _names(node: cst.BaseExpression, name: str) -> bool:
    """Whether an expression is a string, or a device of this name: `torch.device("cpu")`."""
    if isinstance(node, cst.Call) and len(node.args) == 1 and _ends_with(node.func, "device"):
        node = node.args[0].value
    return isinstance(node, cst.SimpleString) and node.evaluated_value == name


def _ends_with(node: cst.BaseExpression, name: str) -> bool:
    part = node.attr if isinstance(node, cst.Attribute) else node
    return isinstance(part, cst.Name) and part.value == name


def asks_for_cuda(migration: Migration) -> bool:
    """Whether the program tests for CUDA."""
    return any("cuda.is_available" in source.text for source in migration.program.sources.values())


def always_on_cpu(migration: Migration) -> bool:
    """Whether each model is certainly wrapped on the CPU, also where there is an accelerator."""
    wrapped = _wrapped(migration)
    return bool(wrapped) and all(
        event.device == "cpu" and not _lacks_cuda(trace) for trace, event in wrapped
    )


def is_setting(migration: Migration, source: Source, node: cst.BaseExpression | None) -> bool:
    """Whether a setting chooses between the CPU and CUDA, as `--backend gloo` on a machine with GPUs.

    FSDP2 shards on the accelerator of the machine, whatever the setting is.
    """
    if node is None:
        return False
    found = values(migration, source, node)
    if not all(_is_device(value) or _is_text(value) for value in found):
        return False
    found_kind = kind(migration, source, node)
    if not found_kind and found:
        return all(map(_is_device, found)) and not _needs_cuda(migration)
    return found_kind == "either" and any(
        event.device == "cpu" and not _lacks_cuda(trace) for trace, event in _wrapped(migration)
    )


def _needs_cuda(migration: Migration) -> bool:
    """Whether each run has a process group that works with CUDA only."""
    backends = [
        event.backend for trace in migration.program.traces for event in trace.of(ProcessGroupInit)
    ]
    return bool(backends) and all(one == "nccl" for one in backends)


def _is_device(value: Value) -> bool:
    return isinstance(value, LibraryObject) and value.name == "torch.device"


def _is_text(value: Value) -> bool:
    return isinstance(value, Const) and isinstance(value.value, str)


def _wrapped(migration: Migration) -> list[tuple[Trace, Wrapped]]:
    return [(trace, event) for trace in migration.program.traces for event in trace.of(Wrapped)]


def _lacks_cuda(trace: Trace) -> bool:
    """Whether a run found no CUDA, or counted the devices."""
    return any(
        (key == "torch.cuda.is_available()" and not holds) or "cuda.device_count" in key
        for key, holds in trace.decisions.items()
    )


def type_of(migration: Migration, source: Source, node: cst.BaseExpression) -> str:
    """The text that reads the type of a `torch.device`, or of a device's name."""
    text = expression(migration, source, node)
    if any(map(_is_text, values(migration, source, node))):
        return f"{migration.torch(source, node)}.device({text}).type"
    return f"{atom(text)}.type"


def type_text(
    migration: Migration, source: Source, at: cst.CSTNode, node: cst.BaseExpression | None
) -> str:
    """The text of the device's type for a mesh."""
    found = kind(migration, source, node)
    if node is not None and is_setting(migration, source, node):
        return type_of(migration, source, node)
    if found == "cpu" or found in OTHERS:
        return string_literal(source, found)
    if found == "cuda" or not asks_for_cuda(migration):
        return string_literal(source, "cuda")
    torch = migration.torch(source, at)
    return f"{string_literal(source, 'cuda')} if {torch}.cuda.is_available() else {string_literal(source, 'cpu')}"


def set_device(
    migration: Migration, source: Source, at: cst.CSTNode, node: cst.BaseExpression | None
) -> list[str]:
    """The lines that set the current device, empty if the program sets it itself.

    Raises:
        Blocked: FSDP2 does not shard on this device.
    """
    if node is None or (isinstance(node, cst.Name) and node.value == "None"):
        return []
    found = kind(migration, source, node)
    if found == WITHOUT_MESH:
        raise Blocked(source, node, DEVICE_WITHOUT_MESH(name=found))
    text = expression(migration, source, node)
    if found == "cpu" or re.search(r"current_device", text):
        return []
    if sets_device(migration) and not _sets_other_device(migration, source, node):
        return []
    if any(is_without_index(value) for value in values(migration, source, node)):
        return []
    if not sets_device(migration) and earlier_devices.is_set_above(migration, source, at, node):
        return []
    torch = migration.torch(source, at)
    line = f"{torch}.{found if found in OTHERS else 'cuda'}.set_device({text})"
    if is_setting(migration, source, node):
        cuda = string_literal(source, "cuda")
        return [f"if {type_of(migration, source, node)} == {cuda}:", f"\t{line}"]
    if found == "either":
        return [f"if {torch}.cuda.is_available():", f"\t{line}"]
    return [line]


def _sets_other_device(migration: Migration, source: Source, node: cst.BaseExpression) -> bool:
    """Whether a list chooses the device of a rank, and the program sets another expression.

    FSDP1 shards on this device, whichever is the current one.
    """
    chosen = {source.code(part) for part in _chosen_by_rank(migration, source, node)}
    set_ = {
        other.code(part)
        for other, call in _setters(migration)
        for arg in call.args
        for part in _chosen_by_rank(migration, other, arg.value)
    }
    return bool(chosen) and not chosen & set_


def _chosen_by_rank(
    migration: Migration, source: Source, node: cst.BaseExpression, depth: int = 3
) -> Iterator[cst.Subscript]:
    """The elements `devices[rank]` in an expression, or in the values of its variables."""
    for part in descend(node):
        if isinstance(part, cst.Subscript):
            indices = [one for element in part.slice for one in descend(element)]
            if any(isinstance(v, RankValue) for one in indices for v in migration.values(one)):
                yield part
        elif isinstance(part, cst.Name) and depth:
            for one in definitions(source, part) or ():
                if isinstance(one.value, cst.BaseExpression):
                    yield from _chosen_by_rank(migration, source, one.value, depth - 1)


def is_without_index(value: Value) -> bool:
    """Whether a value is a device such as "cuda" without the index of a rank's device."""
    if isinstance(value, LibraryObject) and value.name == "torch.device":
        first = value.get("type", "0", "device")
        more = value.get("index", "1")
        return more is None and first is not None and is_without_index(first)
    return isinstance(value, Const) and value.value in ("cuda", *OTHERS)


def sets_device(migration: Migration) -> bool:
    """Whether the program sets the current device somewhere."""
    return any(True for _ in _setters(migration))


def _setters(migration: Migration) -> Iterator[tuple[Source, cst.Call]]:
    """The calls that set the current device."""
    for source in migration.program.sources.values():
        for part in nodes(source):
            if isinstance(part, cst.Call) and isinstance(part.func, cst.Attribute):
                if part.func.attr.value in SETTERS:
                    yield source, part


def is_set(migration: Migration) -> bool:
    """Whether the current device is the rank's own without a line of the migration."""
    return (
        sets_device(migration)
        or on_cpu(migration)
        or one_rank(migration)
        or set_by_meshes(migration)
        or any(map(is_for_fsdp2, migration.sources))  # Fabric sets it
    )


def set_by_meshes(migration: Migration) -> bool:
    """Whether a mesh of the program sets the device before each model is wrapped.

    DeviceMesh sets the device from `LOCAL_RANK` if nothing has used the accelerator before, for
    instance by moving a model there. FSDP1 moves a model from the CPU to that device, too.
    """
    target = migration.program.options.target
    if target is not None and target.predates(MESH_SETS_DEVICE_SINCE):
        return False
    wrapped = _wrapped(migration)
    return bool(wrapped) and all(
        any(mesh.device_type == "cuda" for mesh in trace.before(event, MeshBuilt))
        and not any(trace.before(event, ModuleMoved))
        for trace, event in wrapped
    )


def one_rank(migration: Migration) -> bool:
    """Whether the program starts a group of one rank, which uses the first device anyway."""
    started = [
        source.parent(node)
        for source, node, full in migration.program.references("torch.distributed.")
        if full == "torch.distributed.init_process_group"
    ]
    return bool(started) and all(_starts_one_rank(migration, call) for call in started)


def _starts_one_rank(migration: Migration, call: cst.CSTNode | None) -> bool:
    given = call.args if isinstance(call, cst.Call) else ()
    sizes = [arg.value for arg in given if arg.keyword and arg.keyword.value == "world_size"]
    values = [value for size in sizes for value in migration.values(size)]
    if not values:
        return any(isinstance(size, cst.Integer) and size.value == "1" for size in sizes)
    return all(isinstance(value, Const) and value.value == 1 for value in values)


def on_cpu(migration: Migration) -> bool:
    """Whether the program does not mention CUDA."""
    return not any(
        re.search(r"cuda|nccl|local_rank|LOCAL_RANK", source.text)
        for source in migration.program.sources.values()
    )
